# SPDX-License-Identifier: Apache-2.0
"""HttpKubeApi against the fake API server: what is asked, what is kept, and what each failure says."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep
from typing import Protocol

import pytest
from msgspec.structs import replace

from dra_driver.errors import Permanent, Temporary
from dra_driver.kube.base import (
    Conflict,
    Expired,
    Invalid,
    NameTaken,
    NodeEvent,
    NotFound,
    NotServed,
    SliceEvent,
    SliceList,
)
from dra_driver.kube.connection import Connection
from dra_driver.kube.http import HttpKubeApi
from dra_driver.model.api.resource_claim import CELDeviceSelector, DeviceSelector
from dra_driver.model.api.resource_slice import ResourceSliceSpec
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.device import Version
from dra_driver.model.events import ApiAnswered, DriverEvent, ObjectUnreadable
from dra_driver.model.ids import ClaimUid, DeviceName, DriverName, NodeName, PoolName
from dra_driver.model.quantity import Quantity
from dra_driver.model.slices import CreateSlice, DeleteSlice, SliceHolder, StoredSlice, UpdateSlice
from dra_driver.testing.fake_api import (
    Answer,
    CutWatch,
    FakeApi,
    Hold,
    Object,
    Reset,
    WatchLine,
    refusal,
)
from tests.support.api_values import allocated, published, slice_spec
from tests.support.served_version import served_version


class Time(Protocol):
    """The fixture `time`."""

    now: float


POOL = PoolName("node-1")
GPU = published(
    DeviceName("gpu-0"),
    {"index": 0, "healthy": True, "productName": "Example", "driverVersion": Version("1.2.3")},
    {"memory": Quantity.parse("80Gi")},
)
SPEC = slice_spec(POOL, 1, 1, (GPU,))
NEXT = slice_spec(POOL, 2, 1, (GPU,))
NAME = "00000-gpu.example.com-node-1"


def created(kube: HttpKubeApi, name: str = NAME, spec: ResourceSliceSpec = SPEC) -> StoredSlice:
    stored = kube.apply_slice_change(CreateSlice(name, spec))
    assert stored is not None
    return stored


def claim(name: str, *results: Object) -> Object:
    allocation = {"allocation": {"devices": {"results": list(results)}}} if results else {}
    return {"metadata": {"name": name}, "status": allocation}


def result(device: str, *, driver: str = "gpu.example.com", pool: str = "node-1") -> Object:
    return {"request": "main", "driver": driver, "pool": pool, "device": device}


def asked(api: FakeApi) -> list[tuple[str, str]]:
    return [(request.verb, request.resource) for request in api.requests]


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_a_slice_comes_back_as_it_was_written_in_every_version(
    kube: HttpKubeApi, api: FakeApi, version: str
) -> None:
    api.serve(version)
    stored = created(kube)
    assert served_version(kube) == version
    assert stored == StoredSlice(NAME, stored.uid, stored.resource_version, SPEC)
    assert kube.list_slices() == SliceList(stored.resource_version, (stored,))


def test_a_slice_belongs_to_its_node(kube: HttpKubeApi, api: FakeApi) -> None:
    created(kube)
    (slice_,) = api.objects("resourceslices")
    node = api.object("nodes", "node-1")["metadata"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": node["uid"]}
    assert slice_["metadata"]["ownerReferences"] == [{**owner, "controller": True}]
    assert slice_["spec"]["nodeName"] == "node-1"
    assert slice_["spec"]["driver"] == "gpu.example.com"


def test_the_best_served_version_is_taken(kube: HttpKubeApi, api: FakeApi) -> None:
    api.serve("v1beta1", "v1beta2")
    assert served_version(kube) == "v1beta2"


def test_the_version_and_the_node_are_asked_for_once(kube: HttpKubeApi, api: FakeApi) -> None:
    assert "version not asked yet" in repr(kube)
    created(kube, "a")
    created(kube, "b")
    kube.list_slices()
    expected = [("get", "discovery"), ("get", "nodes"), *[("create", "resourceslices")] * 2]
    assert asked(api) == [*expected, ("list", "resourceslices")]
    assert repr(kube) == f"<HttpKubeApi {api.url} v1 driver=gpu.example.com node=node-1>"


def test_a_cluster_without_the_group_says_what_to_enable(kube: HttpKubeApi, api: FakeApi) -> None:
    api.serve()
    with pytest.raises(NotServed) as caught:
        kube.list_slices()
    assert str(caught.value) == (
        f"{api.url} does not serve resource.k8s.io in a version that this driver speaks (v1, v1beta2, v1beta1): it does not "
        "know the group; on Kubernetes 1.34 and later it is on by default, on 1.32 and 1.33 enable the feature gate "
        "DynamicResourceAllocation and start the API server with --runtime-config=resource.k8s.io/v1beta1=true; pods of such a cluster get "
        "devices by the extended resources in their containers' limits and not by claims (docs/older-clusters.md)"
    )


def test_a_cluster_that_starts_to_serve_the_group_is_used(kube: HttpKubeApi, api: FakeApi) -> None:
    api.serve()
    with pytest.raises(NotServed):
        served_version(kube)
    api.serve("v1")
    assert served_version(kube) == "v1"


def test_an_upgraded_cluster_is_discovered_anew(kube: HttpKubeApi, api: FakeApi) -> None:
    api.serve("v1beta1")
    stored = created(kube)
    api.serve("v1")
    assert kube.list_slices().slices == (stored,)
    assert served_version(kube) == "v1"


def test_a_watch_in_a_version_that_is_gone_is_discovered_anew(
    kube: HttpKubeApi, api: FakeApi
) -> None:
    api.serve("v1beta1")
    served_version(kube)
    api.serve("v1")
    with pytest.raises(
        NotServed, match=r"watch resourceslices of node node-1 .* serves no such path"
    ):
        next(kube.watch_slices("1", threading.Event()))
    assert served_version(kube) == "v1"


def test_only_slices_of_this_driver_and_node_are_listed(kube: HttpKubeApi, api: FakeApi) -> None:
    mine = created(kube)
    for number, (driver, node) in enumerate(
        (("gpu.example.com", "node-2"), ("other.example.com", "node-1"))
    ):
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        api.put(
            "resourceslices",
            {
                "metadata": {"name": f"foreign-{number}"},
                "spec": {"driver": driver, "nodeName": node, "pool": pool},
            },
        )
    assert kube.list_slices().slices == (mine,)


def test_an_update_of_what_somebody_changed_is_a_conflict(kube: HttpKubeApi, api: FakeApi) -> None:
    stored = created(kube)
    updated = kube.apply_slice_change(UpdateSlice(stored, NEXT))
    assert updated is not None
    assert (updated.uid, updated.spec) == (stored.uid, NEXT)
    with pytest.raises(Conflict) as caught:
        kube.apply_slice_change(UpdateSlice(stored, SPEC))
    assert str(caught.value) == (
        f"update resourceslices {NAME} at {api.url}: the server answered 409: “Operation cannot be fulfilled on "
        f'resourceslices.resource.k8s.io "{NAME}": the object has been modified; please apply your changes to the latest '
        "version and try again”; somebody else wrote it: read it again and decide again"
    )


def test_an_update_of_what_is_gone_is_a_conflict_too(kube: HttpKubeApi, api: FakeApi) -> None:
    stored = created(kube)
    api.remove("resourceslices", stored.name)
    with pytest.raises(Conflict, match="the server answered 404"):
        kube.apply_slice_change(UpdateSlice(stored, NEXT))


def test_creating_what_exists_is_a_conflict(kube: HttpKubeApi) -> None:
    created(kube)
    with pytest.raises(Conflict, match=r"already exists"):
        created(kube)


def test_a_deletion_spares_what_somebody_changed(kube: HttpKubeApi, api: FakeApi) -> None:
    stored = created(kube)
    kube.apply_slice_change(UpdateSlice(stored, NEXT))
    with pytest.raises(Conflict, match=r"ResourceVersion in the precondition"):
        kube.apply_slice_change(DeleteSlice(stored))
    assert len(api.objects("resourceslices")) == 1


def test_a_deletion_spares_what_was_made_anew(kube: HttpKubeApi, api: FakeApi) -> None:
    stored = created(kube)
    api.remove("resourceslices", NAME)
    created(kube)
    with pytest.raises(Conflict, match=r"UID in the precondition"):
        kube.apply_slice_change(DeleteSlice(stored))


def test_deleting_what_is_gone_is_done(kube: HttpKubeApi, api: FakeApi) -> None:
    stored = created(kube)
    assert kube.apply_slice_change(DeleteSlice(stored)) is None
    assert kube.apply_slice_change(DeleteSlice(stored)) is None
    assert api.objects("resourceslices") == []


def test_a_taken_name_is_said_and_whose_it_is_can_be_asked(kube: HttpKubeApi, api: FakeApi) -> None:
    theirs = {"driver": "gpu.example.com", "nodeName": "node-2", "pool": {"name": "node-2"}}
    found = api.put("resourceslices", {"metadata": {"name": NAME}, "spec": theirs})
    with pytest.raises(NameTaken) as caught:
        created(kube)
    assert str(caught.value) == (
        f'create resourceslices {NAME} at {api.url}: the server answered 409: “resourceslices.resource.k8s.io "{NAME}" already '
        f"exists”; look whose it is: kubectl get resourceslices {NAME} -o yaml"
    )
    assert kube.slice_holder(NAME) == SliceHolder(
        NAME,
        found["metadata"]["uid"],
        "gpu.example.com",
        "node-2",
        "node-2",
        found["metadata"]["creationTimestamp"],
    )


def test_a_slice_that_may_be_deleted_only_is_deleted(kube: HttpKubeApi, api: FakeApi) -> None:
    created(kube)
    obj = api.object("resourceslices", NAME)
    obj["metadata"]["finalizers"] = ["example.com/hold"]
    api.put("resourceslices", obj)
    (stored,) = kube.list_slices().slices
    api.faults.status(403, verb="update", resource="resourceslices")
    assert kube.apply_slice_change(DeleteSlice(stored)) is None
    assert "deletionTimestamp" in api.object("resourceslices", NAME)["metadata"]
    (terminating,) = kube.list_slices().slices
    assert kube.apply_slice_change(DeleteSlice(terminating)) is None
    assert api.objects("resourceslices") == []


def test_slices_can_be_listed_and_deleted_when_the_node_is_gone(
    kube: HttpKubeApi, api: FakeApi
) -> None:
    created(kube)
    api.remove("nodes", "node-1")
    kube._forget_node()
    (stored,) = kube.list_slices().slices
    assert stored.unlike == {}
    kube.apply_slice_change(DeleteSlice(stored))
    assert api.objects("resourceslices") == []


def test_a_changed_slice_is_told_by_the_watch_with_what_is_not_ours(
    kube: HttpKubeApi, api: FakeApi
) -> None:
    stored = created(kube)
    obj = api.object("resourceslices", NAME)
    obj["spec"]["devices"][0] |= {"allowMultipleAllocations": True, "fieldOfTheNextRelease": 1}
    obj["metadata"]["labels"] = {"team": "a"}
    api.put("resourceslices", obj)
    event = next(kube.watch_slices(stored.resource_version, threading.Event()))
    assert event.slice is not None
    assert event.slice.unlike == {"spec.devices[gpu-0].fieldOfTheNextRelease": "1"}
    assert event.slice.devices == (replace(GPU, allow_multiple_allocations=True),)
    kube.apply_slice_change(UpdateSlice(event.slice, SPEC))
    after = api.object("resourceslices", NAME)
    assert (
        after["spec"]["devices"][0]
        .keys()
        .isdisjoint({"allowMultipleAllocations", "fieldOfTheNextRelease"})
    )
    assert after["metadata"]["labels"] == {"team": "a"}


def test_a_refused_slice_names_the_field_and_the_node_is_looked_up_again(
    kube: HttpKubeApi, api: FakeApi
) -> None:
    created(kube, "fine")
    with pytest.raises(
        Invalid, match=r"create resourceslices wrong at .* 422: .*resourceSliceCount"
    ):
        created(kube, "wrong", slice_spec(POOL, 1, 0, ()))
    created(kube, "fine-again")
    assert asked(api).count(("get", "nodes")) == 2


def test_a_node_that_does_not_exist_is_named(kube: HttpKubeApi, api: FakeApi) -> None:
    api.remove("nodes", "node-1")
    with pytest.raises(NotFound) as caught:
        created(kube)
    assert str(caught.value) == (
        f'get nodes node-1 at {api.url}: the server answered 404: “nodes "node-1" not found”; it does not exist or was deleted'
    )


def test_after_a_lost_slice_the_next_one_belongs_to_the_node_of_today(
    kube: HttpKubeApi, api: FakeApi
) -> None:
    stored = created(kube)
    api.remove("nodes", "node-1")
    node = api.put("nodes", {"metadata": {"name": "node-1"}})
    api.remove("resourceslices", NAME)
    events = kube.watch_slices(stored.resource_version, threading.Event())
    assert next(events).type == "DELETED"
    events.close()  # type: ignore[attr-defined]  # the Protocol promises an Iterator, this is a generator
    created(kube)
    (slice_,) = api.objects("resourceslices")
    assert slice_["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]


def test_a_claim_is_read_with_its_allocation(kube: HttpKubeApi, api: FakeApi) -> None:
    uid = api.put("resourceclaims", claim("training", result("gpu-0")))["metadata"]["uid"]
    ref = ClaimRef("default", "training", ClaimUid("an older uid"))
    found = allocated("main", DriverName("gpu.example.com"), POOL, DeviceName("gpu-0"))
    expected = ClaimRef("default", "training", ClaimUid(uid))
    assert kube.get_claim(ref) == Claim(expected, results=(found,))


def test_a_claim_that_is_gone_is_not_found(kube: HttpKubeApi, api: FakeApi) -> None:
    with pytest.raises(NotFound) as caught:
        kube.get_claim(ClaimRef("team-a", "training", ClaimUid("u")))
    assert str(caught.value) == (
        f"get resourceclaims team-a/training at {api.url}: the server answered 404: “resourceclaims.resource.k8s.io "
        '"training" not found”; it does not exist or was deleted'
    )


def test_hostile_names_stay_inside_their_part_of_the_path(kube: HttpKubeApi, api: FakeApi) -> None:
    with pytest.raises((NotFound, NotServed)):
        kube.get_claim(ClaimRef("../../x", "a/../../nodes?watch=1", ClaimUid("u")))
    path = "/apis/resource.k8s.io/v1/namespaces/..%2F..%2Fx/resourceclaims/a%2F..%2F..%2Fnodes%3Fwatch%3D1"
    assert path in [request.path for request in api.requests]


def test_allocated_claims_of_all_pages_are_found(kube: HttpKubeApi, api: FakeApi) -> None:
    for number in range(501):
        name = f"claim-{number:04}"
        driver = "gpu.example.com" if number in (0, 499, 500) else "other.example.com"
        api.put("resourceclaims", claim(name, result(f"gpu-{number}", driver=driver)))
    api.put("resourceclaims", claim("waiting"))
    api.put("resourceclaims", claim("elsewhere", result("gpu-0", pool="node-2")))
    found = [claim.ref.name for claim in kube.allocated_claims(POOL)]
    assert found == ["claim-0000", "claim-0499", "claim-0500"]
    assert asked(api).count(("list", "resourceclaims")) == 3  # 100, 200 and the rest


def test_a_list_of_claims_that_expires_between_pages_starts_again(
    kube: HttpKubeApi, api: FakeApi
) -> None:
    for number in range(501):
        api.put("resourceclaims", claim(f"claim-{number:04}", result(f"gpu-{number}")))
    api.faults.add(refusal(410), verb="list", resource="resourceclaims", after=1)
    assert len(kube.allocated_claims(POOL)) == 501
    assert (
        asked(api).count(("list", "resourceclaims")) == 2 + 3
    )  # two, of which the second expired, and all of them


def test_a_list_of_claims_that_keeps_expiring_is_given_up(kube: HttpKubeApi, api: FakeApi) -> None:
    api.faults.status(410, verb="list", resource="resourceclaims", times=3)
    with pytest.raises(Expired, match=r"list resourceclaims of all namespaces"):
        kube.allocated_claims(POOL)


def test_the_kubelets_version_is_read_once_in_a_minute(kube: HttpKubeApi, api: FakeApi) -> None:
    assert (kube.kubelet_version(), kube.kubelet_version()) == ("v1.37.1", "v1.37.1")
    assert asked(api) == [("get", "nodes")]


def test_a_kubelet_that_is_updated_in_place_is_noticed(
    kube: HttpKubeApi, api: FakeApi, time: Time
) -> None:
    assert kube.kubelet_version() == "v1.37.1"
    updated = {"nodeInfo": {"kubeletVersion": "v1.38.0"}}
    api.put("nodes", {"metadata": {"name": "node-1"}, "status": updated})
    time.now += 59
    assert kube.kubelet_version() == "v1.37.1"
    time.now += 1
    api.faults.status(403, resource="nodes")
    assert kube.kubelet_version() == "v1.37.1"  # what was known last
    assert kube.kubelet_version() == "v1.38.0"


def test_an_unreadable_node_has_a_kubelet_of_no_version(kube: HttpKubeApi, api: FakeApi) -> None:
    api.faults.status(403, resource="nodes")
    assert kube.kubelet_version() == ""
    assert kube.kubelet_version() == "v1.37.1"


def test_the_version_of_the_server_is_read_each_time(kube: HttpKubeApi, api: FakeApi) -> None:
    assert kube.server_version() == "v1.37.0+fake"
    api.faults.status(503, resource="discovery")
    assert kube.server_version() == "v1.37.0+fake"


# Watches


def test_a_watch_reports_changes_until_it_is_stopped(kube: HttpKubeApi, api: FakeApi) -> None:
    stop = threading.Event()
    first = created(kube)
    events = kube.watch_slices(first.resource_version, stop)
    second = kube.apply_slice_change(UpdateSlice(first, NEXT))
    assert second is not None
    kube.apply_slice_change(DeleteSlice(second))
    changed, deleted = next(events), next(events)
    assert changed == SliceEvent("MODIFIED", second.resource_version, second)
    assert (deleted.type, deleted.slice is not None and deleted.slice.spec) == ("DELETED", NEXT)
    stop.set()
    assert list(events) == []


def test_a_stopped_watch_ends_although_nothing_arrives(kube: HttpKubeApi, api: FakeApi) -> None:
    stop = threading.Event()
    version = kube.list_slices().resource_version
    seen: list[SliceEvent] = []
    reader = threading.Thread(
        target=lambda: seen.extend(kube.watch_slices(version, stop)), daemon=True
    )
    reader.start()
    while ("watch", "resourceslices") not in asked(api):
        reader.join(0.01)
    stop.set()
    reader.join(60)
    assert not reader.is_alive()
    assert seen == []


def test_bookmarks_move_the_version_on(kube: HttpKubeApi, api: FakeApi) -> None:
    api.send_bookmarks_every(0.01)
    version = kube.list_slices().resource_version
    api.put("pods", {"metadata": {"name": "unrelated"}})
    events = kube.watch_slices(version, threading.Event())
    latest = str(api.store.version)
    while (event := next(events)).resource_version != latest:
        assert event == SliceEvent("BOOKMARK", version, None)
    assert event == SliceEvent("BOOKMARK", latest, None)


def test_a_watch_from_a_forgotten_version_is_expired(kube: HttpKubeApi, api: FakeApi) -> None:
    version = kube.list_slices().resource_version
    api.compact()
    with pytest.raises(Expired) as caught:
        next(kube.watch_slices(version, threading.Event()))
    assert str(caught.value) == (
        f"watch resourceslices of node node-1 from version {version} at {api.url}: the server answered 410: “too old resource "
        f"version: {version} ({api.store.version})”; list again and watch from there"
    )


def test_a_watch_refused_with_410_is_expired(kube: HttpKubeApi, api: FakeApi) -> None:
    api.faults.status(410, verb="watch")
    with pytest.raises(Expired, match=r"list again"):
        next(kube.watch_slices("1", threading.Event()))


def test_another_error_event_is_temporary(kube: HttpKubeApi, api: FakeApi) -> None:
    line = b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd is away"}}\n'
    api.faults.add(WatchLine(line), verb="watch")
    with pytest.raises(Temporary, match=r"500: “etcd is away”; .* retried later"):
        next(kube.watch_slices("1", threading.Event()))


def test_a_line_in_pieces_is_one_event(kube: HttpKubeApi, api: FakeApi) -> None:
    line = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"77"}}}\n\n'
    api.faults.add(WatchLine(line, piece=7), verb="watch")
    version = kube.list_slices().resource_version
    events = kube.watch_slices(version, threading.Event())
    assert next(events) == SliceEvent("BOOKMARK", "77", None)


def test_an_event_of_an_unknown_type_is_passed_over(kube: HttpKubeApi, api: FakeApi) -> None:
    line = b'{"type":"FUTURE","object":{"metadata":{}}}\n'
    api.faults.add(WatchLine(line), verb="watch")
    version = kube.list_slices().resource_version
    events = kube.watch_slices(version, threading.Event())
    stored = created(kube)
    assert next(events) == SliceEvent("ADDED", stored.resource_version, stored)


def test_half_a_line_at_the_end_of_a_watch_is_dropped(kube: HttpKubeApi, api: FakeApi) -> None:
    api.faults.add(CutWatch(), verb="watch")
    assert list(kube.watch_slices("1", threading.Event())) == []


def test_a_watch_that_breaks_is_temporary(kube: HttpKubeApi, api: FakeApi) -> None:
    api.faults.add(CutWatch(clean=False), verb="watch")
    with pytest.raises(
        Temporary, match=r"watch resourceslices of node node-1 .*: no answer: .*this test"
    ):
        list(kube.watch_slices("1", threading.Event()))


@pytest.mark.parametrize("line", [b"<html>\n", b'{"type":"ADDED","object":null}\n', b"[1]\n"])
def test_garbage_in_a_watch_is_temporary_and_shown(
    kube: HttpKubeApi, api: FakeApi, line: bytes
) -> None:
    api.faults.add(WatchLine(line), verb="watch")
    with pytest.raises(Temporary, match=r"sent no JSON object: .*; check that the address"):
        next(kube.watch_slices("1", threading.Event()))


def test_a_watch_is_not_started_through_a_dead_connection(kube: HttpKubeApi, api: FakeApi) -> None:
    served_version(kube)
    api.faults.add(Reset(), verb="watch")
    with pytest.raises(Temporary, match=r"check that the API server runs"):
        next(kube.watch_slices("1", threading.Event()))


def test_the_server_is_asked_to_end_a_watch_within_ten_minutes(
    kube: HttpKubeApi, api: FakeApi
) -> None:
    api.faults.add(CutWatch(), verb="watch")
    list(kube.watch_slices("5", threading.Event()))
    query = api.requests[-1].path.partition("?")[2].split("&")
    (seconds,) = (part for part in query if part.startswith("timeoutSeconds="))
    assert 300 <= int(seconds.partition("=")[2]) <= 600
    assert sorted(part for part in query if part != seconds) == [
        "allowWatchBookmarks=true",
        "fieldSelector=spec.driver%3Dgpu.example.com%2Cspec.nodeName%3Dnode-1",
        "resourceVersion=5",
        "watch=1",
    ]


# Events

LOST = NodeEvent("Warning", "DeviceLost", "gpu-3 fell off the bus")


def test_an_event_stands_on_the_node(kube: HttpKubeApi, api: FakeApi) -> None:
    kube.emit_event(LOST)
    (event,) = api.objects("events")
    assert event["metadata"]["namespace"] == "default"
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "node-1",
        "uid": api.object("nodes", "node-1")["metadata"]["uid"],
    }
    assert event["source"] == {"component": "gpu.example.com", "host": "node-1"}
    assert (event["type"], event["reason"], event["message"]) == (
        "Warning",
        "DeviceLost",
        "gpu-3 fell off the bus",
    )


def test_an_event_that_could_not_be_written_is_written_the_next_time(
    kube: HttpKubeApi, api: FakeApi
) -> None:
    api.faults.status(403, resource="events")
    with pytest.raises(Invalid, match=r"allow verb 'create' on resource 'events'"):
        kube.emit_event(LOST)
    kube.emit_event(LOST)
    kube.emit_event(LOST)
    assert len(api.objects("events")) == 1


# Failures of single requests


def test_forbidden_names_the_verb_the_resource_and_the_role(
    kube: HttpKubeApi, api: FakeApi
) -> None:
    api.faults.status(403, verb="create", resource="resourceslices")
    with pytest.raises(Invalid) as caught:
        created(kube)
    assert str(caught.value) == (
        f'create resourceslices {NAME} at {api.url}: the server answered 403: “User "fake" cannot do this”; allow verb '
        "'create' on resource 'resourceslices' in the ClusterRole that is bound to the user named there, and look for "
        "admission policies"
    )
    assert isinstance(caught.value, Permanent)


def test_a_write_is_sent_once_and_says_when_to_come_back(kube: HttpKubeApi, api: FakeApi) -> None:
    api.faults.status(429, verb="create", resource="resourceslices", retry_after=7)
    with pytest.raises(Temporary) as caught:
        created(kube)
    assert caught.value.retry_after_seconds == 7
    assert "429: “Too many requests" in str(caught.value)
    assert asked(api).count(("create", "resourceslices")) == 1


def test_garbage_instead_of_a_claim_is_shown(kube: HttpKubeApi, api: FakeApi) -> None:
    api.faults.add(Answer(200, body=b"<html>Log in\x00 first</html>"), resource="resourceclaims")
    with pytest.raises(Temporary) as caught:
        kube.get_claim(ClaimRef("default", "training", ClaimUid("u")))
    assert str(caught.value) == (
        f"get resourceclaims default/training at {api.url}: the server answered with success but sent no JSON object: "
        "“<html>Log in first</html>”; check that the address is a Kubernetes API server's and what a proxy between makes of "
        "its answers"
    )


def test_an_unreachable_server_is_named_with_the_next_step(
    make_kube: Callable[[Connection], HttpKubeApi],
) -> None:
    with FakeApi() as server:
        url = server.url
    with pytest.raises(Temporary) as caught:
        served_version(make_kube(Connection(url, source="/etc/kubeconfig")))
    message = str(caught.value)
    assert message.startswith(f"get group resource.k8s.io at {url}: no answer: ")
    assert "Connection refused" in message
    assert message.endswith(
        "; check that the API server runs and that its address in /etc/kubeconfig can be reached from this machine"
    )


def test_calls_that_wait_for_the_version_fail_together_and_not_one_after_the_other(
    api: FakeApi, kube: HttpKubeApi
) -> None:
    """Each question may take ten seconds: a queue of them would be longer than the kubelet waits."""
    slow = threading.Event()
    api.serve()
    api.faults.add(Hold(slow), resource="discovery")
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(served_version, kube) for _ in range(3)]
        deadline = monotonic() + 30
        served = kube._served
        while served._asked is None or len(served._asked._condition._waiters) < 2:
            assert monotonic() < deadline, "two calls never waited"
            sleep(0.01)
        slow.set()
        for call in calls:
            with pytest.raises(NotServed):
                call.result()
    assert [request.resource for request in api.requests] == ["discovery"]
    api.serve("v1")
    assert served_version(kube) == "v1"


# Classes, and labels of the Node


def device_class(name: str, **spec: object) -> Object:
    return {"metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_the_classes_of_the_cluster_are_read_in_every_version(
    kube: HttpKubeApi, api: FakeApi, version: str
) -> None:
    api.serve(version)
    selectors = [{"cel": {"expression": "true"}}]
    api.put("deviceclasses", device_class("gpu", selectors=selectors, extendedResourceName="a.b/c"))
    api.put("deviceclasses", device_class("other"))
    gpu, other = kube.device_classes()
    assert (gpu.metadata.name, gpu.spec.extended_resource_name) == ("gpu", "a.b/c")
    assert gpu.spec.selectors == [DeviceSelector(cel=CELDeviceSelector(expression="true"))]
    assert (other.metadata.name, other.spec.selectors) == ("other", None)


def test_a_class_that_cannot_be_read_is_left_out_and_reported(
    api: FakeApi,
) -> None:
    api.put("deviceclasses", device_class("good"))
    api.put("deviceclasses", device_class("odd", selectors="all"))
    told: list[DriverEvent] = []
    kube = HttpKubeApi(
        Connection(api.url, source="this test"),
        driver=DriverName("gpu.example.com"),
        node=NodeName("node-1"),
        observe=told.append,
    )
    assert [one.metadata.name for one in kube.device_classes()] == ["good"]
    kube.close()
    (event,) = [event for event in told if not isinstance(event, ApiAnswered)]
    assert isinstance(event, ObjectUnreadable)
    assert (event.resource, event.name.partition(" ")[0]) == ("deviceclasses", "odd")
    assert "Expected `array | null`, got `str` - at `$.spec.selectors`" in event.found


def test_a_cluster_without_the_group_has_no_classes_to_read(
    kube: HttpKubeApi, api: FakeApi
) -> None:
    api.serve()
    with pytest.raises(NotServed):
        kube.device_classes()


def test_labels_and_the_kubelets_version_are_one_request_in_a_minute(
    kube: HttpKubeApi, api: FakeApi, time: Time
) -> None:
    node = api.object("nodes", "node-1")
    node["metadata"]["labels"] = {"a": "b"}
    api.put("nodes", node)
    assert (kube.node_labels(), kube.kubelet_version()) == ({"a": "b"}, "v1.37.1")
    node["metadata"]["labels"] = {"a": "c", "odd": 5}
    api.put("nodes", node)
    time.now += 59
    assert kube.node_labels() == {"a": "b"}
    assert asked(api) == [("get", "nodes")]
    time.now += 1
    assert kube.node_labels() == {"a": "c"}


def test_labels_that_cannot_be_read_are_an_error_and_asked_for_again(
    kube: HttpKubeApi, api: FakeApi
) -> None:
    api.remove("nodes", "node-1")
    with pytest.raises(NotFound, match="get nodes node-1"):
        kube.node_labels()
    api.put("nodes", {"metadata": {"name": "node-1", "labels": {"a": "b"}}})
    assert kube.node_labels() == {"a": "b"}
    # Without a version the Node is new, and is read each time.
    api.put("nodes", {"metadata": {"name": "node-1", "labels": {"a": "c"}}})
    assert (kube.node_labels(), kube.kubelet_version()) == ({"a": "c"}, "")


def test_what_a_node_has_is_read_each_time(kube: HttpKubeApi, api: FakeApi) -> None:
    for count in ("1", "2"):
        amounts = {"capacity": {"a.b/c": count}, "allocatable": {"a.b/c": "0"}}
        api.put("nodes", {"metadata": {"name": "node-1"}, "status": amounts})
        assert kube.node_amounts() == ({"a.b/c": count}, {"a.b/c": "0"})
