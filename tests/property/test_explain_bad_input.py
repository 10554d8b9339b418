# SPDX-License-Identifier: Apache-2.0
"""Whatever stands in a record or a manifest: an answer, or a sentence for an operator, and nothing else."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from dra_driver.cel.compile import compile_selector
from dra_driver.cli.render_explain import document, text
from dra_driver.errors import DriverError
from dra_driver.explain.outcome import EXIT_CODES
from dra_driver.explain.report import (
    ClaimSubject,
    ManifestSubject,
    PodSubject,
    Subject,
    TemplateSubject,
    explain,
)
from dra_driver.model.cluster import FORMAT, FORMAT_VERSION, decode
from tests.e2e import fleet
from tests.support.examples import examples
from tests.unit.explain.clusters import holder

Tree = Any
Path = tuple[str | int, ...]
# The parser raises Python's recursion limit once, where it is first used: before hypothesis looks at it.
compile_selector("true")
GPU = fleet.GPU
TAINT = {"key": f"{GPU}/xid", "value": "79", "effect": "NoSchedule"}
TERMS = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["1"]}]},
        {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["0"]}]},
    ]
}
COUNTERS = {"memory": {"value": "80Gi"}}
POLICY = {"default": "10Gi", "validRange": {"min": "10Gi", "step": "10Gi", "max": "80Gi"}}


def _slices() -> Iterator[Tree]:
    consumes = [{"counterSet": "card", "counters": COUNTERS}]
    sliced = fleet.device("gpu-1", memory="40Gi", consumesCounters=consumes)
    shared = fleet.device("gpu-2", allowMultipleAllocations=True, taints=[TAINT])
    shared["capacity"]["memory"]["requestPolicy"] = POLICY
    whole = fleet.resource_slice(name="counters", slices=2)
    whole["spec"]["sharedCounters"] = [{"name": "card", "counters": COUNTERS}]
    yield whole
    yield fleet.resource_slice([fleet.device("gpu-0"), sliced, shared], slices=2)
    reached = fleet.device("far", bindingConditions=["a"], bindingFailureConditions=["b"])
    yield fleet.resource_slice([reached], pool="far", nodeSelector=TERMS)


def _claim() -> Tree:
    exact = fleet.request(
        "one",
        cel=f'device.capacity["{GPU}"].memory.compareTo(quantity("40Gi")) >= 0',
        count=1,
        allocationMode="ExactCount",
        tolerations=[{"key": f"{GPU}/xid", "operator": "Exists", "effect": "NoSchedule"}],
        capacity={"requests": {"memory": "20Gi"}},
    )
    options = [
        {"name": "large", "deviceClassName": "none", "allocationMode": "ExactCount", "count": 9},
        {"name": "any", "deviceClassName": fleet.CLASS, "allocationMode": "All"},
    ]
    constraint = {"requests": ["one", "two"], "matchAttribute": f"{GPU}/numa"}
    other = {"requests": ["one", "two/any"], "distinctAttribute": f"{GPU}/model"}
    return fleet.claim(
        exact, {"name": "two", "firstAvailable": options}, constraints=[constraint, other]
    )


def _pod() -> Tree:
    made = fleet.pod(nodeSelector={"zone": "1"}, cpu="1500m", tolerations=[{"operator": "Exists"}])
    made["spec"]["resourceClaims"].append({"name": "t", "resourceClaimTemplateName": fleet.MINE})
    required = {"requiredDuringSchedulingIgnoredDuringExecution": TERMS}
    made["spec"]["affinity"] = {"nodeAffinity": required}
    made["spec"]["containers"][0]["resources"]["requests"][f"{GPU}/whole"] = "1"
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}
    made["status"] = {"phase": "Pending", "conditions": [said]}
    return made


def _of(thing: Tree) -> Tree:
    thing["metadata"]["namespace"] = "ns"
    return thing


def _cluster() -> Tree:
    node = fleet.node(fleet.HOME, labels={"zone": "1", "rank": "3"}, taints=[TAINT])
    node["status"] = {"allocatable": {"cpu": "8", "pods": "9", "memory": "1Gi"}}
    extended = fleet.device_class("extended")
    extended["spec"]["extendedResourceName"] = f"{GPU}/whole"
    held = holder("gpu-2", shareID="s", consumedCapacity={"memory": "20Gi"})
    held["status"]["reservedFor"] = [{"resource": "pods", "name": "first", "uid": "u"}]
    user = _of(fleet.pod("first", of={"resourceClaimName": "holder"}, nodeName=fleet.HOME))
    rule = {
        "metadata": {"name": "rule"},
        "spec": {"deviceSelector": {"driver": GPU, "pool": fleet.HOME}, "taint": TAINT},
    }
    return {
        "kubernetesVersion": "v1.37.1",
        "featureGates": {"DRAConsumableCapacity": True},
        "served": ["v1"],
        "nodes": [node],
        "pods": [_of(_pod()), user],
        "namespaces": [{"metadata": {"name": "ns", "labels": {"a": "b"}}}],
        "deviceClasses": [fleet.device_class(), extended],
        "resourceSlices": list(_slices()),
        "resourceClaims": [_of(_claim()), held],
        "resourceClaimTemplates": [_of(fleet.template())],
        "deviceTaintRules": [rule],
        "notRead": [{"resource": "/metrics", "reason": "forbidden", "message": "m"}],
    }


WHOLE = {"format": FORMAT, "formatVersion": FORMAT_VERSION, "cluster": _cluster()}
MANIFESTS = [_claim(), fleet.template(), _pod()]
SUBJECTS: tuple[Subject, ...] = (
    PodSubject("ns", fleet.MINE),
    ClaimSubject("ns", fleet.MINE),
    ClaimSubject("ns", "holder"),
    TemplateSubject("ns", fleet.MINE),
)

# Damage

STRINGS = (
    *("", " ", "\x00", "\ud800", "\U0001f600", "x" * 300, "Exists", "NotIn", "All", "ns"),
    *("80Gi", "-1", "1e400", "9" * 400, "0.0000000001", "1e-99999999999", "1e99999999999", "1 Gi"),
    *("nan", "inf", "٣", "1" + "0" * 30 + "Ei", "v1.9999999999", "v1.x", "v0", "v1.30"),
    *("device.", "true", "1/0 == 1", "(" * 500, "device.attributes['x'].y == 1", "[1,2].all(x, x"),
    *(
        "Gt",
        "Lt",
        "gpu-0",
        "gpu-1",
        fleet.MINE,
        fleet.HOME,
        GPU,
        f"{GPU}/numa",
        "a/b/c",
        "/",
        "one",
    ),
)
NUMBERS = (0, -1, 1, 2, 33, 10**6, 2**31, 2**63 - 1, -(2**63), 2**64, 10**40, 1.5, 1e300)


def _deep(levels: int) -> Tree:
    value: Tree = "x"
    for level in range(levels):
        value = [value] if level % 2 else {"x": value}
    return value


ANYTHING: tuple[Tree, ...] = (
    *STRINGS[:6],
    *NUMBERS[:6],
    None,
    True,
    False,
    [],
    {},
    [None],
    [{}],
    _deep(50),
)


def _paths(tree: Tree, here: Path = ()) -> Iterator[Path]:
    if here:
        yield here
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _paths(value, (*here, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from _paths(value, (*here, index))


def _of_its_kind(value: Tree) -> tuple[Tree, ...]:
    """Bad values of the type that the place has."""
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, str):
        return STRINGS
    if isinstance(value, int):
        return NUMBERS
    if isinstance(value, list):
        return ([], value * 2, [*value, None], value * 40)
    if isinstance(value, dict):
        return ({}, {**value, "": 1}, {**value, "unknown": _deep(20)})
    return ANYTHING


@st.composite
def damaged(draw: st.DrawFn, whole: Tree) -> Tree:
    """The tree with a few places spoiled, removed or repeated."""
    tree = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 4))):
        places = list(_paths(tree))
        if not places:
            break
        *outer, last = draw(st.sampled_from(places))
        parent = tree
        for step in outer:
            parent = parent[step]
        how = draw(st.sampled_from(("its kind", "its kind", "its kind", "remove", "anything")))
        if how == "remove":
            del parent[last]
            continue
        values = _of_its_kind(parent[last]) if how == "its kind" else ANYTHING
        parent[last] = copy.deepcopy(draw(st.sampled_from(values)))
    return tree


def _content(tree: Tree) -> bytes:
    return json.dumps(tree, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _answered(content: bytes, *subjects: Subject) -> int:
    """How often there is an answer; every exception but the driver's own goes on."""
    try:
        state = decode(content, source="f.json")
    except DriverError as error:
        return _refused(error)
    return sum(_explained(state, subject) for subject in subjects)


def _refused(error: DriverError) -> int:
    assert str(error).strip()
    return 0


def _explained(state: Tree, subject: Subject) -> int:
    try:
        report = explain(state, subject)
    except DriverError as error:
        return _refused(error)
    assert report.exit_code in EXIT_CODES.values()
    assert text(report, width=80, color=False)
    assert json.loads(json.dumps(document(report)))["subject"] == report.subject
    return 1


SLOW = examples(
    200,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def test_the_record_that_is_damaged_below_is_whole() -> None:
    assert _answered(_content(WHOLE), *SUBJECTS, ManifestSubject(tuple(MANIFESTS), "ns", "f")) == 5


@SLOW
@given(damaged(WHOLE))
def test_a_damaged_record_gets_an_answer_or_a_sentence(tree: Tree) -> None:
    _answered(_content(tree), *SUBJECTS)


@SLOW
@given(damaged(MANIFESTS))
def test_a_damaged_manifest_gets_an_answer_or_a_sentence(documents: Tree) -> None:
    _answered(_content(WHOLE), ManifestSubject(tuple(documents), "ns", "f.yaml"))


@examples(100)
@given(st.integers(0, 10_000), st.binary(max_size=4), st.integers(0, 10_000))
def test_a_record_with_damaged_bytes_gets_an_answer_or_a_sentence(
    start: int, put: bytes, cut: int
) -> None:
    content = _content(WHOLE)
    _answered(content[:start] + put + content[start + cut % 5 :], *SUBJECTS)


@example(b"\xff\xfe")
@example(b"[" * 100_000)
@example(b'{"format": ' * 50_000)
@examples(50)
@given(st.binary(max_size=200))
def test_bytes_that_are_no_record_are_a_sentence(content: bytes) -> None:
    assert _answered(content, *SUBJECTS) == 0


@pytest.mark.parametrize("field", sorted(WHOLE["cluster"]))
def test_a_record_may_lack_any_kind_of_object(field: str) -> None:
    cluster = {name: value for name, value in WHOLE["cluster"].items() if name != field}
    _answered(_content({**WHOLE, "cluster": cluster}), *SUBJECTS)
