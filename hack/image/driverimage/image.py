# SPDX-License-Identifier: Apache-2.0
"""The image as a whole: three layers, the lowest for years, the middle one for months, the top for each commit.

The two lower ones are remembered, so an image of another tag or of other code costs seconds.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from driverimage import archive, assemble, bytecode, cache, debian, oci, sbom, wheels
from driverimage.archive import Layer
from driverimage.sbom import Component
from driverimage.tree import ImageError, merged, size, tar, untar

ROOT = Path(__file__).resolve().parents[3]
COMPONENTS = "components.json"


@dataclass(frozen=True, slots=True)
class Image:
    """What was built: where it is, its identity, the bytes of its parts by layer, and its bill of materials."""

    path: Path
    name: str
    identity: str
    sizes: Mapping[str, Mapping[str, int]]
    sbom: Path
    digest: str = ""
    """Of the manifest in the OCI layout, if one was written: what a registry calls the image."""


def constant(source: Path, name: str) -> str:
    """A name or the version that a source tree says it has."""
    file = source / "dra_driver" / "__init__.py"
    found = (
        re.search(rf'^{name} = "([^"]+)"$', file.read_text(), re.MULTILINE)
        if file.is_file()
        else None
    )
    if found is None:
        raise ImageError(f'{file} has no line {name} = "…"; is {source} the driver\'s source?')
    return found[1]


def version_of(source: Path) -> str:
    """The version that a source tree says it has."""
    return constant(source, "__version__")


NAME = constant(ROOT, "IMAGE")


def _git(source: Path, *arguments: str) -> str:
    """What git says about a source tree; nothing where there is no git, or no clone."""
    if shutil.which("git") is None:
        return ""
    ended = subprocess.run(
        ["git", *arguments], cwd=source, capture_output=True, text=True, check=False
    )
    return ended.stdout.strip() if ended.returncode == 0 else ""


def creation_time(source: Path) -> int:
    """SOURCE_DATE_EPOCH, else the time of the commit, else the beginning of time."""
    text = os.environ.get("SOURCE_DATE_EPOCH") or _git(source, "log", "-1", "--format=%ct") or "0"
    if not text.isdecimal():
        raise ImageError(f"SOURCE_DATE_EPOCH is {text!r}: give seconds since 1970, or unset it")
    return int(text)


def _make_ground(lock: Path, versions: Mapping[str, str], target: Path) -> None:
    """The two layers below the driver, which packages they are made of, and what each of their parts weighs."""
    with tempfile.TemporaryDirectory() as temporary:
        packages, downloads = Path(temporary, "debian"), Path(temporary, "wheels")
        packages.mkdir()
        downloads.mkdir()
        debian.download(packages, versions)
        wheels.download(lock, downloads, wheels.foreign(debian.PYTHON, platform.machine()))
        taken = [*debian.components(packages), *wheels.components(downloads)]
        (target / COMPONENTS).write_text(sbom.dump(taken))
        libraries = assemble.libraries(downloads, debian.LAYOUT)
        system = debian.parts(packages, merged(libraries.values()))
    sizes: dict[str, dict[str, int]] = {}
    with bytecode.on_disk(merged(system.values())) as root:
        python = bytecode.Python(root, debian.LAYOUT)
        for layer, sources in (("system", system), ("libraries", libraries)):
            parts = assemble.without_sources(python, sources)
            (target / f"{layer}.tar").write_bytes(tar(merged(parts.values())))
            sizes[layer] = {name: size(files) for name, files in parts.items()}
    (target / "sizes.json").write_text(json.dumps(sizes))


def ground(source: Path, given: Path | None = None) -> Path:
    """The folder with the layers below the driver, built now if need be, of the packages of a bill of materials if one is given.

    Raises ImageError, naming them, when other packages would be in it.
    """
    lock = assemble.lock_of(source)
    wanted = sbom.read(given) if given else ()
    versions = {one.name: one.version for one in wanted if one.kind == "deb/debian"}
    inputs = (*debian.locate(versions), platform.machine())
    name = cache.key([lock.read_bytes(), *(line.encode() for line in inputs)])
    folder = cache.kept(name, lambda target: _make_ground(lock, versions, target))
    if given:
        sbom.refuse_others(wanted, components(folder), given)
    return folder


def components(folder: Path) -> tuple[Component, ...]:
    """The packages that the layers of a folder are made of."""
    return sbom.load((folder / COMPONENTS).read_text())


def labels(source: Path, version: str) -> dict[str, str]:
    """What people ask an image: which project, which version, which commit."""
    changed = _git(source, "status", "--porcelain")
    revision = "" if changed else _git(source, "rev-parse", "HEAD")
    prefix = "org.opencontainers.image"
    return {
        f"{prefix}.title": constant(source, "PROJECT"),
        f"{prefix}.description": "Dynamic Resource Allocation driver for accelerators",
        f"{prefix}.licenses": "Apache-2.0",
        f"{prefix}.version": version,
        **({f"{prefix}.revision": revision} if revision else {}),
    }


def build(
    output: Path,
    *,
    version: str = "",
    name: str = NAME,
    source: Path = ROOT,
    given: Path | None = None,
    layout: Path | None = None,
) -> Image:
    """Write the image of a source tree as a docker-archive, tagged with its version or another, and what it is made of beside it.

    `given` is a bill of materials: then of these packages, or not at all. `layout` is a folder for the same image as an OCI layout.
    """
    tag = version or version_of(source)
    lower = ground(source, given)
    sizes = json.loads((lower / "sizes.json").read_text())
    with bytecode.on_disk(untar((lower / "system.tar").read_bytes())) as root:
        driver, wheel = assemble.driver(source, bytecode.Python(root, debian.LAYOUT))
    sizes["driver"] = {"dra-driver": size(driver)}
    layers = [Layer(what, (lower / f"{what}.tar").read_bytes()) for what in ("system", "libraries")]
    layers.append(Layer("driver", tar(driver)))
    told = labels(source, tag)
    created = creation_time(source)
    digests = {layer.what: layer.digest for layer in layers}
    subject = sbom.Subject(name, tag, created, told.get(sbom.REVISION, ""), digests)
    bill = sbom.document(subject, components(lower), wheel)
    told[sbom.LABEL] = f"sha256:{hashlib.sha256(bill).hexdigest()}"
    config = archive.configuration(layers, created=created, labels=told)
    identity = archive.write(output, f"{name}:{tag}", layers, config)
    beside = output.with_name(output.name.removesuffix(".tar") + sbom.SUFFIX)
    beside.write_bytes(bill)
    digest = oci.write(layout, tag, layers, config) if layout else ""
    return Image(output, f"{name}:{tag}", identity, sizes, beside, digest)
