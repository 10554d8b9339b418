# SPDX-License-Identifier: Apache-2.0
"""Texts of thousands of characters, which a selector can make though no device has them: little work, and little memory."""

import random
from collections.abc import Callable
from decimal import Decimal

import pytest

from dra_driver.cel import regex, values
from dra_driver.cel.cancellation import Cancelled
from dra_driver.cel.compile import compile_selector
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.exact import planner
from dra_driver.cel.exact.actual_cost import Tracker
from dra_driver.cel.exact.attributes import Frame
from dra_driver.cel.exact.interpretable import constant
from dra_driver.cel.failures import Aborted, EvaluationError
from dra_driver.cel.functions import FUNCTIONS
from dra_driver.cel.library import lists, quantity, semver, strings
from dra_driver.cel.library.quantity import Quantity, parse_quantity
from dra_driver.cel.library.semver import parse_semver
from dra_driver.cel.work import MOST_PARSED, Work

DEVICE = DeviceValue("dra.example.com")
MANY = "1" * 5_000  # digits, more than int() and str() convert
LONGER = "7" * (MOST_PARSED + 1)


class Forwards(str):
    """A text in which nobody searches from its end."""

    __slots__ = ()

    def rfind(self, *_: object) -> int:
        """Never called."""
        raise AssertionError


def test_the_last_place_of_a_long_part_is_found_in_linear_time() -> None:
    text, part = Forwards("xy" * 500 + "z"), "xy" * 40
    assert strings._last_index_of(text, part) == 1_000 - len(part)
    assert strings._last_index_of(text, "z" + part) == -1


def test_the_last_place_is_the_one_that_rfind_finds() -> None:
    draw = random.Random(0)
    for _ in range(500):
        text = "".join(draw.choices("ab", k=draw.randrange(300)))
        start, offset = draw.randrange(200), draw.randrange(300)
        part = text[start : start + draw.randrange(60, 90)] or "a" * draw.randrange(1, 301)
        before = text.rfind(part, 0, offset + len(part)) if offset < len(text) else -1
        assert strings._last_index_of(text, part) == text.rfind(part)
        assert strings._last_index_of_before(text, part, offset) == before


def test_a_quantity_has_20000_digits_at_most() -> None:
    assert parse_quantity("0" * 9 + "7" * 20_000).value == int(Decimal("7" * 20_000)) * 10**9
    for text in ("7" * 20_001, "7." + "7" * 20_000):
        for name in ("quantity", "isQuantity"):
            with pytest.raises(Aborted, match="a quantity of more than 20000 digits"):
                FUNCTIONS[name](text)


def test_the_exponent_of_a_quantity_is_read_up_to_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    converted = []

    def convert(number: str | int) -> Decimal:
        converted.append(len(str(number)))
        return Decimal(number)

    monkeypatch.setattr(quantity, "Decimal", convert)
    zeros = "0" * 4_000
    assert parse_quantity(f"1e{zeros}3").equals(parse_quantity("1k"))
    assert parse_quantity(f"1e-{zeros}3").equals(parse_quantity("1m"))
    for exponent in (MANY, "-" + MANY, "9223372036854775808"):
        with pytest.raises(EvaluationError, match="unable to parse quantity's suffix"):
            parse_quantity(f"1e{exponent}")
    assert max(converted) < 100


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        (f"isQuantity('{MANY}.{'1' * 20}')", True),
        (f"isQuantity('0.{'0' * 20}{MANY}')", True),
        (f"quantity('{MANY}').isGreaterThan(quantity('1e2000000'))", False),
        (f"quantity('-{MANY}').isGreaterThan(quantity('0e2000000'))", False),
        (f"quantity('{MANY}').isInteger()", False),
    ],
)
def test_a_quantity_may_have_more_digits_than_int_converts(expression: str, answer: object) -> None:
    assert compile_selector(expression).matches(DEVICE) is answer


def test_a_quantity_of_many_digits_is_written_as_it_is() -> None:
    selector = compile_selector(f"(dyn(['']) + dyn([quantity('{MANY}')])).join() == ''")
    with pytest.raises(EvaluationError) as error:
        selector.matches(DEVICE)
    assert str(error.value) == f"join: invalid input: {MANY}"


@pytest.mark.parametrize(
    "value",
    [
        parse_semver("1.2.3-" + "a" * 1_000),
        parse_quantity(MANY),
        values.Optional("a" * 1_000, present=True),
    ],
)
def test_long_values_are_not_written_without_end(
    monkeypatch: pytest.MonkeyPatch, value: object
) -> None:
    monkeypatch.setattr("dra_driver.cel.work.MOST_CHARACTERS", 20_000)
    with Work(), pytest.raises(Aborted, match="more than 20000 characters would have to be"):
        values.text([value] * 64)


def test_long_texts_are_not_kept() -> None:
    kept = (quantity._remembered.cache_info().currsize, semver._remembered.cache_info().currsize)
    parse_quantity("0" * 64 + "9")
    parse_semver("9.9.9+" + "0" * 59)
    patterns = regex.Patterns()
    long = patterns.compiled("(?:)" * 5_001)
    assert (
        quantity._remembered.cache_info().currsize,
        semver._remembered.cache_info().currsize,
    ) == kept
    assert (len(patterns), patterns._size, long.matches("a")) == (0, 0, True)


def test_short_texts_are_read_once() -> None:
    assert parse_quantity("0" * 63 + "9") is parse_quantity("0" * 63 + "9")
    assert parse_semver("9.9.9+" + "0" * 58) is parse_semver("9.9.9+" + "0" * 58)


def asked(run: Callable[[], object]) -> int:
    """How often the caller is asked whether it still waits."""
    questions = []
    with Work(lambda: bool(questions.append(True))):
        run()
    return len(questions)


def test_a_search_for_all_matches_asks_whether_anybody_waits() -> None:
    """Each search reads the rest of the text, so the text is read 3,000 times."""
    pattern = regex.compile_pattern("a[^z]*z|a")
    assert asked(lambda: pattern.find_all("a" * 3_000)) > 4
    assert asked(lambda: pattern.find_all("a" * 300)) == 0
    with Work(lambda: True), pytest.raises(Cancelled):
        pattern.find_all("a" * 3_000)


def test_a_sort_asks_whether_anybody_waits() -> None:
    """The cost of a sort of unknown elements is 1."""
    assert asked(lambda: lists._sort([*range(5_000)])) >= 4


@pytest.mark.parametrize(
    ("overload", "arguments"),
    [
        ("list_int_sort", [[*range(100)]]),
        ("list_string_sort", [["a"] * 100]),
        ("list_int_sortByAssociatedKeys", [[*range(100)], [*range(100)]]),
    ],
)
def test_a_sort_that_exceeds_the_limit_is_not_begun(overload: str, arguments: list[object]) -> None:
    begun = []
    tracker = Tracker(10_000)
    steps = tuple(constant(number, value) for number, value in enumerate(arguments))
    for step in steps:
        tracker.done(step.id, step.value, 0)
    run = planner._calling(lambda *_: begun.append(True), steps, "sort", overload)
    with pytest.raises(Aborted, match="actual cost limit exceeded"):
        run(Frame(DEVICE, [], tracker))
    assert not begun


UUID = FUNCTIONS["format.uuid"]()
NETWORK = FUNCTIONS["cidr"]("10.0.0.0/8")


@pytest.mark.parametrize(
    ("name", "before"),
    [
        *((name, ()) for name in ("ip", "isIP", "ip.isCanonical", "cidr", "isCIDR")),
        *((name, ()) for name in ("semver", "isSemver", "duration", "double", "url", "isURL")),
        ("containsIP", (NETWORK,)),
        ("containsCIDR", (NETWORK,)),
        ("validate", (UUID,)),
    ],
)
def test_a_text_that_is_too_long_is_not_parsed(name: str, before: tuple[object, ...]) -> None:
    with pytest.raises(Aborted, match="a text of more than 65536 characters is not parsed"):
        FUNCTIONS[name](*before, LONGER)
    try:
        FUNCTIONS[name](*before, LONGER[1:])
    except EvaluationError as error:
        assert not isinstance(error, Aborted)  # noqa: PT017 - some answer, others raise


def test_what_cannot_be_told_is_no_answer() -> None:
    """`isIP` of a text that is not parsed is neither true nor false."""
    text = "'7777777777'" + f".replace('7', '{'7' * 100}')" * 2
    for expression in ("isIP(t)", "isSemver(t)", "isCIDR(t + '/8')", "isURL('http://' + t)"):
        with pytest.raises(Aborted, match="is not parsed"):
            compile_selector(f"cel.bind(t, {text}, {expression} || true)").matches(DEVICE)


def test_negative_quantities_are_compared_by_their_digits() -> None:
    assert quantity._compare_magnitudes(Quantity(-5, 9_000), Quantity(-55)) == -1
