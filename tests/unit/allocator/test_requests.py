# SPDX-License-Identifier: Apache-2.0
"""What is refused before any device is looked at."""

from typing import Any

import msgspec
import pytest

from dra_driver.allocator import features
from dra_driver.allocator.allocate import Allocator
from dra_driver.allocator.failures import AllocationError
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_claim import DeviceClass, ResourceClaim

Json = dict[str, Any]
CLASSES = msgspec.convert([{"metadata": {"name": "gpu"}}], list[DeviceClass])
EXACT = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}


def refusal(request: Json, *, off: str = "", **devices: Any) -> str:
    spec = {"devices": {"requests": [{"name": "r0", **request}], **devices}}
    claim = msgspec.convert(
        {"metadata": {"name": "c", "namespace": "ns"}, "spec": spec}, ResourceClaim
    )
    allocator = Allocator([], CLASSES, features=features.ALL - {off})
    with pytest.raises(AllocationError) as caught:
        allocator.allocate(Node(), [claim])
    return str(caught.value)


@pytest.mark.parametrize(
    ("request_", "off", "text"),
    [
        (
            {"firstAvailable": [{"name": "s", **EXACT}]},
            features.PRIORITIZED_LIST,
            "claim ns/c, request r0: has subrequests, but the DRAPrioritizedList feature is disabled",
        ),
        (
            {"exactly": {**EXACT, "capacity": {}}},
            features.CONSUMABLE_CAPACITY,
            "claim ns/c, request r0: has capacity requests, but the DRAConsumableCapacity feature is disabled",
        ),
        (
            {"firstAvailable": [{"name": "s", **EXACT, "capacity": {}}]},
            features.CONSUMABLE_CAPACITY,
            "claim ns/c, subrequest s: has capacity requests, but the DRAConsumableCapacity feature is disabled",
        ),
        (
            {"exactly": {**EXACT, "derivedAttributes": [{"name": "a/b", "expression": "1"}]}},
            features.DERIVED_ATTRIBUTES,
            "claim ns/c, request r0: cannot handle request with derived attributes, the feature is disabled",
        ),
        (
            {"exactly": {**EXACT, "adminAccess": False}},
            features.ADMIN_ACCESS,
            "claim ns/c, request r0: admin access is requested, but the feature is disabled",
        ),
        (
            {"exactly": {**EXACT, "selectors": [{}]}},
            "",
            "claim ns/c, request r0, selector #0: CEL expression empty (unsupported selector type?)",
        ),
        (
            {"exactly": {**EXACT, "deviceClassName": ""}},
            "",
            "claim ns/c, request r0: missing device class name (unsupported request type?)",
        ),
        (
            {"exactly": {**EXACT, "deviceClassName": "gone"}},
            "",
            (
                "claim ns/c, request r0: could not retrieve device class gone:"
                ' deviceclass.resource.k8s.io "gone" not found'
            ),
        ),
        (
            {"exactly": {**EXACT, "allocationMode": "Some"}},
            "",
            "claim ns/c, request r0: unsupported count mode Some",
        ),
        (
            {},
            "",
            "claim ns/c, request r0: neither exactly nor firstAvailable is set (unsupported request type?)",
        ),
    ],
)
def test_what_is_not_covered_is_refused(request_: Json, off: str, text: str) -> None:
    assert refusal(request_, off=off) == text


def test_a_constraint_of_an_unknown_kind_is_refused() -> None:
    assert refusal({"exactly": EXACT}, constraints=[{}]) == (
        "claim ns/c, constraint #0: empty constraint (unsupported constraint type?)"
    )


def test_a_claim_without_a_namespace_goes_by_its_name() -> None:
    claim = msgspec.convert(
        {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r0"}]}}},
        ResourceClaim,
    )
    with pytest.raises(AllocationError, match=r"^claim c, request r0: "):
        Allocator([], CLASSES).allocate(Node(), [claim])
