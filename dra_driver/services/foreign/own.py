# SPDX-License-Identifier: Apache-2.0
"""Which of the kubelet's entries come from this driver itself?

It may serve the device plugin API too, or have served it until now. Its rows say which units it gave out. The kubelet forgets later than
the driver: an entry stays until the next pod asks for units, and a resource for minutes after its plugin has ended. Such traces are no
sign of somebody else.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from dra_driver.model.ids import PodUid, ResourceName, UnitId
from dra_driver.model.state import PreparedClaim
from dra_driver.planning.guard import OwnUnits
from dra_driver.services.foreign.kubelet import KubeletSays

LEAVING_SECONDS = 10.0  # until the kubelet has noticed that this driver offers a resource no more


def units_by_pod(
    rows: Iterable[PreparedClaim],
) -> Mapping[PodUid | None, frozenset[tuple[ResourceName, UnitId]]]:
    """Return the units that the rows of this API gave to each pod; the pod None stands for rows whose pod is not known."""
    given: dict[PodUid | None, frozenset[tuple[ResourceName, UnitId]]] = {}
    for row in rows:
        if not row.ref.of_plugin:
            continue
        units = frozenset(
            (ResourceName(row.ref.name), UnitId(name))
            for device in row.devices
            for name in device.request_names
        )
        for pod in row.users.pods or (None,):
            given[pod] = given.get(pod, frozenset()) | units
    return given


class OwnTraces:
    """What this driver offers and gave out, for as long as the kubelet may name it. `offered` are the resources that it offers now."""

    def __init__(self, offered: Callable[[], Collection[str]], clock: Callable[[], float]) -> None:
        self._offered = offered
        self._clock = clock
        self._left: dict[ResourceName, float] = {}
        self._given: Mapping[PodUid | None, frozenset[tuple[ResourceName, UnitId]]] = {}

    @property
    def left(self) -> frozenset[ResourceName]:
        """The resources that it offers or offered, and that the kubelet may not have forgotten yet."""
        return frozenset(self._left)

    @property
    def expects_a_pod(self) -> bool:
        """Whether it gave units to a pod that is not known yet."""
        return None in self._given

    def offered_before(self, names: Iterable[str]) -> None:
        """An earlier process of the driver offered these resources."""
        self._left = dict.fromkeys(map(ResourceName, names), self._clock())

    def units(self, rows: Iterable[PreparedClaim], kubelet: KubeletSays) -> OwnUnits:
        """Return what is this driver's own, by the rows of its state and by what the kubelet says now."""
        now = self._clock()
        offered = frozenset(map(ResourceName, self._offered()))
        for name in offered:
            self._left[name] = now
        counts, registered = kubelet.counts, kubelet.checkpoint.registered
        self._left = {
            name: at
            for name, at in self._left.items()
            # The kubelet has it still, and nobody else serves it.
            if now - at < LEAVING_SECONDS
            or counts is None
            or (not counts.get(name) and name in (*registered, *counts))
        }
        leaving = {name for name, at in self._left.items() if now - at < LEAVING_SECONDS}
        self._given = self._given_now(rows, kubelet)
        return OwnUnits(offered | leaving, self.left, self._given)

    def _given_now(
        self, rows: Iterable[PreparedClaim], kubelet: KubeletSays
    ) -> Mapping[PodUid | None, frozenset[tuple[ResourceName, UnitId]]]:
        given = self._given_before(kubelet)
        for pod, units in units_by_pod(rows).items():
            given[pod] = given.get(pod, frozenset()) | units
        return given

    def _given_before(
        self, kubelet: KubeletSays
    ) -> dict[PodUid | None, frozenset[tuple[ResourceName, UnitId]]]:
        """What this driver gave to pods that the kubelet still names. A row goes when its pod has ended, and the kubelet's entry stays until the
        next pod asks for units: it is no sign of somebody else.
        """
        named = {entry.pod for entry in kubelet.checkpoint.containers}
        return {
            pod: units
            for pod, units in self._given.items()
            if pod is not None and (kubelet.unread or pod in named)
        }
