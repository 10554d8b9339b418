# SPDX-License-Identifier: Apache-2.0
"""Who has each device? The state says which claim owns it, and the kubelet which containers of which pods use the claim.

The driver makes no request to the API server for this. So it does not know the pod of a claim that the kubelet does not list: kubelets
before 1.34 list no claims, and none lists a pod that has ended while its devices are still held.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dra_driver.model.ids import DeviceName, PoolName, UnitId
from dra_driver.model.state import PreparedClaim, PreparedDevice
from dra_driver.model.usage import ContainerUse, Holder

MOST_CONTAINERS = 64
"""Of one claim. If more of them have a device, only the claim is named."""


def holders(
    rows: Iterable[PreparedClaim], uses: Sequence[ContainerUse], pool: PoolName
) -> Mapping[DeviceName, tuple[Holder, ...]]:
    """Return who has each device of the pool, sorted. Admin access has nothing, so it is left out."""
    found: dict[DeviceName, set[Holder]] = {}
    for row in rows:
        for device in row.devices:
            if device.pool == pool and not device.admin_access:
                found.setdefault(device.device, set()).update(_holders(row, device, uses))
    return {name: tuple(sorted(some)) for name, some in found.items()}


def common(some: Sequence[Holder]) -> Holder:
    """Return in what all holders agree; empty where they do not. So a value that belongs to several is not added up for each of them."""

    def agreed(values: Iterable[str]) -> str:
        each = set(values)
        return each.pop() if len(each) == 1 else ""

    return Holder(
        agreed(one.namespace for one in some),
        agreed(one.claim for one in some),
        agreed(one.pod for one in some),
        agreed(one.container for one in some),
    )


def unknown_users(rows: Iterable[PreparedClaim], uses: Sequence[ContainerUse]) -> bool:
    """Whether the kubelet's list has no container for a row that is in use. It is worth to ask again then."""
    return any(
        not any(_uses(row, device, one) for one in uses)
        for row in rows
        if row.held is None
        for device in row.devices
        if not device.admin_access
    )


def uses_of(
    rows: Iterable[PreparedClaim], uses: Iterable[ContainerUse]
) -> tuple[ContainerUse, ...]:
    """Return the containers that use devices of these rows."""
    pairs = [(row, device) for row in rows for device in row.devices]
    return tuple(one for one in uses if any(_uses(row, device, one) for row, device in pairs))


def _holders(
    row: PreparedClaim, device: PreparedDevice, uses: Sequence[ContainerUse]
) -> Iterator[Holder]:
    claim = "" if row.ref.of_plugin else row.ref.name
    found = [one for one in uses if _uses(row, device, one)]
    if len(found) > MOST_CONTAINERS:
        found = []  # each would be a series of its own, and a pod may have thousands of containers
    for one in found:
        yield Holder(one.namespace, claim, one.pod, one.container)
    if not found:
        yield Holder("" if row.ref.of_plugin else row.ref.namespace, claim)


def _uses(row: PreparedClaim, device: PreparedDevice, one: ContainerUse) -> bool:
    if row.ref.of_plugin:
        # Each device of such a row has its unit in the place of a request.
        units = {UnitId(name) for name in device.request_names}
        return one.resource == row.ref.name and bool(units & one.units)
    named = (one.namespace, one.claim) == (row.ref.namespace, row.ref.name)
    return named and one.device == device.key
