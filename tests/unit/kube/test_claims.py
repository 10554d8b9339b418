# SPDX-License-Identifier: Apache-2.0
"""One claim, followed at the fake API server."""

import threading

import pytest

from dra_driver.errors import Temporary
from dra_driver.kube.base import ClaimEvent, ClaimFound, Expired, NotServed
from dra_driver.kube.http import HttpKubeApi
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, PodUid
from dra_driver.testing.fake_api import Answer, CutWatch, FakeApi, Object, WatchLine
from tests.support.served_version import served_version

REF = ClaimRef("team-a", "training", ClaimUid(""))


def _put(api: FakeApi, *pods: str, name: str = "training", namespace: str = "team-a") -> Object:
    users = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]
    metadata = {"name": name, "namespace": namespace}
    return api.put(
        "resourceclaims",
        {"metadata": metadata, "spec": {"devices": {}}, "status": {"reservedFor": users}},
    )


def test_a_claim_is_found_with_the_version_to_watch_from(kube: HttpKubeApi, api: FakeApi) -> None:
    assert kube.find_claim(REF).claim is None
    _put(api, "other", name="other")
    _put(api, "elsewhere", namespace="team-b")
    stored = _put(api, "one")
    found = kube.find_claim(REF)
    assert found.resource_version == str(api.store.version)
    assert found.claim is not None
    assert found.claim.ref.uid == stored["metadata"]["uid"]
    assert found.claim.reserved_for == (PodUid("uid-one"),)


def test_an_answer_without_a_list_is_no_claim(kube: HttpKubeApi, api: FakeApi) -> None:
    served_version(kube)
    api.faults.add(Answer(200, body=b'{"kind":"ResourceClaimList","items":null}'), verb="list")
    assert kube.find_claim(REF) == ClaimFound("", None)


def test_a_watch_tells_each_change_of_this_claim_and_no_others(
    kube: HttpKubeApi, api: FakeApi
) -> None:
    stop = threading.Event()
    events = kube.watch_claim(REF, kube.find_claim(REF).resource_version, stop)
    _put(api, "elsewhere", namespace="team-b")
    _put(api, "other", name="other")
    _put(api)
    stored = _put(api, "one", "two")
    added, modified = next(events), next(events)
    assert added.claim is not None
    assert (added.type, added.claim.reserved_for) == ("ADDED", ())
    assert modified.claim is not None
    assert modified.claim.reserved_for == (PodUid("uid-one"), PodUid("uid-two"))
    assert modified.resource_version == stored["metadata"]["resourceVersion"]

    api.remove("resourceclaims", "training", namespace="team-a")
    deleted = next(events)
    assert deleted.claim is not None
    assert (deleted.type, deleted.claim.reserved_for) == ("DELETED", modified.claim.reserved_for)
    stop.set()
    assert list(events) == []


def test_bookmarks_move_the_version_on(kube: HttpKubeApi, api: FakeApi) -> None:
    api.send_bookmarks_every(0.01)
    events = kube.watch_claim(REF, kube.find_claim(REF).resource_version, threading.Event())
    event = next(events)
    assert event == ClaimEvent("BOOKMARK", str(api.store.version), None)


def test_a_watch_from_a_forgotten_version_is_expired(kube: HttpKubeApi, api: FakeApi) -> None:
    version = kube.find_claim(REF).resource_version
    _put(api)
    api.compact()
    with pytest.raises(Expired, match=r"watch resourceclaims team-a/training from version"):
        next(kube.watch_claim(REF, version, threading.Event()))


def test_an_event_of_an_unknown_type_is_passed_over(kube: HttpKubeApi, api: FakeApi) -> None:
    api.faults.add(WatchLine(b'{"type":"FUTURE","object":{"metadata":{}}}\n'), verb="watch")
    events = kube.watch_claim(REF, kube.find_claim(REF).resource_version, threading.Event())
    _put(api, "one")
    assert next(events).type == "ADDED"


def test_an_object_without_metadata_has_no_version(kube: HttpKubeApi, api: FakeApi) -> None:
    api.faults.add(WatchLine(b'{"type":"BOOKMARK","object":{"metadata":1}}\n'), verb="watch")
    events = kube.watch_claim(REF, kube.find_claim(REF).resource_version, threading.Event())
    assert next(events) == ClaimEvent("BOOKMARK", "", None)


def test_a_watch_that_breaks_is_temporary(kube: HttpKubeApi, api: FakeApi) -> None:
    api.faults.add(CutWatch(clean=False), verb="watch")
    with pytest.raises(Temporary, match=r"watch resourceclaims team-a/training .*: no answer"):
        list(kube.watch_claim(REF, "1", threading.Event()))


def test_a_watch_in_a_version_that_is_gone_is_discovered_anew(
    kube: HttpKubeApi, api: FakeApi
) -> None:
    api.serve("v1beta1")
    served_version(kube)
    api.serve("v1")
    with pytest.raises(NotServed):
        next(kube.watch_claim(REF, "1", threading.Event()))
    assert served_version(kube) == "v1"
