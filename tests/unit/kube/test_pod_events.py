# SPDX-License-Identifier: Apache-2.0
"""The Events of `pending-events`: whoever may write Events may write many, about any pod, with long messages."""

from datetime import UTC, datetime, timedelta
from typing import Any

from dra_driver.kube.connection import Connection
from dra_driver.kube.pod_events import MOST_OF_A_POD, PodEvents
from dra_driver.model.api.meta import ObjectMeta
from dra_driver.testing.fake_api import FakeApi

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
WAITS = ObjectMeta(name="train", namespace="default", uid="waits")


def event(number: int, uid: str = "waits", namespace: str = "default") -> dict[str, Any]:
    return {
        "metadata": {"name": f"{uid}-{number:02}", "namespace": namespace},
        "involvedObject": {"kind": "Pod", "uid": uid},
        "reason": "WaitingForDevices",
        "reportingComponent": "dra-driver",
        "message": "long" * 1000,
        "lastTimestamp": (BEGUN + timedelta(minutes=number)).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def test_of_all_events_only_the_latest_of_pods_that_wait_are_kept() -> None:
    with FakeApi() as api:
        for namespace in ("aaa", "default"):
            api.put("namespaces", {"metadata": {"name": namespace}})
        for number in range(MOST_OF_A_POD + 8):
            api.put("events", event(number))
            api.put("events", event(number, uid="gone"))
            api.put("events", event(number, namespace="aaa"))
        door = PodEvents(Connection(api.url, source="this test"), instance="controller-0")
        kept = door.written([WAITS])
        assert [one.name for one in kept] == [f"waits-{n:02}" for n in range(8, MOST_OF_A_POD + 8)]
        assert {one.namespace for one in kept} == {"default"}
        assert "long" not in repr(kept)
        assert door.written([]) == ()
        door.close()
