# SPDX-License-Identifier: Apache-2.0
"""No device of a foreign pod is given away before the pod has ended, and nothing that a foreign plugin could give out."""

from collections.abc import Callable
from threading import Event

import pytest
from structlog.testing import capture_logs

from dra_driver.errors import DriverError, Permanent, Temporary
from dra_driver.kube.base import NodeEvent
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, DeviceName, PodUid, ResourceName, UnitId
from dra_driver.model.plugin import PluginResource, PodUnits, Unit
from dra_driver.model.plugin_policy import DeviceChoice
from dra_driver.model.presence import CannotTell
from dra_driver.model.state import Phase, PreparedClaim, PreparedDevice, Unknown, Users
from dra_driver.services.foreign_guard import without_held
from dra_driver.testing.builders import A_BOOT, A_POOL, a_claim, a_result
from tests.support.guarded_node import GPU, GuardedNode, entry

ALL = {"gpu-0", "gpu-1", "gpu-2", "gpu-3"}


def own_row(device: str, unit: str = "", pod: str | None = None) -> PreparedClaim:
    ref = ClaimRef("default", "mine", ClaimUid("uid-mine"))
    if unit:
        ref = ClaimRef("device-plugin", GPU, ClaimUid("plugin-1"))
    found = PreparedDevice((unit or "gpu",), A_POOL, DeviceName(device), (), "")
    users = Users(None if pod is None else (PodUid(pod),))
    return PreparedClaim(ref, Phase.PREPARED, A_BOOT, (found,), "", users)


def test_a_plugin_that_comes_is_noticed_and_one_that_goes_as_well() -> None:
    node = GuardedNode()
    assert node.kept() == set()
    node.serves("uuid-gpu-0", "uuid-gpu-1")
    assert node.kept() == {"gpu-0", "gpu-1"}
    assert node.guard.taints() == {"gpu-0": "nvidia.com_gpu", "gpu-1": "nvidia.com_gpu"}
    node.stops()
    assert node.kept() == set()
    assert node.changes == 2


def test_a_plugin_that_restarts_keeps_its_devices() -> None:
    node = GuardedNode()
    node.serves("uuid-gpu-0")
    assert node.kept() == {"gpu-0"}
    node.counts = {GPU: 0}
    assert node.after(60) == {"gpu-0"}


def test_without_a_checkpoint_a_plugin_that_restarts_is_waited_for() -> None:
    node = GuardedNode()
    node.checkpoint = Unknown("not mounted")
    node.counts = {GPU: 4}
    assert node.kept() == ALL
    node.counts = {}
    assert node.after(200) == ALL
    assert node.after(200) == set()


def test_while_nothing_answers_everything_stays() -> None:
    node = GuardedNode()
    node.serves("uuid-gpu-1")
    assert node.kept() == {"gpu-1"}
    node.checkpoint, node.counts = Unknown("gone"), Unknown("kubelet restarts")
    node.version += 1
    assert node.after(1000) == {"gpu-1"}
    node.inventory = Temporary("not scanned")
    assert node.after(1000) == {"gpu-1"}


def test_pod_resources_are_asked_after_a_write_or_when_it_is_time() -> None:
    node = GuardedNode()
    node.kept()
    node.after(1)
    assert node.asked == 1
    node.writes()
    node.after(1)
    node.after(10)
    assert node.asked == 3


def test_a_pod_is_waited_for_until_its_cgroup_is_gone() -> None:
    node = GuardedNode()
    node.writes(entry("p", "uuid-gpu-0"))
    node.runs("p")
    assert node.kept() == {"gpu-0"}
    node.writes()  # it was deleted by force, and another pod was admitted
    assert node.after(1000) == {"gpu-0"}
    node.ends("p")
    assert node.kept() == set()
    assert node.listed == 0


def test_a_restart_forgets_no_pod() -> None:
    node = GuardedNode()
    node.writes(entry("p", "uuid-gpu-0"))
    node.runs("p")
    node.kept()
    node.writes()
    node.restart()
    assert node.guard.taints() == {"gpu-0": "nvidia.com_gpu"}
    node.ends("p")
    assert node.kept() == set()
    node.restart()
    assert node.kept() == set()


def test_a_pod_that_is_about_to_start_has_its_device() -> None:
    node = GuardedNode()
    node.writes(entry("p", "uuid-gpu-0"))
    assert node.kept() == {"gpu-0"}
    node.active = frozenset(
        {PodUnits("default", "p", "main", GPU, frozenset({UnitId("uuid-gpu-0")}))}
    )
    assert node.after(60) == {"gpu-0"}
    node.active = Unknown("kubelet restarts")
    assert node.after(60) == {"gpu-0"}
    node.active = frozenset()
    assert node.after(60) == set()
    assert node.after(1) == set()  # the entry of the ended pod is there still
    node.runs("p")
    assert node.kept() == {"gpu-0"}


def test_what_cannot_be_told_is_no_proof() -> None:
    node = GuardedNode()
    node.writes(entry("p", "uuid-gpu-0"))
    node.presences[PodUid("p")] = CannotTell("no cgroups here")
    assert node.after(1000) == {"gpu-0"}


def test_where_the_kubelet_is_believed_its_list_counts() -> None:
    node = GuardedNode()
    node.believes_kubelet = True
    node.restart()
    node.writes(entry("p", "uuid-gpu-0"))
    assert node.kept() == {"gpu-0"}
    assert node.after(60) == set()


def test_units_of_several_containers_are_one_pods() -> None:
    node = GuardedNode()
    node.writes(entry("p", "uuid-gpu-0"), entry("p", "uuid-gpu-1", container="other"))
    assert node.kept() == {"gpu-0", "gpu-1"}
    node.after(60)
    node.writes(entry("p", "uuid-gpu-0"), entry("p", "uuid-gpu-2", container="third"))
    assert node.kept() == {"gpu-0", "gpu-1", "gpu-2"}


def test_units_that_this_driver_gave_out_are_its_own() -> None:
    node = GuardedNode()
    node.offered = {GPU: frozenset()}
    node.rows = [own_row("gpu-0", "uuid-gpu-0", "p"), own_row("gpu-1", "uuid-gpu-1")]
    node.writes(
        entry("p", "uuid-gpu-0"), entry("q", "uuid-gpu-1"), registered={GPU: ["uuid-gpu-2"]}
    )
    node.counts = {GPU: 1}
    assert node.kept() == set()
    node.rows = node.rows[:1]
    assert node.kept() == {"gpu-1"}
    node.rows.append(own_row("gpu-1", "uuid-gpu-1", "q"))  # it was taken up
    assert node.kept() == set()


def test_an_ended_pod_of_this_driver_that_the_kubelet_still_names_is_nobody() -> None:
    node = GuardedNode()
    node.offered = {GPU: frozenset()}
    node.rows = [own_row("gpu-0", "uuid-gpu-0", "p")]
    node.writes(entry("p", "uuid-gpu-0"), registered={GPU: ["uuid-gpu-0"]})
    assert node.kept() == set()
    node.rows = []  # it has ended
    assert node.after(1) == set()
    checkpoint, node.checkpoint = node.checkpoint, Unknown("being written")
    assert node.after(1) == set()
    node.checkpoint = checkpoint
    assert node.after(1) == set()
    node.writes(entry("q", "uuid-gpu-0"))  # what another plugin gives out counts
    assert node.after(1) == {"gpu-0"}


def test_a_unit_whose_pod_is_not_known_yet_is_looked_at_soon() -> None:
    node = GuardedNode()
    node.rows = [own_row("gpu-0", "uuid-gpu-0")]
    stop, pauses = Event(), list[float]()

    def wait(_stop: Event, seconds: float) -> None:
        pauses.append(seconds)
        node.rows = [own_row("gpu-0", "uuid-gpu-0", "p")]
        if len(pauses) == 2:
            stop.set()

    node.guard.run(stop, wait)
    assert pauses == [2.0, 10.0]


def test_what_this_driver_offered_until_now_is_not_foreign() -> None:
    node = GuardedNode()
    node.offered = {GPU: frozenset()}
    node.serves("uuid-gpu-0")
    assert node.kept() == set()
    node.offered = {}
    assert node.after(1) == set()
    node.counts = {GPU: 0}
    assert node.after(60) == set()
    node.restart()
    assert node.after(60) == set()
    node.serves("uuid-gpu-0")  # by somebody else
    assert node.after(60) == {"gpu-0"}
    node.counts = {GPU: 0}
    assert node.after(60) == {"gpu-0"}


def test_a_failure_to_remember_is_told_and_harmless() -> None:
    node = GuardedNode()
    node.memory.error = Permanent("disk full")
    node.writes(entry("p", "uuid-gpu-0"))
    with capture_logs() as logs:
        assert node.kept() == {"gpu-0"}
    assert "foreign_pods_not_remembered" in [line["event"] for line in logs]
    node.memory.error = None
    node.kept()
    node.kept()
    assert node.memory.writes == 1


def test_a_node_without_foreign_plugins_writes_nothing() -> None:
    node = GuardedNode()
    node.kept()
    assert (node.memory.writes, node.events, node.changes) == (0, [], 0)


def test_on_a_divided_node_a_plugin_that_lists_more_is_told_once() -> None:
    node = GuardedNode(DeviceChoice(named=("uuid-gpu-3",)))
    assert node.kept() == {"gpu-3"}
    node.serves("uuid-gpu-2", "uuid-gpu-3")
    assert node.kept() == {"gpu-3"}
    node.kept()
    (event,) = node.events
    assert event.message == (
        "the device plugin of nvidia.com/gpu lists gpu-2, which devicePlugin.foreign leaves to this driver: a device can be given to two pods. "
        "Restrict that plugin to its own devices, or change devicePlugin.foreign"
    )


def test_an_own_resource_that_another_plugin_takes_over_is_told_once() -> None:
    node = GuardedNode()
    node.offered = {GPU: frozenset({UnitId("gpu-0"), UnitId("gpu-1")})}
    node.writes(registered={GPU: ["gpu-0"]})  # the other one is ill
    node.kept()
    node.after(60)
    node.writes(registered={GPU: ["uuid-gpu-0"]})
    node.kept()
    node.after(9)
    assert node.events == []
    node.after(1)
    node.after(10)
    (event,) = node.events
    assert event.message == (
        "the kubelet lists units of nvidia.com/gpu that gpu.dra-driver.dev does not offer: uuid-gpu-0. Another device plugin has taken over this "
        "driver's resource, and the kubelet asks that one for devices. Keep that plugin off this node, and then delete the pod of this driver on "
        "it, so that it registers again; or let the two have different names (docs/older-clusters.md)"
    )


def test_a_list_that_the_kubelet_has_not_written_yet_is_no_other_plugin() -> None:
    node = GuardedNode()
    node.offered = {GPU: frozenset({UnitId("gpu-0")})}
    node.writes(registered={GPU: ["gpu-0"]})
    node.kept()
    for units in ("gpu-0::0", "gpu-0"):
        node.offered = {GPU: frozenset({UnitId(units)})}
        node.after(5)
        node.writes(registered={GPU: [units]})
        node.after(5)
    assert node.events == []


def test_a_device_with_two_users_is_told_until_the_event_is_written() -> None:
    node = GuardedNode()
    node.rows = [own_row("gpu-0")]
    node.writes(entry("p", "uuid-gpu-0"), entry("q", "odd"))
    node.refuses = Temporary("API server is away")
    node.kept()
    node.refuses = None
    node.kept()
    node.kept()
    assert node.events == [
        NodeEvent(
            "Warning",
            "DeviceGivenTwice",
            "device gpu-0 has two users: default/mine, and pod p, to which the device plugin of nvidia.com/gpu gave it. End one of them; keep "
            "that plugin off this node while pods use gpu.dra-driver.dev",
        )
    ]


def test_a_claim_whose_device_a_foreign_pod_has_is_refused_at_once() -> None:
    node = GuardedNode()
    read = node.guard.refusing(lambda ref: claims[ref])
    results = {
        "one": [a_result("gpu-0")],
        "free": [a_result("gpu-1")],
        "watches": [a_result("gpu-0", admin=True)],
        "others": [a_result("gpu-0", driver="b.c")],
        "none": [],
    }
    found = [a_claim(name, results=some) for name, some in results.items()]
    claims = {claim.ref: claim for claim in found}
    assert [read(claim.ref) for claim in found] == found
    node.writes(entry("p", "uuid-gpu-0"))
    with pytest.raises(Permanent, match="device gpu-0 is not free: pod p has it"):
        read(found[0].ref)
    assert [read(claim.ref) for claim in found[1:]] == found[1:]


def test_what_a_plugin_could_give_out_is_not_refused_to_a_claim_that_has_it() -> None:
    node = GuardedNode()
    claim = a_claim("one", results=[a_result("gpu-0")])
    node.serves("uuid-gpu-0")
    assert node.guard.refusing(lambda _ref: claim)(claim.ref) is claim


def test_units_of_held_devices_are_not_found() -> None:
    node = GuardedNode()
    units = tuple(Unit(UnitId(f"uuid-gpu-{n}"), DeviceName(f"gpu-{n}")) for n in range(2))
    resource = PluginResource(ResourceName("a.b/c"), units, "a test")
    find = without_held(lambda name: resource if name == "a.b/c" else None, node.guard.current)
    assert find(ResourceName("a.b/c")) is resource
    node.writes(entry("p", "uuid-gpu-0"))
    found = find(ResourceName("a.b/c"))
    assert found is not None
    assert found.units == units[1:]
    assert find(ResourceName("x.y/z")) is None


def test_it_looks_often_only_while_a_foreign_pod_may_run() -> None:
    node = GuardedNode()
    seconds: list[float] = []

    def wait(steps: list[Callable[[], None]]) -> Callable[[Event, float], None]:
        def once(stop: Event, pause: float) -> None:
            seconds.append(pause)
            if steps:
                steps.pop(0)()
            else:
                stop.set()

        return once

    node.guard.run(Event(), wait([lambda: node.writes(entry("p", "uuid-gpu-0"))]))
    assert seconds == [10.0, 2.0]


def test_devices_that_are_not_known_yet_are_kept_when_they_are() -> None:
    node = GuardedNode()
    known, node.inventory = node.inventory, DriverError("not scanned")
    node.serves("uuid-gpu-0")
    assert node.guard.devices() == {}
    node.inventory = known
    assert set(node.guard.devices()) == {"gpu-0"}


def test_what_the_kubelet_knows_from_plugins() -> None:
    node = GuardedNode()
    assert node.guard.served() is None
    node.serves("uuid-gpu-0")
    node.offered = {ResourceName("a.b/own"): frozenset()}
    node.kept()
    assert node.guard.served() == {GPU, "a.b/own"}
    node.counts = Unknown("kubelet restarts")
    node.after(60)
    assert node.guard.served() is None
    node.counts, node.checkpoint = {}, Unknown("not mounted")
    node.after(60)
    assert node.guard.served() is None
