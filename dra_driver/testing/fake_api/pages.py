# SPDX-License-Identifier: Apache-2.0
"""The pages of the fake API server that depend only on its settings: discovery, health and metrics."""

from collections.abc import Mapping

from dra_driver.model.api.resource_claim import GROUP
from dra_driver.model.cluster import GATES_PATH
from dra_driver.testing.fake_api.kinds import KINDS, OTHER_GROUPS, VERSIONS, Object, ResourceKind
from dra_driver.testing.fake_api.store import Refused

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def fixed_page(path: str, versions: tuple[str, ...]) -> Object | None:
    """Return the discovery or health page at this path, for the served versions; None for another path."""
    served = [
        {"groupVersion": f"{GROUP}/{version}", "version": version}
        for version in VERSIONS
        if version in versions
    ]
    group = {"name": GROUP, "versions": served, "preferredVersion": served[0] if served else {}}
    pages: dict[str, Object] = {
        "/readyz": {"ok": True},
        "/livez": {"ok": True},
        "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.0+fake"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/api/v1": _resource_list("", "v1"),
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group] if served else []},
    }
    if served:
        pages[f"/apis/{GROUP}"] = {"kind": "APIGroup", "apiVersion": "v1", **group}
    pages |= {f"/apis/{GROUP}/{version}": _resource_list(GROUP, version) for version in versions}
    pages |= {f"/apis/{group}/v1": _resource_list(group, "v1") for group in OTHER_GROUPS}
    return pages.get(path.rstrip("/"))


def metrics_page(gates: Mapping[str, bool] | None) -> bytes:
    """Return the feature gates in the form of the API server's metrics.

    Raises Refused if the gates are None.
    """
    if gates is None:
        raise Refused(403, "Forbidden", f'forbidden: User cannot get path "{GATES_PATH}"')
    lines = [
        f'kubernetes_feature_enabled{{name="{name}",stage="BETA"}} {int(state)}\n'
        for name, state in gates.items()
    ]
    return "".join(["# TYPE kubernetes_feature_enabled gauge\n", *lines]).encode()


def _resource_list(group: str, version: str) -> Object:
    def entry(kind: ResourceKind) -> Object:
        return {
            "name": kind.plural,
            "kind": kind.name,
            "namespaced": kind.namespaced,
            "singularName": "",
            "verbs": list(VERBS),
        }

    kinds = [entry(kind) for kind in KINDS.values() if kind.group == group]
    group_version = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": kinds,
    }
