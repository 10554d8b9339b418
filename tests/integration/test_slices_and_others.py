# SPDX-License-Identifier: Apache-2.0
"""What others do to this node's slices, on a real socket: taken names, foreign fields, and errors that last.

The publisher's clock moves by hand, so that ten seconds of trouble are counted, not waited for; the watch runs on its thread.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

import pytest

from dra_driver.kube.auth import connect
from dra_driver.kube.http import HttpKubeApi
from dra_driver.model.events import DriverEvent, FieldsDropped, NameEvaded, PublicationProblem
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.planning.reconcile import NAME_VARIANTS, slice_name
from dra_driver.services.publish import Publisher
from dra_driver.services.vanished import PublisherInputs
from dra_driver.testing.builders import A_DRIVER, A_NODE, A_PLACE, an_inventory
from dra_driver.testing.fake_api import FakeApi, Object

SLICE, INSTEAD = (slice_name(0, A_DRIVER, A_NODE, variant=variant) for variant in range(2))
PATIENCE_SECONDS = 60.0  # only against hanging
TICK = 0.01


class Node:
    """A publisher whose writer is driven by hand."""

    def __init__(self, kubeconfig: Path) -> None:
        self.now = 1000.0
        self.inventory = an_inventory(2)
        self.prepared: frozenset[DeviceName] = frozenset()
        self.events: list[DriverEvent] = []
        self.kube = HttpKubeApi(connect(kubeconfig), driver=A_DRIVER, node=A_NODE)
        inputs = PublisherInputs(lambda: self.inventory, lambda: self.prepared, lambda _names: None)
        self.publisher = Publisher(
            self.kube, inputs, place=A_PLACE, observe=self.events.append, clock=lambda: self.now
        )

    @contextmanager
    def watching(self) -> Iterator["Node"]:
        stop = Event()
        thread = Thread(target=self.publisher.watch, args=(stop,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            thread.join(PATIENCE_SECONDS)
            self.kube.close()
            assert not thread.is_alive()

    def published(self) -> "Node":
        self.until(self.publisher.published_once.is_set)
        return self

    def until(self, true: Callable[[], bool]) -> None:
        """Let time pass, for the publisher by ticks, until it is true."""
        deadline = monotonic() + PATIENCE_SECONDS
        while not true():
            assert monotonic() < deadline, "it never came true"
            sleep(0.005)
            self.now += 0.05
            self.publisher.step()

    def passes(self, seconds: float, *, woken: bool = False) -> None:
        """Time passes in small ticks; `woken`: with news at each of them."""
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            if woken:
                self.publisher.wake()
            self.publisher.step()


@pytest.fixture(params=["v1", "v1beta1"])
def api(request: pytest.FixtureRequest) -> Iterator[FakeApi]:
    with FakeApi((request.param,)) as server:
        server.put("nodes", {"metadata": {"name": A_NODE}})
        yield server


@pytest.fixture
def node(api: FakeApi, tmp_path: Path) -> Iterator[Node]:
    with Node(api.kubeconfig(tmp_path / "kubeconfig")).watching() as node:
        yield node


def a_strangers_slice(name: str = SLICE) -> Object:
    """Of the same driver on another node: our field selector hides it."""
    pool = {"name": "node-2", "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": name},
        "spec": {"driver": A_DRIVER, "nodeName": "node-2", "pool": pool, "devices": []},
    }


def asked(api: FakeApi, verb: str) -> int:
    return Counter(
        request.verb for request in api.requests if request.resource == "resourceslices"
    )[verb]


def test_a_taken_name_is_evaded_and_told_on_the_node(api: FakeApi, node: Node):
    theirs = api.put("resourceslices", a_strangers_slice())
    node.published()
    (ours,) = [
        found for found in api.objects("resourceslices") if found["spec"]["nodeName"] == A_NODE
    ]
    assert ours["metadata"]["name"] == INSTEAD
    assert api.object("resourceslices", SLICE) == theirs
    (event,) = api.objects("events")
    assert event["reason"] == "SliceNameTaken"
    assert theirs["metadata"]["uid"] in event["message"]
    assert [asked(api, verb) for verb in ("create", "list", "get")] == [2, 2, 1]
    node.inventory = an_inventory(1)
    node.publisher.wake()
    node.until(lambda: len(api.object("resourceslices", INSTEAD)["spec"]["devices"]) == 1)


@pytest.mark.parametrize("woken", [False, True])
def test_ten_seconds_of_taken_names_cost_few_requests(api: FakeApi, node: Node, woken: bool):
    for variant in range(NAME_VARIANTS):
        name = slice_name(0, A_DRIVER, A_NODE, variant=variant)
        api.put("resourceslices", a_strangers_slice(name))
    node.until(lambda: asked(api, "create") > 0)  # the first list is there, and woke the publisher
    node.passes(10.0, woken=woken)
    assert not node.publisher.published_once.is_set()
    assert 4 <= asked(api, "create") <= 12
    assert len(api.requests) <= 60


@pytest.mark.parametrize("code", [409, 403, 422, 500])
@pytest.mark.parametrize("woken", [False, True])
def test_ten_seconds_of_any_error_cost_few_requests(
    api: FakeApi, node: Node, code: int, woken: bool
):
    api.faults.status(code, verb="create", resource="resourceslices", times=10**6)
    node.until(lambda: asked(api, "create") > 0)  # the first list is there, and woke the publisher
    node.passes(10.0, woken=woken)
    assert 2 <= asked(api, "create") <= 12
    assert len(api.requests) <= 60
    api.faults.clear()
    node.passes(31.0)
    assert node.publisher.published_once.is_set()


def changed(change: Callable[[Object], Any]) -> Callable[[FakeApi], None]:
    """Somebody with all rights changes our slice."""

    def somebody(api: FakeApi) -> None:
        obj = api.object("resourceslices", SLICE)
        change(obj)
        api.put("resourceslices", obj)

    return somebody


def device(obj: Object) -> Object:
    found: Object = obj["spec"]["devices"][0]
    return found


CHANGES: dict[str, Callable[[FakeApi], None]] = {
    "a taint": changed(
        lambda obj: device(obj).update(taints=[{"key": "example.com/x", "effect": "NoExecute"}])
    ),
    "allowMultipleAllocations": changed(
        lambda obj: device(obj).update(allowMultipleAllocations=True)
    ),
    "an attribute": changed(lambda obj: device(obj).update(attributes={"x": {"int": 1}})),
    "an attribute of a kind that the model lacks": changed(
        lambda obj: device(obj).update(attributes={"x": {"ints": [1]}})
    ),
    "a capacity": changed(lambda obj: device(obj).update(capacity={"memory": {"value": "1"}})),
    "no owner": changed(lambda obj: obj["metadata"].pop("ownerReferences")),
    "another owner": changed(
        lambda obj: obj["metadata"]["ownerReferences"][0].update(name="node-2")
    ),
    "a second owner": changed(
        lambda obj: obj["metadata"]["ownerReferences"].append(
            {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}
        )
    ),
    "a finalizer": changed(lambda obj: obj["metadata"].update(finalizers=["example.com/hold"])),
    "shared counters": changed(lambda obj: obj["spec"].update(sharedCounters=[{"name": "c"}])),
    "all nodes": changed(lambda obj: obj["spec"].update(allNodes=True)),
    "selection by device": changed(lambda obj: obj["spec"].update(perDeviceNodeSelection=True)),
    "the order": changed(lambda obj: obj["spec"]["devices"].reverse()),
    "a device too many": changed(lambda obj: obj["spec"]["devices"].append({"name": "gpu-9"})),
    "the count": changed(lambda obj: obj["spec"]["pool"].update(resourceSliceCount=2)),
    "the generation": changed(lambda obj: obj["spec"]["pool"].update(generation=9)),
    "a field of the next release": changed(lambda obj: obj["spec"].update(tomorrow={"a": 1})),
}


@pytest.mark.parametrize("what", CHANGES)
def test_whatever_somebody_changes_is_put_right(api: FakeApi, node: Node, what: str):
    node.published()
    before = api.object("resourceslices", SLICE)
    CHANGES[what](api)

    def right() -> bool:
        found = api.object("resourceslices", SLICE)
        generation = found["spec"]["pool"].pop("generation")
        assert generation in (before["spec"]["pool"]["generation"], 9)
        wanted = {**before["spec"], "pool": dict(before["spec"]["pool"])}
        del wanted["pool"]["generation"]
        metadata = ("ownerReferences", "finalizers")
        return found["spec"] == wanted and [found["metadata"].get(key) for key in metadata] == [
            before["metadata"].get(key) for key in metadata
        ]

    def settles() -> bool:
        # A generation of theirs may stay, so all may be right before the watch itself was asked for, or has told of it.
        found = api.object("resourceslices", SLICE)["spec"]["pool"]["generation"]
        told = node.publisher._present()[SLICE].spec.pool.generation == found
        return right() and told and asked(api, "watch") > 0

    node.until(settles)
    settled = len(api.requests)
    node.passes(5.0, woken=True)
    assert len(api.requests) == settled
    assert [event for event in node.events if isinstance(event, FieldsDropped)] == []


def test_labels_and_annotations_of_others_survive_our_next_write(api: FakeApi, node: Node):
    node.published()
    changed(lambda obj: obj["metadata"].update(labels={"a": "b"}, annotations={"c": "d"}))(api)
    node.until(lambda: bool(node.publisher._present()[SLICE].labels))
    node.inventory = an_inventory(1)
    node.publisher.wake()
    node.until(lambda: len(api.object("resourceslices", SLICE)["spec"]["devices"]) == 1)
    metadata = api.object("resourceslices", SLICE)["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == ({"a": "b"}, {"c": "d"})


def test_a_slice_that_somebodys_finalizer_holds_goes_when_it_is_obsolete(api: FakeApi, node: Node):
    node.inventory = an_inventory(65)
    node.published()
    second = slice_name(1, A_DRIVER, A_NODE)
    held = api.object("resourceslices", second)
    held["metadata"]["finalizers"] = ["example.com/hold"]
    api.put("resourceslices", held)
    node.until(lambda: not api.object("resourceslices", second)["metadata"].get("finalizers"))
    api.put("resourceslices", held)
    node.inventory = an_inventory(1)
    node.publisher.wake()
    node.until(lambda: len(api.objects("resourceslices")) == 1)
    assert api.object("resourceslices", SLICE)["spec"]["pool"]["resourceSliceCount"] == 1


def test_a_vanished_device_that_is_owned_is_tainted_until_it_is_free(api: FakeApi, node: Node):
    node.published()
    node.prepared = frozenset({DeviceName("gpu-1")})
    node.inventory = an_inventory(1)
    node.publisher.wake()

    def taints() -> list[Object]:
        return [
            taint
            for found in api.object("resourceslices", SLICE)["spec"]["devices"]
            for taint in found.get("taints", [])
        ]

    node.until(lambda: bool(taints()))
    (taint,) = taints()
    assert taint | {"timeAdded": ""} == {
        "key": "gpu.dra-driver.dev/vanished",
        "value": "not-found-on-node",
        "effect": "NoSchedule",
        "timeAdded": "",
    }
    node.passes(120.0, woken=True)
    assert taints() == [taint]
    node.prepared = frozenset()
    node.publisher.released()
    node.until(lambda: len(api.object("resourceslices", SLICE)["spec"]["devices"]) == 1)


def test_a_server_that_drops_taints_is_not_asked_again_and_again(api: FakeApi, node: Node):
    api.drop_fields("spec.devices.*.taints")
    node.published()
    node.prepared = frozenset({DeviceName("gpu-1")})
    node.inventory = an_inventory(1)
    node.publisher.wake()
    node.passes(120.0, woken=True)
    # One of the creations is a dry run.
    assert (asked(api, "create"), asked(api, "update")) == (2, 1)
    told = [event.problem for event in node.events if isinstance(event, PublicationProblem)]
    assert [problem.device for problem in told] == ["DRADeviceTaints"]
    (left,) = api.object("resourceslices", SLICE)["spec"]["devices"]
    assert left["name"] == "gpu-0"
    assert [found["metadata"]["name"] for found in api.objects("resourceslices")] == [SLICE]


def test_no_device_of_ours_is_evaded_by_mistake(api: FakeApi, node: Node):
    node.published()
    assert [event for event in node.events if isinstance(event, NameEvaded)] == []
    assert asked(api, "get") == 0


def test_without_devices_the_pool_says_so(api: FakeApi, node: Node):
    node.inventory = Inventory()
    node.published()
    node.passes(5.0, woken=True)
    assert api.object("resourceslices", SLICE)["spec"]["devices"] == []
    assert asked(api, "update") == 0
