# SPDX-License-Identifier: Apache-2.0
"""How much of a device is used now, who uses it, and what the metrics of one moment are made of."""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct, field

from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import ClaimUid, DeviceKey, DeviceName, ResourceName, UnitId
from dra_driver.model.state import PreparedClaim

NO_RESOURCE = ResourceName("")
CORRECTED, UNCORRECTED = "corrected", "uncorrected"
"""The kinds of memory errors in `DeviceUsage.ecc_errors`."""
SM_CLOCK, MEMORY_CLOCK = "sm", "memory"
"""The clocks in `DeviceUsage.clocks_hertz` that other exporters have names for."""


class DeviceUsage(Struct, frozen=True):
    """What a backend measured on one device. None, or a name that is missing in a mapping: the hardware cannot say it.

    A partition has only what is its own, or the same for all partitions of its GPU (the temperature); what would be counted twice in a
    sum (the power) belongs to no partition. Reserved memory, which nobody can use, is neither used nor free. `throttled` says for each reason that the hardware knows whether it slows the device down.
    """

    utilization_ratio: float | None = None
    memory_utilization_ratio: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    clocks_hertz: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    ecc_errors: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    throttled: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))


class UsageSample(Struct, frozen=True):
    """What was measured on a device, and when by the monotonic clock."""

    usage: DeviceUsage
    taken: float


class ContainerUse(Struct, frozen=True):
    """A device, or units of an extended resource, that a container has, as the kubelet's pod-resources list them.

    Of a claim there are `claim` and `device`; of the device plugin API `resource` and `units`.
    """

    namespace: str
    pod: str
    container: str
    claim: str = ""
    device: DeviceKey | None = None
    resource: ResourceName = NO_RESOURCE
    units: frozenset[UnitId] = frozenset()


class Holder(Struct, frozen=True, order=True):
    """Who has a device, or a share of it. `claim` is empty for a row of the device plugin API; pod and container, if they are not known."""

    namespace: str
    claim: str
    pod: str = ""
    container: str = ""


class ClaimDevice(Struct, frozen=True, order=True):
    """What the counters of a claim are kept for: one claim, and one device of it."""

    uid: ClaimUid
    device: DeviceName


class ClaimTotals(Struct, frozen=True):
    """What one claim has had of one device. `since` and `ended` are times of the monotonic clock; `ended` is None while it has the device.

    `memory_byte_seconds` is counted up to `measured`. It is None for a device of several claims: nobody knows whose memory it is.
    """

    namespace: str
    claim: str
    since: float
    measured: float
    memory_byte_seconds: float | None = 0.0
    ended: float | None = None


class NodeUsage(Struct, frozen=True):
    """All that one scrape shows of devices and claims; the driver keeps it, so that a scrape asks nobody.

    `rows` and `state_bytes` are None until the state file has been read. `found` is when this process found each device that its backend
    should measure, by the monotonic clock.
    """

    devices: tuple[AllocatableDevice, ...] = ()
    samples: Mapping[DeviceName, UsageSample] = field(default_factory=dict)
    rows: tuple[PreparedClaim, ...] | None = None
    uses: tuple[ContainerUse, ...] = ()
    totals: Mapping[ClaimDevice, ClaimTotals] = field(default_factory=dict)
    state_bytes: int | None = None
    found: Mapping[DeviceName, float] = field(default_factory=dict)
