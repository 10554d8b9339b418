# SPDX-License-Identifier: Apache-2.0
"""Which allocation of a claim does a row belong to, and what are its devices called in CDI?

A claim keeps its UID while it is deallocated and allocated again, perhaps elsewhere, and the kubelet goes on with the CDI names that
it was answered first. So a name tells the allocation: no container can get a device of one allocation under the name of
another. The same allocation makes the same names again, in every process.
"""

import json
import re
from hashlib import blake2b

from dra_driver.model.claim import AllocationResult, Claim
from dra_driver.model.ids import ClaimUid, DeviceKey, DeviceName, DriverName, ShareId
from dra_driver.model.state import PreparedClaim

_DIGEST_BYTES = 4

Entry = tuple[DeviceKey, bool, tuple[str, ...]]


def own_results(claim: Claim, driver: DriverName) -> tuple[AllocationResult, ...]:
    """This driver's results; none of a claim that is not allocated."""
    return tuple(result for result in claim.results or () if result.driver == driver)


def allocation_digest(claim: Claim, driver: DriverName) -> str:
    """Eight hexadecimal digits of what this driver is allocated, with which configuration, and when."""
    results = [
        [result.request, result.pool, result.device, result.share_id, result.admin_access]
        for result in own_results(claim, driver)
    ]
    configs = [
        [config.source, config.requests, _text(config.parameters)]
        for config in claim.configs
        if config.driver == driver
    ]
    text = json.dumps([results, configs, claim.allocation_timestamp])
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def cdi_name(uid: ClaimUid, allocation: str, result: AllocationResult) -> str:
    """The device's name in the claim's CDI document; older documents have no `allocation` in it."""
    parts = (uid, allocation, result.device, result.share_id)
    return "-".join(part for part in parts if part)


def claim_uid_in(cdi_id: str, device: DeviceName, share_id: ShareId) -> ClaimUid | None:
    """Whose device it is, by the full name that `cdi_name` made; None for a name that was not made so."""
    own = "-".join(part for part in (device, share_id) if part)
    found = re.fullmatch(rf"[^=]+=(.+?)(-[0-9a-f]{{8}})?-{re.escape(own)}", cdi_id)
    return ClaimUid(found[1]) if found else None


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
            result.key,
            result.admin_access,
            (f"{cdi_kind}={cdi_name(claim.ref.uid, allocation, result)}",),
        )
        for result in own_results(claim, driver)
    )


def _text(parameters: object) -> str:
    try:
        return json.dumps(parameters, sort_keys=True)
    except (RecursionError, TypeError, ValueError):
        return ""  # nothing that a device can be configured with
