# SPDX-License-Identifier: Apache-2.0
"""What stays of a file that `dra-driver check --fix` corrects? Real files, owners and attributes."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dra_driver.cli.main import main
from dra_driver.cli.replaced import replace_content
from dra_driver.errors import Permanent
from tests.unit.check.findings import claim

NEW = claim("deviceClassName: gpu")
OLD = NEW.replace("/v1\n", "/v1beta2\n")
OWNER, GROUP, OTHER = 1234, 2345, 3456
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which every user may make files, as tmp_path is not."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o777)
    monkeypatch.chdir(made)
    yield made
    monkeypatch.undo()
    shutil.rmtree(made)


@pytest.fixture
def file(folder: Path) -> Path:
    path = folder / "a.yaml"
    path.write_text(OLD)
    path.chmod(0o640)
    return path


@contextmanager
def another_user() -> Iterator[None]:
    os.seteuid(OTHER)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_corrected_file_keeps_its_mode(file: Path) -> None:
    assert main(["check", "--fix", "a.yaml"]) == 0
    assert file.read_text() == NEW
    assert file.stat().st_mode & 0o7777 == 0o640


@as_root
def test_a_corrected_file_keeps_its_owner(file: Path) -> None:
    os.chown(file, OWNER, GROUP)
    file.chmod(0o6640)  # a change of the owner would take the first bits away
    assert main(["check", "--fix", "a.yaml"]) == 0
    found = file.stat()
    assert file.read_text() == NEW
    assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (OWNER, GROUP, 0o6640)


@as_root
def test_a_file_that_would_get_another_owner_is_left(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.chown(file, OWNER, GROUP)
    file.chmod(0o666)
    Path("b.yaml").write_text(OLD)
    os.chown("b.yaml", OTHER, 0)
    with another_user():
        assert main(["check", "--fix", "a.yaml", "b.yaml"]) == 2
    found = file.stat()
    assert (file.read_text(), found.st_uid, found.st_gid) == (OLD, OWNER, GROUP)
    assert Path("b.yaml").read_text() == NEW
    assert sorted(one.name for one in file.parent.iterdir()) == ["a.yaml", "b.yaml"]
    assert (
        f"dra-driver: cannot correct a.yaml: it belongs to uid {OWNER} and gid {GROUP}, and the corrected file would belong to uid {OTHER} and gid 0 "
        "(Operation not permitted); nothing in it was corrected: run --fix as its owner\n"
    ) in capsys.readouterr().err


def test_a_corrected_file_keeps_its_attributes(file: Path) -> None:
    try:
        os.setxattr(file, "user.note", b"mine")
    except OSError:
        pytest.skip("this filesystem has no attributes")
    assert main(["check", "--fix", "a.yaml"]) == 0
    assert os.getxattr(file, "user.note") == b"mine"


def refusing(*_: object, **_more: object) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


def has(name: str) -> object:
    return lambda *_, **_more: [name]


def test_a_file_that_would_lose_an_attribute_is_left(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "listxattr", has("user.note"))
    monkeypatch.setattr(os, "getxattr", lambda *_, **_more: b"mine")
    monkeypatch.setattr(os, "setxattr", refusing)
    with pytest.raises(Permanent, match=r"would not have its attribute user\.note"):
        replace_content(file, b"new")
    assert file.read_text() == OLD
    monkeypatch.setattr(os, "listxattr", has("security.selinux"))  # the system labels the new file
    replace_content(file, b"new")
    assert file.read_text() == "new"


def test_without_attributes_a_file_is_replaced(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "listxattr", refusing)
    replace_content(file, b"new")
    monkeypatch.delattr(os, "listxattr")
    replace_content(file, b"newer")
    assert file.read_text() == "newer"


@pytest.mark.parametrize("given", ["link.yaml", "{folder}/links"])
def test_a_link_stays_and_its_file_is_corrected(file: Path, given: str) -> None:
    Path("links").mkdir()
    Path("link.yaml").symlink_to("a.yaml")
    Path("links/b.yaml").symlink_to("../a.yaml")
    assert main(["check", "--fix", given.format(folder=file.parent)]) == 0
    assert file.read_text() == NEW
    assert Path("link.yaml").readlink() == Path("a.yaml")
    assert Path("links/b.yaml").readlink() == Path("../a.yaml")
    assert not file.is_symlink()


def test_a_link_that_leads_elsewhere_is_not_corrected(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "b.yaml"
    target.write_text(OLD)
    Path("link.yaml").symlink_to(target)
    assert main(["check", "--fix", "link.yaml"]) == 0
    assert (target.read_text(), file.read_text()) == (OLD, OLD)
    said = f"dra-driver: link.yaml is a link to {target}, outside of what is checked: it is not corrected; give that file, or its folder\n"
    assert capsys.readouterr().err == said
    assert main(["check", "--fix", "link.yaml", str(tmp_path)]) == 0
    assert target.read_text() == NEW


def test_everything_is_in_no_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("b.yaml").write_text(OLD)
    Path("link.yaml").symlink_to(folder / "b.yaml")
    monkeypatch.chdir("/")
    assert main(["check", "--fix", str(folder / "link.yaml")]) == 0
    assert "outside of what is checked" in capsys.readouterr().err


def test_a_link_to_itself_is_told_as_a_file_that_cannot_be_read(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a.yaml").symlink_to("a.yaml")
    assert main(["check", "--fix", "a.yaml"]) == 2
    assert "cannot read the manifest a.yaml" in capsys.readouterr().err
