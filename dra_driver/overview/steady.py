# SPDX-License-Identifier: Apache-2.0
"""What does a document say, apart from the time that passes? With `--watch` an answer that says the same is not printed again."""

import msgspec

from dra_driver.overview.claims import ClusterClaims
from dra_driver.overview.devices import ClusterDevices
from dra_driver.overview.free import FreeDevices
from dra_driver.overview.usage import DeviceUsage, UsageRow

Document = ClusterDevices | ClusterClaims | FreeDevices | DeviceUsage


def steady(document: Document) -> Document:
    """Return the document without the time of the reading and without hours, which grow by themselves."""
    if isinstance(document, DeviceUsage):
        rows = tuple(map(_without_hours, document.rows))
        total = _without_hours(document.total)
        return msgspec.structs.replace(document, read_at="", rows=rows, total=total)
    return msgspec.structs.replace(document, read_at="")


def _without_hours(row: UsageRow) -> UsageRow:
    return msgspec.structs.replace(row, device_hours=0.0)
