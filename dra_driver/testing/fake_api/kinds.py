# SPDX-License-Identifier: Apache-2.0
"""Which kinds does the fake API server have, and under which paths?

All objects are stored in the form of v1. `convert` converts between v1 and the older versions of resource.k8s.io. Only v1beta1
differs: it has `devices[].basic`, and requests without `exactly`.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Literal

from msgspec import Struct

from dra_driver.model.api.resource_claim import GROUP
from dra_driver.model.api.workload import PLURALS

Object = dict[str, Any]

VERSIONS = ("v1", "v1beta2", "v1beta1")

OTHER_GROUPS = ("apps", "batch", "policy")
"""Each has the version v1."""

_CLAIMS = ("ResourceClaim", "ResourceClaimTemplate")
_EXACT_FIELDS = (
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
)


class ResourceKind(Struct, frozen=True):
    """One kind of object.

    `selectable` are the field selectors that the real server accepts besides metadata.name. `immutable` are the fields that an
    update must not change. A status is written under its own path (`/status`), except the status of a Node at its creation.
    """

    plural: str
    name: str
    group: str
    namespaced: bool
    has_status: bool = False
    created_with_status: bool = False
    selectable: tuple[str, ...] = ()
    immutable: tuple[str, ...] = ()

    @property
    def qualified(self) -> str:
        """The plural with its group, as messages write it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def api_version(self, version: str) -> str:
        return f"{self.group}/{version}" if self.group else version


KINDS = {
    kind.plural: kind
    for kind in (
        ResourceKind(
            "resourceslices",
            "ResourceSlice",
            GROUP,
            namespaced=False,
            selectable=("spec.driver", "spec.nodeName"),
            immutable=("spec.driver", "spec.pool.name", "spec.nodeName"),
        ),
        ResourceKind(
            "resourceclaims",
            "ResourceClaim",
            GROUP,
            namespaced=True,
            has_status=True,
            immutable=("spec",),
        ),
        ResourceKind(
            "resourceclaimtemplates",
            "ResourceClaimTemplate",
            GROUP,
            namespaced=True,
            immutable=("spec",),
        ),
        ResourceKind("deviceclasses", "DeviceClass", GROUP, namespaced=False),
        ResourceKind(
            "devicetaintrules", "DeviceTaintRule", GROUP, namespaced=False, has_status=True
        ),
        ResourceKind(
            "pods",
            "Pod",
            "",
            namespaced=True,
            has_status=True,
            selectable=("spec.nodeName", "status.phase"),
        ),
        ResourceKind(
            "nodes", "Node", "", namespaced=False, has_status=True, created_with_status=True
        ),
        ResourceKind(
            "poddisruptionbudgets",
            "PodDisruptionBudget",
            "policy",
            namespaced=True,
            has_status=True,
        ),
        ResourceKind("namespaces", "Namespace", "", namespaced=False, has_status=True),
        *(
            ResourceKind(plural, name, group, namespaced=True, has_status=True)
            for name, (group, plural) in PLURALS.items()
        ),
        ResourceKind(
            "events", "Event", "", namespaced=True, selectable=("involvedObject.name", "reason")
        ),
    )
}


def convert(obj: Object, version: str, *, direction: Literal["serve", "store"]) -> Object:
    """Return a copy of `obj` in the form of `version` ("serve"), or from that form in v1 ("store")."""
    copy = deepcopy(obj)
    kind = copy.get("kind")
    copy["apiVersion"] = f"{GROUP}/{version if direction == 'serve' else 'v1'}"
    if version == "v1beta1" and (change := _V1BETA1.get((str(kind), direction))):
        change(copy)
    return copy


def fill_in(obj: Object) -> None:
    """Write the server's default into the requests of a claim or template that have none: exactly one device."""
    for request in _requests(obj) if obj.get("kind") in _CLAIMS else ():
        for asked in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if asked:
                _fill_in_request(asked)


def _fill_in_request(asked: Object) -> None:
    if asked.setdefault("allocationMode", "ExactCount") == "ExactCount":
        asked.setdefault("count", 1)
    for toleration in asked.get("tolerations") or ():
        toleration.setdefault("operator", "Equal")


def _basic(obj: Object) -> None:
    for device in obj.get("spec", {}).get("devices") or []:
        device["basic"] = {key: device.pop(key) for key in tuple(device) if key != "name"}


def _flat_device(obj: Object) -> None:
    for device in obj.get("spec", {}).get("devices") or []:
        device.update(device.pop("basic", {}))


def _requests(obj: Object) -> list[Object]:
    spec = obj.get("spec", {})
    spec = spec.get("spec", {}) if obj.get("kind") == "ResourceClaimTemplate" else spec
    requests: list[Object] = spec.get("devices", {}).get("requests") or []
    return requests


def _flat_requests(obj: Object) -> None:
    for request in _requests(obj):
        request.update(request.pop("exactly", {}))


def _exact_requests(obj: Object) -> None:
    for request in _requests(obj):
        exactly = {key: request.pop(key) for key in _EXACT_FIELDS if key in request}
        if exactly:
            request["exactly"] = exactly


_V1BETA1: dict[tuple[str, str], Callable[[Object], None]] = {
    ("ResourceSlice", "serve"): _basic,
    ("ResourceSlice", "store"): _flat_device,
    ("ResourceClaim", "serve"): _flat_requests,
    ("ResourceClaim", "store"): _exact_requests,
    ("ResourceClaimTemplate", "serve"): _flat_requests,
    ("ResourceClaimTemplate", "store"): _exact_requests,
}
