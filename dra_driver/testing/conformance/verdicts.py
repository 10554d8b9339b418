# SPDX-License-Identifier: Apache-2.0
"""When do two answers agree?

Verdict, cost and match must be equal. Error texts must have the same class. For a run-time error the class is the text
without the quoted parts, for a compile error the kind of the first message. The comparison also counts how many texts are fully equal.
"""

import re
from collections.abc import Mapping
from typing import Any

TRUE, FALSE, FAILS, REFUSED = "true", "false", "run-time error", "compile error"
VERDICTS = (TRUE, FALSE, FAILS, REFUSED)

Answer = Mapping[str, Any]
# The first of these texts that occurs in a compile error is its class.
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
    """Return the verdict of an answer: one of four words."""
    if answer["compileError"] is not None:
        return REFUSED
    if answer.get("matchError") is not None:
        return FAILS
    return TRUE if answer.get("match") else FALSE


def compile_class(text: str | None) -> str | None:
    """Return the kind of mistake that the first message of a compile error reports."""
    if text is None:
        return None
    for known in COMPILE_CLASSES:
        if known in text:
            return known
    return re.sub(
        r"^(compilation failed: )?ERROR: <input>:-?\d+:-?\d+: |: \S+$", "", text.splitlines()[0]
    )


def run_time_class(text: str | None) -> str | None:
    """Return the text without names, numbers and quoted parts."""
    if text is None:
        return None
    return re.sub(r"""'[^']*'|"[^"]*"|-?\d[\w.]*""", "…", text.split(":")[0])[:60]


def gist(answer: Answer) -> tuple[object, ...]:
    """Return the parts of an answer that must be equal."""
    return (
        verdict(answer),
        answer.get("cost", 0),
        compile_class(answer["compileError"]),
        run_time_class(answer.get("matchError")),
    )


def texts(answer: Answer) -> tuple[object, object]:
    """Return the full error texts of an answer. In a perfect copy they are equal."""
    return answer["compileError"], answer.get("matchError")


def same(theirs: Answer, own: Answer) -> bool:
    """Return whether the answers agree. If Kubernetes panics or runs out of time, any answer agrees."""
    if str(theirs["compileError"]).startswith("panic") or theirs.get("matchError") == "timeout":
        return not str(own["compileError"]).startswith("internal error")
    return gist(theirs) == gist(own)
