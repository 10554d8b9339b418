# SPDX-License-Identifier: Apache-2.0
"""Which names do the objects of a kind have? For the completion of command lines: one request, and only so many names."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from dra_driver.kube.connection import Connection
from dra_driver.kube.discovery import DISCOVERY_PATH, WIRES, versions_of
from dra_driver.kube.failures import ApiCall
from dra_driver.kube.transport import ANY_JSON, METADATA_ONLY, Exchange, Transport
from dra_driver.model.api.resource_claim import GROUP
from dra_driver.model.api.workload import PLURALS

MOST_NAMES = 500
SLICES = "resourceslices"
_CORE = ("namespaces", "nodes", "pods")
_GROUPS: Mapping[str, str] = {plural: group for group, plural in PLURALS.values()}


def object_names(connection: Connection, plural: str, *, namespace: str = "") -> Sequence[str]:
    """Return the names of the objects, sorted; with `namespace` of its objects alone. Raises DriverError."""
    return sorted(_text(_metadata(one), "name") for one in _items(connection, plural, namespace))


def driver_names(connection: Connection) -> Sequence[str]:
    """Return the drivers that publish ResourceSlices, sorted. Raises DriverError."""
    found = {_text(_part(one, "spec"), "driver") for one in _items(connection, SLICES, "")}
    return sorted(found - {""})


def _items(connection: Connection, plural: str, namespace: str) -> Sequence[Any]:
    transport = Transport(connection)
    try:
        root = _root(transport, plural)
        inner = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        exchange = Exchange(
            ApiCall("list", plural),
            "GET",
            f"{root}{inner}/{plural}",
            {"limit": str(MOST_NAMES)},
            accept=ANY_JSON if plural == SLICES else METADATA_ONLY,
        )
        items = transport.request(exchange).get("items")
    finally:
        transport.close()
    return items if isinstance(items, list) else []


def _root(transport: Transport, plural: str) -> str:
    """Return the path of the API group that has the resource."""
    group = _GROUPS.get(plural, GROUP)
    if plural in _CORE or not group:
        return "/api/v1"
    if group != GROUP:
        return f"/apis/{group}/v1"
    found = transport.request(Exchange(ApiCall("get", f"group {GROUP}"), "GET", DISCOVERY_PATH))
    served = versions_of(found)
    version = next((wire.version for wire in WIRES if wire.version in served), WIRES[0].version)
    return f"{DISCOVERY_PATH}/{version}"


def _metadata(item: object) -> Mapping[str, Any]:
    return _part(item, "metadata")


def _part(item: object, name: str) -> Mapping[str, Any]:
    found = item.get(name) if isinstance(item, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _text(part: Mapping[str, Any], name: str) -> str:
    return str(part.get(name) or "")
