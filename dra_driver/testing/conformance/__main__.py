# SPDX-License-Identifier: Apache-2.0
"""`python -m dra_driver.testing.conformance cel|allocate`: answers JSON lines from standard input."""

import argparse
import functools
import os
import sys
from typing import Any

import msgspec

from dra_driver.cel.versions import NEWEST, OLDEST
from dra_driver.testing.conformance import allocate, cel
from dra_driver.testing.conformance.lines import answer_lines

RELEASES = {f"1.{minor}": minor for minor in range(OLDEST, NEWEST + 1)}


def main() -> int:
    """Answer each line of standard input until its end."""
    parser = argparse.ArgumentParser(
        prog="python -m dra_driver.testing.conformance", description=__doc__
    )
    parser.add_argument("what", choices=("cel", "allocate"))
    parser.add_argument(
        "--release",
        choices=RELEASES,
        default=f"1.{NEWEST}",
        help="whose CEL to speak (default: %(default)s); allocation is always that of the newest",
    )
    chosen = parser.parse_args()
    try:
        _answer_all(chosen.what, minor=RELEASES[chosen.release])
    except BrokenPipeError:
        # The reader closed the pipe. Unwritten output must not cause another error at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _answer_all(what: str, *, minor: int) -> None:
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    if what == "cel":
        answer = functools.partial(cel.answer, minor=minor)
        answer_lines(questions, answers, answer=answer, refuse=cel.refusal)
        return
    answer_lines(
        questions,
        answers,
        answer=lambda line: allocate.answer(msgspec.json.decode(line, type=dict[str, Any])),
        refuse=allocate.refusal,
    )


if __name__ == "__main__":
    sys.exit(main())
