# SPDX-License-Identifier: Apache-2.0
"""When do two answers say the same?

Verdict, cost and match must be equal. Error texts are compared by their class: for run-time errors the text without
what it quotes, for compile errors the kind of the first message. How many texts are equal as they stand is counted.
"""

import re
from collections.abc import Mapping
from typing import Any

TRUE, FALSE, FAILS, REFUSED = "true", "false", "run-time error", "compile error"
VERDICTS = (TRUE, FALSE, FAILS, REFUSED)

Answer = Mapping[str, Any]
# The first of these that is found names the class of a compile error.
COMPILE_CLASSES = (
    *(
        "Syntax error",
        "undeclared reference",
        "found no matching overload",
        "undefined field",
        "must evaluate to",
    ),
    *(
        "expected type",
        "does not support field selection",
        "type conversion error",
        "invalid",
        "unsupported",
    ),
    *(
        "cannot be range of a comprehension",
        "overlapping",
        "reserved identifier",
        "expression recursion limit",
    ),
    *("size exceeds limit", "unexpected", "argument", "internal error", "malformed"),
)


def verdict(answer: Answer) -> str:
    """One of the four."""
    if answer["compileError"] is not None:
        return REFUSED
    if answer.get("matchError") is not None:
        return FAILS
    return TRUE if answer.get("match") else FALSE


def compile_class(text: str | None) -> str | None:
    """What kind of mistake the first message is about."""
    if text is None:
        return None
    for known in COMPILE_CLASSES:
        if known in text:
            return known
    return re.sub(
        r"^(compilation failed: )?ERROR: <input>:-?\d+:-?\d+: |: \S+$", "", text.splitlines()[0]
    )


def run_time_class(text: str | None) -> str | None:
    """The text without names, numbers and quoted parts."""
    if text is None:
        return None
    return re.sub(r"""'[^']*'|"[^"]*"|-?\d[\w.]*""", "…", text.split(":")[0])[:60]


def gist(answer: Answer) -> tuple[object, ...]:
    """What must be the same."""
    return (
        verdict(answer),
        answer.get("cost", 0),
        compile_class(answer["compileError"]),
        run_time_class(answer.get("matchError")),
    )


def texts(answer: Answer) -> tuple[object, object]:
    """What is the same in a perfect copy."""
    return answer["compileError"], answer.get("matchError")


def same(theirs: Answer, own: Answer) -> bool:
    """Whether the answers agree. Where Kubernetes itself panics, or runs out of time, there is nothing to agree with."""
    if str(theirs["compileError"]).startswith("panic") or theirs.get("matchError") == "timeout":
        return not str(own["compileError"]).startswith("internal error")
    return gist(theirs) == gist(own)
