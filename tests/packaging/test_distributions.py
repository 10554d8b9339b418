# SPDX-License-Identifier: Apache-2.0
"""Are wheel and source distribution the same bytes each time, and do they have what belongs into them?"""

import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from dra_driver import __version__
from hack.release import distributions
from hack.release.errors import ReleaseError
from tests.support import tree_files

ROOT = Path(__file__).resolve().parents[2]
TOP = f"dra_driver-{__version__}"
LINK = "helm/dra-driver/deviceclasses"  # of the repository; the archive has the files


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return distributions.build(tmp_path_factory.mktemp("first"))


def in_sdist(archive: Path) -> set[str]:
    with tarfile.open(archive) as opened:
        return {member.name.removeprefix(f"{TOP}/") for member in opened if member.isfile()}


def unpack(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    return folder / TOP


def test_two_builds_are_the_same_bytes(built: dict[str, Path], tmp_path: Path) -> None:
    again = distributions.build(tmp_path)
    assert {kind: file.name for kind, file in again.items()} == {
        "wheel": f"{TOP}-py3-none-any.whl",
        "sdist": f"{TOP}.tar.gz",
    }
    for kind, file in again.items():
        assert file.read_bytes() == built[kind].read_bytes(), kind


def test_the_date_in_the_archives_is_that_of_the_commit(
    built: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    if (ROOT / ".git").exists():
        command = ("git", "log", "-1", "--format=%ct")
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert distributions.date() == int(said)
    with tarfile.open(built["sdist"]) as opened:
        assert {member.mtime for member in opened} == {distributions.date()}
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert distributions.date() == 1700000000


def test_a_tree_without_commit_needs_a_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    with pytest.raises(ReleaseError, match="set SOURCE_DATE_EPOCH"):
        distributions.date(tmp_path)


def test_the_source_distribution_has_what_git_has(built: dict[str, Path]) -> None:
    classes = {path.relative_to(ROOT).as_posix() for path in (ROOT / LINK).rglob("*.yaml")}
    wanted = {
        name for name in tree_files.files() if not name.startswith("tests/fixtures/releases/")
    }
    assert in_sdist(built["sdist"]) == (wanted - {LINK}) | classes | {"PKG-INFO"}


def test_the_wheel_has_the_package_and_nothing_else(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as opened:
        names = {name for name in opened.namelist() if not name.startswith(TOP)}
    assert names == {name for name in tree_files.files() if name.startswith("dra_driver/")}


def test_the_source_distribution_makes_the_same_wheel(
    built: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    unpack(built["sdist"], tmp_path)
    again = distributions.build(tmp_path / "dist", tmp_path / TOP)
    assert again["wheel"].read_bytes() == built["wheel"].read_bytes()


def test_an_unpacked_source_distribution_knows_its_files_and_its_date(
    built: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also inside a clone of something else."""
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    tree = unpack(built["sdist"], tmp_path)
    (tree / "dist").mkdir()
    (tree / "dist" / "ignored").touch()
    assert distributions.date(tree) == distributions.date()
    assert set(tree_files.files(tree)) == in_sdist(built["sdist"])


def test_a_folder_with_another_wheel_is_no_place_to_build(tmp_path: Path) -> None:
    (tmp_path / "other.whl").touch()
    with pytest.raises(ReleaseError, match="give an empty folder"):
        distributions.build(tmp_path)
