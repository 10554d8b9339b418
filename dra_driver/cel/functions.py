# SPDX-License-Identifier: Apache-2.0
"""All functions of the environment by name, with the target first among the arguments.

A function is called with values and answers with a value or raises EvaluationError. What the checker left to one
overload is called by that (`FUNCTIONS["add"].overload("quantity_add")`), else the kinds of the values decide. Not here is
what does not evaluate all of its arguments: `&&`, `||`, `?:`, `or`, `orValue`, and what looks into a value: `.`, `[]`.
"""

from itertools import chain

from dra_driver.cel.library import (
    addresses,
    authorization,
    conversions,
    formats,
    kubernetes_lists,
    lists,
    operators,
    optionals,
    quantity,
    regexes,
    semver,
    sets,
    strings,
    times,
    urls,
)
from dra_driver.cel.overloads import Dispatcher, Function, Overload

_LIBRARIES = (
    conversions,
    strings,
    times,
    urls,
    regexes,
    optionals,
    quantity,
    sets,
    addresses,
    authorization,
    formats,
    semver,
    lists,
    kubernetes_lists,
)


def _by_name() -> dict[str, Function]:
    functions: dict[str, Function] = {
        function.name: function
        for function in chain(
            operators.FUNCTIONS, conversions.FUNCTIONS, strings.FUNCTIONS, lists.FUNCTIONS
        )
    }
    overloads: dict[str, list[Overload]] = {}
    for library in _LIBRARIES:
        for overload in library.OVERLOADS:
            overloads.setdefault(overload.function, []).append(overload)
    return functions | {name: Dispatcher(name, tuple(found)) for name, found in overloads.items()}


FUNCTIONS = _by_name()
