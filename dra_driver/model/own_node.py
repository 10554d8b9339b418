# SPDX-License-Identifier: Apache-2.0
"""The Node object of this node, as far as the driver reads and writes it."""

from collections.abc import Mapping

from msgspec import Struct, field


class NodeCondition(Struct, frozen=True):
    """A condition in the Node's status, of the driver's own type. `since` is the time of its last change, `seen` that of its last write."""

    is_true: bool
    reason: str
    message: str
    since: str = ""
    seen: str = ""

    @property
    def says(self) -> tuple[bool, str, str]:
        """What it says, without the times."""
        return self.is_true, self.reason, self.message


class OwnNode(Struct, frozen=True):
    """The Node of this driver. `owned` are the labels of which the API server says that this driver applied them."""

    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    owned: frozenset[str] = frozenset()
    taints: frozenset[str] = frozenset()
    condition: NodeCondition | None = None
