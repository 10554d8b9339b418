# SPDX-License-Identifier: Apache-2.0
"""What does the scheduler write into status.allocation of a claim?

The result has the devices, their configuration, and a node selector for the nodes that can use the devices.
Source: k8s.io/dynamic-resource-allocation/structured/internal/*/allocator_*.go (Allocate, createNodeSelector).
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from dra_driver.allocator.amounts import Amount
from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.features import Rules
from dra_driver.allocator.requests import Choice
from dra_driver.allocator.search import DeviceResult
from dra_driver.model.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dra_driver.model.api.resource_claim import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceClass,
    DeviceRequestAllocationResult,
    OpaqueDeviceConfiguration,
    ResourceClaim,
)


def allocation_result(
    claim: ResourceClaim,
    choices: Sequence[Choice],
    selected: Sequence[DeviceResult],
    *,
    rules: Rules,
    node_name: str,
    new_share_id: Callable[[], str],
) -> AllocationResult:
    """Return the allocation result for one claim. Raises AllocationError if its node selector cannot be built."""
    try:
        node_selector = _node_selector(selected, rules, node_name)
    except AllocationError as error:
        raise AllocationError(
            f"create NodeSelector for claim {claim.metadata.name}: {error}"
        ) from error
    results = [_device_result(one, rules, new_share_id) for one in selected]
    return AllocationResult(
        devices=DeviceAllocationResult(
            results=results or None, config=_configuration(claim, choices) or None
        ),
        node_selector=node_selector,
    )


def _device_result(
    selected: DeviceResult, rules: Rules, new_share_id: Callable[[], str]
) -> DeviceRequestAllocationResult:
    request, device = selected.request, selected.device
    published = device.device
    binding = rules.binding_conditions
    consumed = selected.consumed
    return DeviceRequestAllocationResult(
        request=request.full_name,
        driver=device.id.driver,
        pool=device.id.pool,
        device=device.id.device,
        admin_access=True if request.admin_access else None,
        tolerations=request.spec.tolerations or None,
        binding_conditions=(published.binding_conditions or None) if binding else None,
        binding_failure_conditions=(
            (published.binding_failure_conditions or None) if binding else None
        ),
        share_id=None if consumed is None else new_share_id(),
        consumed_capacity=(
            {name: _text(taken) for name, taken in consumed.items()} if consumed else None
        ),
        skip_node_operations=(
            (device.slice.spec.skip_node_operations or None) if rules.experimental else None
        ),
    )


@lru_cache(maxsize=4096)
def _text(taken: Amount) -> str:
    return str(taken)  # Many results have the same amounts, and formatting is slow.


def _configuration(
    claim: ResourceClaim, choices: Sequence[Choice]
) -> list[DeviceAllocationConfiguration]:
    """Return the configurations of the classes, in the order of the requests, then the configurations of the claim."""
    found = _of_classes(choices) + _of_claim(claim, choices)
    return [
        DeviceAllocationConfiguration(
            source=source,
            # No list of requests means all requests, and upstream writes it in this short form.
            requests=None if _means_all(requests, choices) else requests,
            opaque=opaque,
        )
        for source, requests, opaque in found
    ]


_Configured = tuple[str, list[str], OpaqueDeviceConfiguration | None]


def _of_classes(choices: Sequence[Choice]) -> list[_Configured]:
    for choice in choices:
        if choice.request.device_class.spec.config:
            break
    else:
        return []
    # Several requests may use one class. Upstream writes the configuration of a class once, for all these requests.
    users: dict[str, list[str]] = {}
    classes: dict[str, DeviceClass] = {}
    for choice in choices:
        request = choice.request
        name = request.device_class.metadata.name
        users.setdefault(name, []).append(request.full_name)
        classes[name] = request.device_class
    return [
        ("FromClass", requests, config.opaque)
        for name, requests in users.items()
        for config in classes[name].spec.config or ()
    ]


def _of_claim(claim: ResourceClaim, choices: Sequence[Choice]) -> list[_Configured]:
    if not claim.spec.devices.config:
        return []
    return [
        ("FromClaim", config.requests or [], config.opaque)
        for config in claim.spec.devices.config
        if not config.requests or any(_means(config.requests, choice) for choice in choices)
    ]


def _means(requests: list[str], choice: Choice) -> bool:
    return choice.name in requests or (choice.prioritized and choice.request.full_name in requests)


def _means_all(requests: list[str], choices: Sequence[Choice]) -> bool:
    return not requests or all(_means(requests, choice) for choice in choices)


def _node_selector(
    selected: Sequence[DeviceResult], rules: Rules, node_name: str
) -> NodeSelector | None:
    expressions: list[NodeSelectorRequirement] = []
    fields: list[NodeSelectorRequirement] = []
    for one in selected:
        spec, device = one.device.slice.spec, one.device.device
        chooses = device if spec.per_device_node_selection else spec
        # One device that exists on one node binds the whole claim to this node.
        if chooses.node_name is not None or (rules.newer_than_stable and device.binds_to_node):
            name = node_name if rules.newer_than_stable else chooses.node_name
            return _only(name or "")
        if chooses.node_selector is None:
            continue
        terms = chooses.node_selector.node_selector_terms or []
        # A term is an AND of requirements, so the terms of several devices can be merged only if each has one term.
        if len(terms) > 1:
            raise AllocationError(f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms")
        for term in terms:
            _add_new(term.match_fields, fields)
            _add_new(term.match_expressions, expressions)
    if not expressions and not fields:
        return None
    term = NodeSelectorTerm(match_expressions=expressions or None, match_fields=fields or None)
    return NodeSelector(node_selector_terms=[term])


@lru_cache(maxsize=8192)
def _only(name: str) -> NodeSelector:
    requirement = NodeSelectorRequirement(key="metadata.name", operator="In", values=[name])
    return NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[requirement])])


def _add_new(
    requirements: list[NodeSelectorRequirement] | None, known: list[NodeSelectorRequirement]
) -> None:
    for one in requirements or ():
        if not any(
            (one.key, one.operator) == (other.key, other.operator)
            and set(one.values or ()) == set(other.values or ())
            for other in known
        ):
            known.append(one)
