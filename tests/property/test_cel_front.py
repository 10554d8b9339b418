# SPDX-License-Identifier: Apache-2.0
"""Whatever somebody writes into a selector: types for each node, or an error that points at a place in it."""

from hypothesis import given
from hypothesis import strategies as st

from dra_driver.cel.checking.check import CheckedAst, check
from dra_driver.cel.errors import CompileError
from dra_driver.cel.syntax.ast import walk
from dra_driver.cel.syntax.parser import parse
from dra_driver.cel.versions import NEWEST, OLDEST, Environment

parse("true", Environment())  # makes room for deep trees, which must not happen during a test

WORDS = [
    *("device", "driver", "attributes", "x", "1", "1u", "1.5", "'a'", "b'a'", "true", "null", "in"),
    *("[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":", "+", "*", "%", "==", "<", "&&"),
    *("`a`", ".all(", ".map(", "has(", "cel.bind(", ".optMap(", "size(", ".?a", "[?0]", "T{"),
    *('"', "'", "\\", "é", "//", "\n", " ", "[1]", "{'a': 1}"),
]
ENVIRONMENTS = st.builds(
    Environment,
    minor=st.integers(OLDEST, NEWEST),
    kind=st.sampled_from(["NewExpressions", "StoredExpressions"]),
)
EXPRESSIONS = st.one_of(
    st.text(max_size=40),
    st.text(st.characters(codec="ascii"), max_size=40),
    st.text(st.characters(categories=["Cs"]), min_size=1, max_size=3),
    st.lists(st.sampled_from(WORDS), max_size=14).map("".join),
    st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join),
)


def outcome(expression: str, environment: Environment) -> CheckedAst | CompileError:
    try:
        return check(parse(expression, environment), environment)
    except CompileError as error:
        return error


@given(EXPRESSIONS, ENVIRONMENTS)
def test_any_text_is_checked_or_refused_with_a_place(expression, environment):
    found = outcome(expression, environment)
    if isinstance(found, CheckedAst):
        assert {node.id for node in walk(found.parsed.root)} <= found.types.keys()
    else:
        lines = expression.split("\n")
        assert 1 <= found.line <= len(lines)
        assert 1 <= found.column <= len(lines[found.line - 1]) + 1
        assert str(found).encode()
