# SPDX-License-Identifier: Apache-2.0
"""Can the pods of a workload share one claim, as a share of a GPU becomes? All of them then run on the node of its GPU."""

from collections.abc import Iterator, Mapping
from typing import Any

from dra_driver.convert.nodes import inside
from dra_driver.explain.facts.claim_state import MOST_CONSUMERS
from dra_driver.explain.subject.manifest_kinds import WORKLOADS, group_and_version
from dra_driver.explain.subject.workloads import count_of, pod_path, selects

Object = Mapping[str, Any]
_OWN = "ask for nvidia.com/gpu and no product with -SHARED, so that each pod has a GPU of its own, or keep the plugin; it stays"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def why_not_shared(document: Object, spec: Object) -> str:
    """Return why the pods of a workload cannot all use one claim; "" if nothing in it is against that. `spec` is that of its pods."""
    kind, group = str(document.get("kind")), group_and_version(document)[0]
    if WORKLOADS.get(kind) != group:
        return ""
    if kind == "DaemonSet":
        return f"a DaemonSet has pods on several nodes, and the GPU of a claim is on one; {_OWN}"
    count = count_of(document)
    if count > MOST_CONSUMERS:
        return f"{count} pods would use one claim, and it has at most {MOST_CONSUMERS} at a time; make several workloads of it, or keep the plugin; it stays"
    apart = next(_apart(spec, _labels(document, kind, group), count), "")
    if apart:
        return f"{apart} keeps the pods apart, and the GPU of a claim is on one node; leave it out, or {_OWN}"
    return ""


def _labels(document: Object, kind: str, group: str) -> Object:
    found = document
    for step in (*(pod_path(kind, group) or ()), "metadata", "labels"):
        found = inside(found, str(step))
    return found


def _apart(spec: Object, labels: Object, count: int) -> Iterator[str]:
    """Yield what forbids that so many pods with these labels run on one node."""
    for one in _listed(spec, "topologySpreadConstraints"):
        skew = one.get("maxSkew")
        is_rule = one.get("whenUnsatisfiable") == "DoNotSchedule"
        if is_rule and isinstance(skew, int) and count > skew and _is_of(one, labels):
            yield f"topologySpreadConstraints ({one.get('topologyKey')})"
    for one in _listed(inside(inside(spec, "affinity"), "podAntiAffinity"), _REQUIRED):
        if count > 1 and _is_of(one, labels):
            yield f"podAntiAffinity ({one.get('topologyKey')})"


def _is_of(condition: Object, labels: Object) -> bool:
    """Whether it counts the pods themselves. Without a selector it counts none."""
    selector = condition.get("labelSelector")
    return isinstance(selector, dict) and selects(selector, labels)


def _listed(content: Object, name: str) -> list[Object]:
    found = content.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
