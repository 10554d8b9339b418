# SPDX-License-Identifier: Apache-2.0
"""Who uses how many devices, how much memory, for how long?"""

from datetime import UTC, datetime

import pytest

from dra_driver.overview.devices import Chosen
from dra_driver.overview.usage import BY, DeviceUsage, UsageRow, usage_of
from tests.e2e import fleet as words
from tests.unit.overview.scene import ANYWHERE, Object, gpu_slice, held, overview, pod, shared

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TEN, NINE = "2026-01-01T10:00:00Z", "2026-01-01T09:00:00Z"
GIB = 2**30


def used(*objects: Object, by: str = "namespace", chosen: Chosen = ANYWHERE, **fields: object):
    return usage_of(overview(*objects, **fields), chosen, by, now=NOW)


def share(name: str, taken: str, **more: object) -> Object:
    return {"device": "gpu-0", "shareID": name, "consumedCapacity": {"memory": taken}, **more}


def fleet() -> tuple[Object, ...]:
    return (
        gpu_slice(words.device("a"), words.device("b", attributes={}), shared()),
        held("x", {"device": "a"}, {"device": "b"}, allocated=TEN, created=NINE, pods=("p",)),
        held("y", share("s", "20Gi"), namespace="team", created=NINE),
        held("z", {"device": "a", "adminAccess": True}),
        words.claim(name="waits"),
    )


def test_usage_by_namespace() -> None:
    assert used(*fleet(), recordedAt=TEN) == DeviceUsage(
        read_at=TEN,
        by="namespace",
        rows=(
            UsageRow(
                name="ns",
                claims=1,
                devices=2,
                shares=0,
                memory_bytes=160 * GIB,
                device_hours=4.0,
                since_creation=False,
                not_published=0,
            ),
            UsageRow(
                name="team",
                claims=1,
                devices=0,
                shares=1,
                memory_bytes=20 * GIB,
                device_hours=0.75,
                since_creation=True,
                not_published=0,
            ),
        ),
        total=UsageRow(
            name="total",
            claims=2,
            devices=2,
            shares=1,
            memory_bytes=180 * GIB,
            device_hours=4.75,
            since_creation=True,
            not_published=0,
        ),
        not_read=(),
    )


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("namespace", ["ns", "team"]),
        ("class", ["gpu"]),
        ("node", ["fleet-1"]),
        ("product", ["", "H100"]),
        ("driver", ["gpu.example.com"]),
    ],
)
def test_what_it_can_be_told_by(by: str, names: list[str]) -> None:
    assert [row.name for row in used(*fleet(), by=by).rows] == names
    assert by in BY


def test_a_claim_of_two_classes_counts_once_in_the_total() -> None:
    claim = held("x", {"device": "a"}, {"device": "b", "request": "more"})
    claim["spec"]["devices"]["requests"].append(
        {"name": "more", "exactly": {"deviceClassName": "other"}}
    )
    found = used(gpu_slice(words.device("a"), words.device("b")), claim, by="class")
    assert [(row.name, row.claims, row.devices) for row in found.rows] == [
        ("gpu", 1, 1),
        ("other", 1, 1),
    ]
    assert (found.total.claims, found.total.devices) == (1, 2)


def test_the_node_of_a_device_for_all_nodes_is_that_of_the_pod() -> None:
    network = gpu_slice(words.device("a"), allNodes=True)
    claim = held("x", {"device": "a"}, pods=("p", "q"))
    pods = [pod("p", node="n1"), pod("q", node="n2")]
    assert [row.name for row in used(network, claim, by="node", pods=pods).rows] == ["n1,n2"]
    assert [row.name for row in used(network, claim, by="node").rows] == [""]


def test_a_device_that_is_not_published_has_no_memory_that_is_known() -> None:
    found = used(held("x", {"device": "gone"}, share("s", "1Gi")), by="product").rows
    assert [(row.name, row.memory_bytes, row.not_published) for row in found] == [("", GIB, 2)]


def test_a_share_counts_as_the_largest_part_that_it_takes() -> None:
    listed = shared()
    listed["capacity"] |= {"cores": {"value": "10"}, "nothing": {"value": "0"}}
    taken = {"memory": "8Gi", "cores": "5", "nothing": "0", "unknown": "1"}
    half = {"device": "gpu-0", "shareID": "s", "consumedCapacity": taken}
    found = used(gpu_slice(listed), held("x", half, created=TEN))
    assert found.total.device_hours == 1.0
    whole = {"device": "gpu-0", "shareID": "s"}
    assert used(gpu_slice(listed), held("x", whole, created=TEN)).total.device_hours == 2.0
    assert used(gpu_slice(listed), held("x", whole)).total.device_hours == 0.0


def test_only_a_namespace_a_driver_or_a_node() -> None:
    def names(**chosen: str) -> list[str]:
        return [row.name for row in used(*fleet(), chosen=Chosen(**chosen)).rows]

    assert names(namespace="team") == ["team"]
    assert names(driver="nic.example.com") == []
    assert names(node="fleet-1") == ["ns", "team"]
    assert names(node="fleet-0") == []
    gone = used(held("x", {"device": "gone"}), chosen=Chosen(node="fleet-1"))
    assert gone.rows == ()
    assert gone.total.claims == 0
