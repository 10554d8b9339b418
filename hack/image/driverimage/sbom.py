# SPDX-License-Identifier: Apache-2.0
"""Which packages is the image made of, to the byte? A bill of materials that scanners read, and from which one can build again.

The document is CycloneDX 1.5 in JSON, with the fields that this needs. It has no random number and no time but the image's, so
that the same image has the same document.
"""

import hashlib
import json
import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from driverimage.tree import ImageError

SUFFIX = ".cdx.json"
LABEL = "dev.dra-driver.sbom"  # the image names its bill of materials: "sha256:…"
REVISION = "org.opencontainers.image.revision"
DISTRIBUTION = "debian-12"
PURL = re.compile(
    r"pkg:(?P<kind>deb/debian|pypi)/(?P<name>[^/@?#]+)@(?P<version>[^/@?#]+)(?:\?(?P<more>[^#]*))?"
)
_NAMESPACE = uuid.UUID("a0a8a7bc-4b0c-5d0e-8d25-7b6a3f1f6f6e")  # of this project's documents


@dataclass(frozen=True, slots=True, order=True)
class Component:
    """One package as it was fetched: a .deb ("deb/debian") or a wheel ("pypi"). Only the former names its architecture.

    `inside` has the libraries that are linked into a wheel's programs, with their versions. It follows from the bytes of the wheel, so it
    makes no package another one.
    """

    kind: str
    name: str
    version: str
    architecture: str
    sha256: str
    inside: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def purl(self) -> str:
        """Its package URL."""
        plain = f"pkg:{self.kind}/{quote(self.name, safe='')}@{quote(self.version, safe=':')}"
        more = f"?arch={self.architecture}&distro={DISTRIBUTION}" if self.architecture else ""
        return plain + more

    def __str__(self) -> str:
        return f"{self.version} ({self.architecture or 'wheel'}, sha256 {self.sha256[:16]}…)"


@dataclass(frozen=True, slots=True)
class Subject:
    """The image that a document is about. `layers` maps what a layer is to its SHA-256."""

    name: str
    version: str
    created: int
    revision: str
    layers: Mapping[str, str]


def of_file(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def dump(components: Iterable[Component]) -> str:
    """Components as they are kept beside the layers that were made of them."""
    rows = [
        [one.kind, one.name, one.version, one.architecture, one.sha256, one.inside]
        for one in sorted(components)
    ]
    return json.dumps(rows)


def load(text: str) -> tuple[Component, ...]:
    """What `dump` wrote."""
    return tuple(
        Component(*row, inside=tuple((name, version) for name, version in inside))
        for *row, inside in json.loads(text)
    )


def document(subject: Subject, components: Sequence[Component], driver_sha256: str) -> bytes:
    """The bill of materials of an image: its packages and the driver's own wheel."""
    entries = [_entry(one) for one in sorted(components)]
    entries.append(_driver(subject, driver_sha256))
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(subject.created)),
            "component": _image(subject),
        },
        "components": entries,
        "dependencies": [{"ref": "image", "dependsOn": [entry["bom-ref"] for entry in entries]}],
    }
    number = uuid.uuid5(_NAMESPACE, json.dumps(content, sort_keys=True))
    whole = {"serialNumber": f"urn:uuid:{number}", **content}
    return (json.dumps(whole, indent=2, sort_keys=True) + "\n").encode()


def _entry(component: Component) -> dict[str, object]:
    entry: dict[str, object] = {
        "type": "library",
        "bom-ref": component.purl,
        "name": component.name,
        "version": component.version,
        "purl": component.purl,
        "hashes": _hashes(component.sha256),
    }
    within = [_linked(component.purl, *one) for one in component.inside]
    return entry | ({"components": within} if within else {})


def _linked(wheel: str, name: str, version: str) -> dict[str, object]:
    """A library inside a wheel. No index of packages has it, and its version is left out where the program does not say it."""
    purl = f"pkg:generic/{name}"
    entry: dict[str, object] = {"type": "library", "bom-ref": f"{wheel}#{name}", "name": name}
    if not version:
        return entry | {"purl": purl}
    return entry | {"version": version, "purl": f"{purl}@{quote(version, safe='')}"}


def _driver(subject: Subject, sha256: str) -> dict[str, object]:
    return {
        "type": "application",
        "bom-ref": "driver",
        "name": "dra-driver",
        "version": subject.version,
        # "pypi" would claim that a public index has it.
        "purl": f"pkg:generic/dra-driver@{quote(subject.version, safe='')}",
        "hashes": _hashes(sha256),
    }


def _image(subject: Subject) -> dict[str, object]:
    properties = [
        {"name": f"dra-driver:layer:{what}", "value": f"sha256:{digest}"}
        for what, digest in subject.layers.items()
    ]
    if subject.revision:
        properties.append({"name": REVISION, "value": subject.revision})
    return {
        "type": "container",
        "bom-ref": "image",
        "name": subject.name,
        "version": subject.version,
        "properties": properties,
    }


def _hashes(sha256: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": sha256}]


def read(path: Path) -> tuple[Component, ...]:
    """The packages that a bill of materials names; everything else in it is no matter here."""
    try:
        return _libraries(json.loads(path.read_bytes()))
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ImageError(
            f"{path} is no bill of materials of this build ({error}); give the *{SUFFIX} file that lay beside an image"
        ) from error


def _libraries(whole: Any) -> tuple[Component, ...]:
    if (whole["bomFormat"], whole["specVersion"]) != ("CycloneDX", "1.5"):
        raise ValueError("it is not CycloneDX 1.5")
    return tuple(_library(entry) for entry in whole["components"] if entry["type"] == "library")


def _library(entry: Any) -> Component:
    match = PURL.fullmatch(entry["purl"])
    hashes = {one["alg"]: one["content"] for one in entry["hashes"]}
    if match is None or not re.fullmatch("[0-9a-f]{64}", hashes["SHA-256"]):
        raise ValueError(f"{entry['name']} has no package URL of ours, or no SHA-256")
    more = dict(pair.partition("=")[::2] for pair in (match["more"] or "").split("&"))
    return Component(
        match["kind"],
        unquote(match["name"]),
        unquote(match["version"]),
        more.get("arch", ""),
        hashes["SHA-256"],
    )


def refuse_others(wanted: Sequence[Component], found: Sequence[Component], path: Path) -> None:
    """Raise ImageError, naming each package, unless these are the packages that the document names."""
    by_name = {(one.kind, one.name): one for one in found}
    named = {(one.kind, one.name): one for one in wanted}
    differing = [
        _difference(key[1], named.get(key), by_name.get(key))
        for key in sorted(by_name.keys() | named.keys())
        if named.get(key) != by_name.get(key)
    ]
    if differing:
        raise ImageError(
            f"the image would not be made of what {path} names:\n  "
            + "\n  ".join(differing)
            + "\nbuild from the commit that it names, with package sources of its day; or without --sbom, which writes a new one"
        )


def _difference(name: str, wanted: Component | None, found: Component | None) -> str:
    if wanted is None:
        return f"{name}: it has none, here is {found}"
    if found is None:
        return f"{name}: it has {wanted}, here is none"
    return f"{name}: it has {wanted}, here is {found}"
