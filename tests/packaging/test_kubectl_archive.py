# SPDX-License-Identifier: Apache-2.0
"""Does the program of the archive of `kubectl dra` start with what is beside it, and does its manifest say what it is?

The whole archive is made and started in tests/e2e/test_release.py.
"""

import hashlib
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dra_driver import __version__
from dra_driver.cli.main import KUBECTL_COMMANDS
from hack.release import krew, names

ROOT = Path(__file__).resolve().parents[2]
HERE = f"{sys.platform}-{platform.machine()}-{sys.version_info[0]}.{sys.version_info[1]}"
# Libraries that the archive does not have. A command that imports one of them would end there.
LEFT_OUT = ("grpc", "google.protobuf", "prometheus_client", "pynvml", "kubernetes")
IMPORTS = f"""
import pathlib, sys
for name in {LEFT_OUT}:
    sys.modules[name] = None
import dra_driver.cli.main as main
for name in main.KUBECTL_COMMANDS:
    try:
        main.kubectl([name, "--help"])
    except SystemExit as ended:
        assert ended.code == 0, name
assert main.kubectl(["doctor", "--kubeconfig", "/nonexistent", "--node", "n1"]) in (1, 2)
print("ok")
"""


def unpacked(folder: Path, compiled: str) -> Path:
    """The program, with one module where each kind of library is."""
    program = folder / "store" / krew.PROGRAM
    package = program.parent / "lib" / "dra_driver"
    package.mkdir(parents=True)
    (package / "__main__.py").write_text(
        "import sys, library\ndef kubectl():\n    print(library.NAME, *sys.argv[1:])\n    return 3\n"
    )
    (program.parent / "compiled" / compiled).mkdir(parents=True)
    (program.parent / "compiled" / compiled / "library.py").write_text(f"NAME = {compiled!r}\n")
    program.write_bytes(krew.LAUNCHER.read_bytes())
    link = folder / krew.PROGRAM
    link.symlink_to(program)  # as Krew does it
    return link


def start(program: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", program, "devices", "-A"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_program_takes_the_libraries_of_this_python(tmp_path: Path) -> None:
    ended = start(unpacked(tmp_path, HERE))
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, f"{HERE} devices -A\n", "")


def test_a_python_without_libraries_is_told_which_there_are(tmp_path: Path) -> None:
    ended = start(unpacked(tmp_path, "plan9-mips-3.11"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (
        1,
        "",
        f"kubectl dra: has no libraries for {HERE}, only for plan9-mips-3.11; install the driver's Python package instead\n",
    )


def test_every_command_of_the_plugin_starts_without_what_the_archive_lacks() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout.splitlines()[-1:]) == (0, ["ok"]), ended.stderr
    assert len(KUBECTL_COMMANDS) > 10


def test_the_manifest_names_the_archive_by_hash(tmp_path: Path) -> None:
    archive = tmp_path / f"{krew.PROGRAM}-{__version__}.tar.gz"
    archive.write_bytes(b"archive")
    manifest = yaml.safe_load(krew.manifest(archive, __version__))
    (platforms,) = manifest["spec"].pop("platforms")
    assert manifest["metadata"] == {"name": names.KREW_PLUGIN}
    assert f"{names.KREW_PLUGIN}.yaml" == krew.MANIFEST
    assert manifest["spec"]["version"] == f"v{__version__}"
    assert platforms["sha256"] == hashlib.sha256(b"archive").hexdigest()
    assert platforms["uri"].startswith(f"{names.REPOSITORY}/")
    assert platforms["uri"].endswith(f"/v{__version__}/{archive.name}")
    assert platforms["bin"] == krew.PROGRAM
    assert len(manifest["spec"]["shortDescription"]) <= 50


@pytest.mark.parametrize("platform_", krew.PLATFORMS)
def test_the_tags_of_a_platform_are_of_its_machine(platform_: str) -> None:
    system, machine = platform_.split("-")
    word = {"linux": "manylinux_2_", "darwin": "macosx_"}[system]
    assert all(tag.startswith(word) and tag.endswith(machine) for tag in krew.PLATFORMS[platform_])
