# SPDX-License-Identifier: Apache-2.0
"""What the API server adds to objects that people leave short."""

import msgspec

from dra_driver.model.api.core import Pod
from dra_driver.model.api.defaults import pod_with_defaults, with_defaults
from dra_driver.model.api.resource_claim import ResourceClaimSpec


def spec(*requests: dict[str, object]) -> ResourceClaimSpec:
    return msgspec.convert({"devices": {"requests": list(requests)}}, ResourceClaimSpec)


def test_a_request_is_for_one_device_and_tolerations_are_equal() -> None:
    short = {"deviceClassName": "c", "tolerations": [{"key": "k"}]}
    whole = {
        **short,
        "allocationMode": "ExactCount",
        "count": 1,
        "tolerations": [{"key": "k", "operator": "Equal"}],
    }
    given = spec({"name": "a", "exactly": short}, {"name": "b", "firstAvailable": [short]})
    expected = spec({"name": "a", "exactly": whole}, {"name": "b", "firstAvailable": [whole]})
    assert with_defaults(given) == expected
    assert with_defaults(expected) == expected


def test_what_is_there_stays() -> None:
    wanted = spec(
        {"name": "a", "exactly": {"allocationMode": "All"}},
        {"name": "b", "exactly": {"allocationMode": "ExactCount", "count": 3}},
    )
    assert with_defaults(wanted) == wanted
    assert with_defaults(ResourceClaimSpec()) == ResourceClaimSpec()


def test_a_limit_is_a_request_where_none_is_made() -> None:
    resources = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}
    containers = [{"name": "a", "resources": resources}, {"name": "b"}]
    pod = msgspec.convert({"spec": {"containers": containers}}, Pod)
    found = pod_with_defaults(pod).spec.containers or []
    assert [one.resources.requests for one in found] == [{"cpu": "1", "memory": "1Gi"}, None]
