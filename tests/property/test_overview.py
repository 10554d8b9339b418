# SPDX-License-Identifier: Apache-2.0
"""A device is free exactly where the scheduler gives one, and a damaged record gets rows or a sentence, and nothing else."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from dra_driver.cli.render_overview import Look, sheet
from dra_driver.errors import DriverError
from dra_driver.explain.trial import try_on
from dra_driver.model.cluster import ClusterState, decode
from dra_driver.overview.claims import claims_of
from dra_driver.overview.cluster import Overview
from dra_driver.overview.devices import Chosen, devices_of
from dra_driver.overview.free import free_of
from dra_driver.overview.rights import CLAIMS, gaps_of
from dra_driver.overview.steady import steady
from dra_driver.overview.usage import BY, usage_of
from dra_driver.overview.versions import version_of
from tests.e2e import fleet
from tests.property.test_explain_bad_input import WHOLE, damaged
from tests.support.examples import examples
from tests.unit.explain.clusters import claim, state
from tests.unit.overview.scene import held

Tree = Any
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TAINTS = (
    {"key": "a", "effect": "NoSchedule"},
    {"key": "b", "effect": "NoExecute"},
    {"key": "c", "effect": "None"},
)
SIZES = ("0", "10Gi", "20Gi", "25Gi", "40Gi", "80Gi")
POLICIES = (
    None,
    {"default": "20Gi", "validValues": ["20Gi", "40Gi"]},
    {"default": "10Gi", "validRange": {"min": "10Gi", "step": "10Gi"}},
    {"validRange": {"min": "20Gi", "max": "40Gi"}},
)


def rows(state: ClusterState) -> int:
    """All answers about a cluster, as documents and as columns; how many rows they have."""
    overview = Overview(state)
    gaps = gaps_of(overview.state, CLAIMS)
    found = [
        devices_of(overview, Chosen(), gaps),
        claims_of(overview, Chosen(), gaps),
        free_of(overview, Chosen(), not_read=gaps),
        *(usage_of(overview, Chosen(), by, now=NOW, not_read=gaps) for by in BY),
    ]
    count = 0
    for document in found:
        assert json.loads(msgspec.json.encode(document))["kind"] == document.kind
        assert steady(document) == steady(document)
        for wide in (False, True):
            shown = sheet(document, Look(NOW, wide=wide, namespaces=wide))
            assert {len(row.cells) for row in shown.rows} <= {len(shown.headers)}
            count += len(shown.rows)
    assert version_of("1", state).is_known
    return count


def test_the_record_that_is_damaged_below_is_whole() -> None:
    assert rows(decode(json.dumps(WHOLE).encode(), source="f.json")) > 10


@examples(200, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(damaged(WHOLE))
def test_a_damaged_record_gets_rows_or_a_sentence(tree: Tree) -> None:
    content = json.dumps(tree, ensure_ascii=False).encode("utf-8", "surrogatepass")
    try:
        rows(decode(content, source="f.json"))
    except DriverError as error:
        _is_told(error)


def _is_told(error: DriverError) -> None:
    assert str(error).strip()


@st.composite
def clusters(draw: st.DrawFn) -> ClusterState:
    """A node with one device, which may be tainted, shared, a partition, or in use."""
    memory = draw(st.sampled_from(SIZES[1:]))
    more: Tree = {}
    if draw(st.booleans()):
        more["taints"] = draw(st.lists(st.sampled_from(TAINTS), max_size=2))
    if is_shared := draw(st.booleans()):
        more["allowMultipleAllocations"] = True
    device = fleet.device("gpu-0", memory=memory, **more)
    policy = draw(st.sampled_from(POLICIES))
    if is_shared and policy:
        device["capacity"]["memory"]["requestPolicy"] = policy
    objects = [fleet.resource_slice([device], slices=draw(st.sampled_from((1, 1, 1, 2))))]
    for number in range(draw(st.integers(0, 2))):
        share = {
            "shareID": f"s{number}",
            "consumedCapacity": {"memory": draw(st.sampled_from(SIZES))},
        }
        whole = {"adminAccess": True} if draw(st.booleans()) else {}
        result = {"device": "gpu-0", **(share if is_shared and draw(st.booleans()) else whole)}
        objects.append(held(f"holder-{number}", result))
    return state(*objects)


@examples(300)
@given(clusters())
def test_a_device_is_free_exactly_where_the_scheduler_gives_it(state: ClusterState) -> None:
    overview = Overview(state)
    (device,) = overview.devices
    (found,) = free_of(overview, Chosen()).classes
    assert gives(overview, {"memory": "1"} if overview.is_shared(device) else {}) is bool(
        found.free
    )
    if found.free and overview.is_shared(device):
        largest = overview.largest_share(device)["memory"]
        assert gives(overview, {"memory": str(largest)})
        assert not gives(overview, {"memory": str(largest.nanos // 10**9 + 1)})


def gives(overview: Overview, capacity: dict[str, str]) -> bool:
    """Whether the scheduler gives a device for a request of this capacity."""
    asks = {"capacity": {"requests": capacity}} if capacity else {}
    (node,) = overview.state.nodes
    wanted = claim(fleet.request(**asks))
    return try_on(overview.fleet.allocator, node, [wanted], lambda: False).fits
