# SPDX-License-Identifier: Apache-2.0
"""What a foreign plugin has given out, or could, is offered to nobody, and refused to who has it allocated."""

from collections.abc import Callable, Collection, Mapping
from threading import Event, Thread

import pytest
from msgspec.structs import replace

from dra_driver.errors import DriverError, Permanent, Temporary
from dra_driver.model.ids import DeviceName, PodUid, ResourceName, UnitId
from dra_driver.model.plugin import PluginResource, Unit
from dra_driver.model.presence import Alive, Presence
from dra_driver.model.state import Unknown
from dra_driver.services.foreign import guard
from dra_driver.services.foreign.guard import IDLE_SECONDS, without_held
from dra_driver.testing.builders import a_claim, a_result
from tests.support.guarded_node import GPU, GuardedNode, entry, gpus, own_row


def test_a_plugin_that_comes_is_noticed_and_one_that_goes_as_well() -> None:
    node = GuardedNode()
    assert node.kept() == set()
    node.serves("uuid-gpu-0", "uuid-gpu-1")
    assert node.kept() == {"gpu-0", "gpu-1"}
    assert node.guard.taints() == {"gpu-0": "nvidia.com_gpu", "gpu-1": "nvidia.com_gpu"}
    node.stops()
    assert node.kept() == set()
    assert node.changes == 2


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


def test_an_id_of_any_length_hides_no_pod() -> None:
    node = GuardedNode()
    node.serves("uuid-gpu-0", "9" * 5000, f"nvidia{'9' * 5000}")
    node.writes(entry("p", "uuid-gpu-0"), registered={GPU: ["uuid-gpu-0", "9" * 5000]})
    assert "gpu-0" in node.kept()
    assert node.guard.current()[DeviceName("gpu-0")].held


def test_a_defect_of_the_guard_keeps_every_device_until_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = GuardedNode()
    claim = a_claim("one", results=[a_result("gpu-0")])

    def fails(*_: object) -> object:
        raise ValueError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(guard, "kept_devices", fails)
        assert node.kept() == {"gpu-0", "gpu-1", "gpu-2", "gpu-3"}
        assert node.guard.taints()["gpu-0"] == "unknown"
        assert node.guard.refusing(lambda _ref: claim)(claim.ref) is claim
        node.inventory = Temporary("the hardware is away")
        assert len(node.kept()) == 4
    node.inventory = gpus()
    assert set(node.guard.current()) == set()


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


def test_at_rest_each_look_asks_pod_resources_once_and_nothing_else() -> None:
    node = GuardedNode()
    pauses: list[float] = []

    def wait(stop: Event, seconds: float) -> None:
        pauses.append(seconds)
        node.clock.now += seconds
        if len(pauses) == 6:
            stop.set()

    node.guard.run(Event(), wait)
    assert pauses == [IDLE_SECONDS] * 6
    assert (node.asked, node.listed, node.looked_at_cgroups, node.memory.writes) == (6, 0, 0, 0)


def test_a_claim_that_comes_during_a_look_waits_for_what_it_finds() -> None:
    node = GuardedNode()
    found: list[set[str]] = []
    claim = Thread(target=lambda: found.append(set(node.guard.current())))

    def presence(pods: Collection[PodUid]) -> Mapping[PodUid, Presence]:
        if claim.ident is None:
            claim.start()
            claim.join(0.2)  # so that it could answer before the look has ended
        return {pod: Alive("it runs") for pod in pods}

    node.presence = presence
    node.restart()
    node.kept()
    node.writes(entry("p", "uuid-gpu-0"))
    node.guard.look()
    claim.join()
    assert found == [{"gpu-0"}]


@pytest.mark.parametrize("pod", [None, "mine"])
def test_a_call_does_not_look_because_this_driver_gave_units_to_a_container(
    pod: str | None,
) -> None:
    node = GuardedNode()
    assert node.guard.current() == {}
    looks = node.memory.reads
    node.rows = [own_row("gpu-0", "uuid-gpu-0", pod)]
    node.writes(entry("mine", "uuid-gpu-0"))
    assert node.guard.current() == {}
    node.rows = []
    node.writes()
    assert node.guard.current() == {}
    assert node.memory.reads == looks
    node.guard.look()
    assert node.memory.reads == looks + 1


def test_what_somebody_else_gave_is_found_beside_what_this_driver_gave() -> None:
    node = GuardedNode()
    assert node.guard.current() == {}
    node.rows = [own_row("gpu-0", "uuid-gpu-0", "mine")]
    node.writes(entry("mine", "uuid-gpu-0"), entry("other", "uuid-gpu-1"))
    assert node.guard.current().keys() == {"gpu-1"}


def test_a_unit_of_this_driver_that_another_pod_has_is_not_explained_by_its_row() -> None:
    node = GuardedNode()
    node.rows = [own_row("gpu-0", "uuid-gpu-0", "mine")]
    node.writes(entry("mine", "uuid-gpu-0"))
    assert node.guard.current() == {}
    node.writes(entry("mine", "uuid-gpu-0"), entry("other", "uuid-gpu-0"))
    assert node.guard.current().keys() == {"gpu-0"}


def test_a_static_pod_that_comes_back_under_its_uid_is_found() -> None:
    node = GuardedNode()
    node.writes(entry("static", "uuid-gpu-0"))
    node.runs("static")
    assert node.kept() == {"gpu-0"}
    node.ends("static")
    assert node.kept() == set()
    node.runs("static")
    node.writes(entry("static", "uuid-gpu-0"))
    assert node.guard.current().keys() == {"gpu-0"}


def test_a_state_that_cannot_be_read_lets_the_guard_look(monkeypatch: pytest.MonkeyPatch) -> None:
    node = GuardedNode()
    assert node.guard.current() == {}
    node.writes(entry("p", "uuid-gpu-0"))
    calls = []

    def unreadable() -> object:
        calls.append(1)
        if len(calls) == 1:
            raise Temporary("damaged")
        return ()

    monkeypatch.setattr(node.guard, "_inputs", replace(node.guard._inputs, rows=unreadable))
    assert node.guard.current().keys() == {"gpu-0"}


def test_a_checkpoint_that_has_changed_and_cannot_be_read_is_looked_at() -> None:
    node = GuardedNode()
    assert node.guard.current() == {}
    node.writes(entry("p", "uuid-gpu-0"))
    assert node.guard.current().keys() == {"gpu-0"}
    asked, node.checkpoint = node.asked, Unknown("damaged")
    node.version += 1
    assert node.guard.current().keys() == {"gpu-0"}
    assert node.asked == asked + 1


def test_what_a_look_found_is_known_before_anybody_is_told() -> None:
    node = GuardedNode()
    node.rows = [own_row("gpu-0")]
    known: list[set[str]] = []
    node.told = lambda _event: known.append(set(node.guard.current()))
    node.writes(entry("p", "uuid-gpu-0"))
    assert node.guard.current().keys() == {"gpu-0"}
    assert known == []  # a claim does not wait until an Event is written
    node.guard.look()
    assert known == [{"gpu-0"}]
