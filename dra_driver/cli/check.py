# SPDX-License-Identifier: Apache-2.0
"""`dra-driver check`: what is wrong with these manifests, and with --fix: correct what can be corrected exactly."""

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial

from dra_driver.check.check import check, finder, of_all
from dra_driver.check.finding import Finding, sorted_findings
from dra_driver.check.given import Given, Known
from dra_driver.check.outcome import CheckReport, UncheckedFile, report_of, sarif
from dra_driver.check.rules import RULES
from dra_driver.cli import check_fix, inputs, render, render_check
from dra_driver.cli.check_files import Files
from dra_driver.cli.known import known
from dra_driver.cli.over_files import Limit, OutOfTime, exit_code, named
from dra_driver.cli.question import only_driver_errors
from dra_driver.errors import DriverError, Permanent
from dra_driver.model.exit_codes import COULD_NOT_TELL, DONE, NOT_DONE

SARIF = "sarif"
WIDEST = 120
FIXING, READING = 0.6, 0.8
"""The part of the time that is left which --fix may use, and then reading the files. The rest is for checking what was read."""
ONE_FILE = 0.5
"""The part of the time that is left which one file may use while others wait."""
_DECIDING = ("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices")
_OVER = "the time of --timeout was over"


def run(chosen: argparse.Namespace) -> int:
    """Check the files. Returns the exit code."""
    names = [*chosen.file, *chosen.filename]
    if not names:
        chosen.parser.error("give files or directories to check, or - for standard input")
    if chosen.fix and inputs.STANDARD_INPUT in names and len(names) > 1:
        chosen.parser.error("--fix writes standard input to standard output: give - alone")
    limit = Limit.of(chosen.timeout)
    return exit_code(lambda: _checked(chosen, names, limit))


def _checked(chosen: argparse.Namespace, names: Sequence[str], limit: Limit) -> int:
    facts = limit.run(lambda: known(chosen))
    files = limit.run(lambda: list(inputs.files(names, recursive=chosen.recursive)))
    if chosen.fix and files == [inputs.STANDARD_INPUT]:
        return limit.run(lambda: _fixed_stream(chosen, facts))
    done = check_fix.Corrections()
    if chosen.fix:
        done = check_fix.correct(files, facts, limit.part(FIXING), names)
    read, unchecked = _read(files, limit.part(READING))
    findings = _findings(read, facts, limit, unchecked)
    found = report_of(
        sorted_findings(findings, files),
        sum(file not in unchecked for file in files),
        [one for each in done.fixed for one in each.corrected],
        [UncheckedFile(file, reason) for file, reason in unchecked.items()],
    )
    # Without the limit: what was found is worth more than the time to write it, and how long a pager waits is nobody's work.
    _show(found, chosen.output)
    for each in done.fixed:
        check_fix.tell_left(each)
    over = [file for file, reason in unchecked.items() if reason == _OVER]
    if over:
        render.error(
            f"{OutOfTime(limit.seconds).what}: {len(over)} of {len(files)} files were not looked into: {named(over)}; "
            "give more time, or fewer files"
        )
    code = _with_gaps(facts, _code(found, strict=chosen.strict))
    return code if done.is_complete and not unchecked else COULD_NOT_TELL


def _read(files: Sequence[str], limit: Limit) -> tuple[Files, dict[str, str]]:
    """Read the files, as many as the time allows. Returns also why others are not checked."""
    read = Files()
    unchecked: dict[str, str] = {}
    for place, file in enumerate(files):
        try:
            limit.run(partial(read.take, file))
        except OutOfTime:
            unchecked |= dict.fromkeys(files[place:], _OVER)
            break
        except Permanent as error:
            # One bad file of a directory keeps no other one back.
            unchecked[file] = str(error)
            render.error(str(error))
    return read, unchecked


def _findings(read: Files, facts: Known, limit: Limit, unchecked: dict[str, str]) -> list[Finding]:
    """Return what was found in the files that were checked. The others are added to the unchecked ones."""
    is_all_read = _OVER not in unchecked.values()
    found: list[Finding] = list(read.unreadable)
    objects: dict[str, list[Given]] = {}
    for one in read.given:
        objects.setdefault(one.file, []).append(one)
    try:
        find = limit.run(lambda: finder(read.given, facts))
        found += limit.run(lambda: list(of_all(read.given, facts)))
        last = next(reversed(objects), "")
        for file, some in objects.items():
            try:
                # One file that takes long leaves time for the others.
                mine = limit if file == last else limit.part(ONE_FILE)
                found += _of_file(some, find, mine)
            except OutOfTime:
                unchecked[file] = _OVER
            except DriverError as error:
                unchecked[file] = str(error)
                render.error(f"{file}: {error}")
    except OutOfTime:
        unchecked |= dict.fromkeys(objects, _OVER)
    return [
        one
        for one in found
        # What is not there may be in a file that was not read.
        if one.file not in unchecked and (is_all_read or not RULES[one.rule].of_others)
    ]


def _of_file(
    objects: Sequence[Given], find: Callable[[Given], list[Finding]], limit: Limit
) -> list[Finding]:
    def work() -> list[Finding]:
        return [finding for one in objects for finding in find(one)]

    return only_driver_errors(lambda: limit.run(work))


def _with_gaps(facts: Known, code: int) -> int:
    """Say what of the cluster could not be read. Then nothing wrong is no answer: something there may be."""
    gaps = [
        gap for gap in (facts.state.not_read if facts.state else ()) if gap.resource in _DECIDING
    ]
    for gap in gaps:
        render.error(f"could not be read: {gap}")
    return COULD_NOT_TELL if gaps and code == DONE else code


def _fixed_stream(chosen: argparse.Namespace, facts: Known) -> int:
    """Write the corrected standard input to standard output, and what was found to standard error."""
    content = sys.stdin.buffer.read(check_fix.LARGEST_FIXED + 1)
    if len(content) > check_fix.LARGEST_FIXED:
        raise Permanent(
            f"standard input has more than {check_fix.LARGEST_FIXED:,} bytes: correct a file"
        )
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise Permanent(
            f"standard input is no UTF-8 ({error.reason}): nothing was corrected"
        ) from error
    fixed = check_fix.corrected(text, inputs.STANDARD_INPUT, facts)
    render.raw(fixed.text.encode().removesuffix(b"\n"))
    read = Files()
    read.take_text(inputs.STANDARD_INPUT, fixed.text)
    found = report_of([*check(read.given, facts), *read.unreadable], 1, fixed.corrected)
    for line in render_check.text(found, width=WIDEST, color=False):
        render.error(line)
    check_fix.tell_left(fixed)
    return _with_gaps(facts, _code(found, strict=chosen.strict))


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
