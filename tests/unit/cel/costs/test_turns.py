# SPDX-License-Identifier: Apache-2.0
"""How often loops may turn where nobody counts the cost."""

import pytest

from dra_driver.cel.compile import compile_selector
from dra_driver.cel.costs.turns import most_turns

OWN = 'device.attributes["d"]'


def doubled(times: int) -> str:
    """The result of join(), doubled so often."""
    binds = "cel.bind(x, x + x, " * times
    return f"cel.bind(x, dyn(['a']).join(), {binds}x == '')" + ")" * times


def turns(expression: str) -> tuple[list[int], bool] | None:
    """How often each loop may turn, the outer one first, and whether texts must be short."""
    selector = compile_selector(expression)
    found = most_turns(selector.checked, selector.environment)
    return None if found is None else (list(found.most.values()), found.short_texts)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("device.driver == 'a'", ([], False)),
        ("cel.bind(x, 1, x == 1)", ([], False)),
        ("[1, 2].all(x, x > 0)", ([2], False)),
        (f"{OWN}.all(n, n != 'a')", ([32], False)),
        (f"{OWN}.links.all(x, x == 'a')", ([64], False)),
        (f"{OWN}.links.all(i, x, x == {OWN}.name)", ([64], True)),
        (f"{OWN}.links.all(x, {OWN}.links.exists(y, y == 'a'))", ([64, 64], False)),
        (f"{OWN}.links.all(x, {OWN}.links.exists(y, y == x))", ([32, 32], True)),
        (
            f"{OWN}.links.all(x, {OWN}.links.all(y, {OWN}.links.all(z, x == y || y == z)))",
            ([4, 4, 4], True),
        ),
        (f"[[{OWN}.links]].all(x, x.all(y, y.all(z, z == {OWN}.a)))", None),
        (f"lists.range({OWN}.index).all(x, x > 0)", None),
        ("lists.range(200000).all(x, x > 0)", None),
        (
            'device.allowMultipleAllocations || [device.capacity["d"].memory].all(x, x == x)',
            ([1], False),
        ),
        ("lists.range(60000).size() == 1", None),
        # What join() makes has no size to the API server, and at most 1,024 characters here.
        (f"dyn({OWN}.links).join() == 'ab'", ([], False)),
        ("['a', 'b'].join() == 'ab'", ([], False)),
        (doubled(4), ([], False)),
        (doubled(12), None),
    ],
)
def test_loops_turn_as_often_as_is_cheap(
    expression: str, expected: tuple[list[int], bool] | None
) -> None:
    assert turns(expression) == expected
