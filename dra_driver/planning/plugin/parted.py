# SPDX-License-Identifier: Apache-2.0
"""Which units of a row has nobody any more, while a pod has the others?

The units of an Allocate call are one row. If its pod never started, the next pod may get a part of them, with the row's answer. An init container
may have had more than the container after it, too. Only the kubelet's checkpoint tells the two apart: it goes on to name the init container.
"""

import json
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.model.plan import MarkStarted, Plan, WriteCdiSpec
from dra_driver.model.plugin import UnitsOfContainer
from dra_driver.model.state import PreparedClaim, PreparedDevice, Users
from dra_driver.planning.plugin.rows import shares_units
from dra_driver.planning.unprepare import resets


class Parted(Struct, frozen=True):
    """A row in two: `kept` is what pods have, and `rest` what only pods had that the kubelet does not name any more."""

    kept: PreparedClaim
    rest: PreparedClaim

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
    mine = [one for one in containers if shares_units(one, row)]
    named = frozenset[str]().union(*(one.units for one in mine))
    before = tuple(pod for pod in row.users.pods or () if pod not in {one.pod for one in mine})
    kept = tuple(one for one in row.devices if not named.isdisjoint(one.request_names))
    rest = tuple(one for one in row.devices if named.isdisjoint(one.request_names))
    if not (kept and rest and before):
        return None
    return Parted(
        _only(row, kept), replace(_only(row, rest), users=Users(before, sole=row.users.sole))
    )


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
