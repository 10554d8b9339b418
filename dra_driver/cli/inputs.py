# SPDX-License-Identifier: Apache-2.0
"""This module reads the input files of `dra-driver explain`: manifests, and records of a cluster.

Another person may have written the files. So the size of the input, and the memory for reading it, are limited.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NoReturn

from dra_driver.cli.limits import more_memory
from dra_driver.errors import Permanent
from dra_driver.explain.subject.manifest import matters
from dra_driver.model.cluster import ClusterState, decode
from dra_driver.model.yaml_documents import BadDocument, Document, documents

STANDARD_INPUT = "-"
MOST_VALUES = 200_000
MOST_TEXT = 6 * 1024 * 1024
"""Limits for all documents together, in values and characters. Documents without pods or devices are not counted."""
LARGEST_RECORD = 1024**3
RECORD_COSTS = 16
"""The most bytes of memory for each byte of a record. The record of a real cluster needs a third of it (measured)."""
LEAST_FOR_A_RECORD = 64 * 1024 * 1024


def manifests(names: list[str]) -> tuple[object, ...]:
    """Read all files, and return the documents that matter for pods and devices. Raises Permanent if a file cannot be read."""
    kept = _Kept()
    for name in names:
        try:
            with _opened(name) as stream:
                for document in documents(stream):
                    if matters(document.content):
                        kept.take(document)
        except OSError as error:
            _unreadable("manifest", name, error)
        except BadDocument as error:
            raise Permanent(f"cannot read the manifest {name}: {error}") from error
    return tuple(kept.contents)


class _Kept:
    """The documents that were read so far, and their size together."""

    def __init__(self) -> None:
        self.contents: list[object] = []
        self._values = 0
        self._text = 0

    def take(self, document: Document) -> None:
        """Add a document. Raises BadDocument if all documents together are too large."""
        self._values += document.values
        self._text += document.text
        if self._values > MOST_VALUES or self._text > MOST_TEXT:
            raise BadDocument(
                f"more than {MOST_VALUES:,} values, or {MOST_TEXT:,} characters: give fewer files at a time"
            )
        self.contents.append(document.content)


def record(name: str) -> ClusterState:
    """Read the cluster state from a file of `dra-driver record`. Raises Permanent if the file cannot be read."""
    try:
        with Path(name).open("rb") as file:
            content = file.read(LARGEST_RECORD + 1)
    except OSError as error:
        _unreadable("record", name, error)
    if len(content) > LARGEST_RECORD:
        raise Permanent(
            f"cannot read the record {name}: it is larger than {LARGEST_RECORD:,} bytes"
        )
    try:
        with more_memory(LEAST_FOR_A_RECORD + (RECORD_COSTS - 1) * len(content)):
            return decode(content, source=name)
    except MemoryError as error:
        raise Permanent(
            f"cannot read the record {name}: its {len(content):,} bytes need more than {RECORD_COSTS} times as much memory; "
            "the record of a real cluster needs much less, so the file is damaged or was made to do harm"
        ) from error


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
        reason = (
            "it is a directory; give the files in it, each with -f"
            if what == "manifest"
            else "it is a directory"
        )
    raise Permanent(f"cannot read the {what} {name}: {reason}") from error
