# SPDX-License-Identifier: Apache-2.0
"""The fake API server keeps opaque parameters as the real one does: whatever Go's decoder lets pass, byte for byte."""

import json
from collections.abc import Iterator

import pytest
import urllib3

from dra_driver.kube.transport import METADATA_ONLY
from dra_driver.testing.fake_api import FakeApi, RawJson
from dra_driver.testing.fake_api.raw import DEEPEST, dumps, loads, pieces
from dra_driver.testing.plain_client import PlainClient

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
KEPT = {
    "a lone surrogate": b'{"a":"\\ud800"}',
    "no UTF-8": b'{"a":"\xff\\""}',
    "10,000 levels": b'{"a":' + b"[" * (DEEPEST - 1) + b"]" * (DEEPEST - 1) + b"}",
    "a large float": b'{"a":1e999}',
    "closing brackets in text": b'{"a":"}\\"]\xff"}',
}


def a_claim(parameters: bytes) -> bytes:
    return (
        b'{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"c"},"spec":{"devices":{"config":'
        b'[{"opaque":{"driver":"d","parameters": %b}}]}}}' % parameters
    )


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as server:
        yield server


def ask(api: FakeApi, method: str, path: str, body: bytes = b"", accept: str = "") -> tuple[int, bytes]:  # fmt: skip
    with urllib3.PoolManager(retries=False) as pool:
        answer = pool.request(method, api.url + path, body=body, headers={"Accept": accept})
        return answer.status, answer.data


@pytest.mark.parametrize("parameters", KEPT.values(), ids=KEPT)
def test_parameters_come_back_as_they_were_sent(api: FakeApi, parameters: bytes) -> None:
    assert ask(api, "POST", CLAIMS, a_claim(parameters))[0] == 201
    for path in (f"{CLAIMS}/c", CLAIMS, f"{CLAIMS}?watch=1&timeoutSeconds=0.2"):
        status, body = ask(api, "GET", path)
        assert (status, body.count(parameters)) == (200, 1)


@pytest.mark.parametrize(
    "parameters",
    [b"[" * 3 + b"\xff", b'"\xff"', b'{"a":"\xff"', b'{"a":' + b"[" * DEEPEST + b"]" * DEEPEST + b"}", b"NaN"],
)  # fmt: skip
def test_what_the_real_server_refuses_is_refused(api: FakeApi, parameters: bytes) -> None:
    assert ask(api, "POST", CLAIMS, a_claim(parameters))[0] == 400


def test_ordinary_parameters_stay_plain() -> None:
    assert loads(a_claim(b'{"a":1.5}'))["spec"]["devices"]["config"][0]["opaque"] == {
        "driver": "d",
        "parameters": {"a": 1.5},
    }


def test_pieces_are_the_whole() -> None:
    raw = RawJson(b'{"a":"\\ud800"}')
    whole = {"kind": "L", "items": [{"parameters": raw}, {"n": 1}, {"parameters": raw}]}
    assert b"".join(pieces(whole)) == dumps(whole).replace(b', "items": ', b', "items": ')
    assert json.loads(b"".join(pieces({"a": 1}))) == {"a": 1}
    with pytest.raises(TypeError, match="is no JSON"):
        dumps({"a": object()})


@pytest.mark.parametrize("parameters", KEPT.values(), ids=KEPT)
def test_the_scheduler_stand_in_gives_back_what_it_read(api: FakeApi, parameters: bytes) -> None:
    ask(api, "POST", CLAIMS, a_claim(parameters))
    with PlainClient(api.url) as client:
        (found,) = client.list("resourceclaims")
        client.replace_status({**found, "status": {"reservedFor": []}})
        assert client.get("resourceclaims", "c") is not None
    assert ask(api, "GET", CLAIMS)[1].count(parameters) == 1


def test_only_the_metadata_of_a_list_may_be_asked_for(api: FakeApi) -> None:
    ask(api, "POST", CLAIMS, a_claim(b'{"a":1}'))
    answer = json.loads(ask(api, "GET", CLAIMS + "?limit=1", accept=METADATA_ONLY)[1])
    assert answer["kind"] == "PartialObjectMetadataList"
    assert [list(item) for item in answer["items"]] == [["metadata"]]
    assert answer["items"][0]["metadata"]["name"] == "c"


@pytest.mark.parametrize("asked", ["g=meta.k8s.io;v=1", "g=other;v=v1", "v=v1"])
def test_other_forms_of_a_list_are_not_acceptable(api: FakeApi, asked: str) -> None:
    accept = f"application/json;as=PartialObjectMetadataList;{asked}"
    status, body = ask(api, "GET", CLAIMS, accept=accept)
    assert (status, json.loads(body)["reason"]) == (406, "NotAcceptable")
