# SPDX-License-Identifier: Apache-2.0
"""How are questions that stand one on a line answered?

One answer for each line, written before the next line is read: whoever asks may wait for it. A line that cannot be
read, or that this program fails on, gets an answer that says so; the lines after it are answered as ever. Empty lines
are passed over.
"""

from collections.abc import Callable, Iterable
from typing import IO, Any

import msgspec

Answer = dict[str, Any]


class Named(msgspec.Struct):
    """What is read of a line that is not what it should be."""

    name: str = ""


def answer_lines(
    questions: Iterable[bytes],
    answers: IO[bytes],
    *,
    answer: Callable[[bytes], Answer],
    refuse: Callable[[str, str], Answer],
) -> None:
    """Answer each line by `answer`, or by `refuse(name, reason)` where it raises."""
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
