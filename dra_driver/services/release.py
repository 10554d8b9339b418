# SPDX-License-Identifier: Apache-2.0
"""When a claim that was never unprepared is needed no more.

The rule, for every place that asks: at the API server the claim must be gone (404, or another UID under its name), allocated no
more, or allocated elsewhere; *and* the kubelet's pod-resources, asked now, must name no pod that holds it. Whoever cannot be asked
is taken to say "held": an API server that was restored to yesterday answers 404 for claims of living pods.

That is not enough to give its devices away: both forget a pod whose containers still run. What is needed besides is
`dra_driver.planning.unprepare.still_used`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from dra_driver.errors import DriverError
from dra_driver.kube.base import OF_THE_OBJECT, NotFound
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.ids import DriverName
from dra_driver.model.state import HeldDevice, PreparedClaim, Unknown
from dra_driver.planning.allocation import is_allocation_of
from dra_driver.planning.prepare import NodePlace

STILL_EXISTS = "it still exists"
NAMELESS = "its CDI file stands on this node, and nobody has said yet whose it is"


class Silence(str):
    """A reason that is no answer: whoever could not answer for one claim cannot for the next ones either."""

    __slots__ = ()


HeldClaims = Callable[[], frozenset[HeldDevice] | Unknown]


@dataclass(frozen=True, slots=True)
class Releasable:
    """Asks both sides about one claim. `held` asks the kubelet, `get_claim` the API server."""

    place: NodePlace
    held: HeldClaims
    get_claim: Callable[[ClaimRef], Claim]

    def why_not(self, row: PreparedClaim) -> str:
        """Why the claim must stay; empty when nobody needs it on this node; Silence when somebody does not answer."""
        ref = row.ref
        held = self.held()
        if isinstance(held, Unknown):
            return Silence(
                f"the kubelet's pod-resources cannot tell whether a pod holds it: {held.reason}"
            )
        if any(is_of(device, ref, self.place.driver) for device in held):
            return "a pod on this node holds it, the kubelet says"
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


def is_of(device: HeldDevice, ref: ClaimRef, driver: DriverName) -> bool:
    """Whether the kubelet's entry is this claim's: by the CDI ids, which hold the UID, else by name."""
    if device.driver != driver:
        return False
    if device.cdi_ids:
        return any(cdi_id.partition("=")[2].startswith(f"{ref.uid}-") for cdi_id in device.cdi_ids)
    return (device.namespace, device.claim_name) == (ref.namespace, ref.name)
