# SPDX-License-Identifier: Apache-2.0
"""Runs on the test bed's node: creates pods, in turn without and with a claim, and sees when they are Ready.

    python pods_load.py KUBECONFIG IMAGE PODS

Prints one JSON object, seconds from the request to the moment at which a watch hears of it, by kind of pod.
"""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Condition, Event, Thread
from typing import Any

from dra_driver.kube.auth import connect
from dra_driver.kube.failures import ApiCall
from dra_driver.kube.transport import Exchange, Transport
from dra_driver.kube.watch import read_event, read_lines

NAMESPACE = "/api/v1/namespaces/default"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
DEADLINE_SECONDS = 600
REQUEST = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": 1}}


class Ready:
    """Follows the namespace's pods: when did one become Ready, when was it gone?"""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._changed = Condition()
        self._moments: dict[tuple[str, str], float] = {}
        Thread(target=self._follow, daemon=True).start()

    def wait(self, name: str, what: str) -> float:
        """When that happened, as soon as it has."""
        with self._changed:
            if not self._changed.wait_for(lambda: (name, what) in self._moments, DEADLINE_SECONDS):
                raise SystemExit(f"pod {name} is not {what} after {DEADLINE_SECONDS} s")
            return self._moments[name, what]

    def _follow(self) -> None:
        call = ApiCall("watch", "pods")
        exchange = Exchange(call, "GET", f"{NAMESPACE}/pods", {"watch": "1"})
        response = self._transport.open_watch(exchange, read_timeout_seconds=3600)
        for line in read_lines(response, Event()):
            kind, found = read_event(call, line)
            now = time.perf_counter()
            what = "gone" if kind == "DELETED" else "ready" if _is_ready(found) else ""
            with self._changed:
                self._moments.setdefault((found["metadata"]["name"], what), now)
                self._changed.notify_all()


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def pod(name: str, image: str, *, claim: bool) -> dict[str, Any]:
    """A pod that sleeps, with a claim for one GPU or without."""
    container: dict[str, Any] = {"name": "main", "image": image, "command": ["sleep", "3600"]}
    spec: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": 1}
    if claim:
        container["resources"] = {"claims": [{"name": "gpu"}]}
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def post(transport: Transport, path: str, body: dict[str, Any]) -> None:
    """Create an object."""
    transport.request(Exchange(ApiCall("create", path), "POST", path, body=body))


def delete_pod(transport: Transport, name: str) -> None:
    """Delete a pod; it ends at once."""
    path = f"{NAMESPACE}/pods/{name}"
    transport.request(Exchange(ApiCall("delete", "pods", name), "DELETE", path))


def make_template(transport: Transport) -> None:
    """The template of the pods' claims."""
    post(
        transport,
        TEMPLATES,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one-gpu"},
            "spec": {"spec": {"devices": {"requests": [REQUEST]}}},
        },
    )


def main() -> None:
    """One pod after the other."""
    transport = Transport(connect(Path(sys.argv[1])))
    image, pods = sys.argv[2], int(sys.argv[3])
    make_template(transport)
    ready = Ready(transport)
    found: dict[str, list[float]] = {"without": [], "with": []}
    for number in range(pods + 1):
        for kind, times in found.items():
            name = f"{kind}-{number}"
            begun = time.perf_counter()
            post(transport, f"{NAMESPACE}/pods", pod(name, image, claim=kind == "with"))
            seconds = ready.wait(name, "ready") - begun
            if number:
                times.append(seconds)
            delete_pod(transport, name)
            ready.wait(name, "gone")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
