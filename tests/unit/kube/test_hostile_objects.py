# SPDX-License-Identifier: Apache-2.0
"""Whatever one tenant stores costs that object: claims next to it are read, by the driver and by `explain`."""

import gzip
import json
from threading import Event

import pytest

from dra_driver.errors import DriverError
from dra_driver.kube.base import Malformed, NotServed, SliceEvent, TooLarge
from dra_driver.kube.cluster import NAMED_OPAQUE, read_cluster
from dra_driver.kube.connection import Connection
from dra_driver.kube.http import HttpKubeApi
from dra_driver.kube.transport import LARGEST_BODY_BYTES
from dra_driver.kube.unreadable import REMEMBERED
from dra_driver.model.api.resource_claim import OpaqueDeviceConfiguration
from dra_driver.model.claim import ClaimRef
from dra_driver.model.events import ApiAnswered, DriverEvent, ObjectUnreadable
from dra_driver.model.ids import ClaimUid, DriverName, NodeName, PoolName
from dra_driver.model.slices import CreateSlice
from dra_driver.testing.fake_api import Answer, FakeApi, Object, RawJson, WatchLine
from tests.support.api_values import slice_spec
from tests.support.served_version import served_version

POOL = PoolName("node-1")
OURS = "gpu.example.com"
HOSTILE = {
    "a lone surrogate": b'{"a":"\\ud800"}',
    "no UTF-8": b'{"a":"\xff"}',
    "a key that is no UTF-8": b'{"\xff":1}',
    "1,100 levels": b'{"a":' + b"[" * 1_100 + b"]" * 1_100 + b"}",
    "10,000 levels": b'{"a":' + b"[" * 9_990 + b"]" * 9_990 + b"}",
    "a float beyond all floats": b'{"a":1e400}',
    "an int of 5,000 digits": b'{"a":' + b"9" * 5_000 + b"}",
}


def a_claim(name: str, parameters: bytes, *, driver: str = OURS, namespace: str = "team") -> Object:
    result = {"request": "main", "driver": OURS, "pool": POOL, "device": f"gpu-{name}"}
    config = {
        "source": "FromClaim",
        "opaque": {"driver": driver, "parameters": RawJson(parameters)},
    }
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"devices": {"config": [{"opaque": config["opaque"]}]}},
        "status": {"allocation": {"devices": {"results": [result], "config": [config]}}},
    }


def ref(name: str) -> ClaimRef:
    return ClaimRef("team", name, ClaimUid("u"))


@pytest.fixture
def told() -> list[DriverEvent]:
    return []


@pytest.fixture
def kube(api: FakeApi, told: list[DriverEvent]) -> HttpKubeApi:
    return HttpKubeApi(
        Connection(api.url, source="this test"),
        driver=DriverName(OURS),
        node=NodeName("node-1"),
        observe=lambda event: None if isinstance(event, ApiAnswered) else told.append(event),
    )


@pytest.mark.parametrize("parameters", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("driver", [OURS, "other.example.com"])
def test_a_hostile_claim_hides_no_other_and_keeps_its_device(
    kube: HttpKubeApi, api: FakeApi, told: list[DriverEvent], parameters: bytes, driver: str
) -> None:
    for name in ("a", "c"):
        api.put("resourceclaims", a_claim(name, b'{"kind":"x"}'))
    uid = api.put("resourceclaims", a_claim("b", parameters, driver=driver))["metadata"]["uid"]
    for _ in range(2):
        claims = kube.allocated_claims(POOL)
        assert [claim.ref.name for claim in claims] == ["a", "b", "c"]
        assert [[result.device for result in claim.results or ()] for claim in claims] == [
            ["gpu-a"],
            ["gpu-b"],
            ["gpu-c"],
        ]
        assert claims[0].configs[0].parameters == {"kind": "x"}
        assert all(not config.parameters for config in claims[1].configs)
    (event,) = told
    assert isinstance(event, ObjectUnreadable)
    assert (event.resource, event.name) == ("resourceclaims", f"team/b (uid {uid})")
    assert "devices.config.0.opaque.parameters cannot be read" in event.found


@pytest.mark.parametrize("parameters", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_claim_is_known_and_says_why_it_cannot_be_used(
    kube: HttpKubeApi, api: FakeApi, parameters: bytes
) -> None:
    uid = api.put("resourceclaims", a_claim("bad", parameters))["metadata"]["uid"]
    found = kube.get_claim(ref("bad"))
    assert found.ref.uid == uid
    assert [result.device for result in found.results or ()] == ["gpu-bad"]
    said = found.unusable
    assert said.startswith(
        f"get resourceclaims team/bad at {api.url}: status.allocation.devices.config.0.opaque.parameters cannot be read ("
    )
    assert said.endswith(
        "the API server stores it as it was written: delete the object, or write it again without this"
    )


@pytest.mark.parametrize("parameters", HOSTILE.values(), ids=HOSTILE)
def test_what_is_meant_for_another_driver_is_not_looked_at(
    kube: HttpKubeApi, api: FakeApi, parameters: bytes
) -> None:
    api.put("resourceclaims", a_claim("fine", parameters, driver="other.example.com"))
    found = kube.get_claim(ref("fine"))
    assert not found.unusable
    assert ([result.device for result in found.results or ()], found.configs) == (["gpu-fine"], ())


def test_parameters_that_are_deeper_than_any_kind_cannot_be_used(
    kube: HttpKubeApi, api: FakeApi
) -> None:
    api.put("resourceclaims", a_claim("fine", b'{"a":' + b"[" * 62 + b"]" * 62 + b"}"))
    api.put("resourceclaims", a_claim("deep", b'{"a":' + b'{"b":' * 70 + b"1" + b"}" * 70 + b"}"))
    assert not kube.get_claim(ref("fine")).unusable
    assert "parameters is nested deeper than 64 levels" in kube.get_claim(ref("deep")).unusable


def test_a_claim_of_an_impossible_form_is_refused_by_name(kube: HttpKubeApi, api: FakeApi) -> None:
    entry = {"opaque": {"driver": OURS}, "requests": 5}
    api.put(
        "resourceclaims",
        {**a_claim("odd", b"{}"), "status": {"allocation": {"devices": {"config": [entry]}}}},
    )
    with pytest.raises(
        Malformed, match=r"team/odd at .*: Unreadable: Expected `array \| null`, got `int`"
    ):
        kube.get_claim(ref("odd"))
    assert kube.allocated_claims(POOL) == ()


def test_what_breaks_off_is_refused_by_the_name_that_stands_before(
    kube: HttpKubeApi, api: FakeApi
) -> None:
    body = b'{"metadata":{"name":"bad","uid":"u"},"spec":{"a":'
    api.faults.add(Answer(200, body=body), verb="get", resource="resourceclaims")
    with pytest.raises(Malformed, match=r"team/bad at"):
        kube.get_claim(ref("bad"))


def test_items_that_cannot_be_read_at_all_are_told_and_passed_over(
    kube: HttpKubeApi, api: FakeApi, told: list[DriverEvent]
) -> None:
    good = json.dumps({"metadata": {"name": "good"}, "status": a_claim("g", b"{}")["status"]}, default=lambda raw: {}).encode()  # fmt: skip
    labelled = (
        b'{"metadata":{"namespace":"team","name":"labels","uid":"u-2","labels":{"a":"\xff"}}}'
    )
    body = b'{"items":["\xff",5,' + labelled + b"," + good + b"]}"
    api.faults.add(Answer(200, body=body), verb="list", resource="resourceclaims")
    assert [claim.ref.name for claim in kube.allocated_claims(POOL)] == ["good"]
    assert [(event.name, event.found.partition(" (")[0]) for event in told if isinstance(event, ObjectUnreadable)] == [
        ("?", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        ("team/labels (uid u-2)", "metadata.labels.a cannot be read"),
    ]  # fmt: skip


def test_so_many_are_told_and_then_no_more(
    kube: HttpKubeApi, api: FakeApi, told: list[DriverEvent]
) -> None:
    items = b",".join(b'{"metadata":{"name":"c%d"},"x":"\xff"}' % number for number in range(REMEMBERED + 9))  # fmt: skip
    api.faults.add(Answer(200, body=b'{"items":[' + items + b"]}"), verb="list")
    assert kube.allocated_claims(POOL) == ()
    assert len(told) == REMEMBERED
    last = told[-1]
    assert isinstance(last, ObjectUnreadable)
    assert last.found.endswith("; this is the 1,000th, others are passed over silently")


def test_a_list_that_is_none_says_so(kube: HttpKubeApi, api: FakeApi) -> None:
    api.faults.add(Answer(200, body=b"<html>"), verb="list", resource="resourceclaims")
    with pytest.raises(DriverError, match=r"list resourceclaims .* sent no JSON object: “<html>”"):
        kube.allocated_claims(POOL)


def test_pages_get_smaller_until_they_fit(kube: HttpKubeApi, api: FakeApi) -> None:
    fat = b'{"a":"' + b"x" * 320_000 + b'"}'
    for number in range(60):
        api.put("resourceclaims", a_claim(f"{number:02}", fat, driver="other.example.com"))
    assert len(kube.allocated_claims(POOL)) == 60
    limits = [int(request.path.partition("limit=")[2].partition("&")[0]) for request in api.requests if request.verb == "list"]  # fmt: skip
    assert limits[:6] == [100, 50, 25, 12, 6, 3]
    assert limits[6:] == [3] * (len(limits) - 6)


def test_an_object_that_the_store_takes_is_read_however_the_server_writes_it(
    kube: HttpKubeApi, api: FakeApi, told: list[DriverEvent]
) -> None:
    for name in "ac":
        api.put("resourceclaims", a_claim(name, b"{}"))
    # 0.7 MiB, twice: in the spec and in the status. Go writes this character as six.
    api.put("resourceclaims", a_claim("b", b'{"a":"' + rb"\u003c" * 730_000 + b'"}'))
    assert [claim.ref.name for claim in kube.allocated_claims(POOL)] == ["a", "b", "c"]
    assert told == []


def test_an_object_that_fits_into_no_page_is_named_and_passed_over(
    kube: HttpKubeApi, api: FakeApi, told: list[DriverEvent]
) -> None:
    huge = b'{"a":"' + b"x" * (LARGEST_BODY_BYTES // 2) + b'"}'  # and again in its status
    for name in ("a", "c"):
        api.put("resourceclaims", a_claim(name, b"{}"))
    api.put("resourceclaims", a_claim("b", huge))
    assert [claim.ref.name for claim in kube.allocated_claims(POOL)] == ["a", "c"]
    assert [request.path for request in api.requests].count(
        "/apis/resource.k8s.io/v1/resourceclaims?limit=1"
    ) == 1
    (event,) = told
    assert isinstance(event, ObjectUnreadable)
    assert event.name.startswith("team/b (uid ")
    assert "the answer is larger than 16 MiB" in event.found


def test_an_object_whose_metadata_fit_into_no_page_is_named_and_passed_over(
    kube: HttpKubeApi, api: FakeApi, told: list[DriverEvent]
) -> None:
    for name in "abc":
        obj = a_claim(name, b"{}")
        if name == "b":
            owner = {
                "apiVersion": "v1",
                "kind": "Pod",
                "uid": "x",
                "name": "x" * LARGEST_BODY_BYTES,
            }
            obj["metadata"]["ownerReferences"] = [owner]
        api.put("resourceclaims", obj)
    assert [claim.ref.name for claim in kube.allocated_claims(POOL)] == ["a", "c"]
    (event,) = told
    assert isinstance(event, ObjectUnreadable)
    assert event.name == "b"
    assert "the answer is larger than 16 MiB" in event.found


def test_what_comes_instead_of_a_table_is_told(kube: HttpKubeApi, api: FakeApi) -> None:
    served_version(kube)
    large = Answer(200, {}, b'{"a":"' + b"x" * LARGEST_BODY_BYTES + b'"}')
    # Pages of 100, 50, 25, 12, 6, 3 objects and of one, and the metadata of one.
    api.faults.add(large, resource="resourceclaims", times=8)
    api.faults.add(Answer(200, {}, b'{"rows":[{}]}'), resource="resourceclaims")
    with pytest.raises(DriverError, match="sent no JSON object"):
        kube.allocated_claims(POOL)


def test_a_small_answer_that_unpacks_without_end_is_given_up(
    kube: HttpKubeApi, api: FakeApi
) -> None:
    bomb = gzip.compress(b" " * 200_000_000, 1)
    api.faults.add(Answer(200, {"Content-Encoding": "gzip"}, bomb), resource="resourceclaims")
    with pytest.raises(TooLarge, match=r"get resourceclaims team/a at .* larger than 16 MiB"):
        kube.get_claim(ref("a"))


# Watches


def slice_line(name: str, value: bytes) -> bytes:
    return (
        b'{"type":"MODIFIED","object":{"metadata":{"name":"%b","uid":"u-1","resourceVersion":"77"},"spec":{"pool":%b}}}\n'
        % (name.encode(), value)
    )


@pytest.mark.parametrize(
    "value",
    [b'{"name":"\xff"}', b'{"generation":"x"}', b"[" * 2000 + b"]" * 2000, b'"' + b"x" * 5_000_000 + b'"'],
    ids=["no UTF-8", "no number", "deep", "long"],
)  # fmt: skip
def test_an_event_that_cannot_be_read_costs_itself(
    kube: HttpKubeApi, api: FakeApi, told: list[DriverEvent], value: bytes
) -> None:
    api.faults.add(WatchLine(slice_line("bad", value)), verb="watch")
    version = kube.list_slices().resource_version
    stop = Event()
    events = kube.watch_slices(version, stop)
    assert next(events) == SliceEvent("BOOKMARK", "77", None)  # the next watch begins behind it
    spec = {"driver": OURS, "nodeName": "node-1", "pool": {"name": "node-1"}, "devices": []}
    api.put("resourceslices", {"metadata": {"name": "good"}, "spec": spec})
    after = next(events)
    assert after.slice is not None
    assert after.slice.name == "good"
    stop.set()
    (event,) = told
    assert isinstance(event, ObjectUnreadable)
    assert (event.resource, event.name) == ("resourceslices", "bad (uid u-1)")


def test_an_event_without_name_and_version_is_passed_over(
    kube: HttpKubeApi, api: FakeApi, told: list[DriverEvent]
) -> None:
    line = b'{"type":"ADDED","object":{"x":"\xff"}}\n{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}\n'
    api.faults.add(WatchLine(line), verb="watch")
    events = kube.watch_slices(kube.list_slices().resource_version, Event())
    assert next(events) == SliceEvent("BOOKMARK", "9", None)
    assert len(told) == 1


def test_a_slice_that_cannot_be_read_hides_no_other(
    kube: HttpKubeApi, api: FakeApi, told: list[DriverEvent]
) -> None:
    spec = {"driver": OURS, "nodeName": "node-1", "pool": {"name": "node-1"}, "devices": []}
    api.put("resourceslices", {"metadata": {"name": "good"}, "spec": spec})
    api.put("resourceslices", {"metadata": {"name": "bad"}, "spec": {**spec, "pool": {"generation": "x"}}})  # fmt: skip
    assert [found.name for found in kube.list_slices().slices] == ["good"]
    assert len(told) == 1


@pytest.mark.parametrize(
    "body", [b'{"status":null}', b'{"status":{"nodeInfo":[1]}}', b'{"metadata":5}']
)
def test_a_node_of_an_impossible_form_has_a_kubelet_of_no_version(
    kube: HttpKubeApi, api: FakeApi, body: bytes
) -> None:
    api.faults.add(Answer(200, body=body), verb="get", resource="nodes")
    assert kube.kubelet_version() == ""


def test_a_group_of_an_impossible_form_serves_nothing(kube: HttpKubeApi, api: FakeApi) -> None:
    for _ in range(2):
        api.faults.add(Answer(200, body=b'{"versions":["v1",5,null]}'), resource="discovery", after=0)  # fmt: skip
    with pytest.raises(NotServed, match="it serves no version"):
        served_version(kube)


def test_an_answer_to_a_write_of_an_impossible_form_is_refused_by_name(
    kube: HttpKubeApi, api: FakeApi
) -> None:
    api.faults.add(Answer(201, body=b'{"spec":{"pool":{"generation":"x"}}}'), verb="create")
    with pytest.raises(Malformed, match="create resourceslices s at"):
        kube.apply_slice_change(CreateSlice("s", slice_spec(POOL, 1, 1, ())))


# explain and record


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize("parameters", HOSTILE.values(), ids=HOSTILE)
def test_explain_reads_around_a_hostile_claim_and_names_it(version: str, parameters: bytes) -> None:
    with FakeApi(versions=(version,)) as api:
        api.tell_gates({})
        for name in ("a", "c"):
            api.put("resourceclaims", a_claim(name, b"{}"))
        api.put("resourceclaims", a_claim("b", parameters))
        state = read_cluster(Connection(api.url))
    assert [claim.metadata.name for claim in state.resource_claims] == ["a", "b", "c"]
    (gap,) = state.not_read
    assert (gap.resource, gap.name, gap.reason) == (
        "opaque content of resourceclaims",
        "team/b",
        "malformed",
    )
    assert state.gaps("resourceclaims") == ()


@pytest.mark.parametrize("levels", [1, 300, 600, 900, 980])
def test_parameters_of_any_depth_leave_no_gap_in_explain(levels: int) -> None:
    raw = RawJson(b'{"a":' + b"[" * levels + b"]" * levels + b"}")
    opaque = {"driver": "d", "parameters": raw}
    spec = {"devices": {"config": [{"opaque": opaque}]}}
    with FakeApi() as api:
        api.tell_gates({})
        api.put("resourceclaims", a_claim("deep", raw.content))
        api.put("resourceclaimtemplates", {"metadata": {"name": "t"}, "spec": {"spec": spec}})
        api.put("deviceclasses", {"metadata": {"name": "c"}, "spec": {"config": [{"opaque": opaque}, {}]}})  # fmt: skip
        state = read_cluster(Connection(api.url))
    assert not [gap for gap in state.not_read if not gap.resource.startswith("opaque content of")]
    (claim,), (template,), (device_class,) = (
        state.resource_claims,
        state.resource_claim_templates,
        state.device_classes,
    )
    expected = OpaqueDeviceConfiguration(driver=OURS)
    assert claim.status.allocation is not None
    for config in (claim.spec.devices.config, claim.status.allocation.devices.config):
        assert [entry.opaque for entry in config or ()] == [expected]
    theirs = OpaqueDeviceConfiguration(driver="d")
    assert [entry.opaque for entry in template.spec.spec.devices.config or ()] == [theirs]
    assert [entry.opaque for entry in device_class.spec.config or ()] == [theirs, None]


def test_explain_names_so_many_and_passes_over_what_has_other_defects() -> None:
    with FakeApi() as api:
        api.tell_gates({})
        for number in range(NAMED_OPAQUE + 5):
            api.put("resourceclaims", a_claim(f"c{number}", b'{"a":"\\ud800"}'))
        bad = (
            b'{"items":[{"metadata":{"name":"p","labels":{"a":"\xff"}}},{"metadata":{"name":"q"}}]}'
        )
        api.faults.add(Answer(200, body=bad), verb="list", resource="pods")
        state = read_cluster(Connection(api.url))
    assert len(state.resource_claims) == NAMED_OPAQUE + 5
    assert len(state.not_read) == NAMED_OPAQUE + 1
    assert [pod.metadata.name for pod in state.pods] == ["q"]
    assert [gap.name for gap in state.gaps("pods")] == ["p"]


def test_three_hundred_fat_claims_are_read(api: FakeApi, kube: HttpKubeApi) -> None:
    parameters = RawJson(b'{"a":"' + b"x" * 10_200 + b'"}')
    config = {"source": "FromClaim", "opaque": {"driver": "other.example.com", "parameters": parameters}}  # fmt: skip
    fat = a_claim("x", b"{}")
    fat["status"]["allocation"]["devices"]["config"] = [config] * 32
    for number in range(300):
        api.put("resourceclaims", {**fat, "metadata": {"name": f"c{number}"}})
    assert len(kube.allocated_claims(POOL)) == 300
    state = read_cluster(Connection(api.url))
    assert len(state.resource_claims) == 300
    assert state.gaps("resourceclaims") == ()
