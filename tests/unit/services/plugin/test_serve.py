# SPDX-License-Identifier: Apache-2.0
"""The resources of a node as the kubelet hears of them, on a real state file."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from dra_driver.errors import Temporary
from dra_driver.model.events import DriverEvent, ResourceProblem
from dra_driver.model.health import Health, HealthStatus
from dra_driver.model.ids import DeviceName, ResourceName, ShareId, UnitId
from dra_driver.model.inventory import Inventory
from dra_driver.model.plan import Refusal
from dra_driver.model.plugin import ContainerAnswer, PluginResource, Sharing, Unit
from dra_driver.planning.plugin import problems
from dra_driver.planning.plugin.resources import Resources
from dra_driver.services.plugin.serve import (
    LOOK_SECONDS,
    Feeds,
    PluginInputs,
    PluginResources,
    PluginWork,
)
from dra_driver.testing.builders import a_claim, a_result
from tests.support.local_node import ManualClock
from tests.support.plugin_node import GPU, PluginNode, a_resource

ONE, TWO = UnitId("uuid-gpu-0"), UnitId("uuid-gpu-1")
OTHER = ResourceName("nvidia.com/other")
ILL = Health(HealthStatus.UNHEALTHY, "it is broken")


class Served:
    """The services of a node with these resources. `planned` and `here` are what is planned and offered; `set_of` are the sets of resources
    that the server got.
    """

    def __init__(self, node: PluginNode) -> None:
        self.node = node
        self.planned = Resources((a_resource(2),))
        self.here: set[str] | None = None
        self.store: Callable[[], AbstractContextManager[Any]] = self.node.store.reading
        self.events: list[DriverEvent] = []
        self.set_of: list[Feeds] = []
        inputs = PluginInputs(
            inventory=lambda: node.inventory,
            planned=lambda _inventory: self.planned,
            store=self,
            pool=node.place.pool,
            here=self._here,
        )
        self.resources = PluginResources(
            inputs, set_resources=self.set_of.append, observe=self.events.append
        )
        self.work = PluginWork(
            self.resources, node.allocate_units, node.holders, node.parts.inventory
        )

    def reading(self) -> AbstractContextManager[Any]:
        return self.store()

    def _here(self, inventory: Inventory, *_rest: object) -> set[DeviceName]:
        return {one.name for one in inventory.devices if self.here is None or one.name in self.here}

    def listed(self, name: ResourceName = GPU) -> dict[str, bool]:
        """The list that the kubelet has of a resource now."""
        return {unit.id: unit.healthy for unit in self.set_of[-1][name].snapshot()[1]}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PluginNode]:
    found = PluginNode(tmp_path, clock=ManualClock())
    yield found
    assert found.violations() == []
    found.close()


@pytest.fixture
def served(node: PluginNode) -> Served:
    return Served(node)


def test_nothing_is_offered_before_it_is_planned(served: Served) -> None:
    assert (served.resources.planned(), served.resources.find(GPU)) == ({}, None)


def test_planned_resources_are_offered_with_a_list_of_their_units(served: Served) -> None:
    served.resources.once()
    assert served.resources.planned() == {GPU: a_resource(2)}
    assert served.resources.find(GPU) == a_resource(2)
    assert served.listed() == {ONE: True, TWO: True}


def test_the_server_gets_another_set_only_when_a_resource_comes_or_goes(
    node: PluginNode, served: Served
) -> None:
    served.resources.once()
    feed = served.set_of[-1][GPU]
    version, _ = feed.snapshot()
    served.resources.once()
    assert feed.snapshot()[0] == version  # nothing is sent again
    first, *others = node.inventory.devices
    node.inventory = Inventory((replace(first, health=ILL), *others))
    served.resources.once()
    assert (served.listed(), len(served.set_of)) == ({ONE: False, TWO: True}, 1)

    other = PluginResource(OTHER, a_resource(1).units, "a test")
    served.planned = Resources((a_resource(2), other))
    served.resources.once()
    assert [set(one) for one in served.set_of] == [{GPU}, {GPU, OTHER}]
    assert served.set_of[-1][GPU] is feed  # its streams go on
    served.planned = Resources((other,))
    served.resources.once()
    assert set(served.set_of[-1]) == {OTHER}
    assert served.resources.find(GPU) is None


def test_what_is_offered_through_claims_is_not_listed(served: Served) -> None:
    served.here = {"gpu-1"}
    served.resources.once()
    assert served.listed() == {TWO: True}
    served.here = set()
    served.resources.once()
    assert served.set_of[-1] == {}


def test_a_device_of_a_claim_is_listed_as_unhealthy(node: PluginNode, served: Served) -> None:
    (ref,) = node.add(a_claim(results=[a_result("gpu-0")]))
    assert not isinstance(node.prepare(ref)[ref.uid], Refusal)
    served.resources.once()
    assert served.listed() == {ONE: False, TWO: True}


def test_a_resource_that_is_planned_no_more_stays_for_the_containers_that_have_it(
    node: PluginNode, served: Served
) -> None:
    node.admit("pod-a", ONE)
    served.planned = Resources()
    served.resources.once()
    left = PluginResource(GPU, (), "a container that still has it")
    assert served.resources.find(GPU) == left
    assert served.listed() == {ONE: False}
    node.run("pod-a")
    node.look()
    node.end("pod-a")
    node.look()
    served.resources.once()
    assert served.resources.find(GPU) is None


def test_a_problem_is_told_once_as_long_as_it_lasts(served: Served) -> None:
    one = problems.ResourceProblem(
        "classes.yaml", "spec.selectors[0]", "it is no CEL", "correct it"
    )
    two = problems.ResourceProblem("node", "", "two resources have one name", "rename one")
    told = [
        ResourceProblem("classes.yaml: spec.selectors[0]", "it is no CEL", "correct it"),
        ResourceProblem("node", "two resources have one name", "rename one"),
    ]
    served.planned = Resources(problems=(one, two))
    served.resources.once()
    served.resources.once()
    assert served.events == told
    served.planned = Resources(problems=(two,))
    served.resources.once()
    assert served.events == told
    served.planned = Resources(problems=(one,))
    served.resources.once()
    assert served.events == [*told, told[0]]


def test_the_loop_plans_after_each_wake_and_goes_on_after_a_failure(served: Served) -> None:
    stop = Event()
    found: list[tuple[int, float]] = []
    sound = served.store

    def broken() -> AbstractContextManager[Any]:
        raise Temporary("the state is locked")

    def wait(woken: Event, seconds: float) -> bool:
        found.append((len(served.set_of), seconds))
        assert not woken.is_set()
        served.resources.wake()
        assert woken.is_set()
        served.store = sound
        if len(found) == 2:
            stop.set()
        return True

    served.store = broken
    with capture_logs() as lines:
        served.resources.run(stop, wait=wait)
    assert found == [(0, LOOK_SECONDS), (1, LOOK_SECONDS)]
    assert [(line["event"], line["error"]) for line in lines] == [
        ("resources_not_planned", "the state is locked")
    ]


# What the kubelet asks.


def test_an_allocation_makes_the_lists_anew(node: PluginNode, served: Served) -> None:
    served.resources.once()
    woken = Event()
    answer = served.work.allocate(GPU, [ONE])
    assert isinstance(answer, ContainerAnswer)
    assert node.owned() == {"gpu-0"}

    def wait(_woken: Event, _seconds: float) -> bool:
        woken.set()
        stop.set()
        return True

    stop = Event()
    served.resources.run(stop, wait=wait)
    assert woken.is_set()
    assert served.listed() == {ONE: True, TWO: True}  # a container has it: that is no illness


def test_units_that_do_not_go_together_are_refused_before_anything_is_reserved(
    node: PluginNode, served: Served
) -> None:
    units = tuple(
        Unit(UnitId(f"{device}::0"), DeviceName(device), ShareId("memory-0"))
        for device in ("gpu-0", "gpu-1")
    )
    node.resource = PluginResource(GPU, units, "a test", Sharing.MEMORY)
    served.planned = Resources((node.resource,))
    served.resources.once()
    answer = served.work.allocate(GPU, [unit.id for unit in units])
    assert isinstance(answer, Refusal)
    assert "a container can use the memory of one device only" in answer.reason
    assert node.rows() == ()


def test_a_resource_that_is_not_offered_is_refused_and_nothing_is_preferred(
    node: PluginNode, served: Served
) -> None:
    node.resource = None
    answer = served.work.allocate(GPU, [ONE])
    assert isinstance(answer, Refusal)
    assert "is not offered" in answer.reason
    assert served.work.prefer(GPU, [ONE, TWO], [], 1) == ()


def test_shares_are_preferred_by_what_containers_have(node: PluginNode, served: Served) -> None:
    units = tuple(
        Unit(UnitId(f"{device}::{number}"), DeviceName(device), ShareId(f"replica-{number}"))
        for device in ("gpu-0", "gpu-1")
        for number in range(2)
    )
    node.resource = PluginResource(GPU, units, "a test", Sharing.REPLICAS)
    served.planned = Resources((node.resource,))
    served.resources.once()
    first, second, *others = [unit.id for unit in units]
    assert served.work.prefer(GPU, [first, second, *others], [], 1) == (first,)
    node.admit("pod-a", first)
    assert served.work.prefer(GPU, [second, *others], [], 1) == (others[0],)
    assert served.work.prefer(GPU, [second, *others], [second], 2) == (second, others[0])


def test_nothing_is_left_to_do_before_a_container_starts(served: Served) -> None:
    assert not served.work.pre_start_required
    assert served.work.pre_start(GPU, [ONE]) is None
