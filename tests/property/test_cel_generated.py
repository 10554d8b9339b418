# SPDX-License-Identifier: Apache-2.0
"""A generated function answers as the exact evaluation does, or not at all."""

from hypothesis import assume, given
from hypothesis import strategies as st

from dra_driver.cel.cancellation import Check, never
from dra_driver.cel.checking import check
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.errors import CompileError
from dra_driver.cel.exact import evaluate
from dra_driver.cel.failures import EvaluationError, PlanError
from dra_driver.cel.fast import generate
from dra_driver.cel.syntax import parser
from dra_driver.cel.versions import Environment
from dra_driver.model.api.resource_slice import Device, DeviceAttribute, DeviceCapacity
from tests.support.examples import examples

DRIVER = "gpu.example.com"
OWN = 'device.attributes["gpu.example.com"]'
SIZES = 'device.capacity["gpu.example.com"]'
NAMES = ("a", "b", "c", "x/a")
ENVIRONMENT = Environment()
parser.parse(
    "true", ENVIRONMENT
)  # raises Python's limit of recursion, which must not happen during a test

TEXTS = ('"fish"', '"a"', '""', '"1.2.3"', '"Ä"')
NUMBERS = ("0", "1", "-3", "9223372036854775807", "1u", "1.0", "0.5")
VERSIONS = ('semver("1.2.3")', 'semver("1.2.3-rc.1")')
SIZES_OF = ('quantity("1Gi")', 'quantity("1")', 'quantity("500m")')
LISTS = ('["a", "fish"]', "[1, 2]", '[""]', "[]", "[true]", "[0, 1]")
literals = st.sampled_from((*TEXTS, *NUMBERS, *VERSIONS, *SIZES_OF, "true", 'b"a"', "null"))
lists = st.sampled_from(LISTS)
names = st.sampled_from(("a", "b", "c"))
places = st.sampled_from((OWN, OWN, OWN, SIZES, 'device.attributes["x"]', "device.attributes.x"))
variables = st.sampled_from(("v", "w"))


def _words(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from(text.split())


def _phrase(pattern: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """The parts put into the pattern's brackets."""
    return st.tuples(*parts).map(lambda found: pattern.format(*found))


reads = st.one_of(
    _phrase("{}.{}", places, names),
    _phrase('{}["{}"]', places, names),
    _phrase("dyn({}.{})", places, names),
    _phrase("{}[device.driver]", places),
)
comparisons = _words("== != < <= > >=")
infix = _words("== != < <= > >= + - * / % in && ||")
macros = _words("all exists exists_one map filter")
functions = _words("size int string double quantity semver isSemver ! - dyn")
plain = _words(
    "lowerAscii() upperAscii() trim() size() substring(1) major() asInteger() isInteger()"
    " hasValue() sum() max() isSorted()"
)
methods = _words(
    "startsWith endsWith contains matches indexOf split includes orValue"
    " compareTo isGreaterThan isLessThan add"
)


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        _phrase("({} {} {})", inner, infix, inner),
        _phrase("({} {} {})", reads, comparisons, literals),
        _phrase("({} {} {})", literals, comparisons, reads),
        _phrase("({} in {})", inner, lists),
        _phrase("{}.{}({})", reads, methods, literals),
        _phrase("{}.{}({})", inner, methods, inner),
        _phrase("{}.{}", inner, plain),
        _phrase("{}({})", functions, inner),
        _phrase("({} ? {} : {})", inner, inner, inner),
        _phrase("{}.{}({}, {})", st.one_of(inner, places), macros, variables, inner),
        _phrase("cel.bind({}, {}, {})", variables, st.one_of(inner, places), inner),
        _phrase("{}.?{}.orValue({})", places, names, inner),
        _phrase("has({}.{})", places, names),
        _phrase('("{}" in {})', names, places),
        _phrase("({}.compareTo({}) {} 0)", inner, inner, comparisons),
    )


values = st.one_of(literals, lists, reads, reads, st.just("device.driver"), variables)
expressions = st.recursive(values, _grown, max_leaves=6)
attributes = st.one_of(
    st.sampled_from(("fish", "a", "", "1Gi", "1.2.3", "Ä")).map(
        lambda text: DeviceAttribute(string_value=text)
    ),
    st.sampled_from((0, 1, -3, 2**63 - 1, -(2**63))).map(
        lambda number: DeviceAttribute(int_value=number)
    ),
    st.booleans().map(lambda known: DeviceAttribute(bool_value=known)),
    st.sampled_from(("1.2.3", "1.2.4", "1.2.3-rc.1", "1.2.3+build")).map(
        lambda text: DeviceAttribute(version_value=text)
    ),
    st.sampled_from((["a", "fish"], [])).map(lambda texts: DeviceAttribute(string_values=texts)),
    st.just(DeviceAttribute(int_values=[1, 2])),
    st.just(DeviceAttribute(version_values=["1.2.3"])),
)
quantities = st.sampled_from(("1", "1Gi", "500m", "1e30")).map(
    lambda text: DeviceCapacity(value=text)
)
devices = st.builds(
    DeviceValue,
    st.sampled_from((DRIVER, DRIVER, "a")),
    st.builds(
        Device,
        attributes=st.fixed_dictionaries(
            {"a": attributes, "b": attributes}, optional={"c": attributes, "x/a": attributes}
        ),
        capacity=st.dictionaries(st.sampled_from(NAMES), quantities),
    ),
)


class LeftToTheExactOne(Exception):
    """What the generated function does not decide."""


def _leave(_device: DeviceValue, _cancelled: Check = never) -> bool:
    raise LeftToTheExactOne


@examples(500)
@given(expressions, st.lists(devices, min_size=1, max_size=4))
def test_what_a_generated_function_answers_the_exact_evaluation_answers_too(
    expression: str, fleet: list[DeviceValue]
) -> None:
    try:
        checked = check.check(parser.parse(expression, ENVIRONMENT), ENVIRONMENT)
        exact = evaluate.program(checked)
    except (CompileError, PlanError):
        assume(condition=False)
        return
    generated = generate.matcher(checked, _leave)
    for device in fleet:
        try:
            answer = generated(device)
        except LeftToTheExactOne:
            continue
        try:
            expected = evaluate.as_bool(exact(device))
        except EvaluationError as error:
            expected = error
        assert answer is expected, expression
