# SPDX-License-Identifier: Apache-2.0
"""What does an answer hold in the driver's words, and which claim is it, as far as this driver needs it?

Parameters that are meant for other drivers are not looked at, so it does not matter what stands there. Parameters for this
driver that cannot be read make the claim one that cannot be prepared. Which claim it is, its devices and its pods are known all
the same: whoever asks only for these is answered, for a stranger may have written another claim under the name of one that is gone.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from dra_driver.errors import DriverError
from dra_driver.kube.decode import Found, identity, read_object
from dra_driver.kube.discovery import Wire
from dra_driver.kube.failures import Call, garbage, malformed
from dra_driver.kube.strict import Undecodable, is_deeper
from dra_driver.model.api.meta import ObjectMeta
from dra_driver.model.api.resource_claim import (
    DeviceAllocationConfiguration,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from dra_driver.model.claim import Claim, ClaimRef, OpaqueConfig
from dra_driver.model.ids import ClaimUid, DriverName, PodUid

POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
DEEPEST_PARAMETERS = 64
"""Levels of brackets in parameters; the kinds that drivers read have fewer than ten."""

_Loaded = TypeVar("_Loaded")


def read_claim(call: Call, body: bytes, wire: Wire, driver: DriverName) -> Claim:
    """The claim of one answer, `unusable` if its configuration cannot be read. Raises Malformed, and Temporary where the body is no object at all."""
    try:
        found = read_object(body)
    except Undecodable as error:
        if identity(
            body
        ).name:  # it is one of the server's objects, not a page of something between
            raise malformed(call, str(error)) from error
        raise garbage(call, body) from error
    claim = load_claim(call, found, wire, driver)
    for config in claim.configs:
        if why := _unreadable(found, config):
            return replace(claim, unusable=str(malformed(call, why)))
    return claim


def load_claim(call: Call, found: Found, wire: Wire, driver: DriverName) -> Claim:
    """The claim with the configuration of this driver, which is empty where it cannot be read. Raises Malformed."""
    claim = load_whole(call, found, partial(as_claim, wire))
    own = tuple(config for config in claim.configs if config.driver == driver)
    return replace(claim, configs=own)


def load_whole(call: Call, found: Found, load: Callable[[Mapping[str, Any]], _Loaded]) -> _Loaded:
    """An object of which everything was read but what is opaque. Raises Malformed."""
    for defect in found.defects:
        if not defect.is_opaque:
            raise malformed(call, str(defect))
    return loaded(call, load, found.content)


def loaded(
    call: Call, load: Callable[[Mapping[str, Any]], _Loaded], content: Mapping[str, Any]
) -> _Loaded:
    """An object in the driver's words. Raises Malformed, whatever is wrong with it."""
    try:
        return load(content)
    except DriverError:
        raise
    except Exception as error:
        raise malformed(call, f"{type(error).__name__}: {error}") from error


def as_claim(wire: Wire, content: Mapping[str, Any]) -> Claim:
    """A ResourceClaim as this driver looks at it; `results` is None where it has no allocation. Raises Unreadable."""
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
    )


def _pod(user: ResourceClaimConsumerReference) -> PodUid:
    """A pod that may use the claim; empty for another consumer, whose pods nobody names here."""
    is_pod = user.resource == "pods" and not user.api_group
    return PodUid(user.uid if is_pod else "")


def _sole_pod(metadata: ObjectMeta) -> PodUid | None:
    """The pod for which the claim was made of a template."""
    if POD_CLAIM_NAME not in (metadata.annotations or {}):
        return None
    for owner in metadata.owner_references or ():
        if owner.controller is True and owner.kind == "Pod":
            return PodUid(owner.uid) or None
    return None


def _configs(entries: list[DeviceAllocationConfiguration]) -> Iterator[OpaqueConfig]:
    for index, entry in enumerate(entries):
        if entry.opaque is None:
            continue  # a kind of configuration that is not ours to read
        parameters = entry.opaque.parameters
        yield OpaqueConfig(
            index=index,
            source="FromClass" if entry.source == "FromClass" else "FromClaim",
            requests=tuple(entry.requests or ()),
            driver=DriverName(entry.opaque.driver),
            parameters=parameters if isinstance(parameters, Mapping) else {},
        )


def _unreadable(found: Found, config: OpaqueConfig) -> str:
    """Why this driver's configuration cannot be used; empty if it can."""
    place = ("status", "allocation", "devices", "config", str(config.index))
    for defect in found.defects:
        if defect.path[: len(place)] == place:
            return str(defect)
    if is_deeper(config.parameters, DEEPEST_PARAMETERS):
        return (
            f"{'.'.join(place)}.opaque.parameters is nested deeper than {DEEPEST_PARAMETERS} levels"
        )
    return ""
