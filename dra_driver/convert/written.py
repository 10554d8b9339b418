# SPDX-License-Identifier: Apache-2.0
"""How are claims and templates written? With the fewest fields, as a person would write them."""

from collections.abc import Sequence
from typing import Any

from dra_driver.convert.resources import Wanted
from dra_driver.model.api.resource_claim import GROUP

Object = dict[str, Any]
_VERSION = f"{GROUP}/v1"


def claim(name: str, namespace: object, requests: Sequence[tuple[str, Wanted]]) -> Object:
    """Return a ResourceClaim, which pods share."""
    return {
        "apiVersion": _VERSION,
        "kind": "ResourceClaim",
        "metadata": _metadata(name, namespace),
        "spec": _spec(requests),
    }


def template(name: str, namespace: object, requests: Sequence[tuple[str, Wanted]]) -> Object:
    """Return a ResourceClaimTemplate, of which each pod gets a claim of its own."""
    return {
        "apiVersion": _VERSION,
        "kind": "ResourceClaimTemplate",
        "metadata": _metadata(name, namespace),
        "spec": {"spec": _spec(requests)},
    }


def _metadata(name: str, namespace: object) -> Object:
    return {"name": name, "namespace": namespace} if namespace else {"name": name}


def _spec(requests: Sequence[tuple[str, Wanted]]) -> Object:
    return {"devices": {"requests": [_request(name, one) for name, one in requests]}}


def _request(name: str, one: Wanted) -> Object:
    exactly: Object = {"deviceClassName": one.device_class}
    if one.count > 1:
        exactly["count"] = one.count
    if one.selectors:
        exactly["selectors"] = [{"cel": {"expression": text}} for text in one.selectors]
    if one.capacity:
        exactly["capacity"] = {"requests": dict(one.capacity)}
    return {"name": name, "exactly": exactly}
