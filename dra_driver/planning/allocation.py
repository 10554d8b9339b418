# SPDX-License-Identifier: Apache-2.0
"""Which allocation of a claim does a row belong to, and which CDI names do its devices have?

A claim keeps its UID when it is deallocated and allocated again, perhaps with other devices. The kubelet may then still use the
CDI names of the first allocation. So each name contains a digest of the allocation: a container cannot get a device of one
allocation under a name of another allocation. The same allocation gets the same names in every process.
"""

import json
import re
from hashlib import blake2b

from msgspec.structs import replace

from dra_driver.model.api.resource_claim import DeviceRequestAllocationResult
from dra_driver.model.claim import Claim, key_of, share_of
from dra_driver.model.ids import ClaimUid, DeviceKey, DriverName
from dra_driver.model.state import PodDevice, PreparedClaim

_DIGEST_BYTES = 4

Entry = tuple[DeviceKey, bool, tuple[str, ...]]


def own_results(claim: Claim, driver: DriverName) -> tuple[DeviceRequestAllocationResult, ...]:
    """Return the allocation results of this driver; empty for a claim that is not allocated."""
    return tuple(result for result in claim.results or () if result.driver == driver)


def allocation_digest(claim: Claim, driver: DriverName) -> str:
    """Return eight hexadecimal digits, made from this driver's allocation results, their configuration and allocationTimestamp."""
    results = [
        [
            result.request,
            result.pool,
            result.device,
            share_of(result),
            bool(result.admin_access),
        ]
        for result in own_results(claim, driver)
    ]
    configs = [
        [config.source, config.requests, _text(config.parameters)]
        for config in claim.configs
        if config.driver == driver
    ]
    text = json.dumps([results, configs, claim.allocation_timestamp])
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def cdi_name(uid: ClaimUid, allocation: str, result: DeviceRequestAllocationResult) -> str:
    """Return the device's name in the claim's CDI file. Files of older drivers have no `allocation` in the name."""
    parts = (uid, allocation, result.device, share_of(result))
    return "-".join(part for part in parts if part)


def claim_uid_of(device: PodDevice) -> ClaimUid | None:
    """Return the UID of the device's claim, from a name that `cdi_name` made; None if the kubelet lists no such name.

    With each device the kubelet also lists the CDI names of the claim's earlier devices in the list.
    """
    own = "-".join(part for part in (device.device, device.share_id) if part)
    names = [name.partition("=")[2] for name in device.cdi_ids]
    for name in names:
        found = re.fullmatch(rf"(.+?)(-[0-9a-f]{{{2 * _DIGEST_BYTES}}})?-{re.escape(own)}", name)
        if found and all(other.startswith(f"{found[1]}-") for other in names):
            return ClaimUid(found[1])
    return None


def own_cdi_ids(device: PodDevice) -> tuple[str, ...]:
    """Return the CDI names that belong to this device, from the names that the kubelet lists with it; all of them if the claim's UID
    cannot be found in them.
    """
    uid = claim_uid_of(device)
    alone = (
        name for name in device.cdi_ids if claim_uid_of(replace(device, cdi_ids=(name,))) == uid
    )
    return tuple(alone) if uid is not None else device.cdi_ids


def is_allocation_of(row: PreparedClaim, claim: Claim, driver: DriverName, cdi_kind: str) -> bool:
    """Whether the row has the current allocation of the claim. CDI names of older drivers have no digest; then only the devices are
    compared.
    """
    found = sorted((device.key, device.admin_access, device.cdi_ids) for device in row.devices)
    return any(
        found == _entries(claim, driver, cdi_kind, allocation)
        for allocation in (allocation_digest(claim, driver), "")
    )


def _entries(claim: Claim, driver: DriverName, cdi_kind: str, allocation: str) -> list[Entry]:
    return sorted(
        (
            key_of(result),
            bool(result.admin_access),
            (f"{cdi_kind}={cdi_name(claim.ref.uid, allocation, result)}",),
        )
        for result in own_results(claim, driver)
    )


def _text(parameters: object) -> str:
    try:
        return json.dumps(parameters, sort_keys=True)
    except (RecursionError, TypeError, ValueError):
        return ""  # nothing that a device can be configured with
