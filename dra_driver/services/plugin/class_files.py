# SPDX-License-Identifier: Apache-2.0
"""Which DeviceClasses are in the YAML files of a folder?

A file may have several documents, and a document may be a `kind: List`. Each is read for itself: a mistake costs one class, and is told
with its place. Other objects are passed over, and named. As long as a file is no YAML, its last text that was YAML counts.
"""

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from dra_driver.kube.wire.classes import is_class, read_class
from dra_driver.model.decoding import shown, told
from dra_driver.model.plugin import ClassSource
from dra_driver.model.yaml_documents import BadDocument, documents
from dra_driver.node.mounted_folder import FolderContent

MOST_CLASSES = 256
SUFFIXES = (".yaml", ".yml", ".json")
_NOTHING: Mapping[str, bytes] = {}
_SEPARATOR = re.compile(rb"^---(?=\s|$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ClassesFound:
    """The classes in the order of their places. `problems` are sentences about what was refused, `passed_over` names other objects.

    `meant`: somebody wrote a class, even if none can be used. What cannot be read may have one. `texts` are the files that count, by name.
    """

    sources: tuple[ClassSource, ...] = ()
    problems: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()
    meant: bool = False
    texts: Mapping[str, bytes] = field(default_factory=dict, compare=False)


def classes_in(folder: FolderContent, before: Mapping[str, bytes] = _NOTHING) -> ClassesFound:
    """The classes of a folder. Of two with the same name the first one counts. `before` are the `texts` that counted until now."""
    found = _Found()
    found.problems += folder.problems
    found.meant = bool(folder.problems)
    unread = {name: before[name] for name in folder.unread if name in before}
    for name, content in sorted({**folder.files, **unread}.items()):
        if not name.endswith(SUFFIXES):
            found.passed_over.append(f"{name} (its name ends in none of {', '.join(SUFFIXES)})")
        else:
            found.take_file(name, content, before.get(name))
    return ClassesFound(
        tuple(found.sources.values())[:MOST_CLASSES],
        (*found.problems, *found.too_many()),
        tuple(found.passed_over),
        found.meant,
        found.texts,
    )


class _Found:
    def __init__(self) -> None:
        self.sources: dict[str, ClassSource] = {}
        self.problems: list[str] = []
        self.passed_over: list[str] = []
        self.meant = False
        self.texts: dict[str, bytes] = {}

    def take_file(self, name: str, content: bytes, before: bytes | None) -> None:
        """Take the documents of a file; if one of them is no YAML, those of the text that it had before."""
        read = list(_documents(name, content))
        bad = [(where, one) for where, one in read if isinstance(one, BadDocument)]
        if bad:
            self.meant = True
            until = "" if before is None else "; until then the file counts as it was before"
            self.problems += [f"{where}: {wrong}; correct it{until}" for where, wrong in bad]
            if before is not None:
                content, read = before, list(_documents(name, before))
        if not bad or before is not None:
            self.texts[name] = content
        for where, document in read:
            if not isinstance(document, BadDocument):
                self.take(document, where)

    def take(self, document: object, where: str) -> None:
        if not isinstance(document, Mapping):
            self.meant = True
            self.problems.append(
                f"{where}: {shown(document)} is no object: write a DeviceClass with apiVersion, kind, metadata and spec"
            )
        elif document.get("kind") == "List" and isinstance(document.get("items"), list):
            for number, item in enumerate(document["items"], 1):
                self.take(item, f"{where} item {number}")
        elif not is_class(document):
            kind, group = document.get("kind"), document.get("apiVersion")
            self.passed_over.append(f"{where} ({shown(kind)[1:-1]} of {shown(group)[1:-1]})")
        else:
            self._class(document, where)

    def _class(self, document: Mapping[str, object], where: str) -> None:
        self.meant = True
        found, mistakes = read_class(document)
        if found is None:
            self.problems.append(f"{where}: {told(mistakes)}; correct it")
            return
        name = found.metadata.name
        if (first := self.sources.get(name)) is not None:
            self.problems.append(
                f"{where}: DeviceClass {name} is in {first.where} already: remove one of them, or give it another name"
            )
            return
        self.sources[name] = ClassSource(found, where)

    def too_many(self) -> Iterator[str]:
        if len(self.sources) > MOST_CLASSES:
            last = list(self.sources.values())[MOST_CLASSES]
            yield f"there are more than {MOST_CLASSES} classes, and those from {last.where} on do not count: remove some"


def _documents(name: str, content: bytes) -> Iterator[tuple[str, object]]:
    """Each document with its place; a BadDocument instead of one that is no YAML."""
    try:
        whole = list(documents(io.BytesIO(content), unique_keys=True))
    except BadDocument:
        # Nobody knows where a broken document ends, but for a line that begins with ---.
        yield from _one_by_one(name, content)
        return
    for number, one in enumerate(whole, 1):
        yield f"{name} document {number}", one.content


def _one_by_one(name: str, content: bytes) -> Iterator[tuple[str, object]]:
    starts = [0, *(found.start() for found in _SEPARATOR.finditer(content)), len(content)]
    number = 0
    for start, end in pairwise(starts):
        # Empty lines instead of what is before, so that a message names the line of the file.
        text = b"\n" * content.count(b"\n", 0, start) + content[start:end]
        parsed: list[object] = []
        try:
            parsed += [one.content for one in documents(io.BytesIO(text), unique_keys=True)]
        except BadDocument as error:
            parsed = [error]
        for one in parsed:
            number += 1
            yield f"{name} document {number}", one
