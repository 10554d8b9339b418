# SPDX-License-Identifier: Apache-2.0
"""The limits of the API, and everything that the API server refuses, not only the first."""

import pytest

from dra_driver.check.api_values import value_findings
from dra_driver.check.check import check
from dra_driver.check.given import Given, Known
from dra_driver.model.cluster import ClusterState
from tests.unit.check.findings import brief, claim, found, pod, selector

REFUSED = "the API server would refuse it: "
_CLASS = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: c}\nspec:\n"
_TOLERATION = "{key: a, operator: Exists}"
_SELECTOR = "{cel: {expression: 'true'}}"


def many(entry: str, number: int) -> str:
    return f"[{', '.join([entry] * number)}]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            claim(f"deviceClassName: gpu\nselectors: {many(_SELECTOR, 33)}"),
            "10 api-limit: REFUSEDselectors has 33 entries, at most 32 are allowed",
        ),
        (
            _CLASS + f"  selectors: {many(_SELECTOR, 33)}\n",
            "5 api-limit: REFUSEDselectors has 33 entries, at most 32 are allowed",
        ),
        (
            _CLASS + "  config: [{opaque: {driver: d.example, parameters: 3}}]\n",
            "5 api-value: REFUSEDparameters must be a mapping",
        ),
        (_CLASS + "  config: [{}]\n", "5 api-value: REFUSEDit has no opaque"),
        (
            _CLASS
            + f"  config: [{{opaque: {{driver: d.example, parameters: {{a: {'x' * 10240}}}}}}}]\n",
            "5 api-limit: REFUSEDparameters has 10,248 bytes, at most 10,240 are allowed",
        ),
        (
            _CLASS + f"  selectors: [{{cel: {{expression: \"'{'x' * 10240}' == ''\"}}}}]\n",
            "5 api-limit: REFUSEDexpression has 10,248 bytes, at most 10,240 are allowed",
        ),
        (
            claim("deviceClassName: gpu")
            + "    constraints: "
            + many("{matchAttribute: a.example/b}", 33)
            + "\n",
            "10 api-limit: REFUSEDconstraints has 33 entries, at most 32 are allowed",
        ),
        (
            claim("deviceClassName: gpu")
            + f"    config: [{{requests: {many('gpu', 33)}, opaque: {{driver: d.example, parameters: {{}}}}}}]\n",
            "10 api-limit: REFUSEDrequests has 33 entries, at most 32 are allowed",
        ),
        (
            claim("deviceClassName: gpu") + "      - {name: gpu}\n" * 32,
            "6 api-limit: REFUSEDspec.devices.requests has 33 requests, at most 32 are allowed",
        ),
    ],
    ids=[
        *("selectors", "class", "parameters", "opaque", "long", "expression"),
        *("constraints", "references", "requests"),
    ],
)
def test_the_limits_of_the_api_are_known(text: str, expected: str) -> None:
    assert expected.replace("REFUSED", REFUSED) in brief(text)


@pytest.mark.parametrize(
    "text",
    [
        claim(
            f"deviceClassName: gpu\nselectors: {many(_SELECTOR, 32)}\ntolerations: {many(_TOLERATION, 16)}"
        ),
        _CLASS
        + f"  config: [{{opaque: {{driver: d.example, parameters: {{a: {'x' * 10232}}}}}}}]\n",
        _CLASS + f"  selectors: [{{cel: {{expression: \"'{'x' * 10232}' == ''\"}}}}]\n",
    ],
    ids=["entries", "parameters", "expression"],
)
def test_what_is_just_within_a_limit_is_right(text: str) -> None:
    assert brief(text) == []


def test_all_mistakes_of_an_object_are_told() -> None:
    text = claim("deviceClassName: gpu\ncount: -1\nallocationMod: All\nallocationMode: None")
    assert [(one.line, one.rule) for one in found(text)] == [(11, "api-field"), (12, "api-value")]


def test_a_value_that_json_does_not_have_is_malformed() -> None:
    content = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    found = check([Given({**content, "spec": {"a": float("nan"), "b": "\ud800"}})], Known())
    assert "api-malformed" in {one.rule for one in found}


def test_a_label_is_read_as_kubectl_reads_it() -> None:
    text = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {a: %s}}\nspec: {containers: [{name: c, image: i}]}\n"
    assert brief(text % "1:30") == [f"3 api-value: {REFUSED}'a': '1:30' is no label"]
    for word in ("1e3", "08", "y"):
        (one,) = brief(text % word)
        assert one.startswith(f"3 api-malformed: {REFUSED}Expected `str`, got ")


def test_parameters_that_json_does_not_have_are_malformed() -> None:
    parameters = {"a": "\ud800"}
    config = [{"opaque": {"driver": "d.example", "parameters": parameters}}]
    content = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "c"},
        "spec": {"config": config},
    }
    assert [one.rule for one in check([Given(content)], Known())] == ["api-malformed"]


def test_an_older_request_is_shown_as_it_is_written() -> None:
    text = claim("deviceClassName: gpu\nallocationMode: Some")
    older = (
        text.replace("resource.k8s.io/v1\n", "resource.k8s.io/v1beta1\n")
        .replace("        exactly:\n", "")
        .replace("          ", "        ")
    )
    assert [(one.rule, one.line, one.path) for one in found(older)] == [
        ("old-version", 1, "apiVersion"),
        ("api-value", 9, "spec.devices.requests[0].allocationMode"),
    ]


def test_a_version_that_the_cluster_does_not_serve_is_an_error() -> None:
    text = "apiVersion: resource.k8s.io/v1beta1\nkind: DeviceClass\nmetadata: {name: c}\nspec: {}\n"
    served = Known(state=ClusterState(served=("v1", "v1beta2")))
    assert brief(text, served) == [
        "1 api-version: resource.k8s.io/v1beta1 is not served by this cluster"
    ]
    older = Known(state=ClusterState(served=("v1beta1",)))
    assert brief(text, older) == []
    assert brief(text.replace("v1beta1", "v1"), older) == [
        f"1 api-version: {REFUSED}v1 is not served here"
    ]
    (told,) = found(text.replace("v1beta1", "v1"), older)
    assert told.action.startswith("in v1beta1 this is written")


def test_a_claim_of_the_first_form_is_told_how_it_is_written_today() -> None:
    text = (
        "apiVersion: resource.k8s.io/v1alpha2\nkind: ResourceClaim\nmetadata: {name: c}\n"
        "spec: {resourceClassName: gpu.nvidia.com}\n"
    )
    (told,) = found(text)
    assert told.message == f"{REFUSED}v1alpha2 is the first form of DRA and not served here"
    assert "[{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]" in told.action


@pytest.mark.parametrize(
    ("entry", "rules"),
    [
        ("{name: a, source: {resourceClaimName: c}}", ["old-source"]),
        ("{name: a, source: {}}", ["api-value", "old-source"]),
        ("{name: a}", ["api-value"]),
    ],
)
def test_a_claim_named_in_the_older_form_is_told_once(entry: str, rules: list[str]) -> None:
    text = pod("resources: {claims: [{name: a}]}", f"resourceClaims: [{entry}]")
    assert [one.rule for one in found(text)] == rules


def test_invented_resources_hide_no_other_mistake() -> None:
    text = pod("resources: {limits: {nvidia.com/gpu.model: A100}}\nrestartPolicyRule: x")
    assert [one.rule for one in found(text)] == ["invented-resource", "api-field"]


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1alpha3"])
def test_each_version_of_a_taint_rule_is_one_of_some_release(version: str) -> None:
    text = f"apiVersion: resource.k8s.io/{version}\nkind: DeviceTaintRule\nmetadata: {{name: r}}\n"
    assert [one.rule for one in found(text)] == ["not-checked"]


@pytest.mark.parametrize(
    ("expression", "fixed"),
    [
        ('device.attributes["memory"] >= 16 * 1024', False),
        ('device.attributes["memory"] >= 16000.5', False),
        ('device.attributes["memory"] >= 16e3', False),
        ('device.attributes["memory"] >= 0x3E80', False),
        ('device.attributes["memory"] >= 16000u', False),
        ('device.attributes["memory"] >= 16000 - 500', False),
        ('device.attributes["memory"] >= 16000', True),
        ('(device.attributes["memory"] >= 16000) || true', True),
        ('device.attributes["memory"] >= 16000 && true', True),
    ],
)
def test_only_a_whole_comparison_of_memory_is_rewritten(expression: str, fixed: bool) -> None:
    text = claim(f"deviceClassName: gpu\nselectors:\n  - cel: {{expression: '{expression}'}}")
    assert any(one.edits for one in found(text) if one.rule == "old-memory") is fixed


@pytest.mark.parametrize(
    ("number", "amount", "fixed"),
    [
        ("40", "40Gi", False),
        ("999", "999Gi", False),
        ("1000", "1000Mi", True),
        ("1000000", "1000000Mi", True),
        ("1000001", "1000001", False),
        ("16000000000", "16000000000", False),
    ],
)
def test_a_number_whose_unit_is_not_clear_is_left_to_its_author(
    number: str, amount: str, fixed: bool
) -> None:
    (one,) = found(selector(f'device.attributes["memory"] >= {number}'))
    new = f'write device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("{amount}")) >= 0'
    asked = ", with the unit that is meant: Gi, Mi, or none for bytes. --fix does not guess it"
    assert one.action == new + ("" if fixed else asked)
    assert bool(one.edits) is fixed


def test_memory_is_read_of_the_driver_that_the_expression_names() -> None:
    expression = 'device.driver == "gpu.nvidia.com" && device.attributes["memory"] >= 16000'
    text = claim(f"deviceClassName: mine\nselectors:\n  - cel: {{expression: '{expression}'}}")
    [one] = [one for one in found(text) if one.rule == "old-memory"]
    assert 'device.capacity["gpu.nvidia.com"].memory' in one.action


@pytest.mark.parametrize(
    ("amount", "rule"),
    [
        ("0.5", "device-plugin-amount"),
        ("1500m", "device-plugin-amount"),
        ("1000m", "device-plugin"),
        ("2", "device-plugin"),
        ("1k", "device-plugin"),
        ("one", "device-plugin"),
    ],
)
def test_an_extended_resource_is_a_whole_number(amount: str, rule: str) -> None:
    text = pod(f"resources: {{limits: {{nvidia.com/gpu: '{amount}'}}}}")
    assert rule in [one.rule for one in found(text)]
    assert {"device-plugin", "device-plugin-amount"} & {one.rule for one in found(text)} == {rule}


class Counted(str):
    """A name that counts how often it is compared with another one."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_many_names_are_not_compared_each_with_each() -> None:
    names = [Counted(f"r{number}") for number in range(500)]
    spec = {"devices": {"constraints": [{"requests": [*names, Counted("r7")]}]}}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": spec}
    uses = [{"name": name} for name in [*names, Counted("r7")]]
    containers = [{"name": "c", "resources": {"claims": uses}}]
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": containers}}
    Counted.compared = 0
    told = [one.message for each in (claim, pod) for one in value_findings(Given(each))]
    assert [one for one in told if "twice" in one] == [
        f"{REFUSED}it names the request 'r7' twice",
        f"{REFUSED}the container uses the claim 'r7' twice",
    ]
    assert Counted.compared < 5 * len(names)


def test_a_name_that_is_no_text_is_told_once_and_hides_no_other_one() -> None:
    constraint = {"requests": [7, "gpu", "gpu"]}
    spec = {"devices": {"constraints": [constraint]}}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": spec}
    uses = [{"name": 7}, {"name": "gpu", "request": 7}, {"name": "gpu"}, {"name": "gpu"}]
    containers = [{"name": "c", "resources": {"claims": uses}}]
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": containers}}
    assert [one.message for each in (claim, pod) for one in value_findings(Given(each))] == [
        f"{REFUSED}it names the request 'gpu' twice",
        f"{REFUSED}the container uses the claim 'gpu' twice",
    ]
