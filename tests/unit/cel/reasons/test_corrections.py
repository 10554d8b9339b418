# SPDX-License-Identifier: Apache-2.0
"""What the author of a condition that ends with an error most likely meant."""

import pytest
from msgspec.structs import replace

from dra_driver.cel.compile import compile_selector
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.reasons.failing import FailingCondition
from dra_driver.cel.reasons.selector import ExplainedSelector
from dra_driver.model.api.resource_slice import Device, DeviceAttribute, DeviceCapacity

DRIVER = "gpu.example.com"
DEVICE = Device(
    name="gpu-0",
    attributes={
        "model": DeviceAttribute(string_value="A100"),
        "version": DeviceAttribute(version_value="570.1.0"),
        "ready": DeviceAttribute(bool_value=True),
        "net.example.org/link": DeviceAttribute(int_value=2),
    },
    capacity={"memory": DeviceCapacity(value="40Gi"), "slots": DeviceCapacity(value="8")},
)
A, C = f'device.attributes["{DRIVER}"]', f'device.capacity["{DRIVER}"]'


def corrected(expression: str) -> tuple[FailingCondition, str]:
    """The failing condition, and the expression with its corrections."""
    selector = ExplainedSelector(compile_selector(expression))
    (failing,) = selector.failing_conditions(DRIVER, DEVICE, DeviceValue(DRIVER, DEVICE))
    return failing, selector.corrected({one.number: one.new for one in failing.corrections})


@pytest.mark.parametrize(
    ("compared", "amount"),
    [
        (">= 40960", '40960Mi")) >= 0'),
        ("> 40", '40Gi")) > 0'),
        ("< 42949672960", '42949672960")) < 0'),
        ("<= '40Gi'", '40Gi")) <= 0'),
        ("== '40GB'", '40Gi")) == 0'),
        (">= '40'", '40Gi")) >= 0'),
        (">= 39.5", '39.5Gi")) >= 0'),
        (">= 4e10", '4e10")) >= 0'),
        ("!= 40", '40Gi")) != 0'),
        (">= '40960'", '40960Mi")) >= 0'),
        (">= '42949672960'", '42949672960")) >= 0'),
    ],
)
def test_a_capacity_that_is_read_as_an_attribute_is_compared_as_one(compared, amount):
    failing, text = corrected(f"{A}.model == 'A100' && {A}.memory {compared}")
    right = f'{C}.memory.compareTo(quantity("{amount}'
    assert text == f'{A}.model == "A100" && {right}'
    assert failing.lacks.endswith(f"; memory is a capacity: write {right}")
    assert [one.write for one in failing.corrections] == [right]


def test_the_number_may_come_first():
    _, text = corrected(f"40960 <= {A}.memory")
    assert text == f'{C}.memory.compareTo(quantity("40960Mi")) >= 0'


@pytest.mark.parametrize(
    ("call", "right"),
    [
        ("compareTo(quantity('40Gi'))", 'compareTo(quantity("40Gi"))'),
        ("isGreaterThan(quantity('40'))", 'isGreaterThan(quantity("40Gi"))'),
        ("isLessThan(quantity('40GB'))", 'isLessThan(quantity("40Gi"))'),
        ("compareTo(quantity('much'))", 'compareTo(quantity("much"))'),
        (f"compareTo({C}.slots)", f"compareTo({C}.slots)"),
    ],
)
def test_a_capacity_that_is_called_as_an_attribute_is_called_as_one(call, right):
    failing, text = corrected(f"dyn({A}.memory.{call}) == true")
    assert text == f"dyn({C}.memory.{right}) == true"
    assert failing.lacks.endswith(f"; memory is a capacity: write {C}.memory.{right}")


@pytest.mark.parametrize(
    "call", ["memory.compareTo(semver('1.0.0'))", "memory.size()", "model.compareTo(quantity('4'))"]
)
def test_another_call_is_not_corrected(call):
    failing, _ = corrected(f"dyn({A}.{call}) == {A}.memory")
    assert failing.corrections == ()


@pytest.mark.parametrize("amount", ["4", "'4'", "4.0"])
def test_an_amount_of_another_capacity_is_not_in_bytes(amount):
    _, text = corrected(f"{A}.slots >= {amount}")
    right = amount.strip("'")
    assert text == f'{C}.slots.compareTo(quantity("{right}")) >= 0'


@pytest.mark.parametrize("compared", ["== true", "== 'big'", f"== {A}.model"])
def test_what_is_no_amount_is_not_corrected(compared):
    failing, _ = corrected(f"{A}.memory {compared}")
    assert failing.corrections == ()


@pytest.mark.parametrize(
    ("condition", "right"),
    [
        (">= '550.0.0'", 'compareTo(semver("550.0.0")) >= 0'),
        ("< '550'", 'compareTo(semver("550", true)) < 0'),
        ("> 550", 'compareTo(semver("550", true)) > 0'),
        (">= 550.90", 'compareTo(semver("550.90", true)) >= 0'),
        (">= 12.10", 'compareTo(semver("12.10", true)) >= 0'),
    ],
)
def test_a_version_beside_an_order_is_compared_by_compare_to(condition, right):
    failing, text = corrected(f"{A}.version {condition}")
    assert text == f"{A}.version.{right}"
    assert failing.lacks == f"has version as the version 570.1.0: write {text}"


def test_a_number_that_is_told_as_a_version_is_told_as_it_was_written():
    failing, _ = corrected(f"{A}.version >= 550.90")
    assert failing.part == f"{A}.version >= 550.90"
    assert [one.instead for one in failing.corrections] == [failing.part]


@pytest.mark.parametrize("condition", ["> 'newest'", "> true", "> 5.5e1", f"> {A}.model"])
def test_a_version_beside_no_version_is_not_corrected(condition):
    failing, _ = corrected(f"{A}.version {condition}")
    assert (failing.corrections, failing.lacks) == ((), "")


@pytest.mark.parametrize(
    ("path", "domain"),
    [
        ('device.attributes["gpuu.example.com"].model', DRIVER),
        ('device.attributes["example.com"].model', DRIVER),
        ('device.attributes["example.org"].link', "net.example.org"),
    ],
)
def test_a_mistyped_domain_is_told_and_corrected(path, domain):
    failing, text = corrected(f"{path} == {path}")
    right = f'device.attributes["{domain}"].{path.rpartition(".")[2]}'
    assert text == f"{right} == {right}"
    assert failing.lacks.endswith(f"; did you mean {domain}?")


def test_a_domain_that_is_like_no_other_is_not_corrected():
    failing, _ = corrected('device.capacity["other.org"].memory == quantity("1")')
    assert failing.corrections == ()
    _, text = corrected(
        'device.capacity["example.com"].memory.compareTo(quantity("1")) > 0 || false'
    )
    assert text == f'{C}.memory.compareTo(quantity("1")) > 0 || false'


def test_the_only_domain_with_a_name_is_meant_if_no_device_has_what_is_read():
    """The selector was written for another driver. If a device has what is read, that one is meant."""
    read = 'device.capacity["other.org"].memory'
    selector = ExplainedSelector(compile_selector(f'{read} == quantity("1")'))
    seen = (DRIVER, DEVICE, DeviceValue(DRIVER, DEVICE))
    (failing,) = selector.failing_conditions(
        *seen, is_published=lambda path, _: path.name == "model"
    )
    assert [(one.instead, one.write) for one in failing.corrections] == [(read, f"{C}.memory")]
    (failing,) = selector.failing_conditions(*seen, is_published=lambda _, __: True)
    assert failing.corrections == ()
    twice = replace(DEVICE, capacity={**DEVICE.capacity, "b.org/memory": DeviceCapacity(value="1")})
    (failing,) = selector.failing_conditions(
        DRIVER, twice, DeviceValue(DRIVER, twice), is_published=lambda _, __: False
    )
    assert failing.corrections == ()


def test_a_domain_is_corrected_inside_a_macro():
    path = 'device.attributes["example.com"].model'
    _, text = corrected(f"['A100'].exists(m, m == {path})")
    assert text == f'["A100"].exists(m, m == {A}.model)'
    asked, _ = corrected(f"has({A}.model) && has({path}) == {path}")
    assert [one.instead for one in asked.corrections] == [path]


@pytest.mark.parametrize(
    ("wrong", "told", "right"),
    [
        ("40GB", "40G (40 x 1000^3 bytes) or 40Gi (40 x 1024^3 bytes)", ["40G", "40Gi"]),
        ("40kb", "40k (40 x 1000^1 bytes) or 40Ki (40 x 1024^1 bytes)", ["40k", "40Ki"]),
        ("1.5 tb", "1.5T (1.5 x 1000^4 bytes) or 1.5Ti (1.5 x 1024^4 bytes)", ["1.5T", "1.5Ti"]),
        ("40 G", "40G", ["40G"]),
        ("40gi", "40Gi", ["40Gi"]),
        ("1.5tib", "1.5Ti", ["1.5Ti"]),
    ],
)
def test_a_text_that_is_no_quantity_is_told_once_for_all_devices(wrong, told, right):
    """With each quantity that may have been meant: what is sold as 80 GB has less than 80Gi."""
    failing, text = corrected(f"{C}.memory.compareTo(quantity('{wrong}')) >= 0")
    assert failing.everywhere == f"'{wrong}' is no quantity: write {told}"
    assert [one.write for one in failing.corrections] == [f'quantity("{one}")' for one in right]
    assert text == f'{C}.memory.compareTo(quantity("{right[-1]}")) >= 0'


@pytest.mark.parametrize("wrong", ["much", "", "1.2.3G"])
def test_a_text_that_is_like_no_quantity_is_told_but_not_corrected(wrong):
    condition = f"quantity('1') != quantity('{wrong}') && {A}.model.size() > 0"
    failing, _ = corrected(condition)
    assert failing.corrections == ()
    assert failing.everywhere == f"'{wrong}' is no quantity: write a number, as in 8 or 40Gi"


@pytest.mark.parametrize(
    ("condition", "says", "right"),
    [
        ("link > '2'", 'link is an int, and "2" is a string: write 2', "link > 2"),
        ("link > '-2'", 'link is an int, and "-2" is a string: write -2', "link > -2"),
    ],
)
def test_a_text_beside_an_int_is_corrected_and_told_once_for_all_devices(condition, says, right):
    net = 'device.attributes["net.example.org"]'
    failing, text = corrected(f"{net}.{condition}")
    assert (failing.everywhere, failing.lacks) == (says, "")
    assert text == f"{net}.{right}"


def test_a_text_of_the_device_that_is_no_quantity_is_not_told_for_all_devices():
    failing, _ = corrected(f"{C}.memory.compareTo(quantity({A}.model)) > 0")
    assert (failing.everywhere, failing.corrections) == ("", ())


def test_the_text_may_come_first():
    net = 'device.attributes["net.example.org"]'
    _, text = corrected(f"'2' < {net}.link")
    assert text == f"{net}.link > 2"


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        (
            '["net.example.org"].link > "many"',
            'link is an int, and "many" is a string: compare it with an int',
        ),
        (f'["{DRIVER}"].model > 2', "model is a string, and 2 is an int: compare it with a string"),
        (f'["{DRIVER}"].model > true', ""),
        (f'["{DRIVER}"].model > 2.5', ""),
        (f'["{DRIVER}"].model > device.attributes["net.example.org"].link', ""),
        (f'["{DRIVER}"].ready > 2', ""),
    ],
)
def test_a_constant_that_is_of_another_type_is_told_but_not_corrected(condition, says):
    failing, _ = corrected(f"device.attributes{condition}")
    assert (failing.everywhere, failing.corrections) == (says, ())


@pytest.mark.parametrize(
    ("one", "sentence"),
    [
        (f'{A}.version > "1.{{}}"', "has version as the version 570.1.0: write "),
        (f'{A}.version == "1.{{}}"', "has version as the version 570.1.0: write "),
    ],
)
def test_of_many_comparisons_that_fail_three_are_told_and_the_others_counted(one, sentence):
    failing, _ = corrected(" || ".join(one.format(number) for number in range(100)))
    assert (failing.lacks.startswith(sentence), failing.lacks.count(": write ")) == (True, 1)
    assert failing.lacks.count("write ") == 3
    assert failing.lacks.endswith("; … (97 more)")
    assert len(failing.corrections) == 100


def test_of_many_texts_that_are_no_quantity_three_are_told():
    memory = f"{C}.memory.compareTo(quantity('{{}}GB')) > 0"
    failing, _ = corrected(" && ".join([f"({' || '.join(map(memory.format, range(4)))})"]))
    assert failing.everywhere.count("is no quantity") == 3
    assert failing.everywhere.endswith("; … (1 more)")


def test_long_advice_is_cut_in_the_middle():
    failing, _ = corrected(f"{A}.memory >= '{'0' * 1000}40Gi'")
    assert failing.lacks.endswith('40Gi")) >= 0')
    assert len(failing.lacks) < 600
    assert len(failing.corrections[0].write) > 1000


def test_devices_with_values_of_other_types_have_other_answers():
    """What is found out for one device is kept only for devices with the same types."""
    selector = ExplainedSelector(
        compile_selector(f'{A}.x > "1" || {A}.y > "1" || {A}.z.isGreaterThan({A}.y)')
    )
    version, text = DeviceAttribute(version_value="1.0.0"), DeviceAttribute(string_value="2.0.0")
    answers = []
    for x, y in ((version, text), (text, version), (version, version), (text, text)):
        device = Device(name="gpu-0", attributes={"x": x, "y": y, "z": version})
        value = DeviceValue(DRIVER, device)
        (failing,) = selector.failing_conditions(DRIVER, device, value)
        answers.append(sorted(one.instead for one in failing.corrections))
    x, y = f'{A}.x > "1"', f'{A}.y > "1"'
    assert answers == [[x], [y], [x, y], []]
