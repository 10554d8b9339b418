# SPDX-License-Identifier: Apache-2.0
"""This module reads the input files of `dra-driver explain`, `check` and `convert`: manifests, and records of a cluster.

Another person may have written the files. So the size of the input, and the memory for reading it, are limited.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NoReturn

from dra_driver import PROJECT
from dra_driver.cli import render
from dra_driver.cli.limits import more_memory
from dra_driver.errors import Permanent
from dra_driver.explain.subject.manifest import matters
from dra_driver.model.cluster import ClusterState, decode
from dra_driver.model.yaml_documents import BadDocument, Document, documents

STANDARD_INPUT = "-"
SUFFIXES = (".json", ".yaml", ".yml")
"""The files of a directory that are manifests, as for kubectl."""
MOST_VALUES = 200_000
MOST_TEXT = 6 * 1024 * 1024
"""Limits for all documents together, in values and characters. Documents without pods or devices are not counted."""
LARGEST_RECORD = 1024**3
RECORD_COSTS = 16
"""The most bytes of memory for each byte of a record. The record of a real cluster needs a third of it (measured)."""
LEAST_FOR_A_RECORD = 64 * 1024 * 1024


def manifests(names: Sequence[str], *, recursive: bool = False) -> tuple[tuple[str, object], ...]:
    """Read all files, and return the documents that matter for pods and devices, each with its file. Raises Permanent if a file cannot be read.

    Of a directory, the files are read that kubectl would read; with `recursive` also those of its subdirectories.
    """
    kept = Kept()
    for name in files(names, recursive=recursive):
        try:
            kept.read(name, matters)
        except BadDocument as error:
            raise Permanent(f"cannot read the manifest {name}: {error}") from error
    return tuple((name, document.content) for name, _, document in kept.found)


def files(names: Sequence[str], *, recursive: bool = False) -> Iterator[str]:
    """Yield the files that are meant: of a directory those that kubectl would read. Raises Permanent if there is none."""
    for given in names:
        yield from _files(given, recursive=recursive)


class Kept:
    """The documents that were read so far, each with its file and its number there. Their size together is limited."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int, Document]] = []
        self._values = 0
        self._text = 0

    def read(
        self, name: str, wanted: Callable[[object], bool], *, with_places: bool = False
    ) -> None:
        """Read a file, and keep the documents that are wanted. Raises Permanent if it cannot be read, BadDocument if it is no YAML."""
        try:
            with _opened(name) as stream:
                read = documents(stream, unique_keys=with_places, with_places=with_places)
                for number, document in enumerate(read, 1):
                    if wanted(document.content):
                        self._take(name, number, document)
        except OSError as error:
            _unreadable("manifest", name, error)

    def _take(self, name: str, number: int, document: Document) -> None:
        """Add a document. Raises BadDocument if all documents together are too large."""
        self._values += document.values
        self._text += document.text
        if self._values > MOST_VALUES or self._text > MOST_TEXT:
            raise BadDocument(
                f"more than {MOST_VALUES:,} values, or {MOST_TEXT:,} characters: give fewer files at a time"
            )
        self.found.append((name, number, document))


def record(name: str) -> ClusterState:
    """Read the cluster state from a file of `dra-driver record`. Raises Permanent if the file cannot be read."""
    return state_in(recorded_text(name), name)


def state_in(content: bytes, name: str) -> ClusterState:
    """Return the cluster state in the content of a record. Raises Permanent if it is none; `name` is for the message."""
    try:
        with more_memory(LEAST_FOR_A_RECORD + (RECORD_COSTS - 1) * len(content)):
            return decode(content, source=name)
    except MemoryError as error:
        raise Permanent(
            f"cannot read the record {name}: its {len(content):,} bytes need more than {RECORD_COSTS} times as much memory; "
            "the record of a real cluster needs much less, so the file is damaged or was made to do harm"
        ) from error


def recorded_text(name: str) -> bytes:
    """Return the content of a record's file. Raises Permanent if it cannot be read, or is too large."""
    try:
        with Path(name).open("rb") as file:
            content = file.read(LARGEST_RECORD + 1)
    except OSError as error:
        _unreadable("record", name, error)
    if len(content) > LARGEST_RECORD:
        raise Permanent(
            f"cannot read the record {name}: it is larger than {LARGEST_RECORD:,} bytes"
        )
    return content


def _files(name: str, *, recursive: bool) -> Iterator[str]:
    """Yield the file itself, or the manifests in a directory, sorted by name. Raises Permanent if the directory has none."""
    if "://" in name:
        raise Permanent(
            f"cannot read the manifest {name}: a URL is not fetched; try `curl -L {name} | {PROJECT} explain -f -`"
        )
    if name == STANDARD_INPUT or not Path(name).is_dir():
        yield name
        return
    found = False
    for folder, inner, files in os.walk(name, onerror=_raise):
        # os.walk goes down into what is left of this list, in its order.
        inner[:] = sorted(inner) if recursive else []
        for file in sorted(files):
            path = Path(folder) / file
            if file.endswith(SUFFIXES):
                found = True
                if path.is_file() or not path.exists():  # a link to nothing is told when it is read
                    yield str(path)
                else:
                    render.error(f"{path} is no regular file: it is not read")
    if not found:
        below = "" if recursive else "; its subdirectories are read with -R"
        raise Permanent(
            f"cannot read the manifests in {name}: no file ends in {', '.join(SUFFIXES)}{below}"
        )


def _raise(error: OSError) -> NoReturn:
    _unreadable("manifests in", str(error.filename), error)


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    if name == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    with Path(name).open("rb") as file:
        yield file


def _unreadable(what: str, name: str, error: OSError) -> NoReturn:
    reason = error.strerror
    if isinstance(error, FileNotFoundError):
        reason = "there is no such file"
        if what == "record":
            reason += "; `dra-driver record` writes one"
    elif isinstance(error, IsADirectoryError):
        reason = "it is a directory"
    raise Permanent(f"cannot read the {what} {name}: {reason}") from error
