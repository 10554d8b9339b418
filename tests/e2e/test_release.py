# SPDX-License-Identifier: Apache-2.0
"""Do helm, a registry, Krew, pipx and a bare Python take what a release consists of?

No cluster is needed for this. Helm, krew, crane and the registry are built from their Go modules, pipx is a locked wheel.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from driverimage import cache, wheels
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dra_driver import IMAGE, PACKAGE, __version__
from dra_driver.testing.fake_api import FakeApi
from hack.release import __main__ as release
from hack.release import chart, distributions, image, krew, registry, tools
from hack.testbed.onenode import helm
from hack.testbed.onenode.products import build_commands, product
from tests.support.fleet_api import write_record

pytestmark = pytest.mark.real
ROOT = Path(__file__).resolve().parents[2]
KREW, KREW_VERSION = "sigs.k8s.io/krew", "0.4.3"
POD = """
apiVersion: v1
kind: Pod
metadata: {name: old}
spec:
  containers:
  - {name: main, image: busybox, resources: {limits: {nvidia.com/gpu: 2}}}
"""
LARGEST_ARCHIVE = 16e6
WHERE = ("--namespace", "dra", "--api-versions", "resource.k8s.io/v1/ResourceSlice")


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    """A registry on this machine."""
    with registry.serving() as name:
        yield name


@pytest.fixture(scope="module")
def dist(host: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All files of a release whose image goes to this registry."""
    folder = tmp_path_factory.mktemp("dist")
    release.make(folder, f"{host}/{IMAGE}")
    return folder


def run(*command: object, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, (command, ended.stdout, ended.stderr)
    return ended


# The chart


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart without an image, as the folder has it."""
    return chart.package(ROOT, tmp_path_factory.mktemp("chart"), __version__, date=distributions.date())  # fmt: skip


def test_helm_renders_the_packed_chart_as_it_renders_the_folder(
    packed: Path, tmp_path: Path
) -> None:
    values = (
        *WHERE,
        "--set",
        "backends.simulated.profile=h100x8",
        "--set",
        "metrics.rules.enabled=true",
    )
    said = [
        helm.helm("template", "dra-driver", str(one), *values, home=tmp_path)
        for one in (packed, helm.CHART)
    ]
    assert [one.returncode for one in said] == [0, 0]
    assert said[0].stdout == said[1].stdout
    linted = helm.helm("lint", "--strict", str(packed), home=tmp_path)
    assert linted.returncode == 0, linted.stdout


def test_the_packed_chart_has_the_files_that_helm_would_pack(packed: Path, tmp_path: Path) -> None:
    ended = helm.helm("package", str(helm.CHART), "--destination", str(tmp_path), home=tmp_path)
    assert ended.returncode == 0, ended.stderr

    def files(archive: Path) -> set[str]:
        with tarfile.open(archive) as opened:
            return {member.name for member in opened if member.isfile()}

    assert files(packed) - files(tmp_path / packed.name) == {"dra-driver/LICENSE"}
    assert files(tmp_path / packed.name) <= files(packed)


# The files that are published


def test_what_is_published_is_one_image_and_one_chart_that_names_it(
    dist: Path, host: str, tmp_path: Path
) -> None:
    """By the steps of RELEASE.md: the image first, then the chart."""
    summed = run("sha256sum", "--check", "--strict", release.SUMS, cwd=dist).stdout
    assert {line.partition(": ")[0] for line in summed.splitlines()} == {
        path.name for path in dist.iterdir() if path.is_file() and path.name != release.SUMS
    }
    name = f"{host}/{IMAGE}:{__version__}"
    image_there = run(registry.crane(), "push", "--insecure", dist / image.LAYOUT, name).stdout.strip()  # fmt: skip
    run(registry.crane(), "validate", "--insecure", "--remote", name)

    (packed,) = dist.glob("*.tgz")
    where = f"oci://{host}/charts"
    pushed = helm.helm("push", str(packed), where, "--plain-http", home=tmp_path)
    assert pushed.returncode == 0, pushed.stderr
    named = (f"{where}/dra-driver", "--version", __version__, "--plain-http")
    pulled = helm.helm("pull", *named, "--destination", str(tmp_path), home=tmp_path)
    assert pulled.returncode == 0, pulled.stderr
    assert (tmp_path / packed.name).read_bytes() == packed.read_bytes()
    shown = helm.helm("template", "dra-driver", *named, *WHERE, home=tmp_path)
    assert set(re.findall(r"image: \"?([^\s\"]+)", shown.stdout)) == {image_there}


def test_the_image_is_the_same_each_time_as_layout_and_as_archive(
    dist: Path, tmp_path: Path
) -> None:
    digest = image.write(tmp_path, __version__)
    (layout,) = json.loads((dist / image.LAYOUT / "index.json").read_text())["manifests"]
    assert layout["digest"] == digest
    blob = dist / image.LAYOUT / "blobs" / digest.replace(":", "/")
    config = json.loads(blob.read_text())["config"]["digest"]
    with tarfile.open(dist / image.ARCHIVE) as archive:
        (listed,) = json.load(archive.extractfile("manifest.json"))  # type: ignore[arg-type] # a file
        packed = archive.extractfile(listed["Config"]).read()  # type: ignore[union-attr] # a file
    assert packed == (dist / image.LAYOUT / "blobs" / config.replace(":", "/")).read_bytes()


# kubectl dra


@pytest.fixture(scope="module")
def plugin(dist: Path) -> Path:
    return dist / f"{krew.PROGRAM}-{__version__}.tar.gz"


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("record") / "record.json"
    write_record(path)
    return path


@pytest.fixture(scope="module")
def bare(
    plugin: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., tuple[int, str, str]]:
    """Runs the unpacked archive with a Python that sees no installed package, in an empty environment."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(plugin) as opened:
        opened.extractall(folder, filter="data")
    python = Path(sys.executable).resolve()

    def run_(*words: object) -> tuple[int, str, str]:
        command = [python, "-I", "-S", folder / krew.PROGRAM, *map(str, words)]
        surroundings = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "COLUMNS": "200"}
        ended = subprocess.run(
            command, env=surroundings, capture_output=True, text=True, check=False
        )
        return ended.returncode, ended.stdout, ended.stderr

    return run_


@pytest.mark.parametrize(
    "words",
    [
        ("devices", "-o", "wide"),
        ("claims", "-A"),
        ("free",),
        ("usage", "--by", "product"),
        ("explain", "claim/next", "-n", "team"),
        ("why", "-A"),
        ("migration",),
        ("version", "-o", "json"),
    ],
    ids=lambda words: words[0],
)
def test_a_bare_python_gives_the_answers_of_the_package(
    bare: Callable[..., tuple[int, str, str]], record: Path, words: tuple[str, ...]
) -> None:
    installed = subprocess.run(
        [Path(sys.executable).parent / krew.PROGRAM, *words, "--from", record],
        env={"PATH": "/usr/bin:/bin", "HOME": str(record.parent), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert installed.returncode in (0, 1), installed.stderr
    assert bare(*words, "--from", record) == (
        installed.returncode,
        installed.stdout,
        installed.stderr,
    )


def test_a_bare_python_checks_converts_and_diagnoses(
    bare: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(POD)
    assert bare("check", ROOT / "deviceclasses" / "examples" / "gpu.yaml") == (
        0,
        "1 file: nothing found\n",
        "",
    )
    code, said, _ = bare("convert", file)
    assert code in (0, 3)
    assert "resourceClaimTemplateName" in said
    with FakeApi() as api:
        api.put("nodes", {"metadata": {"name": "n1"}})
        api.kubeconfig(tmp_path / "config")
        code, said, _ = bare("doctor", "--kubeconfig", tmp_path / "config", "--node", "n1")
        assert code in (0, 1, 3)
        assert said
        code, said, _ = bare("version", "--kubeconfig", tmp_path / "config")
    assert code == 0
    assert __version__ in said


def test_the_archive_is_the_same_bytes_each_time_and_small(plugin: Path, tmp_path: Path) -> None:
    again = krew.write(ROOT, tmp_path, __version__, date=distributions.date())
    assert again.read_bytes() == plugin.read_bytes()
    assert plugin.stat().st_size < LARGEST_ARCHIVE
    with tarfile.open(plugin) as opened:
        folders = {name.split("/")[1] for name in opened.getnames() if name.startswith("compiled/")}
    assert folders == {f"{one}-{python}" for one in krew.PLATFORMS for python in krew.PYTHONS}


def test_krew_takes_the_manifest_and_installs_the_archive(
    plugin: Path, dist: Path, record: Path, tmp_path: Path
) -> None:
    flags = "-s -w"
    commands = tuple(f"{KREW}/cmd/{name}" for name in ("krew", "validate-krew-manifest"))
    make = build_commands(KREW, KREW_VERSION, commands, ldflags=flags)
    programs = product("krew", KREW_VERSION, make, recipe=flags.encode())
    manifest = dist / krew.MANIFEST
    root = {"KREW_ROOT": str(tmp_path / "krew"), "KREW_NO_UPGRADE_CHECK": "1"}
    run(programs / "validate-krew-manifest", "-manifest", manifest, "-skip-install", **root)
    # Krew asks git whether there is an index, and never reads it here.
    (tmp_path / "krew" / "index" / "default").mkdir(parents=True)
    install = ("install", "--manifest", manifest, "--archive", plugin)
    run(programs / "krew", *install, **root)
    program = tmp_path / "krew" / "bin" / krew.PROGRAM
    assert program.is_symlink()
    path = f"{tmp_path}:/usr/bin:/bin"
    (tmp_path / "python3").symlink_to(Path(sys.executable).resolve())
    assert "gpu-0" in run(program, "devices", "--from", record, PATH=path).stdout


# pipx


def needed(project: str, found: set[str]) -> set[str]:
    """A project and all that it needs here, by the names of the lock; `found` grows."""
    name = canonicalize_name(project)
    if name not in found:
        found.add(name)
        for text in metadata.requires(project) or ():
            one = Requirement(text)
            if one.marker is None or one.marker.evaluate({"extra": ""}):
                needed(one.name, found)
    return found


def wheel_folder() -> Path:
    """Every locked wheel that the package and its extra need, and the pip that pipx installs with: nothing else is fetched."""
    projects = needed(PACKAGE, needed("kubernetes", set())) - {PACKAGE}
    wanted = [
        wheels.part_of_lock((ROOT / "requirements" / f"{name}.txt").read_text(), part)
        for name, part in (("dev", projects), ("release", {"pip"}))
    ]

    def fetch(folder: Path) -> None:
        for number, lock in enumerate(wanted):
            file = folder / f"{number}.txt"
            file.write_text(lock)
            wheels.download(file, folder)

    return cache.kept(cache.key([*map(str.encode, wanted), sys.version.encode()]), fetch)


def test_pipx_installs_the_wheel_and_its_extra(tmp_path: Path, dist: Path, record: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    homes = {
        name: str(tmp_path / name.lower())
        for name in ("PIPX_HOME", "PIPX_BIN_DIR", "PIPX_MAN_DIR", "PIPX_COMPLETION_DIR")
    }
    surroundings = {
        **homes,
        "PYTHONPATH": tools.environment()["PYTHONPATH"],
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheel_folder()),
    }
    # Bytecode of 100 MB that no test starts is most of the time of an installation.
    pipx = (sys.executable, "-m", "pipx", "install", "--pip-args=--no-compile")
    run(*pipx, wheel, **surroundings)
    programs = Path(homes["PIPX_BIN_DIR"])
    assert {path.name for path in programs.iterdir()} == {
        *("dra-driver", "kubectl-dra", "kubectl_complete-dra"),
    }
    found = run(programs / "kubectl-dra", "devices", "--from", record, PYTHONPATH="").stdout
    assert "gpu-0" in found
    assert __version__ in run(programs / "dra-driver", "--version", PYTHONPATH="").stdout
    shutil.rmtree(tmp_path / "pipx_home" / "venvs")
    run(*pipx, "--force", f"{wheel}[cli]", **surroundings)
    [python] = (tmp_path / "pipx_home" / "venvs").glob("*/bin/python")
    run(python, "-c", "import kubernetes", PYTHONPATH="")
