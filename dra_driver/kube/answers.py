# SPDX-License-Identifier: Apache-2.0
"""How does a ResourceClaim of the API server become the driver's `Claim`?

The parameters for other drivers are ignored, whatever they contain. If the parameters for this driver cannot be read, the claim
becomes `unusable`: the driver refuses to prepare it. Its identity, devices and pods are still known. Unprepare and the sweep
need only these, and they must work for every claim: anybody may create an unreadable claim under the name of one that is gone.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from dra_driver.errors import DriverError
from dra_driver.kube.decode import Found, identity, read_object
from dra_driver.kube.discovery import Wire
from dra_driver.kube.failures import ApiCall, garbage, malformed
from dra_driver.kube.strict import Undecodable, is_deeper
from dra_driver.model.api.meta import ObjectMeta
from dra_driver.model.api.resource_claim import (
    POD_CLAIM_NAME,
    DeviceAllocationConfiguration,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from dra_driver.model.claim import Claim, ClaimRef, OpaqueConfig
from dra_driver.model.ids import ClaimUid, DriverName, PodUid

DEEPEST_PARAMETERS = 64
"""The deepest nesting that parameters may have. The kinds that drivers read have fewer than ten levels."""

_Loaded = TypeVar("_Loaded")


def read_claim(call: ApiCall, body: bytes, wire: Wire, driver: DriverName) -> Claim:
    """The claim in an answer; `unusable` if this driver's configuration cannot be read. Raises Malformed, and Temporary if the body is no JSON object."""
    try:
        found = read_object(body)
    except Undecodable as error:
        # With a name it is an object of the API server; without one it may be the error page of a proxy.
        if identity(body).name:
            raise malformed(call, str(error)) from error
        raise garbage(call, body) from error
    claim = claim_for_driver(call, found, wire, driver)
    for config in claim.configs:
        if why := _unreadable(found, config):
            return dataclasses.replace(claim, unusable=str(malformed(call, why)))
    return claim


def claim_for_driver(call: ApiCall, found: Found, wire: Wire, driver: DriverName) -> Claim:
    """The claim, with the configuration of this driver only; parameters that cannot be read are empty. Raises Malformed."""
    claim = load_whole(call, found, partial(as_claim, wire))
    own = tuple(config for config in claim.configs if config.driver == driver)
    return dataclasses.replace(claim, configs=own)


def load_whole(
    call: ApiCall, found: Found, load: Callable[[Mapping[str, Any]], _Loaded]
) -> _Loaded:
    """Convert an object whose defects, if any, are all in opaque fields. Raises Malformed if another field cannot be read."""
    for defect in found.defects:
        if not defect.is_opaque:
            raise malformed(call, str(defect))
    return loaded(call, load, found.content)


def loaded(
    call: ApiCall, load: Callable[[Mapping[str, Any]], _Loaded], content: Mapping[str, Any]
) -> _Loaded:
    """Convert an object with `load`. Raises Malformed for every error that is not the driver's own."""
    try:
        return load(content)
    except DriverError:
        raise
    except Exception as error:
        raise malformed(call, f"{type(error).__name__}: {error}") from error


def as_claim(wire: Wire, content: Mapping[str, Any]) -> Claim:
    """The `Claim` for a ResourceClaim; `results` is None if it has no allocation. Raises Unreadable."""
    found = wire.load(ResourceClaim, content)
    users = found.status.reserved_for or ()
    pods = tuple(_pod(user) for user in users)
    allocation = found.status.allocation
    return Claim(
        ClaimRef(found.metadata.namespace, found.metadata.name, ClaimUid(found.metadata.uid)),
        results=None if allocation is None else tuple(allocation.devices.results or ()),
        configs=() if allocation is None else tuple(_configs(allocation.devices.config or [])),
        reserved_for=tuple(pod for pod in pods if pod),
        sole_pod=_sole_pod(found.metadata),
        unnamed_users=not all(pods),
        allocation_timestamp=(allocation and allocation.allocation_timestamp) or "",
        resource_version=found.metadata.resource_version,
        pod_claim_name=(found.metadata.annotations or {}).get(POD_CLAIM_NAME, ""),
        statuses=tuple(found.status.devices or ()),
    )


def _pod(user: ResourceClaimConsumerReference) -> PodUid:
    """The UID of a pod that may use the claim; empty for another kind of consumer, whose pods are not listed in the claim."""
    is_pod = user.resource == "pods" and not user.api_group
    return PodUid(user.uid if is_pod else "")


def _sole_pod(metadata: ObjectMeta) -> PodUid | None:
    """The pod for which the claim was created from a template; None if the claim was created by itself."""
    if POD_CLAIM_NAME not in (metadata.annotations or {}):
        return None
    for owner in metadata.owner_references or ():
        if owner.controller is True and owner.kind == "Pod":
            return PodUid(owner.uid) or None
    return None


def _configs(entries: list[DeviceAllocationConfiguration]) -> Iterator[OpaqueConfig]:
    for index, entry in enumerate(entries):
        if entry.opaque is None:
            continue  # a kind of configuration that is newer than this driver
        parameters = entry.opaque.parameters
        yield OpaqueConfig(
            index=index,
            source="FromClass" if entry.source == "FromClass" else "FromClaim",
            requests=tuple(entry.requests or ()),
            driver=DriverName(entry.opaque.driver),
            parameters=parameters if isinstance(parameters, Mapping) else {},
        )


def _unreadable(found: Found, config: OpaqueConfig) -> str:
    """Why this configuration cannot be used; empty if it can."""
    place = ("status", "allocation", "devices", "config", str(config.index))
    for defect in found.defects:
        if defect.path[: len(place)] == place:
            return str(defect)
    if is_deeper(config.parameters, DEEPEST_PARAMETERS):
        return (
            f"{'.'.join(place)}.opaque.parameters is nested deeper than {DEEPEST_PARAMETERS} levels"
        )
    return ""
