# SPDX-License-Identifier: Apache-2.0
"""An API server with a small cluster: two nodes, two drivers, devices that are shared, tainted and in use, and a claim that waits."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dra_driver.cli.main import main
from dra_driver.testing.fake_api import FakeApi

GPU, NIC = "gpu.example.com", "nic.example.com"
Object = dict[str, Any]
TAINT = {"key": "gpu.example.com/xid", "value": "79", "effect": "NoSchedule"}


@contextmanager
def small_cluster() -> Iterator[FakeApi]:
    """Serve the cluster as long as the block lasts."""
    with FakeApi() as api:
        for name in ("n1", "n2"):
            api.put("nodes", {"metadata": {"name": name}, "status": {"allocatable": {"pods": "9"}}})
        for name, expression in (
            ("gpu", f'device.driver == "{GPU}"'),
            ("nic", f'device.driver == "{NIC}"'),
        ):
            spec = {"selectors": [{"cel": {"expression": expression}}]}
            api.put("deviceclasses", {"metadata": {"name": name}, "spec": spec})
        api.put(
            "resourceslices",
            device_slice("n1", gpu("gpu-0"), gpu("gpu-1"), gpu("gpu-2", taints=[TAINT])),
        )
        api.put("resourceslices", device_slice("n2", gpu("gpu-0", allowMultipleAllocations=True)))
        nic = {"name": "eth0", "attributes": {"mac": {"string": "00:00:5e:00:53:01"}}}
        api.put("resourceslices", device_slice("n2", nic, driver=NIC))
        api.put(
            "pods",
            {"metadata": {"name": "trainer-0"}, "spec": {"nodeName": "n1"}},
            namespace="team",
        )
        for claim in (
            held("train", "gpu-1", pods=("trainer-0",)),
            held("chat", "gpu-0", node="n2", shareID="a", consumedCapacity={"memory": "20Gi"}),
            held("notebook", "gpu-0", node="n2", shareID="b", consumedCapacity={"memory": "40Gi"}),
            waiting("next"),
        ):
            api.put("resourceclaims", claim, namespace="team")
        yield api


def gpu(name: str, **more: Any) -> Object:
    """A GPU; keywords are further members."""
    attributes = {"productName": {"string": "Example H100"}, "index": {"int": int(name[-1])}}
    return {
        "name": name,
        "attributes": attributes,
        "capacity": {"memory": {"value": "80Gi"}},
        **more,
    }


def device_slice(node: str, *devices: Object, driver: str = GPU) -> Object:
    """A slice of a node's pool."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": list(devices)}
    return {"metadata": {"name": f"{node}-{driver}"}, "spec": spec}


def ago(**units: float) -> str:
    """A time of the API that is so long ago."""
    return (datetime.now(UTC) - timedelta(**units)).strftime("%Y-%m-%dT%H:%M:%SZ")


def waiting(name: str) -> Object:
    """A claim that has no device."""
    asked = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": 1}}
    spec = {"devices": {"requests": [asked]}}
    return {"metadata": {"name": name}, "spec": spec}


def held(
    name: str, device: str, *, node: str = "n1", pods: tuple[str, ...] = (), **result: Any
) -> Object:
    """A claim that has a device, since two hours."""
    made = waiting(name)
    results = [{"request": "gpu", "driver": GPU, "pool": node, "device": device, **result}]
    made["status"] = {
        "allocation": {"devices": {"results": results}, "allocationTimestamp": ago(hours=2.004)},
        "reservedFor": [{"resource": "pods", "name": one, "uid": one} for one in pods],
    }
    return made


def write_record(path: Path) -> None:
    """Write a record of the cluster. An API server sets the time of creation itself, so the record gets the times of the claims here."""
    with small_cluster() as api:
        api.kubeconfig(path.with_suffix(".config"))
        assert main(["record", "--kubeconfig", str(path.with_suffix(".config")), str(path)]) == 0
    record = json.loads(path.read_text())
    for claim in record["cluster"]["resourceClaims"]:
        is_waiting = "allocation" not in claim.get("status", {})
        since = ago(minutes=45.4) if is_waiting else ago(hours=2.508)
        claim["metadata"]["creationTimestamp"] = since
    path.write_text(json.dumps(record))
