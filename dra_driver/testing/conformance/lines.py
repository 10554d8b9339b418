# SPDX-License-Identifier: Apache-2.0
"""Read questions, one per line, and write one answer per line.

Each answer is written before the next line is read, because the caller may wait for it. A line that cannot be read, or on which
this program fails, gets an answer with the reason, and the next lines are answered as usual. Empty lines are ignored.
"""

from collections.abc import Callable, Iterable
from typing import IO, Any

import msgspec

Answer = dict[str, Any]


class Named(msgspec.Struct):
    """The name of a question. It is read even if the rest of the line is not a valid question."""

    name: str = ""


def answer_lines(
    questions: Iterable[bytes],
    answers: IO[bytes],
    *,
    answer: Callable[[bytes], Answer],
    refuse: Callable[[str, str], Answer],
) -> None:
    """Answer each line by `answer`, or by `refuse(name, reason)` if `answer` raises an exception."""
    for line in questions:
        if not line.strip():
            continue
        try:
            found = answer(line)
        except msgspec.ValidationError as error:
            found = refuse(_name(line), f"malformed line: {error}")
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            found = refuse("", f"malformed line: {error}")
        except Exception as error:  # noqa: BLE001 - whatever is wrong here must not cost the lines after it
            found = refuse(_name(line), f"internal error: {type(error).__name__}: {error}")
        answers.write(msgspec.json.encode(found) + b"\n")
        answers.flush()


def _name(line: bytes) -> str:
    try:
        return msgspec.json.decode(line, type=Named).name
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
