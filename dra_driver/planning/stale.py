# SPDX-License-Identifier: Apache-2.0
"""Which extended resources are in the status of a node although nobody serves them? And how are they removed?

Anybody with the right can write a resource into `status.capacity` of a Node, and the kubelet keeps it for ever. As long as it is there, the
scheduler does not look at a DeviceClass of that name on this node. What a device plugin brought, the kubelet itself sets to 0 after the
plugin's end.
"""

import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping

from dra_driver.model.plugin import RESOURCE_PATTERN
from dra_driver.model.quantity import Quantity

_KUBERNETES = "kubernetes.io/"  # also in subdomains: hugepages and volumes have such names


def stale_resources(capacity: Mapping[str, object], served: Collection[str]) -> tuple[str, ...]:
    """Return the extended resources with an amount that no device plugin serves. `served` are those that the kubelet knows from plugins."""
    return tuple(
        name
        for name, amount in sorted(capacity.items())
        if "/" in name and _KUBERNETES not in name and name not in served and _is_some(amount)
    )


def patch_command(node: str, resource: str, fields: Iterable[str]) -> str:
    """Return the command that removes a resource from these fields of the node's status; empty if the name is none of an extended resource.

    The API server checks no names there, and an admin pastes the command into a shell.
    """
    if not re.fullmatch(RESOURCE_PATTERN, resource):
        return ""
    patch = shlex.quote(patch_of(resource, fields))
    return f"kubectl patch node {shlex.quote(node)} --subresource=status --type=json -p {patch}"


def patch_of(resource: str, fields: Iterable[str]) -> str:
    """Return the JSON patch that removes a resource from these fields of the node's status."""
    key = resource.replace("~", "~0").replace("/", "~1")
    return json.dumps([{"op": "remove", "path": f"/status/{field}/{key}"} for field in fields])


def _is_some(amount: object) -> bool:
    try:
        return Quantity.parse(str(amount)).nanos > 0
    except ValueError:
        return False
