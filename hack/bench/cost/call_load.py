# SPDX-License-Identifier: Apache-2.0
"""Runs on the test bed's node: prepares a claim as the kubelet does, in turn with what nobody can do without.

    python call_load.py ENDPOINT BARE_SOCKET KUBECONFIG CLAIM_UID CLAIM_NAME REPEATS ROUNDS

Prints one JSON object, for each thing that was done the seconds by repeat. The GET is urllib3 alone, on a kept connection, with the client
certificate of the kubeconfig, and its body is read as bytes.
"""

import base64
import json
import ssl
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import urllib3
import yaml

from dra_driver.kubelet.pb import dra_v1_pb2 as pb
from hack.bench.cost.figures import in_turn
from hack.bench.cost.node import Caller

OK = 200


def pool_of(kubeconfig: Path) -> urllib3.HTTPSConnectionPool:
    """One connection to the API server of the only cluster and user of the file."""
    document: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    context = ssl.create_default_context(cadata=_text(cluster, "certificate-authority"))
    headers = {"Accept": "application/json"}
    if "token" in user:
        headers["Authorization"] = f"Bearer {user['token']}"
    else:
        with tempfile.TemporaryDirectory() as folder:
            both = Path(folder) / "client.pem"
            both.write_text(_text(user, "client-certificate") + _text(user, "client-key"))
            context.load_cert_chain(both)
    found = urllib3.util.parse_url(cluster["server"])
    return urllib3.HTTPSConnectionPool(
        found.host, found.port, maxsize=1, ssl_context=context, headers=headers
    )


def _text(place: dict[str, str], name: str) -> str:
    if f"{name}-data" in place:
        return base64.b64decode(place[f"{name}-data"]).decode()
    return Path(place[name]).read_text()


def main() -> None:
    """Everything in turn in each round."""
    endpoint, bare, kubeconfig = map(Path, sys.argv[1:4])
    uid, name = sys.argv[4:6]
    repeats, rounds = map(int, sys.argv[6:8])
    driver, nothing, pool = Caller(endpoint), Caller(bare), pool_of(kubeconfig)
    path = f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}"
    claim = pb.Claim(namespace="default", name=name, uid=uid)
    found: dict[str, list[list[float]]] = {
        what: [] for what in ("empty", "get", "write", "floor", "prepare")
    }

    def get() -> float:
        begun = time.perf_counter()
        answer = pool.request("GET", path)
        seconds = time.perf_counter() - begun
        if answer.status != OK:
            raise SystemExit(f"GET {path}: {answer.status} {answer.data[:300]!r}")
        return seconds

    def add(what: str, seconds: float) -> float:
        found[what][-1].append(seconds)
        return seconds

    def floor() -> None:
        parts = (add("empty", nothing.empty()), add("get", get()), add("write", driver.write()))
        add("floor", sum(parts))

    def prepare() -> None:
        add("prepare", driver.prepare([claim]))
        driver.unprepare([claim])

    actions: tuple[Callable[[], None], ...] = (floor, prepare)
    for _ in range(repeats + 1):
        for times in found.values():
            times.append([])
        in_turn(actions, rounds)
    # The first repeat is for caches and the processor's clock.
    print(json.dumps({what: times[1:] for what, times in found.items()}))


if __name__ == "__main__":
    main()
