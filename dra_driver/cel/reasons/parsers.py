# SPDX-License-Identifier: Apache-2.0
"""Which calls make a version or a quantity of a text?

In `device.attributes["d"].driverVersion == "570.1.0"` the evaluation ends with an error if the attribute is a version: a version
cannot be compared with a text. With `semver("570.1.0")` it can.
"""

import re
from collections.abc import Collection, Iterator

from dra_driver.cel.reasons.paths import children
from dra_driver.cel.syntax.ast import Call, Expr

PARSERS = ("quantity", "semver")
ORDER = ("_<_", "_<=_", "_>_", "_>=_")
TEXT_TESTS = {
    "startsWith": "does not start with",
    "endsWith": "does not end with",
    "contains": "does not contain",
    "matches": "does not match",
}
"""The functions that ask about a part of a string, and what their answer `false` means."""
MIRRORED = {
    "_<_": "_>_",
    "_<=_": "_>=_",
    "_>_": "_<_",
    "_>=_": "_<=_",
    "_==_": "_==_",
    "_!=_": "_!=_",
}
"""The comparison that says the same of the operands in the other order."""
_CALLS = (
    # A number of 19 digits may be more than a version can have.
    (
        "semver",
        re.compile(r"(0|[1-9][0-9]{0,17})(\.(0|[1-9][0-9]{0,17})){2}([-+].+)?"),
        "semver(…)",
    ),
    # The version of a driver may have leading zeros, as 570.01.05. With `true` the function drops them.
    ("semver", re.compile(r"v?[0-9]{1,18}(\.[0-9]{1,18}){0,2}"), "semver(…, true)"),
    ("quantity", re.compile(r"[+-]?[0-9]+(\.[0-9]+)?[A-Za-z]*"), "quantity(…)"),
)
"""Which texts the functions can parse, and how."""


def parsing(text: str, functions: Collection[str]) -> str:
    """Return the call of one of these functions that can parse the text, with … for the text; "" if there is none."""
    calls = (
        call
        for function, pattern, call in _CALLS
        if function in functions and pattern.fullmatch(text)
    )
    return next(calls, "")


def calls_in(root: Expr) -> Iterator[Call]:
    """Yield all calls of an expression."""
    todo = [root]
    while todo:
        part = todo.pop()
        if isinstance(part, Call):
            yield part
        todo.extend(children(part))


def operands(call: Call) -> list[Expr]:
    """Return the target of the call, if it has one, and its arguments."""
    return [*([call.target] if call.target else ()), *call.args]
