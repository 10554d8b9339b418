# SPDX-License-Identifier: Apache-2.0
"""What must be done about a manifest that the API server would refuse? A rule writes it behind its problem, as "problem; action"."""

import re
from collections.abc import Mapping

_EXPECTED = re.compile(r"Expected `([a-z |]+)`")
_WORDS: Mapping[str, str] = {
    "int": "a whole number without quotes",
    "float": "a number without quotes",
    "str": "a text (a number or true in quotes)",
    "bool": "true or false without quotes",
    "object": "a mapping of fields",
    "array": "a list",
}
_OTHERWISE = "write a value of the type that the field has"


def problem_and_action(told: str) -> tuple[str, str]:
    """Split what a rule says. A problem may repeat any text of the manifest, so the last mark is the one before the action."""
    problem, _, action = told.rpartition("; ")
    return (problem, action) if problem else (told, _OTHERWISE)


def of_type(error: str) -> str:
    """Return what to write in place of a value of a wrong type, from the message of msgspec."""
    found = _EXPECTED.search(error)
    kinds = found[1].split(" | ") if found else ()
    words = [_WORDS[one] for one in kinds if one in _WORDS]
    return f"write {' or '.join(words)}" if words else _OTHERWISE
