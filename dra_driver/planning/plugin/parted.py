# SPDX-License-Identifier: Apache-2.0
"""Which units of a row has nobody any more, while a pod has the others?

The units of an Allocate call are one row. If its pod never started, the next pod may get a part of them, with the row's answer. An init container
may have had more than the container after it, too. Only the kubelet's checkpoint tells the two apart: it goes on to name the init container.
"""

import json
from collections.abc import Collection, Iterable

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.model.ids import PodUid, UnitId
from dra_driver.model.plan import MarkStarted, Plan, WriteCdiSpec
from dra_driver.model.plugin import UnitsOfContainer
from dra_driver.model.state import PreparedClaim, PreparedDevice, Users
from dra_driver.planning.plugin.rows import sharing, units_of
from dra_driver.planning.unprepare import resets


class Parted(Struct, frozen=True):
    """A row in two: `kept` is what pods have, and `rest` what only pods had that the kubelet does not name any more."""

    kept: PreparedClaim
    rest: PreparedClaim

    @property
    def keepers(self) -> tuple[PodUid, ...]:
        """The pods that have only what is kept."""
        return _others(self.kept.users.pods or (), self.rest.users.pods or ())

    @property
    def told(self) -> MarkStarted:
        """The first commit: the row still owns everything, but what its text does not have is not given again."""
        kept = self.kept
        row = replace(kept, devices=(*kept.devices, *self.rest.devices))
        leases = None if kept.leases is None else (*kept.leases, *(self.rest.leases or ()))
        return MarkStarted(replace(row, leases=leases))

    @property
    def plan(self) -> Plan:
        """What comes after it. The last step is the second commit."""
        kept, uid = self.kept, self.kept.ref.uid
        write = (WriteCdiSpec(uid, kept.cdi_spec, kept.metadata),) if kept.cdi_spec else ()
        return Plan(kept.ref, (*write, *resets(self.rest), MarkStarted(kept)), kept.devices)


def parted(row: PreparedClaim, containers: Iterable[UnitsOfContainer]) -> Parted | None:
    """Part a row whose last pod is known. None if all of it is that pod's. `containers` are those of the kubelet's checkpoint.

    If the row has had no other pod than those of the checkpoint, an entry with fewer units is an older one.
    """
    mine = sharing(containers, row)
    named = frozenset[str]().union(*(one.units for one in mine))
    before = _others(row.users.pods or (), {one.pod for one in mine})
    return _split(row, units_of(row) - named, before) if before else None


def parted_by_call(
    row: PreparedClaim,
    asked: Collection[UnitId],
    containers: Iterable[UnitsOfContainer],
    suspects: Iterable[PodUid] = (),
) -> Parted | None:
    """Part a row of which a call asks for some units: they are the rest. None if it asks for all. `suspects` may have units of the row, too.

    The kubelet gives out only what nobody has. So whom the checkpoint names for these units has ended, or is the pod of the call, which has had them
    for an init container. The other pods that it names are the `keepers`, and have nothing of the rest.
    """
    mine = sharing(containers, row)
    gone = {one.pod for one in mine if not one.units.isdisjoint(asked)}
    keepers = {one.pod for one in mine} - gone
    return _split(row, asked, _others((*(row.users.pods or ()), *suspects), keepers))


def _others(pods: Iterable[PodUid], without: Collection[PodUid]) -> tuple[PodUid, ...]:
    return tuple(dict.fromkeys(pod for pod in pods if pod not in without))


def _split(
    row: PreparedClaim, units: Collection[UnitId], pods: tuple[PodUid, ...]
) -> Parted | None:
    """Make these units the rest, which these pods have had."""
    rest = tuple(one for one in row.devices if not set(units).isdisjoint(one.request_names))
    kept = tuple(one for one in row.devices if one not in rest)
    if not (kept and rest):
        return None
    users = Users(pods, sole=row.users.sole)
    return Parted(_only(row, kept), replace(_only(row, rest), users=users))


def _only(row: PreparedClaim, devices: tuple[PreparedDevice, ...]) -> PreparedClaim:
    keys = {(device.device, device.share_id) for device in devices}
    leases = row.leases
    if leases is not None:
        leases = tuple(one for one in leases if (one.device, one.share_id) in keys)
    ids = {cdi_id for device in devices for cdi_id in device.cdi_ids}
    return replace(row, devices=devices, leases=leases, cdi_spec=_described(row.cdi_spec, ids))


def _described(text: str, ids: Iterable[str]) -> str:
    """The CDI document without all other devices."""
    if not text:
        return ""
    document = json.loads(text)
    document["devices"] = [
        one for one in document["devices"] if f"{document['kind']}={one['name']}" in ids
    ]
    return json.dumps(document, sort_keys=True, separators=(",", ":"))
