# SPDX-License-Identifier: Apache-2.0
"""Runs on the test bed's node: one tenant makes claims as large as the API server takes them, and some that no decoder takes.

    python tenants_load.py KUBECONFIG CLAIMS

Prints one JSON object: how many there are of each kind, and the bytes of a large one.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from dra_driver.errors import DriverError
from dra_driver.kube.auth import connect
from dra_driver.kube.failures import ApiCall
from dra_driver.kube.transport import Exchange, Transport

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
CONFIGS, PARAMETER_BYTES = 32, 10 * 1024
HOSTILE = (
    b'{"a":"\\ud800"}',
    b'{"a":"\xff"}',
    b'{"a":' + b"[" * 1_100 + b"]" * 1_100 + b"}",
    b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    b'{"a":1e400}',
)
STARTERS = 8


def a_claim(name: str, parameters: bytes, *, configs: int = 1) -> dict[str, Any]:
    """A claim that nobody allocates, with these parameters in every entry."""
    opaque = {"driver": "tenant.example.com", "parameters": msgspec.Raw(parameters)}
    request = {"name": "main", "exactly": {"deviceClassName": "no-such-class"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request], "config": [{"opaque": opaque}] * configs}},
    }


def main() -> None:
    """The hostile ones among the large ones."""
    transport, count = Transport(connect(Path(sys.argv[1]))), int(sys.argv[2])
    fat = b'{"a":"' + b"x" * (PARAMETER_BYTES - 8) + b'"}'
    claims = [a_claim(f"fat-{number:04}", fat, configs=CONFIGS) for number in range(count)]
    claims += [
        a_claim(f"fat-{number:04}-hostile", parameters) for number, parameters in enumerate(HOSTILE)
    ]

    def create(claim: dict[str, Any]) -> None:
        call = ApiCall("create", "resourceclaims", claim["metadata"]["name"])
        # The answer is the claim again, which is not what this reads.
        transport.fetch(Exchange(call, "POST", CLAIMS, body=claim))

    def is_taken(claim: dict[str, Any]) -> bool:
        """Of some hostile ones the API server hangs up, or says what is wrong."""
        try:
            create(claim)
        except DriverError:
            return False
        return True

    with ThreadPoolExecutor(STARTERS) as workers:
        list(workers.map(create, claims[:count]))
        hostile = sum(workers.map(is_taken, claims[count:]))
    transport.close()
    size = len(msgspec.json.encode(claims[0]))
    print(json.dumps({"fat": count, "hostile": hostile, "bytes": size}))


if __name__ == "__main__":
    main()
