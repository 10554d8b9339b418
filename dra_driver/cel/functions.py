# SPDX-License-Identifier: Apache-2.0
"""Which Python function implements a CEL function?

FUNCTIONS has all functions of all releases by name. A function takes values, with the target as the first argument. It
returns a value or raises EvaluationError. If the checker left one overload, the caller asks for it:
`FUNCTIONS["add"].overload("quantity_add")`. Otherwise the types of the values select the overload. FUNCTIONS does not have
the operators that evaluate only some of their arguments (`&&`, `||`, `?:`, `or`, `orValue`), nor `.` and `[]`.
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
