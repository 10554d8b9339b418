# SPDX-License-Identifier: Apache-2.0
"""The list functions of ext.Lists, version 3: slice, flatten, sort, … Also the map insertion of two-variable macros.

Source: cel-go ext/lists.go, ext/comprehensions.go.
"""

from functools import cmp_to_key

from dra_driver.cel import values, work
from dra_driver.cel.failures import Aborted, EvaluationError, no_such_overload
from dra_driver.cel.overloads import Overload, Singleton
from dra_driver.cel.values import LiteralMap, MutableMap

_LISTS = frozenset({values.LIST})
_COMPARABLE = frozenset(
    {
        values.BOOL,
        values.INT,
        values.UINT,
        values.DOUBLE,
        values.STRING,
        values.BYTES,
        values.DURATION,
        values.TIMESTAMP,
    }
)
_LONGEST = 1_000_000


def _slice(elements: list[object], start: int, end: int) -> list[object]:
    asked = f"cannot slice({start}, {end}), "
    if start < 0 or end < 0:
        raise EvaluationError(asked + "negative indexes not supported")
    if start > end:
        raise EvaluationError(asked + "start index must be less than or equal to end index")
    if len(elements) < end:
        raise EvaluationError(asked + f"list is length {len(elements)}")
    return elements[start:end]


def _flatten(elements: object, *depths: object) -> list[object]:
    (depth,) = depths or (1,)
    if not isinstance(elements, list) or type(depth) is not int:
        shown = ", ".join(map(values.type_text, depths))
        raise no_such_overload(f"{values.type_text(elements)}.flatten({shown})")
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    return _flattened(elements, depth)


def _flattened(elements: list[object], depth: int) -> list[object]:
    flat: list[object] = []
    work.current().elements(len(elements))
    for element in elements:
        if isinstance(element, list) and depth > 0:
            flat.extend(_flattened(element, depth - 1))
        else:
            flat.append(element)
    return flat


def _sort(elements: list[object]) -> list[object]:
    return _sort_by(elements, elements)


def _sort_by(elements: list[object], sort_keys: list[object]) -> list[object]:
    if len(elements) != len(sort_keys):
        raise EvaluationError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, "
            f"but got {len(elements)} and {len(sort_keys)} elements respectively"
        )
    if not elements:
        return elements
    kind = values.kind(sort_keys[0])
    if kind not in _COMPARABLE:
        raise EvaluationError("list elements must be comparable")
    if any(values.kind(key) != kind for key in sort_keys):
        raise EvaluationError("list elements must have the same type")
    pairs = sorted(zip(sort_keys, elements, strict=True), key=cmp_to_key(_by_key))
    return [element for _, element in pairs]


def _by_key(left: tuple[object, object], right: tuple[object, object]) -> int:
    work.current().steps(1)
    try:
        return values.compare(left[0], right[0])
    except Aborted:
        raise
    except EvaluationError:  # NaN has no order; as in Go's stable sort, it keeps its place.
        return 0


def _distinct(elements: list[object]) -> list[object]:
    unique: list[object] = []
    for element in elements:
        if not any(values.is_true(element, other) for other in unique):
            unique.append(element)
    return unique


def _range(size: int) -> list[object]:
    if size < 0:
        raise EvaluationError(f"lists.range: size must be non-negative, got {size}")
    if size > _LONGEST:
        raise EvaluationError(f"lists.range: size {size} exceeds maximum allowed ({_LONGEST})")
    return list(range(size))


def _insert(mapping: dict[object, object], key: object, value: object) -> dict[object, object]:
    if values.find(mapping, key)[1]:
        raise EvaluationError(f"insert failed: key {values.text(key)} already exists")
    inserted = mapping if isinstance(mapping, MutableMap) else LiteralMap(mapping)
    inserted[values.key_of(values.hashable(key))] = value
    return inserted


def _insert_all(
    mapping: dict[object, object], entries: dict[object, object]
) -> dict[object, object]:
    for key, value in entries.items():
        mapping = _insert(mapping, values.key_value(key), value)
    return mapping


# The cost trackers of these overloads convert an argument to a list or an int without a check. If the argument has another
# type, for example because it is an error, Go panics. The panic ends the evaluation, and no operator ignores the panic.
_COUNTED = {
    "list_distinct": (0, values.LIST),
    "list_flatten_int": (1, values.INT),
    **{f"list_{kind}_sort": (0, values.LIST) for kind in _COMPARABLE},
    **{f"list_{kind}_sortByAssociatedKeys": (1, values.LIST) for kind in _COMPARABLE},
}
_ADDABLE = _COMPARABLE - {values.BOOL}


def counted_argument(overload: str) -> int | None:
    """Return the index of the argument that `require_countable` must check, or None."""
    return _COUNTED[overload][0] if overload in _COUNTED else None


def require_countable(overload: str, value: object) -> None:
    """Raise Aborted if cel-go's cost tracker would panic with this argument."""
    wanted = _COUNTED[overload][1]
    failed = isinstance(value, EvaluationError)
    kind = "error" if failed else values.kind(value)
    if kind == wanted:
        return
    found = "*types.Err" if failed else values.go_type(value)
    if wanted == values.INT:
        raise Aborted(f"internal error: interface conversion: ref.Val is {found}, not types.Int")
    method = "Contains" if kind in _ADDABLE else "Add"
    raise Aborted(
        f"internal error: interface conversion: {found} is not traits.Lister: missing method {method}"
    )


FUNCTIONS = (
    Singleton("sort", _sort, _LISTS),
    Singleton("@sortByAssociatedKeys", _sort_by, _LISTS),
)
OVERLOADS = (
    Overload("slice", "list_slice", "list int int", _slice),
    Overload("flatten", "list_flatten", "list(list)", _flatten, guarded=False),
    Overload("flatten", "list_flatten_int", "list int", _flatten, guarded=False),
    Overload("lists.range", "lists_range", "int", _range),
    Overload("reverse", "list_reverse", "list", lambda elements: elements[::-1]),
    Overload("distinct", "list_distinct", "list", _distinct),
    Overload("cel.@mapInsert", "@mapInsert_map_key_value", "map dyn dyn", _insert),
    Overload("cel.@mapInsert", "@mapInsert_map_map", "map map", _insert_all),
)
