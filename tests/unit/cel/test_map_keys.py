# SPDX-License-Identifier: Apache-2.0
"""When are two keys of a map the same key? As in Go: a list equals itself, an address what has the same bits, NaN nothing.

A loop that inserts the same key in each turn shows it: the second insertion ends with an error. The answers are those of Kubernetes' own
module.
"""

import pytest

from dra_driver.cel.compile import compile_selector
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.failures import EvaluationError
from dra_driver.model.api.resource_slice import Device, DeviceAttribute, DeviceCapacity

DEVICE = Device(
    name="gpu-0",
    attributes={"l": DeviceAttribute(string_values=["a"])},
    capacity={"c": DeviceCapacity(value="5")},
)
VALUE = DeviceValue("a.b", DEVICE)


def matches(expression: str) -> bool:
    return compile_selector(expression).matches(VALUE)


@pytest.mark.parametrize(
    "key",
    [
        *("[1]", "[]", "[dyn(1)]", "[[1]][0]", "{'a': [1]}['a']", "[[1]].filter(x, true)[0]"),
        *("{1: 2}", "{}", "true ? [1] : [2]", "cel.bind(z, [1 + 0], z)[0]", "dyn([1])"),
        *("null", "type(1)", "duration('1s')", "optional.none()", "'a'", "1"),
        *("ip('1.1.1.1')", "cidr('10.0.0.0/8')"),
        *("device.attributes", 'device.capacity["a.b"].c'),
    ],
)
def test_a_key_that_is_the_same_in_each_turn(key):
    with pytest.raises(EvaluationError, match="already exists"):
        matches(f"{{1: 1, 2: 2}}.transformMapEntry(k, v, {{{key}: 1}}).size() == 2")


@pytest.mark.parametrize(
    "key",
    [
        *("[k]", "[v]", "[1] + [2]", "[k].map(x, 1)", "'a'.split('')", "[1, 2].sort()"),
        *("[[1, 2], [1, 2]][k - 1]", "lists.range(1)", "0.0 / 0.0", "double('NaN')"),
        *("quantity('1')", "url('http://a/b')", "optional.of(1)"),
        *("device", "dyn(device)", 'device.attributes["a.b"]', 'device.attributes["a.b"].l'),
    ],
)
def test_a_key_that_is_made_anew_in_each_turn(key):
    assert matches(f"{{1: 1, 2: 2}}.transformMapEntry(k, v, {{{key}: 1}}).size() == 2")


@pytest.mark.parametrize(
    ("expression", "is_true"),
    [
        ("cel.bind(z, [1], {z: 1, z: 2}.size() == 2)", False),
        ("cel.bind(z, [1], z in {z: 1})", True),
        ("[1] in {[1]: 1}", False),
        ("{[1]: 1}.transformMapEntry(k, v, {k: 1}).size() == 1", True),
        ("[[1], [1]].transformMapEntry(k, v, {v: 1}).size() == 2", True),
        ("{[1]: 1} == {[1]: 1}", False),
        ("cel.bind(z, {[1]: 1}, z == z)", True),
        ("{ip('1.1.1.1'): 1} == {ip('1.1.1.1'): 1}", True),
    ],
)
def test_a_list_is_found_by_itself_only(expression, is_true):
    assert matches(expression) is is_true
