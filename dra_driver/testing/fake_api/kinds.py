# SPDX-License-Identifier: Apache-2.0
"""Which kinds does the fake API server keep, and under which paths?

Everything is stored in the newest form, v1. `convert` makes the older served forms of resource.k8s.io out of it and
back; the one difference that matters here is `devices[].basic` and the flat requests of v1beta1.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

Object = dict[str, Any]

GROUP = "resource.k8s.io"
VERSIONS = ("v1", "v1beta2", "v1beta1")

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


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of object.

    `selectable` are the field selectors that the real server takes besides metadata.name; `immutable` the fields that an
    update may not change. A kind with a status has it written under its own path, except that of Nodes at creation.
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
        Kind(
            "resourceslices",
            "ResourceSlice",
            GROUP,
            namespaced=False,
            selectable=("spec.driver", "spec.nodeName"),
            immutable=("spec.driver", "spec.pool.name", "spec.nodeName"),
        ),
        Kind(
            "resourceclaims",
            "ResourceClaim",
            GROUP,
            namespaced=True,
            has_status=True,
            immutable=("spec",),
        ),
        Kind(
            "resourceclaimtemplates",
            "ResourceClaimTemplate",
            GROUP,
            namespaced=True,
            immutable=("spec",),
        ),
        Kind("deviceclasses", "DeviceClass", GROUP, namespaced=False),
        Kind("devicetaintrules", "DeviceTaintRule", GROUP, namespaced=False, has_status=True),
        Kind(
            "pods",
            "Pod",
            "",
            namespaced=True,
            has_status=True,
            selectable=("spec.nodeName", "status.phase"),
        ),
        Kind("nodes", "Node", "", namespaced=False, has_status=True, created_with_status=True),
        Kind("namespaces", "Namespace", "", namespaced=False, has_status=True),
        Kind("events", "Event", "", namespaced=True, selectable=("involvedObject.name", "reason")),
    )
}


def convert(obj: Object, version: str, *, direction: Literal["serve", "store"]) -> Object:
    """A copy of `obj` in the form of `version` ("serve"), or from that form in v1 ("store")."""
    copy = deepcopy(obj)
    kind = copy.get("kind")
    copy["apiVersion"] = f"{GROUP}/{version if direction == 'serve' else 'v1'}"
    if version == "v1beta1" and (change := _V1BETA1.get((str(kind), direction))):
        change(copy)
    return copy


def fill_in(obj: Object) -> None:
    """Write what the server assumes where a claim or template says nothing: exactly one device."""
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
