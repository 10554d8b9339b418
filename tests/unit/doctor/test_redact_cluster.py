# SPDX-License-Identifier: Apache-2.0
"""Of a cluster leaves what decides about devices, without identifiers and without what controllers wrote."""

from time import process_time
from typing import Any

import msgspec
import pytest

from dra_driver.backends.recording import numbered_uuids
from dra_driver.doctor.redact_cluster import numbered, understood, without_texts_of_others
from dra_driver.model.cluster import ClusterState

UUID, OTHER = (f"GPU-{digit * 8}-90ab-cdef-1234-567890abcdef" for digit in "12")
POD = "99999999-2222-3333-4444-555555555555"
SERIAL = "1650921000123"


def cleaned(serials: dict[str, str] | None = None, **fields: Any) -> Any:
    """The cluster with these fields, as JSON has it."""
    state = msgspec.convert(fields, ClusterState)
    known = {} if serials is None else serials
    return msgspec.to_builtins(without_texts_of_others(state, numbered_uuids(), known))


def a_slice(**attributes: Any) -> dict[str, Any]:
    devices = [{"name": "gpu-0", "attributes": attributes}]
    return {"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": {"name": "n"}, "devices": devices}}  # fmt: skip


def attributes(found: Any) -> Any:
    return found["resourceSlices"][0]["spec"]["devices"][0]["attributes"]


def selector(expression: str) -> dict[str, Any]:
    return {"metadata": {"name": "g"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}


def expression(found: Any) -> Any:
    return found["deviceClasses"][0]["spec"]["selectors"][0]["cel"]["expression"]


def test_what_belongs_together_still_does() -> None:
    meta = {"name": "p", "uid": POD, "labels": {"gpu": UUID}}
    used = {"resource": "pods", "name": "p", "uid": POD}
    claim = {
        "metadata": {"name": "c", "ownerReferences": [{"kind": "Pod", "name": "p", "uid": POD}]},
        "status": {"reservedFor": [used]},
    }
    asked = (
        f"device.attributes['d'].uuid == '{UUID}' || device.attributes['d'].serial == '{SERIAL}'"
    )
    found = cleaned(
        pods=[{"metadata": meta, "spec": {"nodeSelector": {"gpu": UUID}}}],
        resourceClaims=[claim],
        resourceSlices=[a_slice(uuid={"string": UUID}, other={"string": OTHER}, serial={"string": SERIAL})],
        deviceClasses=[selector(asked)],
    )  # fmt: skip
    assert not any(one in str(found) for one in (UUID, OTHER, POD, SERIAL))
    (pod,), (claimed,) = found["pods"], found["resourceClaims"]
    new = attributes(found)
    assert pod["metadata"]["uid"] == claimed["status"]["reservedFor"][0]["uid"]
    assert pod["metadata"]["uid"] == claimed["metadata"]["ownerReferences"][0]["uid"]
    assert new["uuid"]["string"] == pod["spec"]["nodeSelector"]["gpu"]
    assert new["uuid"] != new["other"]
    assert f"uuid == '{new['uuid']['string']}'" in expression(found)
    assert f"serial == '{new['serial']['string']}'" in expression(found)


def test_a_serial_number_is_the_one_of_the_snapshot() -> None:
    serials = {"7": "0000000000001", SERIAL: "0000000000002"}
    values = {
        "acme.com/serial": {"string": SERIAL},
        "serial": {"strings": ["7", "", "new-8"]},
        "board.serial": {"int": 1650921000999},
        "uuid": {"string": "0xABC1"},
        "parentUUID": {"string": UUID},
        "odd.serial": {"bool": True},
        "count": {"int": 7},
        "kind": {"string": "7"},
    }
    found = attributes(cleaned(serials, resourceSlices=[a_slice(**values)]))
    assert found["acme.com/serial"] == {"string": "0000000000002"}
    assert found["serial"] == {"strings": ["0000000000001", "", "0000000000003"]}
    assert found["board.serial"] == {"int": 4}
    assert found["uuid"] == {"string": "0000000000005"}
    assert found["parentUUID"]["string"] not in (UUID, "0000000000006")
    assert found["odd.serial"] == {"bool": True}
    # A short number in another place may be anything.
    assert (found["count"], found["kind"]) == ({"int": 7}, {"string": "7"})


def test_a_tenant_changes_nothing_of_the_others_objects() -> None:
    """Who calls his own label "serial" or "token" says nothing of the words of others."""
    amount, version, name, zone = "263856204Ki", "v1beta1", "train-2027", "zone-b1"
    node = {
        "metadata": {"name": name, "labels": {"zone": zone}},
        "status": {"allocatable": {"memory": amount}},
    }
    victim = {
        "metadata": {"name": name, "namespace": "victim"},
        "spec": {
            "nodeSelector": {"zone": zone},
            "containers": [{"name": "m", "resources": {"requests": {"memory": amount}}}],
        },
    }
    honest = {"served": [version], "nodes": [node], "deviceClasses": [selector(f"d == '{zone}'")]}
    words = {"serial": amount, "uuid": version, "token": zone, "acme.com/secret": name}
    terms = [{"matchExpressions": [{"key": "uuid", "operator": "In", "values": [name]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}  # fmt: skip
    parameters = {"labels": {"token": 1234567}, "attributes": {"serial": zone}}
    tenant = {"metadata": {"name": "t", "labels": words}, "spec": {"nodeSelector": words, "affinity": affinity}}  # fmt: skip
    config = [{"opaque": {"driver": "d", "parameters": parameters}}]
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"config": config}}}
    found = cleaned(**honest, pods=[victim, tenant], resourceClaims=[claim])
    expected = msgspec.to_builtins(msgspec.convert({**honest, "pods": [victim]}, ClusterState))
    assert cleaned(**honest, pods=[victim]) == expected
    assert {**found, "pods": found["pods"][:1], "resourceClaims": ()} == {**expected, "resourceClaims": ()}  # fmt: skip
    # His own values do not leave either.
    said = str((found["pods"][1], found["resourceClaims"]))
    assert not any(one in said for one in (*words.values(), "1234567"))


def test_quantities_versions_times_and_words_of_the_api_are_no_identifiers() -> None:
    same = ["1024Mi6Gi", "20270115", "2027-01-15T08:00:00Z", "v1beta1", "NoExecute1", "1234567890"]
    values = {f"n{place}/serial": {"string": one} for place, one in enumerate(same)}
    taint = {"key": "x", "effect": "NoExecute1", "timeAdded": "2027-01-15T08:00:00Z"}
    device = {
        "name": "gpu-0",
        "attributes": {**values, "driver": {"version": "20270115"}},
        "capacity": {"memory": {"value": "1234567890"}, "odd": {"value": "1024Mi6Gi"}},
        "taints": [taint],
    }
    one = {"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": {"name": "n"}, "devices": [device]}}  # fmt: skip
    labels = {"kind": "1234567890", "served": "v1beta1"}
    found = cleaned(resourceSlices=[one], served=["v1beta1"], pods=[{"metadata": {"name": "p", "labels": labels}}])  # fmt: skip
    (left,) = found["resourceSlices"][0]["spec"]["devices"]
    assert left["taints"] == [taint]
    assert left["attributes"]["driver"] == {"version": "20270115"}
    assert left["capacity"]["memory"] == {"value": "1234567890"}
    assert found["served"] == ("v1beta1",)
    # A label with the name of such a field, and what is no quantity, may have an identifier.
    assert found["pods"][0]["metadata"]["labels"] == {"kind": "0000000000006", "served": "0000000000004"}  # fmt: skip
    assert left["capacity"]["odd"] == {"value": "0000000000001"}


def test_what_stands_for_one_serial_number_may_be_another() -> None:
    text = numbered(str, {"0000000000002": "0000000000001", "0000000000001": "0000000000002"})
    assert text("0000000000002") == "0000000000001"
    assert text("board 0000000000002 of 0000000000001") == "board 0000000000001 of 0000000000002"
    assert text("plain words and 7") == "plain words and 7"


def test_a_name_may_say_before_its_slash_what_its_value_is() -> None:
    labels = {"db.password/x": "hunter2", "acme.com/zone": "a"}
    found = cleaned(pods=[{"metadata": {"name": "p", "labels": labels}}])
    assert found["pods"][0]["metadata"]["labels"] == {
        "db.password/x": "hidden-1",
        "acme.com/zone": "a",
    }


def test_a_label_with_the_name_of_a_credential_keeps_its_meaning() -> None:
    """A selector and a label that were equal still are, and what was different still is."""
    terms = [
        {"matchExpressions": [{"key": "acme.com/token", "operator": "In", "values": ["s3cr3t", "b0red!"]}]}
    ]  # fmt: skip
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}  # fmt: skip
    spec = {"affinity": affinity, "nodeSelector": {"acme.com/token": "s3cr3t", "zone": "a"}}
    node = {"name": "n", "labels": {"acme.com/token": "s3cr3t", "api-key": "other1", "zone": "a"}}
    taint = {"key": "secret", "value": "s3cr3t", "effect": "NoSchedule"}
    found = cleaned(
        nodes=[{"metadata": node, "spec": {"taints": [taint, {"key": "x", "value": "y"}]}}],
        pods=[{"metadata": {"name": "p", "labels": {"message": "hello"}}, "spec": spec}],
    )
    assert "s3cr3t" not in str(found)
    labels = found["nodes"][0]["metadata"]["labels"]
    pod = found["pods"][0]
    (term,) = pod["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    first, second = term["matchExpressions"][0]["values"]
    assert labels["acme.com/token"] == pod["spec"]["nodeSelector"]["acme.com/token"] == first
    assert found["nodes"][0]["spec"]["taints"][0]["value"] == first
    assert len({first, second, labels["api-key"]}) == 3
    assert labels["zone"] == "a"
    assert pod["metadata"]["labels"] == {"message": "hello"}


def test_an_attribute_keeps_its_value_whatever_its_name_is() -> None:
    """A selector compares it."""
    found = cleaned(resourceSlices=[a_slice(tokenKind={"string": "large1"}, form={"string": "ghp_abcd1"})])  # fmt: skip
    assert attributes(found) == {"tokenKind": {"string": "large1"}, "form": {"string": "[hidden]"}}


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ("d.token == 'a'", "d.token == 'a'"),
        ("d.x == 'pwd=hunter2' && true", "d.x == 'pwd=[hidden]' && true"),
        ('d.x == "pwd=hunter2" && true', 'd.x == "pwd=[hidden]" && true'),
        ("d.x == '''pwd=hunter2'''", "d.x == '''pwd=[hidden]'''"),
        ('d.x == """a\npwd=hunter2"""', 'd.x == """a\npwd=[hidden]"""'),
        (r"d.x == 'a\' pwd=hunter2'", r"d.x == 'a\' pwd=[hidden]'"),
        ("true // token=hunter2\n&& false", "true // token=[hidden]\n&& false"),
        ("d.x == 'pwd=hunter2", "d.x == 'pwd=[hidden]"),
        ("d.x == 'pwd=hunter2\n", "d.x == 'pwd=[hidden]\n"),
        ("d.x == '''pwd=hunter2", "d.x == '''pwd=[hidden]"),
        ("d.x == '", "d.x == '"),
        ("d.x == ''", "d.x == ''"),
        ("d.x == '\\", "d.x == '\\"),
    ],
)
def test_an_expression_keeps_its_meaning(asked: str, left: str) -> None:
    assert expression(cleaned(deviceClasses=[selector(asked)])) == left


def test_messages_of_conditions_are_left_out_but_for_the_schedulers_reasons() -> None:
    said = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {x: hunter2}. a webhook said hunter2"
    conditions = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said},
        {"type": "Ready", "status": "False", "reason": "hunter2", "message": "hunter2"},
        {"status": "True"},
    ]
    found = cleaned(
        pods=[{"metadata": {"name": "p"}, "status": {"conditions": conditions}}],
        notRead=[
            {"resource": "nodes", "reason": "forbidden", "message": "list nodes: 403: “hunter2”; allow it; --token hunter2"},
            {"resource": "pods", "reason": "failed"},
        ],
    )  # fmt: skip
    first, second, third = found["pods"][0]["status"]["conditions"]
    assert first["reason"] == "Unschedulable"
    assert first["message"] == (
        f"0/3 nodes are available; 1 Insufficient cpu; 2 node(s) had untolerated taint; [{len(said)} characters left out]"
    )
    assert second["message"] == second["reason"] == "[7 characters left out]"
    assert third == {"status": "True"}
    assert [one.get("message") for one in found["notRead"]] == [
        "list nodes: 403: [7 characters left out]; allow it; --token [hidden]",
        None,
    ]


def test_a_message_without_a_reason_of_the_scheduler() -> None:
    assert understood("") == ""
    assert understood("hunter2") == "[7 characters left out]"
    assert understood("a" * 5000 + "Too many pods") == "[5013 characters left out]"


@pytest.mark.parametrize("unit", ["'", '"', "\\'", "'''a", '"\\', "//", "a-", "1 ", "1/1 node(s) had ", "ab1"])  # fmt: skip
def test_an_expression_of_twice_the_length_takes_twice_the_time(unit: str) -> None:
    """Anybody may have written it. What grows with the square of the length would take 64 times as long for eight times of it."""

    def seconds(length: int) -> float:
        text = "'" + unit * (length // len(unit))
        spent = []
        for _ in range(3):
            begin = process_time()
            cleaned(deviceClasses=[selector(text)])
            spent.append(process_time() - begin)
        return min(spent)

    assert seconds(8_000) / seconds(1_000) < 25
