# SPDX-License-Identifier: Apache-2.0
"""When is a claim not needed any more, although the kubelet never unprepared it?

The driver uses the same rule everywhere. At the API server the claim must be deleted (404, or its name has another UID),
deallocated, or allocated in another way. *And* the kubelet's pod-resources, read now, must list no pod with the claim. If one of
them does not answer, the claim is needed: an API server whose data was restored from an older backup answers 404 for claims of
running pods.

This is not enough to give the devices to another claim, because both the API server and the kubelet forget a pod whose containers
still run. For that, `dra_driver.planning.unprepare.still_used` must also find that no process uses the devices.
"""

from collections.abc import Callable

from msgspec import Struct

from dra_driver.errors import DriverError
from dra_driver.kube.base import OF_THE_OBJECT, NotFound
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.ids import DriverName
from dra_driver.model.state import PodDevice, PreparedClaim, Unknown
from dra_driver.planning.allocation import is_allocation_of
from dra_driver.planning.prepare import NodePlace

STILL_EXISTS = "it still exists"
NAMELESS = (
    "it was reserved at the start because a CDI file described it, and its claim is not known yet; "
    "the driver goes on when the API server and the kubelet's pod-resources both answer"
)


class Silence(str):
    """A reason that means: the API server or the kubelet did not answer. Then the driver does not ask about the next claims."""

    __slots__ = ()


def nobody_told(_row: PreparedClaim) -> str:
    """The answer about units of the device plugin API, where nothing serves it."""
    return Silence(
        "it was given out by the device plugin API, which this process does not serve (yet)"
    )


AskPodDevices = Callable[[], frozenset[PodDevice] | Unknown]


class Releasable(Struct, frozen=True):
    """Asks the kubelet (`pod_devices`) and the API server (`get_claim`) whether a claim is still needed. `units_needed` answers the same
    of a row that the device plugin API made.
    """

    place: NodePlace
    pod_devices: AskPodDevices
    get_claim: Callable[[ClaimRef], Claim]
    units_needed: Callable[[PreparedClaim], str] = nobody_told

    def why_not(self, row: PreparedClaim) -> str:
        """Return why the claim must stay; empty if this node does not need the claim; Silence if one side does not answer."""
        ref = row.ref
        if ref.of_plugin:
            return self.units_needed(row)
        found = self.pod_devices()
        if isinstance(found, Unknown):
            return Silence(
                f"the kubelet's pod-resources cannot tell whether a pod uses it: {found.reason}"
            )
        if any(is_of(device, ref, self.place.driver) for device in found):
            return "the kubelet says that a pod on this node uses it"
        return self._why_needed(row) if ref.name else NAMELESS

    def _why_needed(self, row: PreparedClaim) -> str:
        try:
            claim = self.get_claim(row.ref)
        except NotFound:
            return ""
        except DriverError as error:
            return _unanswered(error)
        place = self.place
        same = claim.ref.uid == row.ref.uid
        if same and is_allocation_of(row, claim, place.driver, place.cdi_kind):
            return STILL_EXISTS
        return ""


def _unanswered(error: DriverError) -> str:
    if isinstance(error, OF_THE_OBJECT):
        return f"what the API server has under its name cannot be read: {error}"
    return Silence(f"the API server cannot tell whether it still exists: {error}")


def is_of(device: PodDevice, ref: ClaimRef, driver: DriverName) -> bool:
    """Whether the kubelet's entry belongs to this claim: by the CDI device IDs, which contain the UID, or without IDs by name."""
    if device.driver != driver:
        return False
    if device.cdi_ids:
        return any(cdi_id.partition("=")[2].startswith(f"{ref.uid}-") for cdi_id in device.cdi_ids)
    return (device.namespace, device.claim_name) == (ref.namespace, ref.name)
