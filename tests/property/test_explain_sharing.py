# SPDX-License-Identifier: Apache-2.0
"""What is explained together shares what equal requests find out, and has the answers that each has alone."""

from typing import Any

import msgspec
from hypothesis import Phase, example, given
from hypothesis import strategies as st

from dra_driver.cel.compile import compile_selector
from dra_driver.explain.explanation import Limits
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.outcome import Report
from dra_driver.explain.report import answer
from dra_driver.explain.subject.resolve import resolve
from dra_driver.explain.subject.subject import ClaimSubject
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words
from tests.e2e.fleet import FLEET, GPU
from tests.support.examples import examples
from tests.unit.explain.clusters import state

Object = dict[str, Any]
# The parser raises Python's recursion limit once, where it is first used: before hypothesis looks at it.
compile_selector("true")
COUNT = 3
ATTRIBUTES = f'device.attributes["{GPU}"]'
MEMORY = f'device.capacity["{GPU}"].memory.compareTo(quantity("50Gi")) >= 0'
EXPRESSIONS = (
    "",
    f"{ATTRIBUTES}.numa == 0",
    f"{ATTRIBUTES}.numa == 1",
    MEMORY,
    f"{ATTRIBUTES}.x == 1",
)
TAINT = {"key": "sick", "effect": "NoSchedule"}
TOLERATIONS: tuple[Object, ...] = ({}, {"tolerations": [{"key": "sick", "operator": "Exists"}]})
CAPACITIES: tuple[Object, ...] = (
    {},
    *({"capacity": {"requests": {"memory": amount}}} for amount in ("20Gi", "60Gi")),
)
GATES = ("DRAConsumableCapacity", "DRADeviceTaints", "DRAAdminAccess", "DRAPartitionableDevices")
NO_LIMITS = Limits("", lambda: False)


def some(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


DEVICES = st.builds(
    lambda memory, numa, more: {"memory": memory, "numa": numa, **more},
    some("40Gi", "80Gi"),
    some(0, 1),
    some({}, {}, {"taints": [TAINT]}, {"allowMultipleAllocations": True}),
)
BODIES = st.builds(
    lambda name, cel, count, tolerated, capacity: {
        "deviceClassName": name,
        **(words.selectors(cel) if cel else {}),
        **count,
        **tolerated,
        **capacity,
    },
    some("gpu", "gpu", "large", "missing"),
    some(*EXPRESSIONS),
    some({}, {"count": 2}, {"allocationMode": "All"}),
    some(*TOLERATIONS),
    some(*CAPACITIES),
)
EXACT = st.builds(
    lambda body, admin: {"exactly": {**body, **admin}}, BODIES, some({}, {}, {"adminAccess": True})
)
ONE_OF = st.lists(BODIES, min_size=1, max_size=3).map(
    lambda bodies: {"firstAvailable": [{"name": f"s{n}", **body} for n, body in enumerate(bodies)]}
)
CONSTRAINTS = some(
    {}, *({"constraints": [{"matchAttribute": f"{GPU}/{n}"}]} for n in ("numa", "model"))
)
CLAIMS = st.builds(
    lambda requests, more: words.claim(
        *({"name": f"r{n}", **request} for n, request in enumerate(requests)), **more
    ),
    st.lists(st.one_of(EXACT, ONE_OF), min_size=1, max_size=2),
    CONSTRAINTS,
)
FLEETS = st.lists(
    st.lists(DEVICES, min_size=1, max_size=4), min_size=len(FLEET), max_size=len(FLEET)
)


def holder(place: int, number: int) -> Object:
    made = words.claim(name=f"holder-{place}-{number}")
    made["metadata"]["namespace"] = "ns"
    chosen = {"request": "gpu", "driver": GPU, "pool": FLEET[place], "device": f"gpu-{number}"}
    made["status"] = {"allocation": {"devices": {"results": [chosen]}}}
    return made


def cluster(
    fleet: list[list[Object]], held: set[tuple[int, int]], claims: list[Object]
) -> ClusterState:
    slices = [
        words.resource_slice(
            [words.device(f"gpu-{n}", **device) for n, device in enumerate(devices)], pool=name
        )
        for name, devices in zip(FLEET, fleet, strict=True)
    ]
    holders = [
        holder(place, number)
        for place, number in sorted(held)
        if number < len(fleet[place]) and "allowMultipleAllocations" not in fleet[place][number]
    ]
    for number, claim in enumerate(claims):
        claim["metadata"] |= {"name": f"wanted-{number}", "namespace": "ns"}
    others = [words.node(name) for name in FLEET if name != words.HOME]
    large = words.device_class("large", expression=MEMORY)
    namespaces = [
        {"metadata": {"name": "ns", "labels": {"resource.kubernetes.io/admin-access": "true"}}}
    ]
    return state(*others, *slices, large, *holders, *claims, gates=GATES, namespaces=namespaces)


def explained(whole: ClusterState, number: int, shared: Fleet) -> Report:
    found = list(resolve(whole, ClaimSubject("ns", f"wanted-{number}")))
    return answer(found, NO_LIMITS, shared)


ONE, TWO = words.request, [words.request("a"), words.request("b")]
OF_NUMA: Object = {"constraints": [{"matchAttribute": f"{GPU}/numa"}]}


def same(*numa: int) -> list[Object]:
    return [{"numa": one} for one in numa]


# Nodes that differ only in what the second claim's selector reads, and only in what its constraint compares.
@example(
    fleet=[same(0), same(1), same(0)],
    held=set(),
    claims=[words.claim(), words.claim(ONE(cel=EXPRESSIONS[1])), words.claim()],
)
@example(
    fleet=[same(0, 1), same(0, 0), same(0, 1)],
    held=set(),
    claims=[words.claim(*TWO), words.claim(*TWO, **OF_NUMA), words.claim(*TWO)],
)
@given(
    FLEETS,
    st.sets(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=6),
    st.lists(CLAIMS, min_size=COUNT, max_size=COUNT),
)
@examples(
    100, phases=(Phase.explicit, Phase.generate)
)  # to find the smallest example would take minutes
def test_claims_that_are_explained_together_have_the_answers_that_each_has_alone(
    fleet: list[list[Object]], held: set[tuple[int, int]], claims: list[Object]
) -> None:
    whole = cluster(fleet, held, claims)
    shared = Fleet(whole)
    for number in range(COUNT):
        together = explained(whole, number, shared)
        alone = explained(whole, number, Fleet(whole))
        assert msgspec.to_builtins(together) == msgspec.to_builtins(alone)
