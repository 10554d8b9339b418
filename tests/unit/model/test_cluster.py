# SPDX-License-Identifier: Apache-2.0
"""The record of a cluster: what is in it, and what becomes of a bad file."""

import json
from typing import Any

import msgspec
import pytest

from dra_driver.model import cluster
from dra_driver.model.cluster import (
    EXTENDED_RESOURCE_CLAIM,
    ClusterState,
    NotARecord,
    NotRead,
    decode,
    encode,
    without_secrets,
)
from dra_driver.model.names import DOCUMENT_VERSION

SECRET = "hunter2"
CONFIG = [{"opaque": {"driver": "d", "parameters": {"password": SECRET}}}, {}]
NAMED: dict[str, Any] = {
    "name": "x",
    "annotations": {"a": SECRET, EXTENDED_RESOURCE_CLAIM: "true"},
}
SPEC = {"devices": {"requests": [{"name": "r"}], "config": CONFIG}}
STATE = msgspec.convert(
    {
        "kubernetesVersion": "v1.37.1",
        "featureGates": {"DRAAdminAccess": False},
        "nodes": [{"metadata": NAMED}],
        "pods": [{"metadata": {"name": "p", "annotations": {"a": SECRET}}}],
        "namespaces": [{"metadata": {"name": "default"}}],
        "deviceClasses": [{"metadata": NAMED, "spec": {"config": CONFIG}}, {}],
        "resourceSlices": [{"metadata": NAMED}],
        "resourceClaims": [
            {
                "metadata": NAMED,
                "spec": SPEC,
                "status": {"allocation": {"devices": {"config": CONFIG}}},
            },
            {"metadata": {"name": "plain"}},
        ],
        "resourceClaimTemplates": [
            {"metadata": NAMED, "spec": {"metadata": NAMED, "spec": SPEC}},
            {"metadata": {"name": "plain"}},
        ],
        "deviceTaintRules": [{"metadata": NAMED}],
        "podDisruptionBudgets": [{"metadata": NAMED}],
        "notRead": [
            {"resource": "pods", "reason": "malformed", "name": "ns/p", "message": "m"},
            {"resource": "nodes", "reason": "forbidden", "message": "n"},
        ],
    },
    ClusterState,
)


def test_a_record_comes_back_as_it_was() -> None:
    assert decode(encode(STATE), source="file") == STATE


def test_secrets_are_left_out_and_the_rest_stays() -> None:
    plain = without_secrets(STATE)
    text = encode(plain).decode()
    assert SECRET in encode(STATE).decode()
    assert SECRET not in text
    assert plain.nodes[0].metadata.annotations == {EXTENDED_RESOURCE_CLAIM: "true"}
    assert plain.pods[0].metadata.annotations is None
    assert plain.resource_claims[0].spec.devices.requests[0].name == "r"
    template = plain.resource_claim_templates[0].spec.metadata
    assert (template.name, template.annotations) == ("x", {EXTENDED_RESOURCE_CLAIM: "true"})
    assert plain.device_classes[0].spec.config[0].opaque.driver == "d"
    assert without_secrets(plain) == plain


@pytest.mark.parametrize(
    ("version", "minor"),
    [
        ("v1.37.1", 37),
        ("1.34+", 34),
        ("", None),
        ("v2", None),
        ("x.y", None),
        ("v1.\u00b2", None),
        ("v1.\u0663\u0667", None),
        ("v1.99999", None),
        (f"v1.{'3' * 5000}", None),
    ],
)
def test_the_minor_release_is_read(version: str, minor: int | None) -> None:
    assert ClusterState(kubernetes_version=version).minor == minor


def test_a_kind_that_is_missing_is_told_from_one_bad_object() -> None:
    assert STATE.unread("pods") is None
    nodes = NotRead(resource="nodes", reason="forbidden", message="n")
    assert STATE.unread("nodes") == STATE.unread("nodes", "any") == nodes
    (bad,) = STATE.gaps("pods")
    assert (STATE.unread("pods", "ns/p"), STATE.unread("pods", "ns/q")) == (bad, None)
    assert [str(gap) for gap in (bad, nodes)] == ["pods ns/p: m", "nodes: n"]


def test_a_record_of_the_first_releases_is_read() -> None:
    document = json.loads(encode(STATE))
    assert (document.pop("apiVersion"), document.pop("kind")) == (DOCUMENT_VERSION, "ClusterRecord")
    assert decode(json.dumps(document).encode(), source="f.json") == STATE


def changed(**fields: object) -> bytes:
    return json.dumps({**json.loads(encode(STATE)), **fields}).encode()


BAD = [
    (b" \n", "f.json is empty"),
    (encode(STATE)[:-9], "f.json is no whole JSON document"),
    (b"\xff\xfe{", "f.json is no whole JSON document"),
    (
        b"# a manifest\napiVersion: v1\nkind: Pod\n",
        "f.json is YAML, and a record of a cluster is JSON: give manifests with -f, or write it again",
    ),
    (b"[" * 100_000, "f.json is no whole JSON document"),
    (b"[]", 'f.json is no record of a cluster: it has no "format"'),
    (b"{}", 'f.json is no record of a cluster: it has no "format"'),
    (b'{"apiVersion":"v1"}', "or give manifests with -f"),
    (changed(format="other"), "f.json is no record of a cluster"),
    (changed(formatVersion=2), "f.json has version 2 of the record's format"),
    (changed(formatVersion=2, cluster=1), "f.json has version 2 of the record's format"),
    (changed(formatVersion="x"), "f.json is no record of a cluster"),
    (changed(cluster={"nodes": [3]}), "$.cluster.nodes[0]"),
    (changed(cluster={"resourceSlices": [{}, {"spec": 3}]}), "$.cluster.resourceSlices[1].spec"),
    (changed(cluster={"resourceClaims": [{"spec": 3}]}), "$.cluster.resourceClaims[0].spec"),
    (changed(cluster=None), "f.json holds something that is no cluster"),
]


@pytest.mark.parametrize(("content", "message"), BAD)
def test_a_bad_file_is_an_operators_sentence(content: bytes, message: str) -> None:
    with pytest.raises(NotARecord) as caught:
        decode(content, source="f.json")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [content for content, _ in BAD])
def test_a_large_file_that_is_bad_gets_the_same_sentence(
    content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotARecord) as small:
        decode(content, source="f.json")
    monkeypatch.setattr(cluster, "LARGE", 0)
    with pytest.raises(NotARecord) as large:
        decode(content, source="f.json")
    assert str(large.value) == str(small.value)


def test_a_large_file_is_the_same_cluster_in_less_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = msgspec.structs.replace(STATE, resource_claims=STATE.resource_claims[:1] * 2)
    plain = decode(encode(twice), source="file").resource_claims
    assert plain[0].spec is not plain[1].spec
    monkeypatch.setattr(cluster, "LARGE", 0)
    found = decode(encode(twice), source="file")
    assert found == twice
    assert type(found) is ClusterState
    assert found.resource_claims[0].spec is found.resource_claims[1].spec


def test_a_large_file_with_an_integer_of_more_than_64_bits_is_the_same_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody else's slice may have one: it keeps its own capacity, and the others share theirs."""
    capacities = [{"memory": {"value": value}} for value in (2**70, 2**70, -(2**70), 7, 7)]
    requests = [{"name": "r", "exactly": {"count": count}} for count in (2**70, 7)]
    content = changed(
        cluster={
            "resourceSlices": [{"spec": {"devices": [{"capacity": one} for one in capacities]}}],
            "resourceClaims": [{"spec": {"devices": {"requests": [one]}}} for one in requests],
        }
    )
    small = decode(content, source="f.json")
    monkeypatch.setattr(cluster, "LARGE", 0)
    large = decode(content, source="f.json")
    assert large == small
    found = [one.capacity for one in large.resource_slices[0].spec.devices or ()]
    assert found[0] is not found[1]
    assert found[3] is found[4]


def test_messages_of_conditions_are_kept_only_where_they_are_quoted() -> None:
    def said(*types: str) -> list[dict[str, str]]:
        return [{"type": one, "status": "True", "message": f"{SECRET} {one}"} for one in types]

    result = {"driver": "d", "bindingFailureConditions": ["Failed"]}
    whole = {
        "nodes": [{"status": {"conditions": said("Ready")}}],
        "pods": [{"status": {"conditions": said("PodScheduled", "Ready")}}],
        "resourceClaims": [
            {
                "status": {
                    "allocation": {"devices": {"results": [result]}},
                    "devices": [{"driver": "d", "conditions": said("Failed", "Ready")}],
                }
            }
        ],
    }
    kept = without_secrets(msgspec.convert(whole, ClusterState))
    conditions = (
        kept.nodes[0].status.conditions,
        kept.pods[0].status.conditions,
        (kept.resource_claims[0].status.devices or [])[0].conditions,
    )
    assert [[one.message for one in some or ()] for some in conditions] == [
        [""],
        [f"{SECRET} PodScheduled", ""],
        [f"{SECRET} Failed", ""],
    ]


def test_what_drivers_report_of_devices_is_not_kept() -> None:
    status = {
        "devices": [
            {
                "driver": "d",
                "pool": "p",
                "device": "x",
                "data": {"password": "secret"},
                "networkData": {"interfaceName": "secret"},
            }
        ]
    }
    claims = [{"metadata": {"name": "c", "namespace": "n"}, "status": status}]
    state = msgspec.convert({"resourceClaims": claims}, ClusterState)
    assert b"secret" in msgspec.json.encode(state)
    assert b"secret" not in msgspec.json.encode(without_secrets(state))
