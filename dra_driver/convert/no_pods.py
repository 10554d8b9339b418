# SPDX-License-Identifier: Apache-2.0
"""What asks for devices in objects that are no pods and no workloads? It is not converted, and each place is told."""

from collections.abc import Iterator, Mapping
from typing import Any

from dra_driver.convert.resources import Choice, NotConverted, Wanted, wanted
from dra_driver.explain.subject.manifest_kinds import group_and_version
from dra_driver.model.plugin_resources import asked_in, is_device_resource

Object = Mapping[str, Any]
_OF_QUOTAS = "requests."
_CLAIMS = "count/resourceclaims.resource.k8s.io"
_LIMITS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")


def without_pods(document: Object, choice: Choice) -> Iterator[NotConverted]:
    """Yield each place of an object without a pod that is about a resource of devices."""
    kind = str(document.get("kind"))
    match group_and_version(document)[0], kind:
        case "", "ResourceQuota":
            yield from _quota(document, choice)
        case "", "LimitRange":
            yield from _limit_range(document, choice)
        case _:
            for place, name in dict.fromkeys(asked_in(document)):
                yield NotConverted(f"{place} asks for {name}", unknown_kind(kind))


def unknown_kind(kind: str) -> str:
    """Return why the pods in an object of another kind are not converted, and what to do."""
    return (
        f"the kind {kind} is not known here, so its pods stay as they are; give the pod spec in it resourceClaims, and the container "
        "resources.claims, as in what `convert` makes of a Pod with the same containers"
    )


def _quota(document: Object, choice: Choice) -> Iterator[NotConverted]:
    spec = document.get("spec")
    hard = spec.get("hard") if isinstance(spec, Mapping) else None
    for key, amount in (hard if isinstance(hard, Mapping) else {}).items():
        name = str(key).removeprefix(_OF_QUOTAS).removeprefix("limits.")
        if is_device_resource(name):
            counted = _counted(name, choice)
            reason = f"a quota counts claims by other keys: write {counted}: {amount} beside it, or {_CLAIMS} for the number of claims"
            yield NotConverted(f"{key}: {amount}", reason)


def _limit_range(document: Object, choice: Choice) -> Iterator[NotConverted]:
    spec = document.get("spec")
    limits = spec.get("limits") if isinstance(spec, Mapping) else None
    for entry in limits if isinstance(limits, list) else ():
        for field in _LIMITS:
            found = entry.get(field) if isinstance(entry, Mapping) else None
            for key, amount in (found if isinstance(found, Mapping) else {}).items():
                if is_device_resource(str(key)):
                    counted = _counted(str(key), choice)
                    reason = f"a LimitRange says nothing of claims; a ResourceQuota with {counted} limits the devices of the namespace"
                    yield NotConverted(f"{field} {key}: {amount}", reason)


def _counted(name: str, choice: Choice) -> str:
    """Return the key by which a quota counts the devices of the class that stands for the resource."""
    found = wanted(name, "1", choice)
    of_class = found.device_class if isinstance(found, Wanted) else "<class>"
    return f"{of_class}.deviceclass.resource.k8s.io/devices"
