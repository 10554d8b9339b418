# SPDX-License-Identifier: Apache-2.0
"""Paths below a folder that stands for another root file system."""

import os
from pathlib import Path

import pytest

from dra_driver.backends.nvidia.hardware.tree import Tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A driver root with links as a distribution has them, beside a file that is none of its own."""
    (tmp_path / "secret").write_text("outside")
    root = tmp_path / "root"
    (root / "usr/lib/nvidia").mkdir(parents=True)
    (root / "usr/lib/nvidia/lib.so.1").write_text("inside")
    (root / "lib").symlink_to("usr/lib")
    (root / "usr/lib/lib.so").symlink_to("/lib/nvidia/lib.so.1")
    return root


@pytest.mark.parametrize(
    ("path", "resolved"),
    [
        ("/usr/lib/nvidia/lib.so.1", "/usr/lib/nvidia/lib.so.1"),
        ("/lib/lib.so", "/usr/lib/nvidia/lib.so.1"),
        ("//lib/./nvidia/../lib.so", "/usr/lib/nvidia/lib.so.1"),
        ("/../../lib/nvidia", "/usr/lib/nvidia"),
        ("/", "/"),
        ("/lib/missing", ""),
        ("/lib/nvidia/lib.so.1/more", ""),
        ("/a\0b", ""),
    ],
)
def test_links_are_resolved_inside(root: Path, path: str, resolved: str) -> None:
    assert Tree(root).resolve(path) == resolved


@pytest.mark.parametrize("target", ["../secret", "../../secret", "/../secret"])
def test_no_link_leads_out(root: Path, target: str) -> None:
    (root / "out").symlink_to(target)
    tree = Tree(root)
    assert tree.read("/out") == b""
    (root / "secret").write_text("its own")
    assert tree.text("/out") == "its own"


def test_a_loop_of_links_leads_nowhere(root: Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    (root / "self").symlink_to("self/deeper")
    tree = Tree(root)
    assert [tree.resolve(path) for path in ("/a", "/b", "/self")] == ["", "", ""]
    assert tree.stat("/a") is None
    assert tree.names("/a") == []
    assert tree.link("/a") == "b"


def test_what_is_missing_is_empty(root: Path) -> None:
    tree = Tree(root)
    assert (tree.read("/x"), tree.names("/x"), tree.link("/x"), tree.is_file("/x")) == (
        b"",
        [],
        "",
        False,
    )
    below = tree.below("/none")
    assert (below.names("/"), below.stat("/")) == ([], None)
    assert tree.link("/usr/lib") == ""
    assert tree.link("/a\0/b") == ""


def test_a_tree_below_has_its_own_links(root: Path) -> None:
    (root / "usr/root").symlink_to("/nvidia")
    inner = Tree(root).below("/lib")
    assert inner.names("/") == ["lib.so", "nvidia"]
    assert inner.text("/nvidia/lib.so.1") == "inside"
    assert inner.resolve("/lib.so") == ""  # /lib is not inside


def test_only_ordinary_files_are_read(root: Path) -> None:
    os.mkfifo(root / "pipe")
    assert Tree(root).read("/pipe") == b""
    assert Tree(root).read("/usr") == b""


def test_a_file_that_may_not_be_read_is_empty(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "no")

    monkeypatch.setattr(Path, "open", refused)
    assert Tree(root).read("/lib/lib.so") == b""


@pytest.mark.parametrize("link", ["made/later", "late"])
def test_a_link_to_what_is_missing_inside_leads_nowhere_outside(
    tmp_path: Path, root: Path, link: str
) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "file").write_text("outside")
    (root / "late").symlink_to(other)
    (root / "made").mkdir()
    (root / "made/later").symlink_to(f"../..{other}")
    tree = Tree(root)
    assert tree.place(f"/{link}/file") == root.joinpath(str(other).lstrip("/"), "file")
    assert (tree.below(f"/{link}").names("/"), tree.below(f"/{link}").read("/file")) == ([], b"")


def test_a_loop_has_no_place(root: Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    with pytest.raises(OSError, match="File name too long"):
        Tree(root).place("/a/x").stat()


def test_a_folder_that_comes_later_is_found(root: Path) -> None:
    below = Tree(root).below("/run/driver")
    assert below.names("/") == []
    (root / "run/driver").mkdir(parents=True)
    (root / "run/driver/file").touch()
    assert below.names("/") == ["file"]
