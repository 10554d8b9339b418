# SPDX-License-Identifier: Apache-2.0
"""How does `dra-driver check` read its files? A file that is no YAML is told, and the others are checked all the same."""

import io
import re
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from dra_driver import PROJECT
from dra_driver.check.check import objects_of
from dra_driver.check.finding import Finding
from dra_driver.check.given import Given
from dra_driver.check.unknown_kinds import is_object, matters
from dra_driver.cli import inputs
from dra_driver.model.yaml_documents import BadDocument, documents

_TEMPLATE = re.compile(rb"(^|[:-][ ])[ ]*\{\{", re.MULTILINE)
"""A line, or a value without quotes, that begins with {{. In YAML it would be a mapping as a key of a mapping, which nobody writes."""
_BEGINNING = 1024 * 1024  # of a file, where a template has its first {{


class Files(Struct):
    """The objects of the files that were read so far, and what is said of files as a whole."""

    given: list[Given] = field(default_factory=list)
    unreadable: list[Finding] = field(default_factory=list)
    _kept: inputs.Kept = field(default_factory=inputs.Kept)

    def take(self, file: str) -> None:
        """Read a file. Raises Permanent if it cannot be read."""
        first = len(self._kept.found)
        others = False
        is_empty = True

        def wanted(content: object) -> bool:
            nonlocal others, is_empty
            is_empty = False
            others = others or not (is_object(content) or matters(content))
            return matters(content)

        try:
            self._kept.read(file, wanted, with_places=True)
            if is_empty:
                self.unreadable.append(_empty(file))
        except BadDocument as error:
            self.unreadable.append(_template(file) or _unreadable(file, error))
        if others:
            # Such a document is not kept: a repository has large ones. An empty one stands for all of a file.
            self.given.append(Given({}, file))
        for name, number, document in self._kept.found[first:]:
            self.given += objects_of(document.content, name, number, document.places)

    def take_text(self, file: str, text: str) -> None:
        """Take the text as the content of a file."""
        try:
            for number, document in enumerate(
                documents(io.BytesIO(text.encode()), with_places=True), 1
            ):
                self.given += objects_of(document.content, file, number, document.places)
            if not self.given:
                self.unreadable.append(_empty(file))
        except BadDocument as error:
            self.unreadable.append(_unreadable(file, error))


def _template(file: str) -> Finding | None:
    """Return the finding about a template, which is no YAML before it is rendered; None for any other file."""
    try:
        with Path(file).open("rb") as opened:
            beginning = opened.read(_BEGINNING)
    except OSError:
        return None  # standard input
    if not _TEMPLATE.search(beginning):
        return None
    message = "a template with {{…}} is no YAML: it is not checked"
    return _of_file(
        file, "not-checked", message, f"render it first: `helm template … | {PROJECT} check -`"
    )


def _empty(file: str) -> Finding:
    return _of_file(file, "not-checked", "it is empty or has only comments: nothing is checked", "")


def _unreadable(file: str, error: BadDocument) -> Finding:
    action = "correct it; what follows in this file is not checked"
    found = _of_file(file, "yaml", error.problem, action)
    return replace(found, line=error.line, column=error.column)


def _of_file(file: str, rule: str, message: str, action: str) -> Finding:
    return Finding(
        rule=rule,
        file=file,
        document=0,
        line=0,
        column=0,
        subject="the file",
        path="",
        message=message,
        action=action,
    )
