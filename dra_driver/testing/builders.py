# SPDX-License-Identifier: Apache-2.0
"""Builders of small valid values for tests: a test passes the fields that matter for it, and the builder fills in the others.

    claim = a_claim("wine", results=[a_result("gpu-3")])
    plan = plan_prepare(claim.ref, claim, place=A_PLACE, inventory=an_inventory(4), state=a_state())

The UID is derived from the claim's name. So two claims with one name are the same claim, unless the test passes another UID.
"""

from collections.abc import Iterable, Mapping

from dra_driver.backends.simulated_config import LABEL
from dra_driver.backends.simulated_edits import container_edits
from dra_driver.model import device as on_the_node
from dra_driver.model.api.resource_claim import DeviceRequestAllocationResult
from dra_driver.model.api.resource_slice import Device
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.claim import Claim, ClaimRef, OpaqueConfig
from dra_driver.model.device import AllocatableDevice, AttributeValue
from dra_driver.model.ids import (
    NO_SHARE,
    ClaimUid,
    DeviceKey,
    DriverName,
    NodeName,
    PodUid,
    PoolName,
)
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Lease
from dra_driver.model.names import DOMAIN
from dra_driver.model.quantity import Quantity
from dra_driver.model.state import Consumption, NodeState, PreparedClaim
from dra_driver.planning.allocation import allocation_digest, cdi_name
from dra_driver.planning.prepare import NodePlace

A_NODE = NodeName("node-1")
A_DRIVER = DriverName(DOMAIN)
A_POOL = PoolName(A_NODE)
A_PLACE = NodePlace(A_DRIVER, A_POOL)
A_BOOT = "boot-1"
LOCAL_MAJOR = 120  # a device number for local use: no kernel driver has it


def a_uid(name: str) -> ClaimUid:
    """Return the UID that builders give to a claim of this name."""
    return ClaimUid(f"uid-{name}")


def a_pod(name: str) -> PodUid:
    """Return the UID of the pod for which builders make a claim of this name."""
    return PodUid(f"pod-{name}")


def a_ref(name: str = "claim", *, uid: str = "", namespace: str = "default") -> ClaimRef:
    """Return a claim as the kubelet names it."""
    return ClaimRef(namespace, name, ClaimUid(uid) if uid else a_uid(name))


def a_result(
    device: str = "gpu-0",
    *,
    request: str = "gpu",
    driver: str = A_DRIVER,
    pool: str = A_POOL,
    share: str = NO_SHARE,
    admin: bool = False,
) -> DeviceRequestAllocationResult:
    """Return one allocated device."""
    return DeviceRequestAllocationResult(
        request=request,
        driver=driver,
        pool=pool,
        device=device,
        share_id=share or None,
        admin_access=admin or None,
    )


def a_config(
    parameters: Mapping[str, object] | None = None,
    *,
    label: str | None = None,
    requests: Iterable[str] = (),
    driver: str = A_DRIVER,
    index: int = 0,
) -> OpaqueConfig:
    """Return one entry of opaque configuration: a DeviceConfig of simulated devices with `label`, or exactly `parameters`."""
    own: dict[str, object] = {"apiVersion": LABEL.api_version, "kind": LABEL.kind}
    if label is not None:
        own["label"] = label
    chosen = own if parameters is None else parameters
    return OpaqueConfig(index, "FromClaim", tuple(requests), DriverName(driver), chosen)


def a_claim(  # noqa: PLR0913  what a test is about is named at the call
    name: str = "claim",
    *,
    uid: str = "",
    results: Iterable[DeviceRequestAllocationResult] | None = None,
    configs: Iterable[OpaqueConfig] = (),
    pods: Iterable[str] | None = None,
    sole: bool = True,
    timestamp: str = "",
) -> Claim:
    """Return an allocated claim.

    Without `results` it has one device, gpu-0. It was created for one pod, unless `sole` is false.
    """
    chosen = (a_result(),) if results is None else tuple(results)
    users = tuple(map(PodUid, (a_pod(name),) if pods is None else pods))
    return Claim(
        a_ref(name, uid=uid),
        chosen,
        tuple(configs),
        users,
        users[0] if sole else None,
        allocation_timestamp=timestamp,
    )


def a_cdi_id(claim: Claim, device: str = "gpu-0") -> str:
    """Return the CDI name of the claim's (first) allocation of this device."""
    (result,) = [found for found in claim.results or () if found.device == device][:1]
    name = cdi_name(claim.ref.uid, allocation_digest(claim, A_DRIVER), result)
    return f"{A_PLACE.cdi_kind}={name}"


def a_device(
    name: str = "gpu-0",
    *,
    attributes: Mapping[str, AttributeValue] | None = None,
    memory: str = "80Gi",
    shared: bool = False,
) -> AllocatableDevice:
    """Return a device that reads a DeviceConfig with a label; if it is `shared`, it can be allocated several times."""
    api = Device(
        name=name,
        attributes=on_the_node.attributes(attributes or {}),
        capacity=on_the_node.capacities({"memory": Quantity.parse(memory)}),
        allow_multiple_allocations=True if shared else None,
    )
    return AllocatableDevice(
        api,
        uuid=f"uuid-{name}",
        config_kinds=(LABEL,),
    )


def an_edit(lease: Lease) -> ContainerEdits:
    """Return what a backend answers for the lease: a character device, the UUID, and what the configuration asks for."""
    index = lease.device.rpartition("-")[2]
    minor = int(index) if index.isdigit() else 0
    return container_edits(lease, f"uuid-{lease.device}", major=LOCAL_MAJOR, minor=minor)


def an_inventory(count: int = 2, *, shared: bool = False) -> Inventory:
    """Return devices gpu-0, gpu-1, …; if `shared`, each can be allocated several times."""
    return Inventory(tuple(a_device(f"gpu-{index}", shared=shared) for index in range(count)))


def a_state(
    *,
    claims: Iterable[PreparedClaim] = (),
    owners: Mapping[DeviceKey, ClaimRef] | None = None,
    boot_id: str = A_BOOT,
    consumed: Mapping[DeviceKey, Consumption] | None = None,
) -> NodeState:
    """Return the state that a decision reads; without arguments no device is owned."""
    rows = {claim.ref.uid: claim for claim in claims}
    return NodeState(boot_id, rows, owners or {}, consumed or {})
