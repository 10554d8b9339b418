# SPDX-License-Identifier: Apache-2.0
"""A pod with units of a plugin of somebody else, as the driver keeps it on disk."""

import msgspec


class RememberedPod(msgspec.Struct, frozen=True):
    """The pod's UID, and its units of one resource. `seen`: processes of it were seen, so it has ended when there are none."""

    pod: str
    resource: str
    units: tuple[str, ...]
    seen: bool = False
