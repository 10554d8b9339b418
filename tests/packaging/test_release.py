# SPDX-License-Identifier: Apache-2.0
"""Do version, changelog and chart of a release fit together, and is each archive the same bytes each time?

What needs helm, krew or Debian's packages is in tests/e2e/test_release.py.
"""

import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml
from driverimage import image, wheels

from dra_driver import __version__
from hack.release import __main__ as release
from hack.release import changelog, chart, frozen, names, version
from hack.release.errors import ReleaseError

ROOT = Path(__file__).resolve().parents[2]
DIGEST = "sha256:" + "a" * 64
IMAGE = f"registry.example.com/dra-driver@{DIGEST}"
LOG = "# Changelog\n\n## 0.2.0 - not released\n\n- new\n\n## 0.1.0 - 2026-12-01\n\n### New\n\n- first\n"


def unpacked(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as opened:
        return {member.name: opened.extractfile(member).read() for member in opened}  # type: ignore[union-attr] # all are files


# Version and changelog


def test_the_version_is_that_of_chart_and_changelog() -> None:
    assert version.current(ROOT) == __version__
    newest = changelog.sections((ROOT / "CHANGELOG.md").read_text())[0]
    assert newest.version == __version__


def test_a_changelog_has_versions_with_a_day_or_without() -> None:
    assert changelog.sections(LOG) == [
        changelog.Section("0.2.0", "not released", "- new"),
        changelog.Section("0.1.0", "2026-12-01", "### New\n\n- first"),
    ]
    assert changelog.of_version(changelog.dated(LOG, "0.2.0", "2027-01-02"), "0.2.0").date == (
        "2027-01-02"
    )


@pytest.mark.parametrize("heading", ["## Unreleased", "## 0.3.0", "## 0.3.0 - soon"])
def test_another_heading_is_refused(heading: str) -> None:
    with pytest.raises(ReleaseError, match=re.escape(repr(heading))):
        changelog.sections(f"{heading}\n\n{LOG}")


def test_a_version_without_changes_is_refused() -> None:
    with pytest.raises(ReleaseError, match=r"has no version 0\.3\.0, only 0\.2\.0, 0\.1\.0"):
        changelog.of_version(LOG, "0.3.0")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in version.LINES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / "CHANGELOG.md").write_text(LOG)
    return tmp_path


def test_a_new_version_is_written_everywhere(tree: Path) -> None:
    version.write(tree, "0.2.0", "2027-01-02")
    assert version.current(tree) == "0.2.0"
    assert (tree / "CHANGELOG.md").read_text() == LOG.replace("not released", "2027-01-02")
    for name, patterns in version.LINES.items():
        changed = set((tree / name).read_text().splitlines()) - {
            *(ROOT / name).read_text().splitlines()
        }
        assert len(changed) == len(patterns), name


@pytest.mark.parametrize(
    ("wrong", "day"),
    [
        ("v0.2.0", "2027-01-02"),
        ("0.2", "2027-01-02"),
        ("0.9.0", "2027-01-02"),
        ("0.2.0", "2.1.2027"),
    ],
)
def test_a_wrong_version_or_day_is_written_nowhere(tree: Path, wrong: str, day: str) -> None:
    with pytest.raises(ReleaseError):
        version.write(tree, wrong, day)
    assert version.current(tree) == __version__
    assert (tree / "CHANGELOG.md").read_text() == LOG


def test_places_that_differ_are_told(tree: Path) -> None:
    (tree / version.INIT).write_text('__version__ = "9.9.9"\n')
    with pytest.raises(ReleaseError, match=rf"have the versions {re.escape(__version__)}, 9\.9\.9"):
        version.current(tree)


# The chart


def test_the_chart_is_the_same_bytes_each_time_and_has_its_classes(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    for folder in (first, second):
        folder.mkdir()
        chart.package(ROOT, folder, __version__, date=1700000000)
    file = first / f"dra-driver-{__version__}.tgz"
    assert file.read_bytes() == (second / file.name).read_bytes()
    files = unpacked(file)
    assert next(iter(files)) == "dra-driver/Chart.yaml"
    assert {"dra-driver/values.schema.json", "dra-driver/LICENSE", "dra-driver/.helmignore"} <= {
        *files
    }
    classes = {
        f"dra-driver/{path.relative_to(ROOT).as_posix()}"
        for path in (ROOT / "deviceclasses").rglob("*.yaml")
        if "examples" not in path.parts
    }
    assert {name for name in files if "/deviceclasses/" in name} == classes


def test_the_annotations_are_those_of_artifact_hub() -> None:
    about = yaml.safe_load((ROOT / chart.FOLDER / "Chart.yaml").read_text())
    annotations = about["annotations"]
    assert set(annotations) == {
        f"artifacthub.io/{name}"
        for name in (
            *("category", "license", "operator", "prerelease", "containsSecurityUpdates"),
            "changes",
        )
    }
    assert all(isinstance(text, str) for text in annotations.values())
    changes = yaml.safe_load(annotations["artifacthub.io/changes"])
    kinds = {"added", "changed", "deprecated", "removed", "fixed", "security"}
    assert {change["kind"] for change in changes} <= kinds
    assert all(change.keys() == {"kind", "description"} for change in changes)
    assert not list((ROOT / chart.FOLDER).glob("crds/*"))


def test_the_image_comes_into_the_chart_by_digest(tmp_path: Path) -> None:
    file = chart.package(ROOT, tmp_path, __version__, date=0, image=IMAGE)
    files = unpacked(file)
    image = yaml.safe_load(files["dra-driver/values.yaml"])["image"]
    assert (image["repository"], image["digest"]) == tuple(IMAGE.split("@"))
    annotations = yaml.safe_load(files["dra-driver/Chart.yaml"])["annotations"]
    shown = yaml.safe_load(annotations["artifacthub.io/images"])
    assert shown == [{"name": "driver", "image": IMAGE}]


@pytest.mark.parametrize(
    "image",
    [
        *("dra-driver/dra-driver:0.1.0", IMAGE[:-1], IMAGE.removeprefix("registry.example.com/")),
        IMAGE.replace("@", ":0.1.0@"),
    ],
)
def test_an_image_without_registry_or_digest_comes_into_no_chart(
    image: str, tmp_path: Path
) -> None:
    with pytest.raises(ReleaseError, match="by registry and"):
        chart.package(ROOT, tmp_path, __version__, date=0, image=image)


def test_addresses_come_into_the_chart_once_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    files = chart.contents(ROOT)
    assert chart.with_addresses(files) == files
    monkeypatch.setattr(chart, "REPOSITORY", "https://git.invalid/dra")
    monkeypatch.setattr(chart, "CHARTS", "oci://registry.invalid/charts")
    about = yaml.safe_load(chart.with_addresses(files)["Chart.yaml"].data)
    assert (about["home"], about["sources"]) == (chart.REPOSITORY, [chart.REPOSITORY])
    links = yaml.safe_load(about["annotations"]["artifacthub.io/links"])
    assert links[0]["url"].startswith(chart.REPOSITORY)
    assert ".example.com" in names.REPOSITORY  # nobody owns one yet


def every_object(schema: dict[str, object], where: str = "") -> list[str]:
    """Places of the schema whose names are listed but not closed."""
    found = []
    if "properties" in schema and schema.get("additionalProperties") is not False:
        found.append(where)
    for key, value in schema.items():
        inner = value if isinstance(value, list) else [value]
        for part in inner:
            if isinstance(part, dict):
                found += every_object(part, f"{where}/{key}")
    return found


def test_no_object_of_the_values_is_open() -> None:
    schema = json.loads((ROOT / chart.FOLDER / "values.schema.json").read_text())
    # Parts of a pod's spec, which the API server checks, and conditions of a schema.
    assert {where.split("/")[-2] for where in every_object(schema)} <= {
        *("extraEnv", "extraVolumes", "extraVolumeMounts", "imagePullSecrets", "appArmorProfile"),
        *("allOf", "if"),
    }


def test_an_archive_says_nothing_of_the_machine(tmp_path: Path) -> None:
    file = chart.package(ROOT, tmp_path, __version__, date=1700000000)
    with tarfile.open(fileobj=io.BytesIO(file.read_bytes())) as opened:
        facts = {(one.uid, one.gid, one.uname, one.mtime, one.mode) for one in opened}
    assert facts == {(0, 0, "", 1700000000, 0o644)}


# All files together. tests/e2e/test_release.py makes them really


@pytest.fixture
def quick_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts that take long are a few bytes."""

    def an_image(target: Path, _number: str) -> str:
        (target / "image").mkdir()
        (target / "image" / "index.json").write_text("layout")
        (target / "dra-driver.tar").write_text("archive")
        return DIGEST

    def a_plugin(_root: Path, target: Path, *_: object, **__: object) -> Path:
        file = target / "kubectl-dra.tar.gz"
        file.write_text("plugin")
        return file

    monkeypatch.setattr(release.image, "write", an_image)
    monkeypatch.setattr(release.krew, "write", a_plugin)
    monkeypatch.setattr(release, "build", lambda target: (target / "one.whl").write_text("wheel"))


@pytest.mark.usefixtures("quick_parts")
def test_the_one_chart_names_the_image_that_was_built_and_the_hashes_are_of_what_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release.make(tmp_path, "registry.example.com/team/driver")
    (packed,) = tmp_path.glob("*.tgz")
    image = yaml.safe_load(unpacked(packed)["dra-driver/values.yaml"])["image"]
    assert (image["repository"], image["digest"]) == ("registry.example.com/team/driver", DIGEST)
    sums = dict(line.split("  ")[::-1] for line in (tmp_path / "SHA256SUMS").read_text().splitlines())  # fmt: skip
    assert set(sums) == {"one.whl", "dra-driver.tar", "kubectl-dra.tar.gz", packed.name}
    assert sums[packed.name] == hashlib.sha256(packed.read_bytes()).hexdigest()
    assert "these files are a draft: a chart" not in capsys.readouterr().out


@pytest.mark.usefixtures("quick_parts")
def test_files_without_a_place_for_the_image_are_a_draft_that_names_no_image(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release.make(tmp_path)
    (packed,) = tmp_path.glob("*.tgz")
    image = yaml.safe_load(unpacked(packed)["dra-driver/values.yaml"])["image"]
    assert image["digest"] == ""
    assert "these files are a draft: a chart that is published names its image" in (
        capsys.readouterr().out
    )


@pytest.mark.usefixtures("quick_parts")
@pytest.mark.parametrize("name", ["driver", "team/driver", "registry.example.com/team/driver:0.1.0", f"registry.example.com/driver@{DIGEST}"])  # fmt: skip
def test_a_place_that_is_none_is_refused_before_anything_is_made(tmp_path: Path, name: str) -> None:
    with pytest.raises(ReleaseError, match="name where it will be pushed"):
        release.make(tmp_path, name)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("quick_parts")
def test_two_builds_that_differ_are_told_with_the_file_also_inside_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, built = release.image.write, []

    def another(target: Path, number: str) -> str:
        digest = write(target, number)
        built.append(target)
        (target / "image" / "layer").write_text(str(len(built)))
        return digest

    same, other = tmp_path / "same", tmp_path / "other"
    same.mkdir()
    other.mkdir()
    release.check(same)
    monkeypatch.setattr(release.image, "write", another)
    with pytest.raises(ReleaseError, match=r"differ in image/layer$"):
        release.check(other)


# What is kept for tests of updates


def test_what_is_kept_of_a_release_is_its_chart_and_what_its_image_is_built_from(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name in (*frozen.PARTS, chart.FOLDER):
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, tree / name, dirs_exist_ok=True, ignore=ignored)
        else:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    folder = frozen.freeze(tree)
    assert folder == tree / frozen.FOLDER / __version__
    assert frozen.chart_of(tree, __version__).is_file()
    source = frozen.unpack_source(tree, __version__, tmp_path / "source")
    assert image.version_of(source) == __version__
    assert wheels.build_driver(source, tmp_path / "dist").name.startswith(
        f"dra_driver-{__version__}"
    )


def test_what_is_kept_of_a_tagged_release_stays_as_it_is(tree: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.com")
        subprocess.run(["git", *who, "-C", str(tree), *words], check=True)

    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "Release")
    git("tag", f"v{__version__}")
    with pytest.raises(ReleaseError, match=rf"git has the tag v{re.escape(__version__)}: "):
        frozen.freeze(tree)
    assert not (tree / frozen.FOLDER).exists()


@pytest.mark.parametrize(
    "number", sorted(path.name for path in (ROOT / frozen.FOLDER).glob("[0-9]*"))
)
def test_a_kept_release_is_small_and_of_its_version(number: str, tmp_path: Path) -> None:
    """Not in the source distribution, whose tests of updates have nothing to update from."""
    files = list((ROOT / frozen.FOLDER / number).iterdir())
    assert {file.name for file in files} == {frozen.SOURCE, f"dra-driver-{number}.tgz"}
    assert sum(file.stat().st_size for file in files) < 3e6
    assert image.version_of(frozen.unpack_source(ROOT, number, tmp_path)) == number
    about = yaml.safe_load(unpacked(frozen.chart_of(ROOT, number))["dra-driver/Chart.yaml"])
    assert (about["version"], about["appVersion"]) == (number, number)
