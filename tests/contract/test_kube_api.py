# SPDX-License-Identifier: Apache-2.0
"""What every API server does for `KubeApi`, and what the fake one must therefore do like the real one."""

import threading
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
import pytest
from msgspec.structs import replace

from dra_driver.kube.base import Conflict, Invalid, KubeApi, NameTaken, NodeEvent, NotFound
from dra_driver.kube.transport import AS_TABLE, METADATA_ONLY
from dra_driver.model.api.resource_slice import DeviceCapacity, ResourceSliceSpec
from dra_driver.model.claim import ClaimRef
from dra_driver.model.device import Version
from dra_driver.model.ids import ClaimUid, DeviceName, DriverName, NodeName, PodUid, PoolName
from dra_driver.model.quantity import Quantity
from dra_driver.model.slices import CreateSlice, DeleteSlice, StoredSlice, UpdateSlice
from tests.support import api_values
from tests.support.api_values import device_taint, published, slice_spec

Object = dict[str, Any]


class ApiServer(Protocol):
    """The fixture `server`."""

    kube: KubeApi
    driver: DriverName
    node: NodeName
    group: str

    def call(
        self, method: str, path: str, body: Object | bytes | None = None, *, accept: str = ""
    ) -> tuple[int, Object]: ...
    def made(self, path: str, obj: Object) -> Object: ...
    def changed(self, path: str, change: Callable[[Object], None]) -> None: ...
    def served(self, obj: Object) -> Object: ...
    def slice(self, name: str, **spec: Any) -> Object: ...


POOL = {"generation": 1, "resourceSliceCount": 1}
GPU = published(
    DeviceName("gpu-0"),
    {"ecc": False, "index": 0, "model": "Example", "driverVersion": Version("1.2.3")},
    {"memory": Quantity.parse("80Gi"), "fraction": Quantity.parse("1500m")},
)


def spec(server: ApiServer, generation: int = 1) -> ResourceSliceSpec:
    return slice_spec(server.node, generation, 1, (GPU,), driver=server.driver, node=server.node)


def created(server: ApiServer, number: int = 0) -> StoredSlice:
    name = f"{server.node}-{number}"
    stored = server.kube.apply_slice_change(CreateSlice(name, spec(server)))
    assert stored is not None
    return stored


# Slices


def test_a_slice_is_stored_as_it_was_written(server: ApiServer) -> None:
    stored = created(server)
    assert (stored.name, stored.spec) == (f"{server.node}-0", spec(server))
    assert server.kube.list_slices().slices == (stored,)


def test_other_slices_are_not_listed(server: ApiServer) -> None:
    server.made(
        f"{server.group}/resourceslices", server.slice(f"{server.node}-x", nodeName="other")
    )
    assert server.kube.list_slices().slices == ()


def test_an_update_takes_effect_and_moves_the_version(server: ApiServer) -> None:
    first = created(server)
    second = server.kube.apply_slice_change(UpdateSlice(first, spec(server, 2)))
    assert second is not None
    assert (second.uid, second.spec) == (first.uid, spec(server, 2))
    assert second.resource_version != first.resource_version
    assert server.kube.list_slices().slices == (second,)


def test_an_update_that_changes_nothing_keeps_the_version(server: ApiServer) -> None:
    stored = created(server)
    assert server.kube.apply_slice_change(UpdateSlice(stored, stored.spec)) == stored


def test_creating_what_exists_is_a_conflict(server: ApiServer) -> None:
    created(server)
    with pytest.raises(Conflict, match="already exists"):
        created(server)


def test_whose_a_taken_name_is_can_be_asked(server: ApiServer) -> None:
    """Our lists do not show what belongs to another node; its name is taken all the same."""
    name = f"{server.node}-0"
    theirs = server.slice(name, nodeName="other", pool={**POOL, "name": "other"})
    uid = server.made(f"{server.group}/resourceslices", theirs)["metadata"]["uid"]
    assert server.kube.list_slices().slices == ()
    with pytest.raises(NameTaken, match="already exists") as caught:
        created(server)
    assert caught.value.name == name
    found = server.kube.slice_holder(name)
    assert (found.name, found.uid, found.driver) == (name, uid, server.driver)
    assert (found.node, found.pool) == ("other", "other")
    with pytest.raises(NotFound):
        server.kube.slice_holder(f"{server.node}-nowhere")


def changed_by_somebody(server: ApiServer, change: Callable[[Object], object]) -> StoredSlice:
    """Our slice, once somebody with all rights has changed it."""
    path = f"{server.group}/resourceslices/{created(server).name}"
    _status, obj = server.call("GET", path)
    change(obj)
    status, answer = server.call("PUT", path, obj)
    assert status == 200, answer
    (stored,) = server.kube.list_slices().slices
    return stored


CHANGES: dict[str, Callable[[Object], object]] = {
    "metadata.finalizers": lambda obj: obj["metadata"].update(finalizers=["example.com/hold"]),
    "metadata.ownerReferences": lambda obj: obj["metadata"].pop("ownerReferences"),
}


@pytest.mark.parametrize("path", CHANGES)
def test_what_somebody_changes_is_noticed_and_put_right(server: ApiServer, path: str) -> None:
    stored = changed_by_somebody(server, CHANGES[path])
    assert list(stored.unlike) == [path]
    again = server.kube.apply_slice_change(UpdateSlice(stored, stored.spec))
    assert again is not None
    assert (again.unlike, again.spec) == ({}, stored.spec)


def test_labels_and_annotations_of_others_survive_a_rewrite(server: ApiServer) -> None:
    both = {"labels": {"team": "a"}, "annotations": {"note": "b"}}
    stored = changed_by_somebody(server, lambda obj: obj["metadata"].update(both))
    assert stored.unlike == {}
    again = server.kube.apply_slice_change(UpdateSlice(stored, spec(server, 2)))
    assert again is not None
    assert (again.labels, again.annotations) == ({"team": "a"}, {"note": "b"})
    _status, obj = server.call("GET", f"{server.group}/resourceslices/{stored.name}")
    assert {key: obj["metadata"][key] for key in both} == both


def test_a_slice_with_a_finalizer_goes_when_it_is_deleted(server: ApiServer) -> None:
    stored = changed_by_somebody(server, CHANGES["metadata.finalizers"])
    assert server.kube.apply_slice_change(DeleteSlice(stored)) is None
    assert server.call("GET", f"{server.group}/resourceslices/{stored.name}")[0] == 404


def test_a_taint_keeps_its_time_or_is_dropped_whole(server: ApiServer) -> None:
    """Servers without DRADeviceTaints drop it."""
    taint = device_taint("example.com/vanished", "why", "NoSchedule", "2026-01-02T03:04:05Z")
    wanted = replace(spec(server), devices=[replace(GPU, taints=[taint])])
    stored = server.kube.apply_slice_change(CreateSlice(f"{server.node}-0", wanted))
    assert stored is not None
    assert stored.unlike == {}
    assert stored.spec in (wanted, spec(server))
    second = replace(wanted, pool=replace(wanted.pool, generation=2))
    again = server.kube.apply_slice_change(UpdateSlice(stored, second))
    assert again is not None
    assert again.spec.devices == stored.spec.devices


def test_updating_what_changed_is_a_conflict(server: ApiServer) -> None:
    first = created(server)
    server.kube.apply_slice_change(UpdateSlice(first, spec(server, 2)))
    with pytest.raises(Conflict, match="the object has been modified"):
        server.kube.apply_slice_change(UpdateSlice(first, spec(server, 3)))


def test_updating_what_is_gone_is_not_found(server: ApiServer) -> None:
    stored = created(server)
    server.kube.apply_slice_change(DeleteSlice(stored))
    # Kubernetes up to 1.33 says by a conflict that the object with this UID is not there.
    gone = f'"{stored.name}" not found|Precondition failed: UID in precondition'
    with pytest.raises((NotFound, Conflict), match=gone):
        server.kube.apply_slice_change(UpdateSlice(stored, spec(server, 2)))


def test_updating_what_was_made_anew_is_a_conflict(server: ApiServer) -> None:
    first = created(server)
    server.kube.apply_slice_change(DeleteSlice(first))
    second = created(server)
    mixed = StoredSlice(second.name, first.uid, second.resource_version, second.spec)
    with pytest.raises(Conflict):
        server.kube.apply_slice_change(UpdateSlice(mixed, spec(server, 2)))


def test_deleting_what_changed_is_a_conflict(server: ApiServer) -> None:
    first = created(server)
    server.kube.apply_slice_change(UpdateSlice(first, spec(server, 2)))
    with pytest.raises(Conflict, match="ResourceVersion in the precondition"):
        server.kube.apply_slice_change(DeleteSlice(first))


def test_deleting_what_was_made_anew_is_a_conflict(server: ApiServer) -> None:
    first = created(server)
    server.kube.apply_slice_change(DeleteSlice(first))
    second = created(server)
    with pytest.raises(Conflict, match="UID in the precondition"):
        server.kube.apply_slice_change(DeleteSlice(first))
    assert server.kube.list_slices().slices == (second,)


def test_deleting_what_is_gone_is_done(server: ApiServer) -> None:
    stored = created(server)
    assert server.kube.apply_slice_change(DeleteSlice(stored)) is None
    assert server.kube.apply_slice_change(DeleteSlice(stored)) is None
    assert server.kube.list_slices().slices == ()


def test_a_slice_keeps_its_pool(server: ApiServer) -> None:
    stored = created(server)
    moved = slice_spec("another", 1, 1, (), driver=server.driver, node=server.node)
    with pytest.raises(Invalid, match=r"spec\.pool\.name: .*field is immutable"):
        server.kube.apply_slice_change(UpdateSlice(stored, moved))


@pytest.mark.parametrize("field", ["driver", "nodeName"])
def test_a_slice_keeps_its_driver_and_node(server: ApiServer, field: str) -> None:
    stored = created(server)
    body = server.served(server.slice(stored.name, **{field: "another.example.com"}))
    status, answer = server.call("PUT", f"{server.group}/resourceslices/{stored.name}", body)
    assert status == 422, answer
    assert f"spec.{field}" in [cause["field"] for cause in answer["details"]["causes"]]


def test_a_name_that_is_no_subdomain_is_invalid(server: ApiServer) -> None:
    with pytest.raises(Invalid, match=r"metadata\.name: Invalid value"):
        server.kube.apply_slice_change(CreateSlice("Under_score", spec(server)))


def test_quantities_come_back_in_canonical_form(server: ApiServer) -> None:
    devices = [{"name": "gpu-0", "capacity": {"memory": {"value": "81920Mi"}}}]
    body = server.slice(f"{server.node}-0", devices=devices)
    answer = server.made(f"{server.group}/resourceslices", body)
    assert "81920Mi" not in str(answer["spec"])
    (stored,) = server.kube.list_slices().slices
    assert stored.devices[0].capacity == {"memory": DeviceCapacity(value="80Gi")}


def test_what_is_no_quantity_is_a_bad_request(server: ApiServer) -> None:
    devices = [{"name": "gpu-0", "capacity": {"memory": {"value": "much"}}}]
    body = server.served(server.slice(f"{server.node}-0", devices=devices))
    status, answer = server.call("POST", f"{server.group}/resourceslices", body)
    assert (status, answer["reason"]) == (400, "BadRequest")


def test_a_collection_is_deleted_by_node(server: ApiServer) -> None:
    created(server)
    server.made(
        f"{server.group}/resourceslices", server.slice(f"{server.node}-x", nodeName="other")
    )
    selector = f"fieldSelector=spec.nodeName%3D{server.node}"
    assert server.call("DELETE", f"{server.group}/resourceslices?{selector}")[0] == 200
    assert server.kube.list_slices().slices == ()
    assert server.call("GET", f"{server.group}/resourceslices/{server.node}-x")[0] == 200


# Watches


def test_a_watch_reports_each_change_after_its_version(server: ApiServer) -> None:
    created(server, 9)
    version = server.kube.list_slices().resource_version
    stop = threading.Event()
    events = server.kube.watch_slices(version, stop)
    first = created(server)
    second = server.kube.apply_slice_change(UpdateSlice(first, spec(server, 2)))
    assert second is not None
    server.kube.apply_slice_change(DeleteSlice(second))
    added, modified, deleted = (next(_without_bookmarks(events)) for _ in range(3))
    assert (added.type, added.slice) == ("ADDED", first)
    assert added.resource_version == first.resource_version
    assert (modified.type, modified.slice) == ("MODIFIED", second)
    assert deleted.slice is not None
    assert (deleted.type, deleted.slice.name, deleted.slice.spec) == (
        "DELETED",
        first.name,
        second.spec,
    )
    assert int(deleted.resource_version) > int(second.resource_version)
    stop.set()
    assert list(_without_bookmarks(events)) == []


def test_a_watch_sees_nothing_of_others(server: ApiServer) -> None:
    version = server.kube.list_slices().resource_version
    events = server.kube.watch_slices(version, threading.Event())
    server.made(
        f"{server.group}/resourceslices", server.slice(f"{server.node}-x", nodeName="other")
    )
    mine = created(server)
    assert next(_without_bookmarks(events)).slice == mine


def _without_bookmarks(events: Any) -> Any:
    return (event for event in events if event.type != "BOOKMARK")


# Claims


def claim(server: ApiServer, name: str) -> Object:
    requests = [{"name": "main", "exactly": {"deviceClassName": "any.example.com"}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "labels": {"test": server.node}},
        "spec": {"devices": {"requests": requests}},
    }


def allocated(server: ApiServer, name: str, device: str) -> Object:
    claims = f"{server.group}/namespaces/default/resourceclaims"
    obj = server.made(claims, claim(server, name))
    result = {"request": "main", "driver": server.driver, "pool": server.node, "device": device}
    status = {"allocation": {"devices": {"results": [result]}}}
    code, answer = server.call("PUT", f"{claims}/{name}/status", {**obj, "status": status})
    assert code == 200, answer
    return answer


def test_an_allocated_claim_is_read(server: ApiServer) -> None:
    name = f"{server.node}-a"
    uid = ClaimUid(allocated(server, name, "gpu-7")["metadata"]["uid"])
    found = server.kube.get_claim(ClaimRef("default", name, uid))
    result = api_values.allocated("main", server.driver, server.node, "gpu-7")
    assert (found.ref, found.results) == (ClaimRef("default", name, uid), (result,))


def test_a_claim_without_an_allocation_has_no_results(server: ApiServer) -> None:
    name = f"{server.node}-a"
    server.made(f"{server.group}/namespaces/default/resourceclaims", claim(server, name))
    assert server.kube.get_claim(ClaimRef("default", name, ClaimUid(""))).results is None


@pytest.mark.parametrize("namespace", ["default", "no-such-namespace"])
def test_a_claim_that_is_not_there_is_not_found(server: ApiServer, namespace: str) -> None:
    with pytest.raises(
        NotFound, match=f"get resourceclaims {namespace}/nowhere at .*: the server answered 404"
    ):
        server.kube.get_claim(ClaimRef(namespace, "nowhere", ClaimUid("u")))


def test_allocated_claims_are_found(server: ApiServer) -> None:
    allocated(server, f"{server.node}-a", "gpu-0")
    allocated(server, f"{server.node}-b", "gpu-1")
    server.made(
        f"{server.group}/namespaces/default/resourceclaims", claim(server, f"{server.node}-c")
    )
    found = server.kube.allocated_claims(PoolName(server.node))
    assert sorted(result.device for entry in found for result in entry.results or ()) == [
        "gpu-0",
        "gpu-1",
    ]
    assert server.kube.allocated_claims(PoolName("another")) == ()


def test_a_claims_users_and_the_time_of_its_allocation_are_read(server: ApiServer) -> None:
    name = f"{server.node}-a"
    obj = allocated(server, name, "gpu-0")
    users = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in ("one", "two")]
    status = {**obj["status"], "reservedFor": users}
    path = f"{server.group}/namespaces/default/resourceclaims/{name}/status"
    ref, stop = ClaimRef("default", name, ClaimUid("")), threading.Event()
    events = server.kube.watch_claim(ref, obj["metadata"]["resourceVersion"], stop)
    code, answer = server.call("PUT", path, {**obj, "status": status})
    assert code == 200, answer
    # By the watch: a real cluster's controller finds no such pods and takes them out again.
    found = next(_without_bookmarks(events)).claim
    stop.set()
    assert found.reserved_for == (PodUid("uid-one"), PodUid("uid-two"))
    assert (found.sole_pod, found.unnamed_users) == (None, False)
    assert found.allocation_timestamp == obj["status"]["allocation"].get("allocationTimestamp", "")


def test_a_claim_of_a_template_names_its_pod(server: ApiServer) -> None:
    name = f"{server.node}-a"
    obj = claim(server, name)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "one", "uid": "uid-one", "controller": True}
    obj["metadata"]["ownerReferences"] = [owner]
    obj["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": "devices"}
    ref = ClaimRef("default", name, ClaimUid(""))
    before = server.kube.find_claim(ref).resource_version
    server.made(f"{server.group}/namespaces/default/resourceclaims", obj)
    # By the watch: the garbage collector of a real cluster finds no such pod and deletes the claim.
    stop = threading.Event()
    found = next(_without_bookmarks(server.kube.watch_claim(ref, before, stop))).claim
    stop.set()
    assert found.sole_pod == PodUid("uid-one")


def test_one_claim_is_watched_from_the_version_of_a_list(server: ApiServer) -> None:
    ref = ClaimRef("default", f"{server.node}-a", ClaimUid(""))
    nothing = server.kube.find_claim(ref)
    assert nothing.claim is None
    stop = threading.Event()
    events = _without_bookmarks(server.kube.watch_claim(ref, nothing.resource_version, stop))
    allocated(server, f"{server.node}-b", "gpu-1")
    path = f"{server.group}/namespaces/default/resourceclaims"
    obj = allocated(server, ref.name, "gpu-0")
    added, modified = next(events), next(events)
    assert (added.type, added.claim.results) == ("ADDED", None)
    assert (modified.type, modified.claim.results[0].device) == ("MODIFIED", "gpu-0")
    assert modified.resource_version == obj["metadata"]["resourceVersion"]
    assert server.kube.find_claim(ref).claim == modified.claim

    server.call("DELETE", f"{path}/{ref.name}")
    deleted = next(event for event in events if event.type == "DELETED")
    assert deleted.claim.ref == modified.claim.ref
    assert int(deleted.resource_version) > int(modified.resource_version)
    stop.set()
    assert list(events) == []


def test_a_claims_spec_is_immutable(server: ApiServer) -> None:
    path = f"{server.group}/namespaces/default/resourceclaims"
    obj = server.made(path, claim(server, f"{server.node}-a"))
    obj["spec"] = {"devices": {}}
    status, answer = server.call("PUT", f"{path}/{server.node}-a", obj)
    assert (status, answer["reason"]) == (422, "Invalid")


def test_a_claims_status_is_written_under_its_own_path_only(server: ApiServer) -> None:
    path = f"{server.group}/namespaces/default/resourceclaims"
    obj = allocated(server, f"{server.node}-a", "gpu-0")
    status, answer = server.call("PUT", f"{path}/{server.node}-a", {**obj, "status": {}})
    assert status == 200
    assert answer["status"] == obj["status"]


def test_a_finalizer_keeps_an_object_until_it_is_taken_away(server: ApiServer) -> None:
    path = f"{server.group}/namespaces/default/resourceclaims"
    obj = claim(server, f"{server.node}-a")
    obj["metadata"]["finalizers"] = ["example.com/hold"]
    server.made(path, obj)
    server.call("DELETE", f"{path}/{server.node}-a")
    status, held = server.call("GET", f"{path}/{server.node}-a")
    assert status == 200
    assert "deletionTimestamp" in held["metadata"]
    del held["metadata"]["finalizers"]
    assert server.call("PUT", f"{path}/{server.node}-a", held)[0] == 200
    assert server.call("GET", f"{path}/{server.node}-a")[0] == 404


def test_lists_come_in_pages(server: ApiServer) -> None:
    for letter in "abc":
        allocated(server, f"{server.node}-{letter}", "gpu-0")
    path = f"{server.group}/namespaces/default/resourceclaims?labelSelector=test%3D{server.node}&limit=2"
    _status, first = server.call("GET", path)
    _status, second = server.call("GET", f"{path}&continue={first['metadata']['continue']}")
    names = [item["metadata"]["name"] for item in [*first["items"], *second["items"]]]
    assert names == [f"{server.node}-{letter}" for letter in "abc"]
    assert "continue" not in second["metadata"]
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]


def test_the_metadata_of_a_list_can_be_asked_for_alone(server: ApiServer) -> None:
    for letter in "ab":
        allocated(server, f"{server.node}-{letter}", "gpu-0")
    path = f"{server.group}/namespaces/default/resourceclaims?labelSelector=test%3D{server.node}&limit=1"
    status, answer = server.call("GET", path, accept=METADATA_ONLY)
    assert (status, answer.get("kind")) == (200, "PartialObjectMetadataList"), answer
    (item,) = answer["items"]
    assert item["metadata"]["name"] == f"{server.node}-a"
    assert not item.keys() & {"spec", "status"}
    _status, second = server.call("GET", f"{path}&continue={answer['metadata']['continue']}")
    assert [found["metadata"]["name"] for found in second["items"]] == [f"{server.node}-b"]


def test_a_list_can_be_asked_for_as_a_table_without_objects(server: ApiServer) -> None:
    for letter in "ab":
        allocated(server, f"{server.node}-{letter}", "gpu-0")
    path = f"{server.group}/namespaces/default/resourceclaims?labelSelector=test%3D{server.node}&limit=1&includeObject=None"
    status, answer = server.call("GET", path, accept=AS_TABLE)
    assert (status, answer.get("kind")) == (200, "Table"), answer
    assert answer["columnDefinitions"][0]["name"] == "Name"
    (row,) = answer["rows"]
    assert (row["cells"][0], row["object"]) == (f"{server.node}-a", None)
    assert answer["metadata"]["resourceVersion"]
    path = f"{path}&continue={answer['metadata']['continue']}"
    _status, last = server.call("GET", path, accept=AS_TABLE)
    assert [found["cells"][0] for found in last["rows"]] == [f"{server.node}-b"]
    assert "continue" not in last["metadata"]


def test_a_claim_with_metadata_of_many_megabytes_is_read_and_hides_no_other(
    server: ApiServer,
) -> None:
    """An owner's name may be of any length, and each "<" of it is six bytes in an answer."""
    claims = f"{server.group}/namespaces/default/resourceclaims"
    for letter in "abc":
        name = f"{server.node}-{letter}"
        obj = allocated(server, name, "gpu-0")
        if letter == "b":
            owner = {
                "apiVersion": "example.com/v1",
                "kind": "Owner",
                "uid": "x",
                "name": "<" * 1_300_000,
            }
            obj["metadata"]["ownerReferences"] = [owner]
            status, answer = server.call("PUT", f"{claims}/{name}", obj)
            assert status == 200, answer
    found = server.kube.allocated_claims(PoolName(server.node))
    assert sorted(claim.ref.name for claim in found) == [f"{server.node}-{one}" for one in "abc"]


def test_a_form_of_an_unknown_version_is_not_acceptable(server: ApiServer) -> None:
    accept = METADATA_ONLY.replace("v=v1", "v=1")
    status, answer = server.call("GET", f"{server.group}/resourceslices", accept=accept)
    assert (status, answer["reason"]) == (406, "NotAcceptable")


# Requests that are wrong


def test_an_unknown_continue_token_is_a_bad_request(server: ApiServer) -> None:
    status, answer = server.call("GET", f"{server.group}/resourceslices?limit=1&continue=nonsense")
    assert (status, answer["reason"]) == (400, "BadRequest")


def test_an_unknown_field_selector_is_a_bad_request(server: ApiServer) -> None:
    path = f"{server.group}/resourceslices?fieldSelector=spec.unknown%3Dx"
    status, answer = server.call("GET", path)
    assert (status, answer["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"kind":"Pod","apiVersion":"v1"}'])
def test_a_body_that_is_no_slice_is_a_bad_request(server: ApiServer, body: bytes) -> None:
    status, answer = server.call("POST", f"{server.group}/resourceslices", body)
    assert (status, answer["reason"]) == (400, "BadRequest")


def test_a_name_that_differs_from_the_path_is_a_bad_request(server: ApiServer) -> None:
    stored = created(server)
    body = server.served(server.slice("another"))
    status, answer = server.call("PUT", f"{server.group}/resourceslices/{stored.name}", body)
    assert (status, answer["reason"]) == (400, "BadRequest")


def test_a_missing_object_is_told_from_a_missing_path(server: ApiServer) -> None:
    status, answer = server.call("GET", f"{server.group}/resourceslices/nowhere")
    assert (status, answer["details"]["kind"]) == (404, "resourceslices")
    status, answer = server.call("GET", "/apis/resource.k8s.io/v1alpha1/resourceslices")
    assert (status, answer["details"]) == (404, {})
    status, answer = server.call("GET", f"{server.group}/nonsense")
    assert (status, answer["details"]) == (404, {})


# The Node


def test_an_event_is_written_about_the_node(server: ApiServer) -> None:
    server.kube.emit_event(NodeEvent("Normal", "Tested", "by the contract"))
    path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{server.node}"
    _status, answer = server.call("GET", path)
    (event,) = [item for item in answer["items"] if item["reason"] == "Tested"]
    _status, node = server.call("GET", f"/api/v1/nodes/{server.node}")
    assert event["involvedObject"]["uid"] == node["metadata"]["uid"]
    assert (event["type"], event["message"]) == ("Normal", "by the contract")
    assert event["source"] == {"component": server.driver, "host": server.node}


def test_a_node_without_a_kubelet_has_no_version(server: ApiServer) -> None:
    assert server.kube.kubelet_version() == ""


def test_the_labels_of_the_node_are_read(server: ApiServer) -> None:
    def label(node: Object) -> None:
        node["metadata"].setdefault("labels", {})["example.com/contract"] = "yes"

    server.changed(f"/api/v1/nodes/{server.node}", label)
    assert server.kube.node_labels()["example.com/contract"] == "yes"


# Classes


def test_the_classes_of_the_cluster_are_read_as_they_were_written(server: ApiServer) -> None:
    name = f"contract-{server.node}"
    path = f"{server.group}/deviceclasses"
    selector = {"cel": {"expression": "device.driver == 'a.example.com'"}}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [selector]},
    }
    server.made(path, body)
    try:
        (found,) = [one for one in server.kube.device_classes() if one.metadata.name == name]
    finally:
        server.call("DELETE", f"{path}/{name}")
    assert msgspec.to_builtins(found.spec) == {"selectors": [selector]}
