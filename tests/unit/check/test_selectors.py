# SPDX-License-Identifier: Apache-2.0
"""Expressions: where a mistake stands in the file, what it costs, and what is compared with what."""

from collections.abc import Sequence

import msgspec
import pytest

from dra_driver.check.given import Known
from dra_driver.model.api.meta import ObjectMeta
from dra_driver.model.api.resource_claim import (
    CELDeviceSelector,
    DeviceClass,
    DeviceClassSpec,
    DeviceSelector,
)
from dra_driver.model.api.resource_slice import (
    Device,
    DeviceAttribute,
    DeviceCapacity,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dra_driver.model.cluster import ClusterState, NotRead
from tests.unit.check.findings import brief, claim, found, rules, selector

NVIDIA = 'device.attributes["gpu.nvidia.com"]'


def with_selector(style: str, *lines: str) -> str:
    more = "".join(f"\n          {line}" for line in lines)
    return claim(
        f"deviceClassName: gpu.nvidia.com\nselectors:\n  - cel:\n      expression: {style}{more}"
    )


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        (selector(f"1 == 1 && {NVIDIA}.brnd == 'x'"), 12, 74),
        (selector(f'1 == 1 && {NVIDIA}.brnd == "x"', "'"), 12, 75),
        (with_selector('"1 == 1 && device.attributes[\\"gpu.nvidia.com\\"].brnd == 1"'), 12, 29),
        (with_selector("|", "1 == 1 &&", f'{NVIDIA}.brnd == "x"'), 14, 0),
        (with_selector(">-", "1 == 1 &&", f'{NVIDIA}.brnd == "x"'), 12, 29),
    ],
    ids=["plain", "single", "double", "literal", "folded"],
)
def test_a_name_is_told_at_its_place(text: str, line: int, column: int) -> None:
    (one,) = [each for each in found(text) if each.rule == "cel-name"]
    assert (one.line, one.column, one.action) == (line, column, "did you mean brand?")


def test_a_value_of_an_alias_is_told_at_the_alias() -> None:
    text = selector(f"{NVIDIA}.brnd == 'x'").replace("expression: ", "expression: &e ") + (
        "      - name: other\n        exactly:\n          deviceClassName: gpu\n"
        "          selectors: [{cel: {expression: *e}}]\n"
    )
    assert [(one.line, one.column) for one in found(text)] == [(12, 29), (16, 42)]


@pytest.mark.parametrize(
    ("expression", "message", "action"),
    [
        (
            f'{NVIDIA}.driverVersion == "570.1.0"',
            'driverVersion is a version, and is compared with "570.1.0"',
            f'write {NVIDIA}.driverVersion == semver("570.1.0")',
        ),
        (
            f'"0000:01:00.0" == {NVIDIA}.pairedNicPciBusIDs',
            'pairedNicPciBusIDs is a list of strings, and is compared with "0000:01:00.0"',
            f'write "0000:01:00.0" in {NVIDIA}.pairedNicPciBusIDs',
        ),
        (
            f"{NVIDIA}.index == true",
            "index is a int, and is compared with true",
            "compare it with a value of the type int",
        ),
        (
            f"{NVIDIA}.ccReady != 1",
            "ccReady is a bool, and is compared with 1",
            "compare it with a value of the type bool",
        ),
    ],
)
def test_a_comparison_with_another_type_is_told(expression: str, message: str, action: str) -> None:
    told = [(one.rule, one.message, one.action) for one in found(selector(expression, "'"))]
    assert told == [("cel-type", message, action)]


@pytest.mark.parametrize(
    ("expression", "message", "action"),
    [
        (
            f"{NVIDIA}.memory == 1",
            "memory is no attribute",
            'write device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("1Gi")) == 0, with the unit that is meant',
        ),
        *(
            (
                expression,
                "memory is no attribute",
                f'write device.capacity["gpu.nvidia.com"].memory{action}',
            )
            for expression, action in (
                (f'{NVIDIA}.memory != "40Gi"', '.compareTo(quantity("40Gi")) != 0'),
                (f"40 < {NVIDIA}.memory", '.compareTo(quantity("40Gi")) > 0'),
                (f'{NVIDIA}.memory.compareTo(quantity("40Gi")) >= 0', " in its place"),
                (f"has({NVIDIA}.memory)", " in its place"),
                *(
                    (f"{NVIDIA}.memory {other}", '.compareTo(quantity("…")) >= 0, with the amount')
                    for other in ('== "much"', "== true", "in [1]", "> 2.5", f"> {NVIDIA}.index")
                ),
            )
        ),
        (
            f"{NVIDIA}.compute > 5",
            "compute is no attribute",
            'write device.capacity["gpu.nvidia.com"].compute.compareTo(quantity("5")) > 0',
        ),
        (
            f"{NVIDIA}.compute > {NVIDIA}.index",
            "compute is no attribute",
            'write device.capacity["gpu.nvidia.com"].compute.compareTo(quantity("…")) >= 0, with the amount',
        ),
        (
            f"{NVIDIA}.numaNode == 0",
            "no device of gpu.nvidia.com has the attribute numaNode",
            'write device.attributes["resource.kubernetes.io"].numaNode',
        ),
        (
            'device.capacity["gpu.nvidia.com"].brand.isLessThan(quantity("1"))',
            "brand is no capacity",
            f"write {NVIDIA}.brand",
        ),
        (
            'device.attributes["gpu.nvidia.co"].brand == "x"',
            "no known driver has the domain gpu.nvidia.co",
            "did you mean gpu.nvidia.com?",
        ),
        (
            'device.attributes["brand"].value == "x"',
            '"brand" is no domain',
            'write for example device.attributes["gpu.dra-driver.dev"].brand',
        ),
        (
            'device.attributes["colour"].value == "x"',
            '"colour" is no domain of a driver',
            "write the driver's name before the attribute",
        ),
        (
            'device.capacity["gpu.nvidia.com"].zzzzzz.isLessThan(quantity("1"))',
            "no device of gpu.nvidia.com has the capacity zzzzzz",
            "known are compute, memory, addressableMemory,",
        ),
    ],
)
def test_names_that_nobody_has_are_told(expression: str, message: str, action: str) -> None:
    one = found(selector(expression, "'"))[0]
    assert (one.rule, one.message) == ("cel-name", message)
    assert one.action.startswith(action)


VERSION = f"{NVIDIA}.driverVersion"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (f'{VERSION} < "550.1.1"', f'{VERSION}.compareTo(semver("550.1.1")) < 0'),
        (f'"550.1.1" > {VERSION}', f'{VERSION}.compareTo(semver("550.1.1")) < 0'),
        (f'{VERSION} >= "550"', f'{VERSION}.compareTo(semver("550", true)) >= 0'),
        (f"{VERSION} >= 550", f'{VERSION}.compareTo(semver("550", true)) >= 0'),
        (f'{VERSION} != "550.01.05"', f'{VERSION} != semver("550.01.05", true)'),
        (f'"550.1.1" == {VERSION}', f'semver("550.1.1") == {VERSION}'),
        (f"{VERSION} == 550.90", f"{VERSION}.major() == 550 && {VERSION}.minor() == 90"),
        (
            f'{VERSION} == "550.54" == false',
            f"({VERSION}.major() == 550 && {VERSION}.minor() == 54)",
        ),
        (f'true && "550" != {VERSION}', f"{VERSION}.major() != 550"),
        (f'{VERSION} == "550.x"', f"{VERSION}.major() == 550"),
        (f"{VERSION} >= 1e2", "three numbers, as in 12.4.0"),
        (f".5 > {VERSION}", "three numbers, as in 12.4.0"),
        (f'{VERSION} >= "newest"', "three numbers, as in 12.4.0"),
        (f'{VERSION} == "99999999999999999999"', "three numbers, as in 12.4.0"),
    ],
)
def test_a_version_is_compared_as_it_was_meant(wrong: str, right: str) -> None:
    (one,) = found(selector(wrong, "'"))
    assert (one.rule, one.action) == ("cel-type", f"write {right}")
    if "semver" in right:
        assert found(selector(right, "'")) == []


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (f"int({VERSION}) == 550", [f"{VERSION}.major() instead of int({VERSION})"]),
        (f"semver({VERSION}).major() == 550", [f"{VERSION} instead of semver({VERSION})"]),
        (f'string({VERSION}) == "550.1.1"', [f'{VERSION} == semver("550.1.1")']),
        (f"double({VERSION}) < 550.5", [f'{VERSION}.compareTo(semver("550.5", true)) < 0']),
        (f"int({NVIDIA}.brand) == 1", []),
    ],
)
def test_a_conversion_of_a_version_is_told(wrong: str, right: Sequence[str]) -> None:
    every = found(selector(wrong, "'"))
    assert [one.action for one in every] == [f"write {one}" for one in right]
    for one in every:
        assert one.message == "driverVersion is a version, which cannot be converted"
        assert one.rule == "cel-type"


@pytest.mark.parametrize(
    ("texts", "right"),
    [
        ('["550.1.1"]', [f'{VERSION} in [semver("550.1.1")]']),
        ('["550"]', [f"{VERSION}.major() == 550"]),
        ('[semver("550.1.1")]', []),
        ("[550]", [f"{VERSION}.major() == 550"]),
        ('["550.1.1", "latest"]', ["only versions into it: three numbers, as in 12.4.0"]),
        ('[["550.1.1"]]', []),
        (f"{{{VERSION}: 1}}", []),
        ("[]", []),
    ],
)
def test_a_list_of_others_has_no_version(texts: str, right: Sequence[str]) -> None:
    every = found(selector(f"{VERSION} in {texts}", "'"))
    assert [one.action for one in every] == [f"write {one}" for one in right]
    for one in every:
        assert one.message == "driverVersion is a version, and the list has others"


@pytest.mark.parametrize(
    ("call", "action"),
    [
        ('startsWith("550")', f"write {VERSION}.major() == 550"),
        ('endsWith("15")', "ask .major(), .minor() or .patch(), or compare it with semver(…)"),
    ],
)
def test_a_version_that_is_tested_as_a_string_is_told(call: str, action: str) -> None:
    (one,) = found(selector(f"{VERSION}.{call}", "'"))
    function = call.partition("(")[0]
    assert one.message == f"driverVersion is a version, and {function} is for strings"
    assert (one.rule, one.action) == ("cel-type", action)
    assert found(selector(f"{NVIDIA}.brand.{call}", "'")) == []


@pytest.mark.parametrize("text", ["9.0", "550.90.07"])
def test_a_version_of_another_form_is_told_with_what_parses_it(text: str) -> None:
    (one,) = found(selector(f'{VERSION}.isGreaterThan(semver("{text}"))', "'"))
    assert (one.rule, one.action) == ("cel-value", f'write semver("{text}", true)')
    assert one.message.startswith(f"'{text}' is no version: the expression ends with an error")


@pytest.mark.parametrize(
    ("amount", "right"),
    [
        ("40g", "40G (40 x 1000^3 bytes) or 40Gi (40 x 1024^3 bytes)"),
        ("40GB", "40G (40 x 1000^3 bytes) or 40Gi (40 x 1024^3 bytes)"),
        ("40 Gi", "40Gi"),
        ("40GiB", "40Gi"),
    ],
)
def test_an_amount_with_another_unit_is_told_with_the_right_ones(amount: str, right: str) -> None:
    read = 'device.capacity["gpu.nvidia.com"].memory'
    (one,) = found(selector(f'{read}.compareTo(quantity("{amount}")) >= 0', "'"))
    assert (one.rule, one.action) == ("cel-value", f"write {right}")


def test_the_cost_is_checked() -> None:
    loops = "[1,2,3,4,5,6,7,8,9]"
    expression = f"{loops}.all(a, {loops}.all(b, {loops}.all(c, {loops}.all(d, {loops}.all(e, {loops}.all(f, a < 10))))))"
    (one,) = found(selector(expression, "'"))
    assert one.rule == "cel-cost"
    assert one.message.startswith("the API server estimates a cost of ")
    assert one.message.endswith("for the expression, and refuses more than 1,000,000")


def test_an_expression_says_where_it_stops() -> None:
    (one,) = found(with_selector("|", "true &&", "nonsense"))
    assert (one.rule, one.line) == ("cel-compile", 14)
    assert one.message.startswith(
        "the expression does not compile: undeclared reference to 'nonsense'"
    )
    assert one.detail == (" | nonsense", " | ^")


def test_what_a_release_takes_only_in_stored_objects_is_told() -> None:
    known = Known(state=ClusterState(kubernetes_version="v1.33.0"))
    (one,) = [
        each
        for each in found(selector('semver("1.0.0", true).major() == 1', "'"), known)
        if each.rule == "cel-compile"
    ]
    assert (
        one.action
        == "Kubernetes 1.33 takes this only in objects that it has already: use what 1.32 knows"
    )


def test_derived_attributes_are_compiled() -> None:
    def text(expression: str) -> str:
        return claim(
            f"deviceClassName: gpu\nderivedAttributes:\n  - {{name: a.example/b, expression: '{expression}'}}\n  - {{name: a.example/c}}"
        )

    assert "cel-compile" not in rules(text("device.driver"))
    assert "cel-compile" in rules(text("device.drive"))


def attribute(text: str) -> DeviceAttribute:
    return DeviceAttribute(string_value=text)


CLUSTER = Known(
    state=ClusterState(
        resource_slices=(
            ResourceSlice(
                spec=ResourceSliceSpec(
                    driver="card.example.com",
                    node_name="n",
                    pool=ResourcePool(name="n", generation=1, resource_slice_count=1),
                    devices=[
                        Device(
                            name=f"d-{number}",
                            attributes={
                                "colour": attribute("red"),
                                "x.example/y": attribute("z"),
                                "x.example/number": DeviceAttribute(int_value=number),
                                "x.example/release": DeviceAttribute(version_value="9.0.0"),
                                "x.example/text": attribute("9.0.0"),
                                **({"x.example/odd": attribute("yes")} if number else {}),
                                "gpu.nvidia.com/extra": DeviceAttribute(int_values=[1]),
                                "gpu.nvidia.com/productName": attribute("H100"),
                            },
                            capacity={
                                "room": DeviceCapacity(value="1"),
                                "x.example/size": DeviceCapacity(value="1"),
                            },
                        )
                        for number in range(2)
                    ],
                )
            ),
        )
    )
)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.attributes["card.example.com"].colour == "red"', []),
        (
            'device.attributes["card.example.com"].color == "red"',
            [
                "12 cel-name: no device of card.example.com has the attribute color",
            ],
        ),
        (
            'device.attributes["card.example.com"].colour == "blue"',
            ["12 cel-no-device: none of the devices of class any matches the expression"],
        ),
        ('device.attributes["x.example"].y == "z" && has(device.capacity["x.example"].size)', []),
        ('device.attributes["gpu.nvidia.com"].extra == [1]', []),
        # The first of the two devices matches, and the last does not.
        ('device.attributes["x.example"].number == 0', []),
    ],
)
def test_a_cluster_says_whether_a_device_matches(expression: str, expected: list[str]) -> None:
    text = selector(expression, "'").replace(
        "deviceClassName: gpu.nvidia.com", "deviceClassName: any"
    )
    assert [line for line in brief(text, CLUSTER) if "ref-class" not in line] == expected


@pytest.mark.parametrize(
    ("expression", "action"),
    [
        ('device.attributes["gpu.nvidia.com"].modle == "x"', "did you mean mode?"),
        ('device.attributes["gpu.nvidia.com"].prodctName == "x"', "known are mode, numaNode"),
        ('device.attributes["gpu.nvidia.com"].node == 1', "did you mean numaNode?"),
        # No device of the cluster has a capacity there: any name may be meant.
        ('has(device.capacity["gpu.nvidia.com"].memoryx)', "did you mean memory?"),
    ],
)
def test_only_a_name_that_a_device_of_the_cluster_has_was_meant(
    expression: str, action: str
) -> None:
    assert CLUSTER.state
    (published,) = CLUSTER.state.resource_slices
    values = {"mode": attribute("x"), "numaNode": DeviceAttribute(int_value=1)}
    spec = msgspec.structs.replace(
        published.spec, driver="gpu.nvidia.com", devices=[Device(name="d", attributes=values)]
    )
    slices = (msgspec.structs.replace(published, spec=spec),)
    known = Known(state=msgspec.structs.replace(CLUSTER.state, resource_slices=slices))
    text = selector(expression, "'")
    (name,) = [one for one in found(text, known) if one.rule in ("cel-name", "capacity-name")]
    assert name.action == action


def test_slices_that_were_not_read_may_match() -> None:
    assert CLUSTER.state
    gap = NotRead(resource="resourceslices", reason="forbidden")
    known = Known(state=msgspec.structs.replace(CLUSTER.state, not_read=(gap,)))
    assert "cel-no-device" in rules(selector("1 == 2"), CLUSTER)
    assert "cel-no-device" not in rules(selector("1 == 2"), known)


def test_a_request_is_asked_for_the_devices_of_its_class() -> None:
    class_text = (
        "---\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: mine}\nspec:\n  selectors:\n"
        "    - cel: {expression: 'device.driver == \"other.example\"'}\n    - {}\n"
        "    - cel: {expression: 'nonsense'}\n    - cel: {expression: 'device.attributes[\"a.b\"].c'}\n"
    )
    text = selector('device.attributes["x.example"].none == "z"', "'").replace(
        "gpu.nvidia.com", "mine"
    )
    told = [
        one.message
        for one in found(text + class_text, CLUSTER)
        if one.rule.startswith("cel-no") or one.rule == "cel-fails"
    ]
    assert told == [
        "none of the devices of class mine matches the expression",
        "none of the devices matches the expression",
        "the expression fails for device card.example.com/n/d-0: no such key: c",
    ]


def test_a_class_that_fails_for_a_device_does_not_leave_it() -> None:
    class_text = (
        "---\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: mine}\nspec:\n  selectors:\n"
        "    - cel: {expression: 'device.attributes[\"a.b\"].c'}\n"
    )
    text = selector("1 == 1").replace("gpu.nvidia.com", "mine")
    told = [one.message for one in found(text + class_text, CLUSTER)]
    assert told == [
        "none of the devices of class mine matches the expression",
        "the expression fails for device card.example.com/n/d-0: no such key: c",
    ]


@pytest.mark.parametrize(
    ("count", "colour", "expected"),
    [
        (2, "red", []),
        (3, "red", ["the request is for 3 devices, and the node with the most has 2 that match"]),
        (
            40,
            "red",
            ["the request is for 40 devices, and an allocation has at most 32"],
        ),
        (3, "blue", []),  # told as an expression that no device matches
    ],
)
def test_a_cluster_says_how_many_devices_a_node_has(
    count: int, colour: str, expected: list[str]
) -> None:
    class_text = (
        "---\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: mine}\nspec: {}\n"
    )
    text = selector(f'device.attributes["card.example.com"].colour == "{colour}"', "'")
    text = text.replace(
        "deviceClassName: gpu.nvidia.com", f"deviceClassName: mine\n          count: {count}"
    )
    assert "count" in text
    told = [
        one.message for one in found(text + class_text, CLUSTER) if one.rule == "too-many-devices"
    ]
    assert told == expected


def test_devices_with_the_same_values_are_counted_each() -> None:
    assert CLUSTER.state
    (published,) = CLUSTER.state.resource_slices
    device = (published.spec.devices or [])[0]
    same = [msgspec.structs.replace(device, name=f"gpu-{number}") for number in range(3)]
    spec = msgspec.structs.replace(published.spec, devices=same)
    slices = (msgspec.structs.replace(published, spec=spec),)
    known = Known(state=msgspec.structs.replace(CLUSTER.state, resource_slices=slices))
    class_text = (
        "---\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: mine}\nspec: {}\n"
    )
    assert "too-many-devices" not in rules(
        claim("deviceClassName: mine\ncount: 3") + class_text, known
    )
    assert "too-many-devices" in rules(claim("deviceClassName: mine\ncount: 4") + class_text, known)


def test_shared_devices_may_be_given_out_any_number_of_times() -> None:
    assert CLUSTER.state
    (published,) = CLUSTER.state.resource_slices
    shared = [
        msgspec.structs.replace(one, allow_multiple_allocations=True)
        for one in published.spec.devices or ()
    ]
    spec = msgspec.structs.replace(published.spec, devices=shared)
    slices = (msgspec.structs.replace(published, spec=spec),)
    known = Known(state=msgspec.structs.replace(CLUSTER.state, resource_slices=slices))
    class_text = (
        "---\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: mine}\nspec: {}\n"
    )
    text = claim("deviceClassName: mine\ncount: 3") + class_text
    assert "too-many-devices" in rules(text, CLUSTER)
    assert "too-many-devices" not in rules(text, known)


def test_the_classes_of_the_cluster_count_too() -> None:
    spec = DeviceClassSpec(
        selectors=[DeviceSelector(cel=CELDeviceSelector(expression="false")), DeviceSelector()]
    )
    one = DeviceClass(metadata=ObjectMeta(name="none"), spec=spec)
    known = Known(state=msgspec.structs.replace(CLUSTER.state, device_classes=(one,)))
    text = selector("1 == 1").replace("gpu.nvidia.com", "none")
    assert brief(text, known) == [
        "12 cel-no-device: none of the devices of class none matches the expression"
    ]


OF_MINE = """---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: mine}
spec: {}
"""


@pytest.mark.parametrize(
    ("expression", "rule"),
    [
        ('device.attributes["card.example.com"].color == "red"', "cel-name"),
        ('semver(device.attributes["card.example.com"].colour).major() == 1', "cel-fails"),
        ('device.attributes["x.example"].number > "1"', "cel-type"),
        ('int(device.attributes["x.example"].release) >= 8', "cel-type"),
        ('device.capacity["x.example"].size.compareTo(quantity("1GB")) > 0', "cel-value"),
    ],
)
def test_an_expression_that_fails_is_told_once(expression: str, rule: str) -> None:
    text = selector(expression, "'").replace("Name: gpu.nvidia.com", "Name: mine") + OF_MINE
    assert [one for one in rules(text, CLUSTER) if one.startswith("cel-")] == [rule]


def test_a_class_that_is_not_there_may_leave_the_device_out() -> None:
    text = selector('device.attributes["a.b"].c == "x"', "'")
    assert rules(text.replace("Name: gpu.nvidia.com", "Name: mine"), CLUSTER) == ["ref-class"]


def test_the_domain_that_has_the_name_is_told_if_no_device_has_what_is_read() -> None:
    """has(…) would be no help: no device would match."""
    read = 'device.attributes["a.b"].colour'
    text = selector(f'{read} == "red"', "'").replace("Name: gpu.nvidia.com", "Name: mine") + OF_MINE
    (one,) = [each for each in found(text, CLUSTER) if each.rule == "cel-fails"]
    assert one.action == f"no device has {read}: write {read.replace('a.b', 'card.example.com')}"


@pytest.mark.parametrize(
    ("expression", "action"),
    [
        ('device.attributes["x.example"].odd == "yes"', "ask with has(…) before"),
        (
            'device.attributes["a.b"].c == "x"',
            'no device of class mine has device.attributes["a.b"].c: this device has no attribute c, it has none of',
        ),
        (
            'device.attributes["x.example"].text.isGreaterThan(semver("8.0.0"))',
            "this device has text as the string 9.0.0: wrap it, semver(text)",
        ),
        ('semver(device.attributes["card.example.com"].colour).major() == 1', "check first what"),
    ],
)
def test_has_is_advised_for_what_another_device_has(expression: str, action: str) -> None:
    text = selector(expression, "'").replace("Name: gpu.nvidia.com", "Name: mine") + OF_MINE
    (one,) = [each for each in found(text, CLUSTER) if each.rule == "cel-fails"]
    assert one.action.startswith(action)


def test_the_name_that_was_meant_is_told_if_no_device_has_what_is_read() -> None:
    """The name is known, so nothing else tells that it was mistyped."""
    text = selector(f'{NVIDIA}.model == "x"', "'")
    text = text.replace("Name: gpu.nvidia.com", "Name: mine") + OF_MINE
    (one,) = [each for each in found(text, CLUSTER) if each.rule == "cel-fails"]
    has = (
        "this device has no attribute model, it has: extra, productName; did you mean productName?"
    )
    assert one.action == f"no device of class mine has {NVIDIA}.model: {has}"


def test_the_class_whose_devices_have_it_is_named() -> None:
    """has(…) would be no help for the devices of the class that is named."""
    odd = 'device.attributes["x.example"].odd'
    classes = "".join(
        f"---\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: {name}}}\nspec:\n  selectors:\n"
        f"    - cel: {{expression: '{of}'}}\n"
        for name, of in (
            ("even", 'device.attributes["x.example"].number == 0'),
            ("odd", f"has({odd})"),
        )
    )
    text = selector(f'{odd} == "yes"', "'").replace("Name: gpu.nvidia.com", "Name: even") + classes
    (one,) = [each for each in found(text, CLUSTER) if each.rule == "cel-fails"]
    assert one.action == f"no device of class even has {odd}: devices of the class odd have it"
    other = text.removesuffix(classes).replace('"yes"', '"no"')
    both = [each.action for each in found(f"{text}---\n{other}", CLUSTER) if each.rule == one.rule]
    assert both == [one.action] * 2


@pytest.mark.parametrize(
    ("text", "right"), [("9.0", '@ == semver("9.0", true)'), ("9", '@ == semver("9", true)')]
)
def test_a_version_that_a_device_has_is_meant_as_a_whole(text: str, right: str) -> None:
    read = 'device.attributes["x.example"].release'
    (one,) = [
        each
        for each in found(selector(f'{read} == "{text}"', "'"), CLUSTER)
        if each.rule == "cel-type"
    ]
    assert one.action == f"write {right.replace('@', read)}"
    (other,) = [
        each for each in found(selector(f'{read} == "8"', "'"), CLUSTER) if each.rule == "cel-type"
    ]
    assert other.action == f"write {read}.major() == 8"


MEMORY = 'device.capacity["gpu.nvidia.com"].memory'


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (f'{MEMORY}.compareTo(quantity("40")) >= 0', "memory 40 is 40 bytes"),
        (f'quantity("40").isLessThan({MEMORY})', "memory 40 is 40 bytes"),
        (f'{MEMORY} == quantity("40k")', "memory 40k is less than 1Mi"),
        (f'{MEMORY}.compareTo(quantity("40Gi")) >= 0', ""),
        (f'{MEMORY}.compareTo(quantity(string("40"))) >= 0', ""),
        (f"{MEMORY}.compareTo({MEMORY}) >= 0", ""),
        ('device.capacity["gpu.nvidia.com"].compute.compareTo(quantity("40")) >= 0', ""),
    ],
)
def test_memory_without_its_unit_is_told(expression: str, message: str) -> None:
    told = [one.message for one in found(selector(expression, "'")) if one.rule == "memory-unit"]
    assert told == ([message] if message else [])


@pytest.mark.parametrize(
    ("amounts", "questions"),
    [
        ("memory: 40", ["did you mean 40Gi?"]),
        ("gpu.nvidia.com/memory: '40960'", ["did you mean 40960Mi?"]),
        ("memory: 40Gi, compute: 40", []),
    ],
)
def test_a_requested_amount_of_memory_has_a_unit(amounts: str, questions: list[str]) -> None:
    text = claim(f"deviceClassName: gpu.nvidia.com\ncapacity: {{requests: {{{amounts}}}}}")
    assert [one.action for one in found(text) if one.rule == "memory-unit"] == questions
