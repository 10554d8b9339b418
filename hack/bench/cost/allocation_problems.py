# SPDX-License-Identifier: Apache-2.0
"""The allocation problems that are timed: those of ordinary clusters, and those that make the search go back.

Objects are as the API server writes them, for both sides. The ordinary ones are asked for as many nodes as a scheduler would
ask for one pod after the other; those that go back are of one node, with a claim that fits late or not at all.
"""

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

GPU, NIC = "gpu.example.com", "nic.example.com"
FEATURES = (
    "DRAAdminAccess",
    "DRAConsumableCapacity",
    "DRADeviceTaints",
    "DRAFractionalCapacityRange",
    "DRAPartitionableDevices",
    "DRAPrioritizedList",
    "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus",
)


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem; `backtracking` says which target it is held against."""

    name: str
    slices: list[Json]
    claims: list[Json]
    nodes: int = 1
    backtracking: bool = False
    allocated: list[str] = field(default_factory=list)

    def asked(self) -> Json:
        """What both sides are given."""
        return {
            "name": self.name,
            "impl": "incubating",
            "features": list(FEATURES),
            "classes": [_class(GPU), _class(NIC)],
            "slices": self.slices,
            "nodes": [_node(number) for number in range(self.nodes)],
            "claims": self.claims,
            "allocatedDevices": self.allocated,
        }


def _class(driver: str) -> Json:
    selectors = [_cel(f'device.driver == "{driver}"')]
    return {"metadata": {"name": driver}, "spec": {"selectors": selectors}}


def _node(number: int) -> Json:
    return {"metadata": {"name": f"node-{number}", "labels": {"zone": "west"}}}


def _cel(expression: str) -> Json:
    return {"cel": {"expression": expression}}


def _gpu(number: int, **more: Any) -> Json:
    attributes = {
        "model": {"string": ("h100", "h200")[number % 2]},
        "uuid": {"string": f"GPU-{number:08x}"},
        "index": {"int": number},
        "driverVersion": {"version": "580.65.6"},
        "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{number // 2:02x}"},
    }
    return {
        "name": f"gpu-{number}",
        "attributes": attributes,
        "capacity": {"memory": {"value": "80Gi"}},
    } | more


def _nic(number: int) -> Json:
    root = {"resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{3 - number:02x}"}}
    return {"name": f"nic-{number}", "attributes": root}


def _slice(node: int, devices: list[Json], driver: str = GPU, **more: Any) -> Json:
    pool = {"name": f"node-{node}", "generation": 1, "resourceSliceCount": more.pop("parts", 1)}
    spec = {"driver": driver, "pool": pool, "nodeName": f"node-{node}"} | more
    if devices:
        spec["devices"] = devices
    part = "counters" if "sharedCounters" in more else "devices"
    return {"metadata": {"name": f"node-{node}-{driver}-{part}"}, "spec": spec}


def _claim(*requests: Json, name: str = "claim", **more: Any) -> Json:
    devices = {"requests": list(requests)} | more
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": devices}}


def _asks(name: str, count: int = 1, driver: str = GPU, **more: Any) -> Json:
    return {"name": name, "exactly": _exact(count, driver) | more}


def _exact(count: int, driver: str = GPU) -> Json:
    return {"deviceClassName": driver, "allocationMode": "ExactCount", "count": count}


def _all(name: str) -> Json:
    return {"name": name, "exactly": {"deviceClassName": GPU, "allocationMode": "All"}}


def _model(name: str) -> list[Json]:
    return [_cel(f'device.attributes["{GPU}"].model == "{name}"')]


def _fleet(nodes: int) -> list[Json]:
    return [_slice(node, [_gpu(number) for number in range(8)]) for node in range(nodes)]


SAME_ROOT = [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}]
LARGE = _cel(f'device.capacity["{GPU}"].memory.compareTo(quantity("40Gi")) >= 0')


def _partitioned(sizes: list[int], slots: int) -> list[Json]:
    """One GPU in overlapping partitions."""
    devices = [
        {
            "name": f"part-{number}",
            "attributes": {"size": {"int": size}},
            "consumesCounters": [
                {"counterSet": "gpu", "counters": {"slots": {"value": str(size)}}}
            ],
        }
        for number, size in enumerate(sizes)
    ]
    sets = [{"name": "gpu", "counters": {"slots": {"value": str(slots)}}}]
    return [_slice(0, devices, parts=2), _slice(0, [], parts=2, sharedCounters=sets)]


def _in_shares() -> list[Json]:
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
    memory = {"value": "80Gi", "requestPolicy": policy}
    return [
        _gpu(number, allowMultipleAllocations=True, capacity={"memory": memory})
        for number in range(8)
    ]


def ordinary() -> list[Problem]:
    """What most pods ask for."""
    one = [_slice(0, [_gpu(number) for number in range(8)])]
    share = _asks("share", capacity={"requests": {"memory": "10Gi"}})
    alternatives: Json = {
        "name": "either",
        "firstAvailable": [
            {"name": "two", **_exact(2), "selectors": _model("b200")},
            {"name": "four", **_exact(4), "selectors": _model("h100")},
        ],
    }
    sevenths = [7, 4, 4, 3, 3, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1]
    return [
        Problem("one GPU of 8", one, [_claim(_asks("gpu"))]),
        Problem("4 GPUs of a model, by memory", one, [_claim(_asks("gpu", 4, selectors=[*_model("h200"), LARGE]))]),
        Problem("all 8 GPUs", one, [_claim(_all("gpu"))]),
        Problem(
            "a GPU and a NIC on one root",
            [*one, _slice(0, [_nic(number) for number in range(4)], NIC)],
            [_claim(_asks("gpu"), _asks("nic", 1, NIC), constraints=SAME_ROOT)],
        ),
        Problem("the second alternative", one, [_claim(alternatives)]),
        Problem("three partitions of a GPU", _partitioned(sevenths, 7), [_claim(_asks("part", 3, selectors=[_cel(f'device.attributes["{GPU}"].size == 2')]))]),
        Problem("10 Gi of a shared GPU", [_slice(0, _in_shares())], [_claim(share)]),
        Problem("8 claims of one GPU each", one, [_claim(_asks("gpu"), name=f"claim-{at}") for at in range(8)]),
        Problem("one GPU on each of 100 nodes", _fleet(100), [_claim(_asks("gpu"))], nodes=100),
        Problem("4 GPUs on each of 1,000 nodes", _fleet(1_000), [_claim(_asks("gpu", 4, selectors=_model("h100")))], nodes=1_000),
    ]  # fmt: skip


def backtracking() -> list[Problem]:
    """What first fit does not find, or nobody."""
    gpus = [_gpu(number) for number in range(16)]
    late = [_gpu(number) for number in range(15)]
    late[14]["attributes"]["resource.kubernetes.io/pcieRoot"] = {"string": "pci0000:06"}
    racks = [_gpu(at, attributes={"rack": {"int": at % 5}}) for at in range(20)]
    last = _cel(f'device.attributes["{GPU}"].index == 15')
    rack = [{"distinctAttribute": f"{GPU}/rack"}]
    amount = {"requests": {"memory": "30Gi"}}
    shares = [_asks(f"share-{at}", capacity=amount) for at in range(7)]
    listed = (
        ("3 GPUs on one root, where 2 are", _slice(0, gpus), _claim(_asks("gpu", 3), constraints=SAME_ROOT)),
        ("3 GPUs on one root, the last ones", _slice(0, late), _claim(_asks("gpu", 3), constraints=SAME_ROOT)),
        ("11 GPUs of 10", _slice(0, gpus[:10]), _claim(_asks("gpu", 6), _asks("more", 5))),
        ("2 GPUs, then 2 of a model that has 2", _slice(0, _few("h200")), _claim(_asks("gpu", 2), _asks("h200", 2, selectors=_model("h200")))),
        ("9 GPUs, then one that is among 16", _slice(0, gpus), _claim(_asks("gpu", 9), _asks("last", selectors=[last, *_model("h100")]))),
        ("6 racks, where 5 are", _slice(0, racks), _claim(_asks("gpu", 6), constraints=rack)),
        ("7 shares, where 6 fit", _slice(0, _in_shares()[:3]), _claim(*shares)),
    )  # fmt: skip
    parts = _partitioned([1] * 12 + [2] * 4, 4)
    return [
        *(Problem(name, [offer], [made], backtracking=True) for name, offer, made in listed),
        Problem("5 partitions, where 4 fit", parts, [_claim(_asks("p", 5))], backtracking=True),
    ]


def _few(model: str) -> list[Json]:
    """The first two are of the model, the others are not."""
    return [
        _gpu(number, attributes={"model": {"string": model if number in (0, 1) else "other"}})
        for number in range(64)
    ]
