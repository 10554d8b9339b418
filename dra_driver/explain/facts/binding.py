# SPDX-License-Identifier: Apache-2.0
"""Does the scheduler wait until a controller has prepared the devices of a claim, and until when?

A device can have binding conditions. After the allocation the scheduler looks at the claim again and again, and binds the pod when all of
them are True. If a binding failure condition is True, or the time is over, it takes the pod back, and the claim can be used on no node.
The time begins with status.allocation.allocationTimestamp. Its length is `bindingTimeout` in the scheduler's configuration, which
cannot be read, so the default counts here.
Source: k8s.io/kubernetes pkg/scheduler/framework/plugins/dynamicresources (Filter, PreBind, isClaimReadyForBinding, isClaimTimeout)
and DynamicResourcesBindingTimeoutDefault; the same rule in 1.34 to 1.37.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from dra_driver.explain.facts.claim_state import allocated
from dra_driver.explain.names import full_name
from dra_driver.explain.verdict import BindingConditionsPending, BindingFailed, BindingTimedOut
from dra_driver.explain.verdicts.claim import BINDING_TIMEOUT_MINUTES
from dra_driver.model.api.core import Pod
from dra_driver.model.api.meta import Condition
from dra_driver.model.api.resource_claim import DeviceRequestAllocationResult, ResourceClaim

BROKEN = (BindingFailed, BindingTimedOut)
"""With one of these problems a claim can be used on no node, until it is deallocated."""
_TIMEOUT = timedelta(minutes=BINDING_TIMEOUT_MINUTES)
_SAID = ("binding failed", "binding timeout")


def binding(
    claim: ResourceClaim, read_at: str, pod: Pod | None = None
) -> Iterator[BindingConditionsPending | BindingFailed | BindingTimedOut]:
    """Yield why an allocated claim is not ready; nothing if it is. `read_at` is the time when the cluster was read, and `pod` the
    pod that needs the claim.

    As for the scheduler, the devices count in their order: it does not look behind one that is not ready.
    """
    name = full_name(claim.metadata)
    missing: list[str] = []
    unseen: list[str] = []
    for result in allocated(claim):
        if not result.binding_conditions:
            continue
        true = _true_conditions(claim, result)
        failed = [one for one in result.binding_failure_conditions or () if one in true]
        if failed and not missing:
            yield BindingFailed(name, failed[0], true[failed[0]].message)
            return
        unseen += failed
        missing += [one for one in result.binding_conditions if one not in true]
    if not missing:
        return
    end, now = _end(claim), _time(read_at)
    conditions = tuple(dict.fromkeys(missing))
    if end and now and end < now:
        yield BindingTimedOut(name, conditions, _text(end), _is_reserved(claim, pod))
    else:
        until = _text(end) if end else ""
        yield BindingConditionsPending(name, conditions, until, tuple(dict.fromkeys(unseen)))


def is_said_of_binding(message: str) -> bool:
    """Return whether the scheduler says that a pod had a node, and lost it because its devices were not prepared."""
    return any(words in message for words in _SAID)


def _true_conditions(
    claim: ResourceClaim, result: DeviceRequestAllocationResult
) -> Mapping[str, Condition]:
    """Return the conditions of the device that are True. The scheduler does not compare shares of a device."""
    wanted = (result.driver, result.pool, result.device)
    for device in claim.status.devices or ():
        if (device.driver, device.pool, device.device) == wanted:
            return {one.type: one for one in device.conditions or () if one.status == "True"}
    return {}


def _is_reserved(claim: ResourceClaim, pod: Pod | None) -> bool:
    """Return whether the claim is reserved for the pod. The scheduler ends that as soon as it does not wait any more."""
    uids = {one.uid for one in claim.status.reserved_for or ()}
    return pod is not None and pod.metadata.uid in uids


def _end(claim: ResourceClaim) -> datetime | None:
    """Return when the scheduler gives the devices up; None if it is not known when they were allocated."""
    allocation = claim.status.allocation
    begin = _time((allocation and allocation.allocation_timestamp) or "")
    try:
        return begin and begin + _TIMEOUT
    except OverflowError:
        return None


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _text(time: datetime) -> str:
    return f"{time.replace(tzinfo=None, microsecond=0).isoformat()}Z"
