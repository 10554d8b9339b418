# SPDX-License-Identifier: Apache-2.0
"""`dra-driver check`: what is wrong with these manifests, and with --fix: correct what can be corrected exactly."""

import argparse
import difflib
import io
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from dra_driver import PROJECT
from dra_driver.check.check import check, fixable, objects_of
from dra_driver.check.finding import Finding, sorted_findings
from dra_driver.check.fixing import Fixed, fix
from dra_driver.check.given import Given, Known
from dra_driver.check.outcome import CheckReport, report_of, sarif
from dra_driver.check.unknown_kinds import is_object, matters
from dra_driver.cli import inputs, render, render_check
from dra_driver.cli.known import known
from dra_driver.cli.over_files import exit_code
from dra_driver.errors import Permanent
from dra_driver.model.exit_codes import COULD_NOT_TELL, DONE, NOT_DONE
from dra_driver.model.yaml_documents import BadDocument, documents
from dra_driver.node.files import content_of

SARIF = "sarif"
WIDEST = 120
_DECIDING = ("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices")
_TEMPLATE = re.compile(rb"(^|[:-][ ])[ ]*\{\{", re.MULTILINE)
"""A line, or a value without quotes, that begins with {{. In YAML it would be a mapping as a key of a mapping, which nobody writes."""
_MARK = "\ufeff"
_BEGINNING = 1024 * 1024  # of a file, where a template has its first {{
LARGEST_FIXED = 64 * 1024 * 1024


def run(chosen: argparse.Namespace) -> int:
    """Check the files. Returns the exit code."""
    names = [*chosen.file, *chosen.filename]
    if not names:
        chosen.parser.error("give files or directories to check, or - for standard input")
    if chosen.fix and inputs.STANDARD_INPUT in names and len(names) > 1:
        chosen.parser.error("--fix writes standard input to standard output: give - alone")
    return exit_code(lambda: _checked(chosen, names), chosen.timeout)


def _checked(chosen: argparse.Namespace, names: Sequence[str]) -> int:
    facts = known(chosen)
    files = list(inputs.files(names, recursive=chosen.recursive))
    if chosen.fix and files == [inputs.STANDARD_INPUT]:
        return _fixed_stream(chosen, facts)
    fixed = [one for file in files for one in _fixed_file(file, facts)] if chosen.fix else []
    read = _Files()
    failed = 0
    for file in files:
        try:
            read.take(file)
        except Permanent as error:
            # One bad file of a directory keeps no other one back.
            failed += 1
            render.error(str(error))
    findings = [*check(read.given, facts), *read.unreadable]
    found = report_of(
        sorted_findings(findings, files),
        len(files) - failed,
        [one for each in fixed for one in each.corrected],
    )
    _show(found, chosen.output)
    for each in fixed:
        _tell_left(each)
    code = _with_gaps(facts, _code(found, strict=chosen.strict))
    return COULD_NOT_TELL if failed else code


def _with_gaps(facts: Known, code: int) -> int:
    """Say what of the cluster could not be read. Then nothing wrong is no answer: something there may be."""
    gaps = [
        gap for gap in (facts.state.not_read if facts.state else ()) if gap.resource in _DECIDING
    ]
    for gap in gaps:
        render.error(f"could not be read: {gap}")
    return COULD_NOT_TELL if gaps and code == DONE else code


class _Files(Struct):
    """The objects of the files that were read so far. A file that is no YAML is told, and the others are checked all the same."""

    given: list[Given] = field(default_factory=list)
    unreadable: list[Finding] = field(default_factory=list)
    _kept: inputs.Kept = field(default_factory=inputs.Kept)

    def take(self, file: str) -> None:
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


def _fixed_file(file: str, facts: Known) -> list[Fixed]:
    """Correct one file in place; nothing if there is nothing to correct."""
    path = Path(file)
    try:
        if path.is_symlink():
            render.error(f"{file} is a link: it is not corrected; give the file that it leads to")
        # A link in somebody's checkout may lead anywhere, and a device never ends.
        content = content_of(path, most=LARGEST_FIXED + 1, links=False)
        if content is None or len(content) > LARGEST_FIXED:
            return []
        text = content.decode()
    except (OSError, UnicodeDecodeError):
        return []  # reading it again says what is wrong, and what is no UTF-8 is left as it is
    fixed = _fix(text, _finder(file, facts))
    if fixed.corrected:
        try:
            _replace(path, fixed.text.encode())
        except OSError as error:
            raise Permanent(
                f"cannot write {file}: {error.strerror}; nothing in it was corrected"
            ) from error
        _tell(file, text, fixed)
    return [fixed]


def _fix(text: str, find: Callable[[str], list[Finding]]) -> Fixed:
    """Correct the text. A mark of the byte order before it, as editors on Windows write it, is in no place of YAML, and stays."""
    bare = text.removeprefix(_MARK)
    fixed = fix(bare, find)
    return fixed if bare == text else replace(fixed, text=_MARK + fixed.text)


def _replace(path: Path, content: bytes) -> None:
    """Replace the file in one step: after an error it still has what it had. Raises OSError."""
    mode = stat.S_IMODE(path.stat().st_mode)
    beside, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(beside, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _fixed_stream(chosen: argparse.Namespace, facts: Known) -> int:
    """Write the corrected standard input to standard output, and what was found to standard error."""
    content = sys.stdin.buffer.read(LARGEST_FIXED + 1)
    if len(content) > LARGEST_FIXED:
        raise Permanent(f"standard input has more than {LARGEST_FIXED:,} bytes: correct a file")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise Permanent(
            f"standard input is no UTF-8 ({error.reason}): nothing was corrected"
        ) from error
    find = _finder(inputs.STANDARD_INPUT, facts)
    fixed = _fix(text, find)
    render.raw(fixed.text.encode().removesuffix(b"\n"))
    read = _Files()
    try:
        for number, document in enumerate(
            documents(io.BytesIO(fixed.text.encode()), with_places=True), 1
        ):
            read.given += objects_of(
                document.content, inputs.STANDARD_INPUT, number, document.places
            )
        if not read.given:
            read.unreadable.append(_empty(inputs.STANDARD_INPUT))
    except BadDocument as error:
        read.unreadable.append(_unreadable(inputs.STANDARD_INPUT, error))
    found = report_of([*check(read.given, facts), *read.unreadable], 1, fixed.corrected)
    for line in render_check.text(found, width=WIDEST, color=False):
        render.error(line)
    _tell_left(fixed)
    return _with_gaps(facts, _code(found, strict=chosen.strict))


def _finder(file: str, facts: Known) -> Callable[[str], list[Finding]]:
    def find(text: str) -> list[Finding]:
        given: list[Given] = []
        try:
            for number, document in enumerate(
                documents(io.BytesIO(text.encode()), with_places=True), 1
            ):
                given += objects_of(document.content, file, number, document.places)
        except BadDocument:
            return []  # a file that is no YAML is told, and left
        return list(fixable(given, facts))

    return find


def _tell(file: str, before: str, fixed: Fixed) -> None:
    lines = difflib.unified_diff(
        before.splitlines(), fixed.text.splitlines(), file, f"{file} (fixed)", lineterm="", n=1
    )
    render.error(f"{file} is changed:", *lines)


def _tell_left(fixed: Fixed) -> None:
    for one in fixed.left:
        render.error(f"{one.file}:{one.line}: {one.subject}: {one.message}: {one.unfixed}")


def _show(found: CheckReport, output: str) -> None:
    if output == SARIF:
        render.document(sarif(found), render.JSON)
    elif output in render.DOCUMENTS:
        render.document(found, output)
    else:
        width = min(WIDEST, shutil.get_terminal_size((100, 24)).columns)
        for line in render_check.text(found, width=width, color=render.colored()):
            render.line(line)


def _code(found: CheckReport, *, strict: bool) -> int:
    return NOT_DONE if found.errors or (strict and found.warnings) else DONE
