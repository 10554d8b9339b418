# SPDX-License-Identifier: Apache-2.0
"""What is in a layer, and how does a layer look as a tar?

A tree maps paths (without a leading slash) to files, links and folders. The same tree is always
the same tar, byte for byte: entries are sorted, everything belongs to root, and all times are 0.
"""

import io
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


class ImageError(Exception):
    """The image cannot be built; the message says what to do."""


@dataclass(frozen=True, slots=True)
class File:
    """A regular file."""

    content: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that is named because it is empty or has a mode of its own."""

    mode: int = 0o755


Entry = File | Link | Folder
Tree = dict[str, Entry]


def size(tree: Tree) -> int:
    """The bytes of all files."""
    return sum(len(entry.content) for entry in tree.values() if isinstance(entry, File))


def merged(trees: Iterable[Tree]) -> Tree:
    """One tree of several; two different entries under one path are an error."""
    whole: Tree = {}
    for tree in trees:
        for path, entry in tree.items():
            if whole.setdefault(path, entry) != entry:
                raise ImageError(f"two parts of the image have different ideas of /{path}")
    return whole


def _header(path: str, entry: Entry) -> tarfile.TarInfo:
    header = tarfile.TarInfo(path)
    match entry:
        case File(content, executable):
            header.size, header.mode = len(content), 0o755 if executable else 0o644
        case Link(target):
            header.type, header.linkname, header.mode = tarfile.SYMTYPE, target, 0o777
        case Folder(mode):
            header.type, header.mode = tarfile.DIRTYPE, mode
    return header


def with_parents(tree: Tree) -> Tree:
    """The same tree with every folder named."""
    parents = {str(parent) for path in tree for parent in PurePosixPath(path).parents} - {"."}
    return dict.fromkeys(parents, Folder()) | tree


def tar(tree: Tree) -> bytes:
    """The tree as an uncompressed tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, entry in sorted(with_parents(tree).items()):
            content = io.BytesIO(entry.content) if isinstance(entry, File) else None
            archive.addfile(_header(path, entry), content)
    return buffer.getvalue()


def write(tree: Tree, root: Path) -> None:
    """Put the tree below a folder of this machine, for programs that must see real files."""
    for path, entry in sorted(with_parents(tree).items()):
        place = root / path
        match entry:
            case File(content, executable):
                place.write_bytes(content)
                place.chmod(0o755 if executable else 0o644)
            case Link(target):
                place.symlink_to(target)
            case Folder(mode):
                place.mkdir(exist_ok=True)
                place.chmod(mode)


def untar(content: bytes) -> Tree:
    """The tree that a tar holds; of the folders those with a mode of their own."""
    found: Tree = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            if member.issym():
                found[member.name] = Link(member.linkname)
            elif member.isdir() and member.mode != Folder().mode:
                found[member.name] = Folder(member.mode)
            elif member.isfile() and (packed := archive.extractfile(member)) is not None:
                found[member.name] = File(packed.read(), executable=bool(member.mode & 0o100))
    return found


def read(root: Path) -> Tree:
    """The files below a folder of this machine; links are followed."""
    return {
        path.relative_to(root).as_posix(): File(
            path.read_bytes(), executable=bool(path.stat().st_mode & 0o100)
        )
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
