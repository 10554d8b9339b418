# SPDX-License-Identifier: Apache-2.0
"""A claim that is followed may hold anything for other drivers."""

from threading import Event

import pytest

from dra_driver.kube.http import HttpKubeApi
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid
from dra_driver.testing.fake_api import FakeApi, Object, RawJson

HOSTILE = (
    b'{"a":"\\ud800"}',
    b'{"a":"\xff"}',
    b'{"a":' + b"[" * 1_100 + b"]" * 1_100 + b"}",
)


def a_claim(parameters: bytes, pod: str) -> Object:
    opaque = {"driver": "other.example.com", "parameters": RawJson(parameters)}
    return {
        "metadata": {"name": "shared", "namespace": "team"},
        "spec": {"devices": {"config": [{"opaque": opaque}]}},
        "status": {"reservedFor": [{"resource": "pods", "name": pod, "uid": pod}]},
    }


@pytest.mark.parametrize("parameters", HOSTILE)
def test_a_hostile_claim_can_be_followed(
    kube: HttpKubeApi, api: FakeApi, parameters: bytes
) -> None:
    api.put("resourceclaims", a_claim(parameters, "one"))
    ref, stop = ClaimRef("team", "shared", ClaimUid("u")), Event()
    found = kube.find_claim(ref)
    assert found.claim is not None
    assert found.claim.reserved_for == ("one",)
    events = kube.watch_claim(ref, found.resource_version, stop)
    api.put("resourceclaims", a_claim(parameters, "two"))
    event = next(events)
    assert event.claim is not None
    assert event.claim.reserved_for == ("two",)
    stop.set()
    assert kube.find_claim(ClaimRef("team", "none", ClaimUid("u"))).claim is None
