# SPDX-License-Identifier: Apache-2.0
"""What the author of a wrong expression is told to write instead."""

import re

import pytest

from dra_driver.cel.checking.check import check
from dra_driver.cel.errors import CompileError
from dra_driver.cel.syntax.parser import parse
from dra_driver.cel.versions import Environment, Features

NOW = Environment()
MODEL = "device.attributes['d'].model"
MEMORY = "device.capacity['d'].memory"
D_MODEL = 'device.attributes["d"].model'
D_MEMORY = 'device.capacity["d"].memory'
SLOTS = "device.capacity['d'].slots"
D_SLOTS = 'device.capacity["d"].slots'
COMPARE_TO = (
    "There is kubernetes.Quantity.compareTo(kubernetes.Quantity);"
    " kubernetes.Semver.compareTo(kubernetes.Semver)"
)
MADE_OF = "A quantity is made of a text:"
QUANTITIES = "A quantity is compared with a quantity:"
QUANTITY = (
    "A quantity is compared with a quantity:"
    " device.capacity['…'].memory.compareTo(quantity('40Gi')) >= 0"
)
VERSION = (
    "A version is compared with a version: semver('1.2.3'), by compareTo, isGreaterThan or"
    " isLessThan."
)
DOMAIN = (
    "First comes the domain, which is mostly the driver's name, then a point and the name, as in"
)
OF_ATTRIBUTES = f"{DOMAIN} device.attributes['driver.example.com'].model"
OF_CAPACITY = f"{DOMAIN} device.capacity['driver.example.com'].memory"
ONLY_DEVICE = (
    "The only variable is device, with device.driver, device.attributes and device.capacity;"
    " text goes in quotes."
)

CODE_AND_FULL_STOP = re.compile(r"""[\])}"'0-9]\.( |$)""")
"""Who copies the code would copy the full stop."""


def hint(expression: str, environment: Environment = NOW) -> str:
    with pytest.raises(CompileError) as caught:
        check(parse(expression, environment), environment)
    return caught.value.hint


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        (f"{MEMORY} >= quantity('1')", f'Compare with compareTo: {D_MEMORY}.compareTo(quantity("1")) >= 0'),
        (f"{MODEL} > semver('1.0.0')", f'Compare with compareTo: {D_MODEL}.compareTo(semver("1.0.0")) > 0'),
        (f"{MEMORY} > quantity('{'1' * 120}')", "Compare with compareTo: a.compareTo(b) > 0"),
        (f"{MEMORY} > 40", f'{QUANTITIES} {D_MEMORY}.compareTo(quantity("40Gi")) > 0'),
        (f"40960 <= {MEMORY}", f'{QUANTITIES} {D_MEMORY}.compareTo(quantity("40960Mi")) >= 0'),
        (f"{MEMORY} != 42949672960", f'{QUANTITIES} {D_MEMORY}.compareTo(quantity("42949672960")) != 0'),
        (f"{MEMORY} == '40Gi'", f'{QUANTITIES} {D_MEMORY}.compareTo(quantity("40Gi")) == 0'),
        (f"{MEMORY} >= '40'", f'{QUANTITIES} {D_MEMORY}.compareTo(quantity("40Gi")) >= 0'),
        (f"'40960' <= {MEMORY}", f'{QUANTITIES} {D_MEMORY}.compareTo(quantity("40960Mi")) >= 0'),
        (f"{MEMORY}.isLessThan('40')", f'Write {D_MEMORY}.isLessThan(quantity("40Gi"))'),
        (f"{SLOTS} >= '4'", f'{QUANTITIES} {D_SLOTS}.compareTo(quantity("4")) >= 0'),
        (f"'40 gb' == {MEMORY}", f'{QUANTITIES} {D_MEMORY}.compareTo(quantity("40Gi")) == 0'),
        (f"{MEMORY} < device.driver", f"{QUANTITIES} {D_MEMORY}.compareTo(quantity(device.driver)) < 0"),
        (f"{MEMORY} < 1.5", f'{QUANTITIES} {D_MEMORY}.compareTo(quantity("1.5Gi")) < 0'),
        (f"{MEMORY} < 1 + 1", QUANTITY),
        (f"{MEMORY} < '{'1' * 120}'", QUANTITY),
        (f"quantity('{'1' * 120}') < '1'", QUANTITY),
        (f"{MEMORY} == semver('1.0.0')", QUANTITY),
        (f"{MEMORY}.compareTo('40GB') >= 0", f'Write {D_MEMORY}.compareTo(quantity("40Gi"))'),
        (f"{MEMORY}.isLessThan(40)", f'Write {D_MEMORY}.isLessThan(quantity("40Gi"))'),
        (f"quantity('{'1' * 120}').isLessThan('1')", 'Write a.isLessThan(quantity("1"))'),
        ("semver('1.0.0').compareTo('2.0.0') > 0", 'Write semver("1.0.0").compareTo(semver("2.0.0"))'),
        ("semver('1.0.0').compareTo(2) > 0", COMPARE_TO),
        (f"{MEMORY}.compareTo() > 0", COMPARE_TO),
        ("1.compareTo(2) > 0", COMPARE_TO),
        (f"{MEMORY} < -1", f'{QUANTITIES} {D_MEMORY}.compareTo(quantity("-1")) < 0'),
        (f"{SLOTS} > 4", f'{QUANTITIES} {D_SLOTS}.compareTo(quantity("4")) > 0'),
        (f"{SLOTS}.isLessThan(4)", f'Write {D_SLOTS}.isLessThan(quantity("4"))'),
        ("quantity(14)", f'{MADE_OF} quantity("14"), or an amount of memory: quantity("14Gi")'),
        ("quantity(40960)", f'{MADE_OF} quantity("40960"), or an amount of memory: quantity("40960Mi")'),
        ("quantity(42949672960)", f'{MADE_OF} quantity("42949672960")'),
        ("quantity(1 + 1)", "There is quantity(string)"),
        ("quantity()", "There is quantity(string)"),
        (f"{MEMORY} + quantity('1')", "Write a.add(b)"),
        (f"{MEMORY} - quantity('1')", "Write a.sub(b)"),
        (f"{MEMORY} * quantity('1')", QUANTITY),
        ("semver('1.0.0') == '2.0.0'", 'A version is compared with a version: semver("1.0.0").compareTo(semver("2.0.0")) == 0'),
        ("semver('1.0.0') == 2", VERSION),
        ("semver('1.0.0') + semver('1.0.0')", VERSION),
        ("quantity('1').value", "A quantity has no fields; compare it with compareTo, isGreaterThan or isLessThan."),
        ("semver('1.0.0').patch", "A version has no fields; call .major(), .minor() or .patch(), or compareTo."),
        ("url('a').host", "kubernetes.URL has no fields, only functions."),
        ("devices.driver", "Did you mean device?"),
        ("driver == 'a'", "Write device.driver: the only variable is device."),
        ("object.spec", "object is known in other places of Kubernetes; here the only variable is device."),
        ("device.driver == gpu", ONLY_DEVICE),
        ("True", "Write true"),
        ("[1].all(number, numbr > 0)", "Did you mean number?"),
        ("device.attribute", "Did you mean attributes?"),
        (
            "device.model",
            ("device has allowMultipleAllocations, attributes, capacity, driver; what a driver"
            " publishes is in device.attributes['driver.example.com'].model or in device.capacity"),
        ),
        ("google.protobuf.Int64Value{v: 1}", ""),
        ("gogle.protobuf.Int64Value{v: 1}", "Did you mean google.protobuf.Int64Value?"),
        ("device.driver.startWith('a')", "Did you mean startsWith?"),
        ("[1].exist(x, true)", "Did you mean exists?"),
        ("exists(device)", "exists is a macro with 2 or 3 argument(s), written list.exists(…)"),
        ("has()", "has is a macro with 1 argument(s), written has(…)"),
        ("[1].existsOne(x, true)", "Write exists_one(x, …)"),
        ("len([])", "The length is written size(x) or x.size()"),
        ("f()", ""),
        ("[1].a", "A list has no fields: take an element, as in list[0].a, or ask list.exists(x, …)"),
        ("'a'.b", "A string has no fields; a function is called with brackets, as in .b()"),
        ("true.b", ""),
        ("'a'.all(x, true)", "A string is no list; compare it with == or in, or search it with contains or matches."),
        ("1.all(x, true)", "all, exists, filter and map work on lists and on the keys of maps."),
        ("true && 'a'", "Conditions joined by && and || are bool: compare the value with something."),
        ("true && device.?allowMultipleAllocations", "Say what counts if the value is missing: .orValue(false)"),
        ("device.attributes.model == 'a'", OF_ATTRIBUTES),
        ("device.attributes['d/model'] == 'a'", OF_ATTRIBUTES),
        ("device.attributes == 'a'", OF_ATTRIBUTES),
        ("true && device.attributes.healthy", OF_ATTRIBUTES),
        ("semver(device.attributes['d/version']).major() > 1", OF_ATTRIBUTES),
        ("device.capacity.memory.compareTo(quantity('1')) >= 0", OF_CAPACITY),
        ("device.capacity.memory > quantity('1')", OF_CAPACITY),
        ("{'a': 1} == 1", ""),
        ("[?1]", "The mark ? needs an optional value, as a.?b or optional.of(…) give."),
        ("[1, 'a']", "All elements of a list, all keys and all values of a map have one type."),
        ("device.?driver == 'a'", "A value may be missing here: say what counts then with .orValue(…), or ask .hasValue()"),
        ("'a' + 1", "Only two strings are joined by +: write string(x) for the other one."),
        ("1.5 + 1", "Both sides of + have one type: convert with int(x), uint(x) or double(x)"),
        ("1 == '1'", "Both sides of == have one type; here they are int and string."),
        ("'a' in 'b'", "On the right of in stands a list or a map; part of a text is found by text.contains(part)"),
        ("1 in 'b'", "On the right of in stands a list or a map; part of a text is found by text.contains(part)"),
        ("true + true", ""),
        ("true ? 1 : 'a'", "In condition ? a : b the condition is bool, and a and b have one type."),
        ("device['driver']", "device has fields, not keys: device.driver, device.attributes['…'], device.capacity['…']"),
        ("'a'.matches(1)", "There is matches(string, string); string.matches(string)"),
        ("-'a'", ""),
        ("duration('1')", "A duration is written duration('1h30m'), with the units h, m, s, ms, us and ns."),
        ("'%s'.format([])", "In a template each of %s %d %f %e %b %x %X %o takes one argument, and %% is a percent sign."),
        ("has(device)", "has() asks whether a field is there: has(a.b); for a key write 'key' in a, or a[?'key'].hasValue()"),
        ("for", "The word is reserved in CEL: as a key of a map write it in brackets, as in a['for']"),
    ],
)  # fmt: skip
def test_what_to_write_instead(expression, wanted):
    told = hint(expression)
    assert told == wanted
    assert not CODE_AND_FULL_STOP.search(told)


def test_what_a_release_does_not_have_yet():
    old = Environment(minor=33)
    assert hint("device.allowMultipleAllocations", old) == (
        "The field exists from Kubernetes 1.34 on, with the feature DRAConsumableCapacity."
    )
    assert hint("[1].includes(1)", old).startswith("includes exists from Kubernetes 1.36 on")
    no_lists = Environment(kind="NewExpressions", features=Features(list_type_attributes=False))
    assert hint(f"{MODEL}.exists(x, true)", no_lists).startswith("Before Kubernetes 1.36")
