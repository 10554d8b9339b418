# SPDX-License-Identifier: Apache-2.0
"""Which objects are looked into, which have nothing to do with devices, and which are not known here?"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from dra_driver.check.cluster_objects import is_bare_config
from dra_driver.check.finding import Finding
from dra_driver.check.given import Given, steps
from dra_driver.check.older_forms import WITHDRAWN
from dra_driver.explain.subject.manifest_kinds import (
    group_and_version,
    is_understood,
    kind_refusal,
    passed_over,
)
from dra_driver.model.api.resource_claim import GROUP
from dra_driver.model.plugin_resources import asked_in
from dra_driver.model.pod_templates import pod_templates
from dra_driver.model.printable import printable
from dra_driver.model.yaml_documents import path_text

_BUILT_IN = (
    *("", "apps", "batch", "autoscaling", "policy", "extensions", "networking.k8s.io"),
    *("rbac.authorization.k8s.io", "storage.k8s.io", "scheduling.k8s.io", "node.k8s.io"),
    *("admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io"),
    *("coordination.k8s.io", "discovery.k8s.io", "certificates.k8s.io", "events.k8s.io"),
    *("flowcontrol.apiserver.k8s.io", "authentication.k8s.io", "authorization.k8s.io"),
)
"""The groups of Kubernetes itself. What is looked into of them is in LOOKED_INTO; the rest has nothing to do with devices."""
LOOKED_INTO = ("ResourceQuota", "ConfigMap", "Node", "Role", "ClusterRole", "PodTemplate")
MOST_TEMPLATES = 256
"""Of an object of an unknown kind so many pod templates are looked into. The number of the others is told."""
_CHECK_PODS = "check the pods that it makes, for example from `kubectl get pods -o yaml`"


def is_known(content: Mapping[str, Any]) -> bool:
    """Return whether the object is looked into, or has nothing to do with devices."""
    group = group_and_version(content)[0]
    if group == GROUP:
        return is_understood(content) or content.get("kind") in WITHDRAWN
    return group in _BUILT_IN or is_bare_config(content)


def is_object(content: object) -> bool:
    """Return whether a document is meant as an object of Kubernetes. Chart.yaml has an apiVersion too, and values.yaml neither."""
    if not isinstance(content, Mapping):
        return False
    heads = [field for field in ("apiVersion", "kind") if field in content]
    return len(heads) > 1 or bool(heads and ("metadata" in content or "spec" in content))


def matters(content: object) -> bool:
    """Return whether a document has to be kept: it is looked into, or something is said of it."""
    if not isinstance(content, Mapping):
        return False
    if not is_object(content):
        return is_bare_config(content)
    kind = content.get("kind")
    return (
        kind in ("List", *LOOKED_INTO)
        or is_understood(content)
        or not is_known(content)
        or bool(kind_refusal(content, ()))
    )


def is_foreign(one: Given) -> bool:
    """Return whether this is a document that nobody meant as an object. In a List it is meant as one."""
    return not (one.base or is_object(one.content) or is_bare_config(one.content))


def unknown_findings(given: Sequence[Given]) -> Iterator[Finding]:
    """Yield a note for each kind that is not known here, at its first object, and for each file with something else than objects."""
    seen: set[tuple[str, str]] = set()
    for one in given:
        if is_foreign(one):
            if ("", one.file) not in seen:
                message = (
                    "no object of Kubernetes, which has apiVersion and kind: it is not checked"
                )
                yield replace(one.finding("not-checked", (), message), subject="the file")
            seen.add(("", one.file))
            continue
        known = is_known(one.content)
        templates = [] if known else [path_text(path) for path, _ in pod_templates(one.content)]
        if not known:
            told = tuple(f"{path}." for path in templates[:MOST_TEMPLATES])
            for place, name in dict.fromkeys(asked_in(one.content)):
                if place.startswith(told):
                    continue  # told with its pod
                message = f"{place} asks a device plugin for {printable(name)}, or a DeviceClass with this extendedResourceName"
                action = "a claim is asked for by resourceClaims in the pod spec and resources.claims in the container"
                yield one.finding("device-plugin", steps(place), message, action)
        if len(templates) > MOST_TEMPLATES:
            yield _too_many(one, len(templates))
        kind = (group_and_version(one.content)[0], one.kind)
        if kind in seen or known or kind_refusal(one.content, ()):
            continue
        seen.add(kind)
        has_pods = not templates and "its pods are not looked at" in passed_over(one.content)
        what = "neither it nor its pods are checked" if has_pods else "it is not checked"
        if templates:
            others = min(len(templates), MOST_TEMPLATES) - 1
            more = f" and {others} more" if others else ""
            what = f"of it only the pods are checked, in {printable(templates[0] or 'spec')}{more}"
        message = f"{one.kind} of {kind[0]}: {what}"
        yield one.finding("not-checked", ("kind",), message, _CHECK_PODS if has_pods else "")


def _too_many(one: Given, found: int) -> Finding:
    message = f"{found - MOST_TEMPLATES} of its {found} pod templates are not checked: of one object the first {MOST_TEMPLATES} are"
    return one.finding("not-checked", ("kind",), message, _CHECK_PODS)
