# SPDX-License-Identifier: Apache-2.0
"""What pods use of a node is added up once, and a pod is not in its own way."""

from typing import Any

import msgspec

from dra_driver.explain.facts.used_resources import UsedResources
from dra_driver.model.api.core import Pod


def pod(name: str, cpu: str, node: str = "n1", phase: str = "Running") -> Pod:
    containers: list[dict[str, Any]] = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    whole = {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"nodeName": node, "containers": containers},
        "status": {"phase": phase},
    }
    return msgspec.convert(whole, Pod)


def test_a_pod_is_not_counted_for_itself() -> None:
    one, other = pod("one", "1"), pod("other", "2")
    used = UsedResources((one, other, pod("over", "8", phase="Succeeded"), pod("waits", "8", "")))
    assert used.without(pod("new", "1", ""), "n1") == {"pods": 2 * 10**9, "cpu": 3 * 10**9}
    assert used.without(one, "n1") == {"pods": 10**9, "cpu": 2 * 10**9}
    assert used.without(one, "n2") == {"pods": 0}


def test_a_node_is_added_up_once() -> None:
    used = UsedResources((pod("one", "1"),))
    new = pod("new", "1", "")
    assert used.without(new, "n1") is used.without(new, "n1")
