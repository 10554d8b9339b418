# SPDX-License-Identifier: Apache-2.0
"""Our files in the CDI directory, beside those of others."""

import re
from pathlib import Path

import pytest

from dra_driver.errors import DriverError, Permanent
from dra_driver.model.ids import ClaimUid
from dra_driver.model.metadata import joined
from dra_driver.node.cdi_dir import CdiDirectory
from dra_driver.node.metadata_dir import MetadataDirectory

KIND = "k8s.gpu.dra-driver.dev/claim"
PREFIX = "k8s.gpu.dra-driver.dev-claim_"
UID = ClaimUid("u1")


@pytest.fixture
def cdi(tmp_path: Path) -> CdiDirectory:
    directory = CdiDirectory(
        tmp_path / "run" / "cdi", KIND, MetadataDirectory(tmp_path / "metadata")
    )
    directory.prepare()
    return directory


def test_a_document_is_written_read_listed_and_removed(cdi: CdiDirectory) -> None:
    assert cdi.read(UID) is None
    cdi.write(UID, "{}\n")
    assert cdi.file(UID).name == f"{PREFIX}u1.json"
    assert cdi.read(UID) == "{}\n"
    assert cdi.documents() == {UID: "{}\n"}
    cdi.remove(UID)
    cdi.remove(UID)
    assert cdi.documents() == {}


def test_an_equal_document_is_not_written_again(cdi: CdiDirectory) -> None:
    cdi.write(UID, "{}")
    before = cdi.file(UID).stat().st_ino
    cdi.write(UID, "{}")
    assert cdi.file(UID).stat().st_ino == before
    cdi.write(UID, "{ }")
    assert cdi.file(UID).stat().st_ino != before


def test_files_of_others_are_not_looked_at(cdi: CdiDirectory) -> None:
    directory = cdi.file(UID).parent
    for name in (
        "nvidia.yaml",
        "k8s.gpu.example.com-claim_u1.json",
        f"{PREFIX}u2.yaml",
        f".{PREFIX}u3.json.a.tmp",
    ):
        (directory / name).write_text("x")
    assert cdi.documents() == {}


def test_what_a_killed_process_left_half_written_is_removed_at_start(cdi: CdiDirectory) -> None:
    directory = cdi.file(UID).parent
    cdi.write(UID, "{}")
    (directory / f".{PREFIX}u2.json.abc.tmp").write_text("{")
    (directory / ".another-driver_u2.json.abc.tmp").write_text("{")
    cdi.prepare()
    assert sorted(path.name for path in directory.iterdir()) == [
        ".another-driver_u2.json.abc.tmp",
        f"{PREFIX}u1.json",
    ]


def test_a_document_that_is_no_text_counts_as_empty_and_is_written_over(cdi: CdiDirectory) -> None:
    cdi.file(UID).write_bytes(b"\xff\xfe{")
    assert cdi.read(UID) == ""
    assert cdi.documents() == {UID: ""}
    cdi.write(UID, "{}")
    assert cdi.read(UID) == "{}"


def test_an_entry_changes_with_its_document_and_others_files_have_none(
    cdi: CdiDirectory, tmp_path: Path
) -> None:
    cdi.write(UID, "{}")
    before = cdi.entries()
    (cdi.file(UID).parent / "vendor.json").write_text("{}")
    assert list(before) == [UID]
    assert cdi.entries() == before
    cdi.write(UID, "[]")  # as long as the one before
    assert cdi.entries().keys() == before.keys()
    assert cdi.entries() != before


@pytest.mark.parametrize(
    ("act", "tried"),
    [("prepare", "cannot use"), ("documents", "cannot list"), ("entries", "cannot list")],
)
def test_a_directory_that_is_none_is_named(tmp_path: Path, act: str, tried: str) -> None:
    path = tmp_path / "cdi"
    path.write_text("")
    with pytest.raises(Permanent, match=re.escape(f"{tried} CDI directory {path}: ")):
        getattr(CdiDirectory(path, KIND, MetadataDirectory(path / "metadata")), act)()


def test_without_its_metadata_files_there_is_no_document(cdi: CdiDirectory, tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text("in the way")
    with pytest.raises(DriverError, match="cannot make directory"):
        cdi.write(UID, "{}", joined({"gpu": "one"}))
    assert not cdi.file(UID).exists()


def test_metadata_files_are_there_before_the_document_and_gone_after_it(tmp_path: Path) -> None:
    seen: list[tuple[str, bool, str | None]] = []

    def point(name: str) -> None:
        seen.append((name, cdi.file(UID).exists(), metadata.read(UID)))

    metadata = MetadataDirectory(tmp_path / "metadata", point=point)
    cdi = CdiDirectory(tmp_path / "cdi", KIND, metadata, point=point)
    cdi.prepare()
    text = joined({"gpu": "one"})
    cdi.write(UID, "{}", text)
    assert (cdi.read_metadata(UID), cdi.with_metadata()) == (text, [UID])
    cdi.remove(UID)
    assert (cdi.read_metadata(UID), cdi.with_metadata()) == ("", [])
    assert [one for one in seen if one[0] in ("rename.file.before", "remove.metadata.before")] == [
        ("rename.file.before", False, text),
        ("remove.metadata.before", False, text),
    ]


def test_an_entry_changes_with_a_metadata_file(tmp_path: Path) -> None:
    metadata = MetadataDirectory(tmp_path / "metadata")
    cdi = CdiDirectory(tmp_path / "cdi", KIND, metadata)
    cdi.prepare()
    cdi.write(UID, "{}", joined({"gpu": "one"}))
    before = cdi.entries()
    assert cdi.entries() == before
    (tmp_path / "metadata" / UID / "gpu.json").unlink()
    assert cdi.entries() != before
