# SPDX-License-Identifier: Apache-2.0
"""Which metadata files does a claim get, and where does the container runtime mount them?

The attributes in a file are those that the driver publishes in the ResourceSlice, so an attribute that the API would refuse is left out.
Values that change while a device runs are in none of them: the file is written once.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec

from dra_driver.model.cdi import Mount
from dra_driver.model.ids import DriverName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Lease
from dra_driver.model.metadata import Files, container_path, stream
from dra_driver.model.plan import ConfigureDevice, Plan
from dra_driver.planning.device_values import checked

_GENERATION = 1  # the file of a prepared claim never changes
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def metadata_of(plan: Plan, *, driver: DriverName, inventory: Inventory) -> Files:
    """Return the files of a claim whose first half of the preparation is `plan`: one for each request."""
    leases = [step.lease for step in plan.steps if isinstance(step, ConfigureDevice)]
    requests: dict[str, list[Mapping[str, object]]] = {}
    for lease, device in zip(leases, plan.devices, strict=True):
        identity = {"driver": driver, "pool": device.pool, "name": device.device}
        entry = {**identity, **_attributes(lease, inventory)}
        requests.setdefault(lease.request, []).append(entry)
    claim = {
        "name": plan.claim.name,
        "namespace": plan.claim.namespace,
        "uid": plan.claim.uid,
        "generation": _GENERATION,
    }
    name = _pod_claim_name(plan)
    template = {"podClaimName": name} if name else {}
    return {
        _base(request): stream(
            {"metadata": claim, **template, "requests": [{"name": request, "devices": devices}]}
        )
        for request, devices in requests.items()
    }


def mounts_of(plan: Plan, *, driver: DriverName, root: str) -> Sequence[tuple[Mount, ...]]:
    """Return the mounts for each device of the plan. A container has all devices of a request, so the first one has the mount."""
    seen: set[str] = set()
    mounts: list[tuple[Mount, ...]] = []
    claim = plan.claim
    for device in plan.devices:
        request = device.request_names[0]
        new = request not in seen
        seen.add(request)
        target = container_path(driver, claim.name, _pod_claim_name(plan), request)
        mounts.append((Mount(f"{root}/{claim.uid}/{request}.json", target),) if new else ())
    return mounts


def _pod_claim_name(plan: Plan) -> str:
    """Return the name of the claim in its pod; "" if there is none. It comes from an annotation, which the author of a claim may set to any
    text of any length; the API server lets only a DNS label be a name in a pod.
    """
    return plan.pod_claim_name if _LABEL.fullmatch(plan.pod_claim_name) else ""


def _base(request: str) -> str:
    return request.partition("/")[0]


def _attributes(lease: Lease, inventory: Inventory) -> Mapping[str, object]:
    found = inventory.by_name.get(lease.device)
    if found is None:
        return {}
    good, _ = checked(found.api, lambda _field, _why: None)
    return {"attributes": msgspec.to_builtins(good.attributes)} if good.attributes else {}
