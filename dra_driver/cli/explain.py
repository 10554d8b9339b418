# SPDX-License-Identifier: Apache-2.0
"""`dra-driver explain`: why does this pod, claim or manifest get no devices, or which devices does it get?"""

import argparse
import shutil
from typing import NoReturn

from dra_driver.cli import render, render_explain, render_list
from dra_driver.cli.limits import uncollected
from dra_driver.cli.question import Answer, Question, only_driver_errors
from dra_driver.cli.report_verdicts import for_programs
from dra_driver.cli.rights import HINT
from dra_driver.cli.subjects import Asked, WrongUsage, asked
from dra_driver.errors import DriverError
from dra_driver.explain.outcome import Report
from dra_driver.model.exit_codes import COULD_NOT_TELL, INTERRUPTED

WIDEST = 120


def run(chosen: argparse.Namespace) -> int:
    """Explain the subjects. Returns the exit code."""
    question = Question(chosen, _asked(chosen))
    try:
        if chosen.watch:
            from dra_driver.cli.follow import follow  # noqa: PLC0415  imports the HTTP client, which a record does not need

            return follow(question, Output(question))
        with uncollected(frozen=True):
            return _once(question, Output(question))
    except KeyboardInterrupt:
        return INTERRUPTED


def _once(question: Question, output: "Output") -> int:
    try:
        _, answer = question.look()
    except DriverError as error:
        return output.failed(error)
    return output.shown(answer)


class Output:
    """Prints answers, and returns their exit codes."""

    def __init__(self, question: Question) -> None:
        self._question = question

    def failed(self, error: DriverError) -> int:
        """Print that there is no answer; for programs also as a document."""
        render.error(str(error))
        if self._question.output not in render.DOCUMENTS:
            self._tell_role()
            return COULD_NOT_TELL
        return self.shown(self._question.no_answer(error))

    def shown(self, answer: Answer) -> int:
        """Print the answer. If it cannot be written, the exit code says that there is none."""
        try:
            only_driver_errors(lambda: _show(answer, self._question.output))
        except DriverError as error:
            render.error(str(error))
            return COULD_NOT_TELL
        if answer.exit_code == COULD_NOT_TELL:
            self._tell_role()
        return answer.exit_code

    def _tell_role(self) -> None:
        if self._question.lacks_rights:
            render.error(HINT)


def _show(answer: Answer, output: str) -> None:
    """Print the answer as text, JSON or YAML. Raises Permanent if standard output cannot be written."""
    if output in render.DOCUMENTS:
        render.document(for_programs(answer), output)
        return
    width = min(WIDEST, shutil.get_terminal_size((100, 24)).columns)
    color = render.colored()
    if isinstance(answer, Report):
        lines = render_explain.text(answer, width=width, color=color)
    else:
        lines = render_list.list_text(answer, width=width, color=color)
    for line in lines:
        render.line(line)


def _asked(chosen: argparse.Namespace) -> Asked:
    """Return what the command line asks about; ends the process if it is wrong."""
    if chosen.watch and chosen.record:
        _refuse(chosen.parser, "a record does not change: give either --watch or --from")
    if chosen.recursive and not chosen.filename:
        _refuse(chosen.parser, "--recursive is for the directories of -f")
    try:
        return asked(
            chosen.subject,
            files=bool(chosen.filename),
            labels=chosen.selector,
            all_namespaces=chosen.all_namespaces,
        )
    except WrongUsage as error:
        _refuse(chosen.parser, str(error))


def _refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    parser.error(message)
