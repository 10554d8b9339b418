# SPDX-License-Identifier: Apache-2.0
"""Which DeviceClasses are in the YAML files of a folder?

A file may have several documents, and a document may be a `kind: List`. Each is read for itself: a mistake costs one class, and is told
with its place. Other objects are passed over, and named. As long as a file is no YAML, its last text that was YAML counts.
"""

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise

from dra_driver.kube.wire.classes import is_class, is_mistyped, read_class
from dra_driver.model.decoding import shown, told
from dra_driver.model.plugin import ClassSource
from dra_driver.model.yaml_documents import BadDocument, documents
from dra_driver.node.mounted_folder import FolderContent

MOST_CLASSES = 256
MOST_DOCUMENTS = 256
"""Of a file in which one is no YAML, because each is then parsed for itself."""
MOST_TOLD = 32
"""Of problems, and of other objects; each is a line in the log."""
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
    for problem in folder.problems:
        found.problems.add(problem)
    found.meant = bool(folder.problems)
    unread = {name: before[name] for name in folder.unread if name in before}
    for name, content in sorted({**folder.files, **unread}.items()):
        if name.endswith(SUFFIXES):
            found.take_file(name, content, before.get(name))
        else:
            found.passed_over.add(f"{name} (its name ends in none of {', '.join(SUFFIXES)})")
    return ClassesFound(
        tuple(found.sources.values())[:MOST_CLASSES],
        (*found.problems.texts(), *found.too_many()),
        found.passed_over.texts(),
        found.meant,
        found.texts,
    )


class _Told:
    """The first texts, and how many there were in all. `more` says the number of the others."""

    def __init__(self, more: str) -> None:
        self._more = more
        self._texts: list[str] = []
        self._number = 0

    def add(self, text: str) -> None:
        self._number += 1
        if self._number <= MOST_TOLD:
            self._texts.append(text)

    def texts(self) -> tuple[str, ...]:
        left = self._number - len(self._texts)
        return (*self._texts, *([self._more.format(left)] if left else []))


class _Found:
    def __init__(self) -> None:
        self.sources: dict[str, ClassSource] = {}
        self.problems = _Told("{} more mistakes are not told; correct the others first")
        self.passed_over = _Told("{} other objects")
        self.meant = False
        self.texts: dict[str, bytes] = {}

    def take_file(self, name: str, content: bytes, before: bytes | None) -> None:
        """Take the documents of a file; if one of them is no YAML, those of the text that it had before."""
        read = list(_documents(name, content))
        bad = [(where, one) for where, one in read if isinstance(one, BadDocument)]
        if bad:
            self.meant = True
            until = "" if before is None else "; until then the file counts as it was before"
            for where, wrong in bad:
                self.problems.add(f"{where}: {wrong}; correct it{until}")
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
            self.problems.add(
                f"{where}: {shown(document)} is no object: write a DeviceClass with apiVersion, kind, metadata and spec"
            )
        elif document.get("kind") == "List" and isinstance(document.get("items"), list):
            for number, item in enumerate(document["items"], 1):
                self.take(item, f"{where} item {number}")
        elif is_mistyped(document):
            self.meant = True
            self.problems.add(
                f"{where}: {document['apiVersion']} has no kind {shown(document.get('kind'))}: write `kind: DeviceClass`"
            )
        elif not is_class(document):
            kind, group = document.get("kind"), document.get("apiVersion")
            self.passed_over.add(f"{where} ({shown(kind)[1:-1]} of {shown(group)[1:-1]})")
        else:
            self._class(document, where)

    def _class(self, document: Mapping[str, object], where: str) -> None:
        self.meant = True
        found, mistakes = read_class(document)
        if found is None:
            self.problems.add(f"{where}: {told(mistakes)}; correct it")
            return
        name = found.metadata.name
        if (first := self.sources.get(name)) is not None:
            self.problems.add(
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
    starts = (found.start() for found in _SEPARATOR.finditer(content, 1))
    pieces = pairwise(chain([0], starts, [len(content)]))
    number = lines = 0
    for start, end in islice(pieces, MOST_DOCUMENTS):
        for one in _parsed(content[start:end]):
            number += 1
            # A message names the line of the file.
            found = one.below(lines) if isinstance(one, BadDocument) else one
            yield f"{name} document {number}", found
        lines += content.count(b"\n", start, end)
    if any(pieces):
        yield (
            name,
            BadDocument(
                f"one of its documents is no YAML, and those after the first {MOST_DOCUMENTS} are not read"
            ),
        )


def _parsed(text: bytes) -> Iterator[object]:
    try:
        yield from [one.content for one in documents(io.BytesIO(text), unique_keys=True)]
    except BadDocument as error:
        yield error
