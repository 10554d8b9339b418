# SPDX-License-Identifier: Apache-2.0
"""Which allocation of a claim does a row belong to, and what are its devices called in CDI?

A claim keeps its UID while it is deallocated and allocated again, perhaps elsewhere, and the kubelet goes on with the CDI names that
it was answered first. So a name tells the allocation: no container can get a device of one allocation under the name of
another. The same allocation makes the same names again, in every process.
"""

import json
import re
from dataclasses import replace
from hashlib import blake2b

from dra_driver.model.api.resource_claim import DeviceRequestAllocationResult
from dra_driver.model.claim import Claim, key_of, share_of
from dra_driver.model.ids import ClaimUid, DeviceKey, DriverName
from dra_driver.model.state import HeldDevice, PreparedClaim

_DIGEST_BYTES = 4

Entry = tuple[DeviceKey, bool, tuple[str, ...]]


def own_results(claim: Claim, driver: DriverName) -> tuple[DeviceRequestAllocationResult, ...]:
    """This driver's results; none of a claim that is not allocated."""
    return tuple(result for result in claim.results or () if result.driver == driver)


def allocation_digest(claim: Claim, driver: DriverName) -> str:
    """Eight hexadecimal digits of what this driver is allocated, with which configuration, and when."""
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
    """The device's name in the claim's CDI document; older documents have no `allocation` in it."""
    parts = (uid, allocation, result.device, share_of(result))
    return "-".join(part for part in parts if part)


def claim_uid_of(held: HeldDevice) -> ClaimUid | None:
    """Whose device it is, by the names that `cdi_name` made; None where the kubelet lists no such name beside it.

    The kubelet lists beside a device also the names of the claim's devices before it.
    """
    own = "-".join(part for part in (held.device, held.share_id) if part)
    names = [name.partition("=")[2] for name in held.cdi_ids]
    for name in names:
        found = re.fullmatch(rf"(.+?)(-[0-9a-f]{{{2 * _DIGEST_BYTES}}})?-{re.escape(own)}", name)
        if found and all(other.startswith(f"{found[1]}-") for other in names):
            return ClaimUid(found[1])
    return None


def own_cdi_ids(held: HeldDevice) -> tuple[str, ...]:
    """Of the names that the kubelet lists beside a device, its own; all of them where none was made here."""
    uid = claim_uid_of(held)
    alone = (name for name in held.cdi_ids if claim_uid_of(replace(held, cdi_ids=(name,))) == uid)
    return tuple(alone) if uid is not None else held.cdi_ids


def is_allocation_of(row: PreparedClaim, claim: Claim, driver: DriverName, cdi_kind: str) -> bool:
    """Whether the row is what the claim is allocated now. Of older rows, whose names do not tell, the devices are compared."""
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
