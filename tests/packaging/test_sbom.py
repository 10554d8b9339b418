# SPDX-License-Identifier: Apache-2.0
"""Does the image's bill of materials say what is in it, in CycloneDX's own form, and does a build from one refuse all else?"""

import hashlib
import importlib.util
import json
import platform
import re
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from driverimage import cache, debian, image, inside, sbom, wheels
from driverimage.sbom import Component, Subject
from driverimage.tree import ImageError

ROOT = Path(__file__).resolve().parents[2]
LIBC = Component("deb/debian", "libc6", "2.36-9+deb12u14", "amd64", "a" * 64)
ZLIB = Component("deb/debian", "zlib1g", "1:1.2.13.dfsg-1", "amd64", "b" * 64)
SSL = Component("deb/debian", "libssl3", "3.0.22-1~deb12u2", "amd64", "c" * 64)
GRPC = Component("pypi", "grpcio", "1.76.0", "", "d" * 64)
ALL = (LIBC, SSL, ZLIB, GRPC)
SUBJECT = Subject("dra-driver/dra-driver", "1.2.3", 86_400, "e" * 40, {"system": "f" * 64})

# CycloneDX 1.5, as far as our documents go: which fields an object may have, which it must have, and their form.
FORMS: dict[str, dict[str, str]] = {
    "bom": {"bomFormat": r"CycloneDX", "specVersion": r"1\.5", "serialNumber": r"urn:uuid:[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}"},
    "component": {"type": r"application|framework|library|container|platform|operating-system|device|device-driver|firmware|file|machine-learning-model|data", "name": r"(?s).+", "version": r".*", "bom-ref": r".+", "purl": r"pkg:[a-z][a-z0-9.+-]*/.+"},
    "hash": {"alg": r"MD5|SHA-1|SHA-256|SHA-384|SHA-512|SHA3-256|SHA3-384|SHA3-512|BLAKE2b-256|BLAKE2b-384|BLAKE2b-512|BLAKE3", "content": r"[a-fA-F0-9]{32}|[a-fA-F0-9]{40}|[a-fA-F0-9]{64}|[a-fA-F0-9]{96}|[a-fA-F0-9]{128}"},
    "property": {"name": r".+", "value": r".*"},
    "metadata": {"timestamp": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"},
    "dependency": {"ref": r".+"},
}  # fmt: skip
MUST = {
    "bom": {"bomFormat", "specVersion"},
    "component": {"type", "name"},
    "hash": {"alg", "content"},
    "property": set(),
    "metadata": set(),
    "dependency": {"ref"},
}
# Field -> what its items, or its value, are.
INSIDE = {
    "bom": {"components": "component", "dependencies": "dependency", "metadata": "metadata"},
    "component": {"components": "component", "hashes": "hash", "properties": "property"},
    "metadata": {"component": "component", "properties": "property"},
}
OTHERS = {"bom": {"version"}, "dependency": {"dependsOn"}}


def faults(found: Any, kind: str = "bom", where: str = "") -> Iterator[str]:
    """What of a document is against the specification."""
    inside = INSIDE.get(kind, {})
    known = FORMS[kind].keys() | inside.keys() | OTHERS.get(kind, set())
    yield from (f"{where}: unknown {name}" for name in found.keys() - known)
    yield from (f"{where}: no {name}" for name in MUST[kind] - found.keys())
    for name, form in FORMS[kind].items():
        value = found.get(name)
        if value is not None and not (isinstance(value, str) and re.fullmatch(form, value)):
            yield f"{where}: {name} is {value!r}"
    for name, within in inside.items():
        value = found.get(name, [])
        for number, item in enumerate(value if isinstance(value, list) else [value]):
            yield from faults(item, within, f"{where}/{name}[{number}]")
    if kind == "bom":
        yield from reference_faults(found)


def reference_faults(found: Any) -> Iterator[str]:
    references = [found["metadata"]["component"]["bom-ref"]]
    entries = [
        *found["components"],
        *chain(*(e.get("components", []) for e in found["components"])),
    ]
    references += [entry["bom-ref"] for entry in entries]
    if len({*references}) != len(references):
        yield "a bom-ref is there twice"
    if not (isinstance(found["version"], int) and found["version"] >= 1):
        yield "version is no positive number"
    for one in found["dependencies"]:
        for reference in (one["ref"], *one["dependsOn"]):
            if reference not in references:
                yield f"a dependency on {reference}, which is not there"


def the_document(*components: Component, subject: Subject = SUBJECT) -> Any:
    return json.loads(sbom.document(subject, components, "9" * 64))


def test_the_document_is_cyclonedx() -> None:
    found = the_document(*ALL)
    assert list(faults(found)) == []
    assert list(faults(the_document(*ALL, subject=replace(SUBJECT, revision="")))) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda found: found.pop("specVersion"),
        lambda found: found.update(serialNumber="urn:uuid:1"),
        lambda found: found.update(more=1),
        lambda found: found["components"][0].pop("name"),
        lambda found: found["components"][0].update(type="package"),
        lambda found: found["components"][1]["hashes"][0].update(alg="SHA256"),
        lambda found: found["components"][1]["hashes"][0].update(content="zz"),
        lambda found: found["components"].append(found["components"][0]),
        lambda found: found["dependencies"][0]["dependsOn"].append("gone"),
        lambda found: found["metadata"].update(timestamp="today"),
    ],
)
def test_the_rules_notice_what_is_against_the_specification(spoil: Callable[[Any], None]) -> None:
    found = the_document(*ALL)
    spoil(found)
    assert list(faults(found)) != []


def test_each_package_has_version_hash_and_package_url() -> None:
    found = the_document(*ALL)
    rows = [
        (entry["name"], entry["version"], entry["hashes"][0]["content"][0], entry["purl"])
        for entry in found["components"]
    ]
    assert rows == [
        ("libc6", "2.36-9+deb12u14", "a", "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?arch=amd64&distro=debian-12"),
        ("libssl3", "3.0.22-1~deb12u2", "c", "pkg:deb/debian/libssl3@3.0.22-1~deb12u2?arch=amd64&distro=debian-12"),
        ("zlib1g", "1:1.2.13.dfsg-1", "b", "pkg:deb/debian/zlib1g@1:1.2.13.dfsg-1?arch=amd64&distro=debian-12"),
        ("grpcio", "1.76.0", "d", "pkg:pypi/grpcio@1.76.0"),
        ("dra-driver", "1.2.3", "9", "pkg:generic/dra-driver@1.2.3"),
    ]  # fmt: skip
    assert found["metadata"]["timestamp"] == "1970-01-02T00:00:00Z"
    assert found["metadata"]["component"]["properties"] == [
        {"name": "dra-driver:layer:system", "value": f"sha256:{'f' * 64}"},
        {"name": "org.opencontainers.image.revision", "value": "e" * 40},
    ]


def test_the_same_image_has_the_same_document_and_another_another() -> None:
    same = sbom.document(SUBJECT, ALL, "9" * 64)
    assert sbom.document(SUBJECT, ALL[::-1], "9" * 64) == same
    other = replace(GRPC, sha256="0" * 64)
    numbers = {the_document(*ALL)["serialNumber"], the_document(*ALL[:3], other)["serialNumber"]}
    assert len(numbers) == 2


def written(path: Path, *components: Component) -> Path:
    path.write_bytes(sbom.document(SUBJECT, components, "9" * 64))
    return path


def test_a_document_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert sbom.read(written(tmp_path / "image.cdx.json", *ALL)) == ALL
    assert sbom.load(sbom.dump(ALL[::-1])) == tuple(sorted(ALL))


def with_library(fields: str) -> str:
    entry = f'{{"type": "library", "name": "x", {fields}}}'
    return f'{{"bomFormat": "CycloneDX", "specVersion": "1.5", "components": [{entry}]}}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Expecting value"),
        ("[]", "list indices"),
        ('{"bomFormat": "SPDX", "specVersion": "1.5"}', "it is not CycloneDX 1.5"),
        ('{"bomFormat": "CycloneDX", "specVersion": "1.5"}', "'components'"),
        (
            with_library(
                '"purl": "pkg:deb/debian/x", "hashes": [{"alg": "SHA-256", "content": "00"}]'
            ),
            "x has no package URL of ours, or no SHA-256",
        ),
        (
            with_library(
                '"purl": "pkg:deb/debian/x@1", "hashes": [{"alg": "MD5", "content": "00"}]'
            ),
            "'SHA-256'",
        ),
    ],
)
def test_another_document_is_refused_and_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ImageError) as caught:
        sbom.read(path)
    assert f"{path} is no bill of materials of this build" in str(caught.value)
    assert said in str(caught.value)
    with pytest.raises(ImageError, match="no-such-file cannot be read: No such file"):
        sbom.read(tmp_path / "no-such-file")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ((LIBC, SSL, ZLIB, replace(GRPC, version="1.75.0")), "grpcio: it has 1.76.0 (wheel, sha256 dddddddddddddddd…), here is 1.75.0"),
        ((LIBC, SSL, ZLIB, replace(GRPC, sha256="0" * 64)), "grpcio: it has 1.76.0 (wheel, sha256 dddddddddddddddd…), here is 1.76.0 (wheel, sha256 0000000000000000…)"),
        ((LIBC, replace(SSL, version="3.0.23"), ZLIB, GRPC), "libssl3: it has 3.0.22-1~deb12u2 (amd64, sha256 cccccccccccccccc…), here is 3.0.23"),
        ((LIBC, replace(SSL, sha256="0" * 64), ZLIB, GRPC), "libssl3: it has"),
        ((replace(LIBC, architecture="arm64"), SSL, ZLIB, GRPC), "libc6: it has 2.36-9+deb12u14 (amd64"),
        ((LIBC, SSL, GRPC), "zlib1g: it has 1:1.2.13.dfsg-1 (amd64, sha256 bbbbbbbbbbbbbbbb…), here is none"),
        ((*ALL, replace(GRPC, name="urllib3")), "urllib3: it has none, here is 1.76.0"),
    ],
)  # fmt: skip
def test_other_packages_than_those_of_the_document_are_refused_by_name(
    found: tuple[Component, ...], said: str
) -> None:
    with pytest.raises(ImageError) as caught:
        sbom.refuse_others(ALL, found, Path("image.cdx.json"))
    head, *lines, step = str(caught.value).splitlines()
    assert head == "the image would not be made of what image.cdx.json names:"
    assert [line for line in lines if line.strip().startswith(said)] == lines
    assert len(lines) == 1
    assert "without --sbom" in step


def test_the_same_packages_are_taken_in_whatever_order() -> None:
    sbom.refuse_others(ALL, ALL[::-1], Path("image.cdx.json"))


# A build from a document, with an apt of our own on the PATH

APT = """#!/bin/sh
# Answers as apt-get --print-uris download does; what it is asked for is kept.
echo "$@" >> "{asked}"
for word in "$@"; do
    case $word in
        --print-uris|download) ;;
        *=9.9) echo "E: Version '9.9' for '${{word%%=*}}' was not found" >&2; exit 100 ;;
        *) name=${{word%%=*}}; version=${{word#*=}}; [ "$version" = "$word" ] && version=1.0
           echo "'https://mirror/$name.deb' ${{name}}_${{version}}_amd64.deb 10 SHA256:00" ;;
    esac
done
"""


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder, asked = tmp_path / "bin", tmp_path / "asked"
    folder.mkdir()
    for name in ("apt-get", "dpkg-deb"):
        (folder / name).write_text(APT.format(asked=asked))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("os.geteuid", lambda: 1000)  # root would renew the lists of this machine
    return asked


def packages(version: str) -> list[Component]:
    return [
        Component("deb/debian", name, version, "amd64", "1" * 64)
        for name in sorted(debian.PACKAGES)
    ]


def kept(versions: dict[str, str], components: list[Component]) -> None:
    """As if the layers of these packages had been built before."""
    lock = ROOT / "requirements" / "runtime.txt"
    inputs = (*debian.locate(versions), platform.machine())
    name = cache.key([lock.read_bytes(), *(line.encode() for line in inputs)])
    cache.kept(name, lambda made: put(made / image.COMPONENTS, sbom.dump(components)))


def put(path: Path, text: str) -> None:
    path.write_text(text)


def test_the_versions_of_the_document_are_asked_for(tmp_path: Path, apt: Path) -> None:
    old = packages("0.9")
    kept({one.name: "0.9" for one in old}, [*old, GRPC])
    folder = image.ground(ROOT, written(tmp_path / "image.cdx.json", *old, GRPC))
    assert image.components(folder) == tuple(sorted([*old, GRPC]))
    asked = apt.read_text().splitlines()[-1].split()
    assert asked == ["--print-uris", "download", *(f"{one.name}=0.9" for one in old)]


def test_without_a_document_the_newest_are_taken(apt: Path) -> None:
    new = packages("1.0")
    kept({}, new)
    assert image.components(image.ground(ROOT)) == tuple(new)
    assert "=" not in apt.read_text()


def test_a_package_with_another_hash_is_refused_although_its_version_is_right(
    tmp_path: Path, apt: Path
) -> None:
    old = packages("0.9")
    kept({one.name: "0.9" for one in old}, [*old, GRPC])
    tampered = [replace(one, sha256="2" * 64) if one.name == "libssl3" else one for one in old]
    with pytest.raises(
        ImageError, match=r"\n  libssl3: it has 0\.9 \(amd64, sha256 2+…\), here is"
    ):
        image.ground(ROOT, written(tmp_path / "image.cdx.json", *tampered, GRPC))
    wheel = replace(GRPC, sha256="3" * 64)
    with pytest.raises(ImageError, match=r"\n  grpcio: it has 1\.76\.0 \(wheel, sha256 3+…\)"):
        image.ground(ROOT, written(tmp_path / "image.cdx.json", *old, wheel))


def test_a_version_that_nobody_offers_any_more_is_named(tmp_path: Path, apt: Path) -> None:
    gone = [replace(one, version="9.9") if one.name == "libssl3" else one for one in packages("1")]
    with pytest.raises(ImageError, match=r"Version '9\.9' for 'libssl3' was not found"):
        image.ground(ROOT, written(tmp_path / "image.cdx.json", *gone))


# What is kept between builds


def test_layers_that_were_changed_on_disk_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def make(made: Path) -> None:
        put(made / "system.tar", "system")
        put(made / "libraries.tar", "libraries")

    folder = cache.kept("ground", make)
    assert cache.kept("ground", make) == folder
    put(folder / "system.tar", "another")
    with pytest.raises(ImageError, match=f"in {folder} system.tar: not what was put there; remove"):
        cache.kept("ground", make)
    put(folder / "system.tar", "system")
    (folder / "libraries.tar").unlink()
    with pytest.raises(ImageError, match=f"in {folder} libraries.tar: not what was put there"):
        cache.kept("ground", make)
    put(folder / "libraries.tar", "libraries")
    put(folder / "more.tar", "more")
    with pytest.raises(ImageError, match=f"in {folder} more.tar"):
        cache.kept("ground", make)
    (folder / "hashes.json").unlink()
    with pytest.raises(ImageError, match=f"{folder} cannot be verified .*; remove it"):
        cache.kept("ground", make)


def test_a_wheel_is_known_by_its_own_bytes(tmp_path: Path) -> None:
    wheel = tmp_path / "typing_extensions-4.15.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("typing_extensions.py", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    found = wheels.components(tmp_path)
    assert found == [Component("pypi", "typing-extensions", "4.15.0", "", digest)]
    assert found[0].inside == ()


def test_libraries_that_are_linked_into_a_wheel_are_told_with_the_versions_that_they_say(
    tmp_path: Path,
) -> None:
    wheel = tmp_path / "grpcio-1.76.0-cp311-cp311-manylinux_2_17_x86_64.whl"
    program = b"\0_ZN4absl12lts_20260526\0 deflate 1.3.1.1-motley Copyright\0third_party/boringssl-with-bazel/crypto/x.cc\0"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("grpc/cygrpc.cpython-311-x86_64-linux-gnu.so", program)
        archive.writestr("grpc/__init__.py", "# third_party/re2/ is no program")
    found = wheels.components(tmp_path)
    assert sbom.load(sbom.dump(found))[0].inside == found[0].inside
    document = the_document(*found)
    assert list(faults(document)) == []
    assert document["components"][0]["components"] == [
        {"type": "library", "bom-ref": "pkg:pypi/grpcio@1.76.0#abseil-cpp", "name": "abseil-cpp", "version": "20260526", "purl": "pkg:generic/abseil-cpp@20260526"},
        {"type": "library", "bom-ref": "pkg:pypi/grpcio@1.76.0#boringssl", "name": "boringssl", "purl": "pkg:generic/boringssl"},
        {"type": "library", "bom-ref": "pkg:pypi/grpcio@1.76.0#zlib", "name": "zlib", "version": "1.3.1.1-motley", "purl": "pkg:generic/zlib@1.3.1.1-motley"},
    ]  # fmt: skip
    assert sbom.read(written(tmp_path / "image.cdx.json", *found)) == tuple(found)


def test_the_wheels_of_this_environment_say_what_is_linked_into_them() -> None:
    """If one of the traces is gone, a new release has another; correct TRACES."""
    for module, names in {
        "grpc._cython.cygrpc": ["abseil-cpp", "boringssl", "c-ares", "re2", "zlib"],
        "re2._re2": ["abseil-cpp"],
    }.items():
        spec = importlib.util.find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        assert sorted(name for name, _ in inside.traces(Path(spec.origin).read_bytes())) == names


CONTROL = """Package: tiny
Version: 1:2.0-1~deb12u1
Architecture: all
Maintainer: nobody <nobody@example.com>
Description: nothing
"""


@pytest.mark.real  # only Debian makes such packages
def test_a_debian_package_is_known_by_its_own_bytes(tmp_path: Path) -> None:
    control = tmp_path / "tiny" / "DEBIAN" / "control"
    control.parent.mkdir(parents=True)
    control.write_text(CONTROL)
    folder = tmp_path / "packages"
    folder.mkdir()
    made = folder / "tiny_1%3a2.0-1~deb12u1_all.deb"
    subprocess.run(
        ["dpkg-deb", "--build", control.parents[1], made], check=True, capture_output=True
    )
    digest = hashlib.sha256(made.read_bytes()).hexdigest()
    found = Component("deb/debian", "tiny", "1:2.0-1~deb12u1", "all", digest)
    assert debian.components(folder) == [found]
    (folder / "broken_1_all.deb").write_bytes(b"no package")
    with pytest.raises(ImageError, match=r"broken_1_all\.deb cannot be read"):
        debian.components(folder)
