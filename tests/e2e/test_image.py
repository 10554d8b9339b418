# SPDX-License-Identifier: Apache-2.0
"""Does the image that is built without a registry run as the chart runs it: root, no capability, nothing writable?

No cluster is needed for this, only Debian's packages, the locked wheels and runc.
"""

import hashlib
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from driverimage import archive, assemble, debian, image, sbom, wheels
from driverimage.tree import ImageError

from dra_driver import __version__
from tests.packaging.test_sbom import faults

pytestmark = pytest.mark.real
ROOT = Path(__file__).resolve().parents[2]
# Of it the tar's own 2. docs/image.md says what the rest is.
LARGEST_MEGABYTES = 66
# What the page may lag behind: the driver grows with each change, and Debian's packages with each update.
LAG_MEGABYTES = 0.3
# Modules of libraries that want what nobody installs: their own packages import them on demand.
WANTING = {
    "structlog._greenlets",
    "urllib3.contrib.pyopenssl",
    "urllib3.contrib.socks",
    "urllib3.http2.connection",
    "yaml.cyaml",
}
IMPORT_ALL = """
import importlib, json, pkgutil, sys, warnings
warnings.simplefilter("ignore")
failed = []
places = [path for path in sys.path if path.endswith(("dist-packages", "python3.11"))]
for found in pkgutil.walk_packages(places, onerror=failed.append):
    if not found.name.endswith("__main__") and found.name not in ("antigravity", "this"):
        try:
            importlib.import_module(found.name)
        except Exception as error:
            failed.append(found.name)
print(json.dumps([sorted(set(failed)), len(sys.modules)]))
"""

# What the chart's second container runs, and its liveness probe.
HARDWARE = """
import subprocess, sys, time
program, socket = "/usr/local/bin/dra-driver", ("--socket", "/dev/shm/hardware.sock")
server = subprocess.Popen([program, "hardware", *socket, "--host-root", "/"])
for _ in range(50):
    probe = subprocess.run([program, "hardware", *socket, "--probe"], capture_output=True, text=True)
    if probe.returncode == 0:
        break
    time.sleep(0.1)
server.terminate()
print(probe.returncode, server.wait(), probe.stderr)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> image.Image:
    return image.build(tmp_path_factory.mktemp("image") / "driver.tar")


@pytest.fixture(scope="module")
def bundle(built: image.Image, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image as runc wants it: its layers, one upon the other, and a specification."""
    folder = tmp_path_factory.mktemp("bundle")
    with tarfile.open(built.path) as packed:
        packed.extractall(folder / "image", filter="fully_trusted")
    (manifest,) = json.loads((folder / "image" / "manifest.json").read_text())
    for layer in manifest["Layers"]:
        with tarfile.open(folder / "image" / layer) as content:
            content.extractall(folder / "rootfs", filter="fully_trusted")
    subprocess.run(["runc", "spec"], cwd=folder, check=True)
    return folder


@pytest.fixture
def run(bundle: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command of the image: uid 0, no capability, read-only, an empty network."""

    def started(*words: str) -> subprocess.CompletedProcess[str]:
        specification = json.loads((bundle / "config.json").read_text())
        process = specification["process"]
        process |= {"terminal": False, "args": words, "noNewPrivileges": True}
        process["env"] = list(archive.ENVIRONMENT)
        process["capabilities"] = {kind: [] for kind in process["capabilities"]}
        specification["root"]["readonly"] = True
        (bundle / "config.json").write_text(json.dumps(specification))
        name = hashlib.sha256(str(tmp_path).encode()).hexdigest()[:12]
        return subprocess.run(
            ["runc", "--root", tmp_path / "runc", "run", "--bundle", bundle, f"image-{name}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

    return started


def test_the_driver_runs_without_any_right(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    version = run("/usr/local/bin/dra-driver", "--version")
    assert (version.returncode, version.stdout) == (0, f"dra-driver {__version__}\n"), version
    words = ("devices", "--node-name", "n", "--backend", "simulated", "--json")
    devices = run("/usr/local/bin/dra-driver", *words)
    assert (devices.returncode, len(devices.stdout.splitlines())) == (0, 8), devices


def test_the_driver_says_what_it_misses_outside_a_pod(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    ended = run("/usr/local/bin/dra-driver", "run", "--node-name", "n")
    assert ended.returncode == 1
    assert "no API server is known" in ended.stderr


def test_the_hardware_process_serves_and_answers_its_probe(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    ended = run("python3", "-c", HARDWARE)
    assert (ended.returncode, ended.stdout) == (0, "0 0 \n"), ended


def test_every_module_in_the_image_can_be_imported(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    ended = run("python3", "-c", IMPORT_ALL)
    assert ended.returncode == 0, ended
    failed, modules = json.loads(ended.stdout.splitlines()[-1])
    assert set(failed) == WANTING
    assert modules > 500


def test_there_is_no_shell_no_pip_and_no_package_manager(bundle: Path) -> None:
    root = bundle / "rootfs"
    programs = {path.name for path in (root / "usr" / "bin").iterdir()}
    assert programs == {"python3", "python3.11"}
    assert [path.name for path in (root / "usr" / "local" / "bin").iterdir()] == ["dra-driver"]
    names = {path.name for path in root.rglob("*")}
    assert names & {"pip", "ensurepip", "sh", "test", "tests", "unittest"} == set()


def test_every_program_finds_its_libraries_in_the_image(bundle: Path) -> None:
    root = bundle / "rootfs"
    loader = next((root / "usr").glob("lib*/ld-linux-*"))
    places = ":".join(str(path.parent) for path in root.rglob("libc.so.6"))
    programs = [path for path in root.rglob("*") if ".so" in path.suffixes and path.is_file()]
    assert len(programs) > 30
    for program in programs:
        listed = subprocess.run(
            [loader, "--library-path", places, "--list", program],
            capture_output=True,
            text=True,
            check=False,
        )
        outside = re.findall(r"=> (?!not)(/\S+)", listed.stdout)
        assert "not found" not in listed.stdout, (program, listed.stdout)
        assert [path for path in outside if not path.startswith(str(root))] == []


def test_the_image_is_small(built: image.Image) -> None:
    assert built.path.stat().st_size < LARGEST_MEGABYTES * 1_000_000


def test_the_page_has_the_sizes_of_this_image(built: image.Image) -> None:
    text = (ROOT / "docs" / "image.md").read_text()
    rows = re.findall(r"^\| `([\w.+-]+)` \| ([\d.]+) \| ", text, re.MULTILINE)
    told = {name: float(megabytes) for name, megabytes in rows}
    found = {name: size / 1e6 for parts in built.sizes.values() for name, size in parts.items()}
    assert told == pytest.approx(found, abs=LAG_MEGABYTES), "hack/image/build.py --table prints it"


@pytest.mark.matrix
def test_the_same_sources_make_the_same_bytes_without_a_cache_too(
    built: image.Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    again = image.build(tmp_path / "again.tar")
    assert again.identity == built.identity
    assert again.path.read_bytes() == built.path.read_bytes()


def the_bill(built: image.Image) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(built.sbom.read_text())
    return found


def test_the_bill_of_materials_names_every_package_of_the_image(
    built: image.Image, bundle: Path
) -> None:
    named = {
        (entry["purl"].partition("/")[0], entry["name"], entry["version"])
        for entry in the_bill(built)["components"]
        if entry["type"] == "library"
    }
    root, there = bundle / "rootfs", set()
    for record in (root / "var/lib/dpkg/status.d").iterdir():
        fields = dict(re.findall(r"^(Package|Version): (.*)$", record.read_text(), re.MULTILINE))
        there.add(("pkg:deb", fields["Package"], fields["Version"]))
    for metadata in root.rglob("*.dist-info/METADATA"):
        fields = dict(re.findall(r"^(Name|Version): (.*)$", metadata.read_text(), re.MULTILINE))
        name, version = fields["Name"], fields["Version"]
        if name != "dra-driver":
            there.add(("pkg:pypi", re.sub(r"[-_.]+", "-", name).lower(), version))
    assert len(there) > 20
    assert named == there


def test_the_image_names_its_bill_of_materials(built: image.Image) -> None:
    with tarfile.open(built.path) as packed:
        (manifest,) = json.load(packed.extractfile("manifest.json"))
        config = json.load(packed.extractfile(manifest["Config"]))
    digest = hashlib.sha256(built.sbom.read_bytes()).hexdigest()
    assert config["config"]["Labels"][sbom.LABEL] == f"sha256:{digest}"
    layers = the_bill(built)["metadata"]["component"]["properties"][:3]
    assert [entry["value"] for entry in layers] == config["rootfs"]["diff_ids"]
    assert list(faults(the_bill(built))) == []


@pytest.mark.matrix
def test_from_its_bill_of_materials_the_same_image_comes_and_no_other(
    built: image.Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    again = image.build(tmp_path / "again.tar", given=built.sbom)
    assert (again.identity, again.sbom.read_bytes()) == (built.identity, built.sbom.read_bytes())
    other = the_bill(built)
    (zlib,) = [entry for entry in other["components"] if entry["name"] == "zlib1g"]
    zlib["hashes"][0]["content"] = "0" * 64
    (tmp_path / "other.json").write_text(json.dumps(other))
    with pytest.raises(ImageError, match=r"\n  zlib1g: it has "):
        image.build(tmp_path / "other.tar", given=tmp_path / "other.json")
    assert not (tmp_path / "other.tar").exists()


def test_another_tag_shares_all_layers(built: image.Image, tmp_path: Path) -> None:
    script = ROOT / "hack" / "image" / "build.py"
    target = tmp_path / "other.tar"
    ended = subprocess.run(
        [sys.executable, script, "--output", target, "--version", "other", "--name", "a/b"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert f"{target}: a/b:other" in ended.stdout
    layers = []
    for path in (built.path, target):
        with tarfile.open(path) as packed:
            layers.append({name for name in packed.getnames() if name.endswith(".tar")})
    assert layers[0] == layers[1]
    assert len(layers[0]) == 3


def test_the_parts_are_those_that_are_named(built: image.Image) -> None:
    assert built.sizes["system"].keys() == {*debian.PACKAGES, "furniture"}
    assert {*built.sizes} == {"system", "libraries", "driver"}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_locked_wheel_exists_for_the_machine(machine: str, tmp_path: Path) -> None:
    lock = assemble.lock_of(ROOT)
    wheels.download(lock, tmp_path, wheels.foreign(debian.PYTHON, machine))
    projects = re.findall(r"^([a-z0-9-]+)==", lock.read_text(), re.MULTILINE)
    found = {wheels.project(path): path.name for path in tmp_path.iterdir()}
    assert sorted(found) == sorted(projects)
    compiled = [name for name in found.values() if not name.endswith("-none-any.whl")]
    assert [name for name in compiled if machine not in name] == []
    assert "grpcio" in {name.partition("-")[0] for name in compiled}


@pytest.mark.matrix
def test_a_base_images_python_is_collected_as_well(tmp_path: Path) -> None:
    """The Dockerfile's step, with this machine in the place of the base image."""
    script = ROOT / "hack" / "image" / "collect.py"
    root = tmp_path / "image"
    base = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    ended = subprocess.run(
        [base, script, "--root", root], capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    shown = subprocess.run(
        ["chroot", root, "/usr/local/bin/dra-driver", "--version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (shown.returncode, shown.stdout) == (0, f"dra-driver {__version__}\n"), shown.stderr
