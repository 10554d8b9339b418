# SPDX-License-Identifier: Apache-2.0
"""The words in which fleets are described: nodes, slices with devices, classes, claims and pods, as v1 objects."""

from collections.abc import Mapping, Sequence
from typing import Any

API = "resource.k8s.io/v1"
GPU = "gpu.example.com"
CLASS = "gpu"
FLEET = ("fleet-0", "fleet-1", "fleet-2")
HOME = FLEET[1]  # where the GPUs are that a case does not put elsewhere
MINE = "mine"  # the claim and the pod that a case is about
OBJECT = dict[str, Any]


def _object(api: str, kind: str, name: str, **parts: Any) -> OBJECT:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **parts}


# Nodes and devices


def node(name: str, *, labels: Mapping[str, str] | None = None, **spec: Any) -> OBJECT:
    """A node; keywords go into its spec."""
    made = _object("v1", "Node", name, spec=spec)
    made["metadata"]["labels"] = {"kubernetes.io/hostname": name, **(labels or {})}
    return made


def device(name: str, *, memory: str = "80Gi", numa: int = 0, **more: Any) -> OBJECT:
    """A GPU; keywords are further members."""
    return {
        "name": name,
        "attributes": {"model": {"string": "H100"}, "numa": {"int": numa}},
        "capacity": {"memory": {"value": memory}},
        **more,
    }


def devices(count: int, **more: Any) -> list[OBJECT]:
    """Several alike."""
    return [device(f"gpu-{number}", **more) for number in range(count)]


def resource_slice(
    listed: Sequence[OBJECT] = (),
    *,
    name: str = "",
    driver: str = GPU,
    pool: str = HOME,
    slices: int = 1,
    **where: Any,
) -> OBJECT:
    """A slice of a pool; on the node of the pool's name unless keywords say otherwise."""
    spec = {
        "driver": driver,
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": slices},
        **(where or {"nodeName": pool}),
    }
    if listed:
        spec["devices"] = list(listed)
    return _object(API, "ResourceSlice", name or f"{driver}-{pool}", spec=spec)


def background() -> list[OBJECT]:
    """What other drivers publish, on every node."""
    return [
        resource_slice([device(f"port-{number}") for number in range(4)], driver=driver, pool=name)
        for driver in ("nic.example.com", "fpga.example.com")
        for name in FLEET
    ]


# Classes, claims and pods


def selectors(*expressions: str) -> OBJECT:
    """CEL, as classes and requests have it."""
    return {"selectors": [{"cel": {"expression": text}} for text in expressions]}


def device_class(name: str = CLASS, *, expression: str = f'device.driver == "{GPU}"') -> OBJECT:
    """A class of all devices of a driver."""
    return _object(API, "DeviceClass", name, spec=selectors(expression))


def request(name: str = "gpu", *, cel: str = "", **more: Any) -> OBJECT:
    """One GPU, or as keywords say."""
    chosen = selectors(cel) if cel else {}
    return {"name": name, "exactly": {"deviceClassName": CLASS, **chosen, **more}}


def claim(*requests: OBJECT, name: str = MINE, **devices_: Any) -> OBJECT:
    """A claim of these requests, or of one GPU; keywords are further members of `spec.devices`."""
    spec = {"devices": {"requests": list(requests or (request(),)), **devices_}}
    return _object(API, "ResourceClaim", name, spec=spec)


def template(*requests: OBJECT, name: str = MINE) -> OBJECT:
    """A template of such a claim."""
    spec = {"spec": claim(*requests)["spec"]}
    return _object(API, "ResourceClaimTemplate", name, spec=spec)


def pod(
    name: str = MINE, *, of: Mapping[str, str] | None = None, cpu: str = "", **spec: Any
) -> OBJECT:
    """A pod of the claim of its name, or of what `of` refers to; keywords go into its spec."""
    refers = of or {"resourceClaimName": name}
    needs: OBJECT = {"claims": [{"name": "devices"}]}
    if cpu:
        needs["requests"] = {"cpu": cpu}
    container = {"name": "main", "image": "never.invalid/run:1", "resources": needs}
    referring = {"resourceClaims": [{"name": "devices", **refers}]}
    return _object("v1", "Pod", name, spec={"containers": [container], **referring, **spec})


def user(name: str, **keywords: Any) -> list[OBJECT]:
    """A claim of one GPU and the pod that uses it."""
    return [claim(name=name, **keywords), pod(name)]
