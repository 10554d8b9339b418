# SPDX-License-Identifier: Apache-2.0
"""Which fields of a slice does the API server keep?

A server drops the fields of a feature gate that is off, and tells nobody. So the driver lets the server try to create a small slice
with these fields (a dry run, nothing is stored) before it publishes the first device that has them. The answer counts for this
process. A missing gate is asked again after some minutes, because an admin may have switched it on. So is the release of a server that
wants counter sets in the slices of their devices: after an update to 1.35 the scheduler does not see the devices in such slices.
"""

from collections.abc import Callable
from math import inf
from re import match

from msgspec.structs import replace

from dra_driver.errors import Permanent
from dra_driver.kube.base import KubeApi, NameTaken
from dra_driver.model.api.resource_slice import ResourcePool
from dra_driver.model.ids import NodeName
from dra_driver.model.slices import content_of
from dra_driver.planning.prepare import NodePlace
from dra_driver.planning.reconcile import NAME_VARIANTS, slice_name
from dra_driver.planning.unrestricted import COUNTERS, FEATURES, Gate, ServerRules

AGAIN_SECONDS = 600.0
_LAST_SLICE = (
    0xFF  # the admission policy of the chart allows no higher number; no node has so many slices
)
DROPPED = "the API server drops it: the gate is off, or this release does not have it"


class ServedFields:
    """Asks the API server, and remembers the answers. Only one thread uses it."""

    def __init__(self, kube: KubeApi, place: NodePlace, *, clock: Callable[[], float]) -> None:
        self._kube = kube
        self._place = place
        self._clock = clock
        self._on: set[Gate] = set()
        self._off: dict[Gate, str] = {}
        self._minor: int | None = None
        self._asked_at = -inf
        self._news = False
        self._may_change = False

    def rules(self, needs: frozenset[Gate]) -> ServerRules:
        """Return what is known of the server, when devices need the fields of these gates. Raises DriverError if it does not answer."""
        self._news = self._may_change = False
        if not needs:
            return ServerRules()
        if self._clock() >= self._asked_at + AGAIN_SECONDS:
            self._off.clear()
            self._minor = self._release()
            self._asked_at = self._clock()
        for gate in sorted(needs - self._on - self._off.keys()):
            if why := self._missing(gate):
                self._off[gate] = why
            else:
                self._on.add(gate)
        rules = ServerRules(self._minor, {gate: self._off[gate] for gate in sorted(self._off)})
        old_layout = rules.counters_with_devices and COUNTERS in needs
        self._may_change = old_layout or not needs.isdisjoint(self._off)
        return rules

    def lost(self, gates: frozenset[Gate]) -> None:
        """The server dropped the fields of these gates from a slice that was written."""
        for gate in gates - self._off.keys():
            self._on.discard(gate)
            self._off[gate] = DROPPED
            self._news = True

    def seconds_left(self) -> float:
        """Return the seconds until a publication can have another result: 0 after a loss, inf if no device needs a gate that is missing, and
        no counters are in the slices of devices.
        """
        if self._news:
            return 0.0
        left = max(self._asked_at + AGAIN_SECONDS - self._clock(), 0.0)
        return left if self._may_change else inf

    def _release(self) -> int | None:
        try:
            return minor_of(self._kube.server_version())
        except Permanent:
            return None  # an admin took away the right to read /version, which everybody has by default

    def _missing(self, gate: Gate) -> str:
        """Return why the server does not keep the fields of a gate; empty if it keeps them."""
        feature = FEATURES[gate]
        name = slice_name(
            _LAST_SLICE,
            self._place.driver,
            NodeName(self._place.pool),
            variant=NAME_VARIANTS - 1,
        )
        pool = ResourcePool(name=self._place.pool, generation=1, resource_slice_count=1)
        spec = replace(
            feature.probe, driver=self._place.driver, node_name=self._place.pool, pool=pool
        )
        try:
            stored = self._kube.try_slice(name, spec)
        except NameTaken:
            return f"a slice {name} exists, so a dry run with it is not possible; delete it"
        except Permanent as error:
            return f"the API server refuses it in a dry run: {error}"
        return "" if feature.is_in(content_of(stored)) else DROPPED


def minor_of(version: str) -> int | None:
    """Return the minor number of a version such as "v1.37.1"; None if the text is no such version."""
    found = match(r"v?1\.(\d{1,4})", version)
    return int(found[1]) if found else None
