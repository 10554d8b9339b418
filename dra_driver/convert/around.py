# SPDX-License-Identifier: Apache-2.0
"""What do a pod's nodes and its workload say of its resources?

With the strategy `single` NVIDIA's plugin offers MIG devices by the name of whole GPUs, and so does GKE. A plugin that shares GPUs and does not rename
them offers shares by it. Only the labels by which a pod chooses its nodes tell what it means.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from dra_driver.convert.labels import Condition, is_of_shares, profile_in
from dra_driver.convert.nodes import inside, required_terms
from dra_driver.convert.resources import Around
from dra_driver.convert.shares import why_not_shared
from dra_driver.model.mig_profiles import profile_of

PARTITION_LABEL = "cloud.google.com/gke-gpu-partition-size"


def around(document: Mapping[str, Any], spec: Mapping[str, Any]) -> Around:
    """Return what an object says of the resources in one of its pods."""
    found = replace(
        _of_nodes(spec),
        not_shared=why_not_shared(document, spec),
        node_name=str(spec.get("nodeName") or ""),
    )
    return found if found.profile else replace(found, shares=_shares(spec))


def _chosen(spec: Mapping[str, Any]) -> list[Condition]:
    return [
        Condition(str(key), "In", (str(value),))
        for key, value in inside(spec, "nodeSelector").items()
    ]


def _shares(spec: Mapping[str, Any]) -> str:
    """Return the condition that is true only of nodes with shares of GPUs. Of several terms each must have one."""
    always = next(filter(is_of_shares, _chosen(spec)), None)
    if always:
        return str(always)
    each = [next(filter(is_of_shares, term), None) for term in required_terms(spec)]
    return str(each[0]) if each and all(each) else ""


def _of_nodes(spec: Mapping[str, Any]) -> Around:
    chosen = _chosen(spec)
    terms = required_terms(spec)
    if len(terms) == 1:
        chosen += terms[0]
    told = [(one, parts) for one in chosen if (parts := _parts(one))]
    # Which of several terms the pod's node has is open.
    open_ones = [one for term in terms for one in term if len(terms) > 1 and _parts(one)]
    named = {profile for _, parts in told if len(parts) == 1 for profile in parts if profile}
    if len(named) == 1:
        return Around(named.pop())
    labels = (*(one for one, _ in told), *open_ones)
    return Around(may_be_part=_unknown(labels[0])) if labels else Around()


def _unknown(condition: Condition) -> str:
    return (
        f"on nodes with {condition} it is a part of a GPU, or may be one, and no label says of which profile; ask for nvidia.com/mig-… with the "
        "profile, or take the label out if a whole GPU is meant; it stays"
    )


def _parts(condition: Condition) -> set[str | None]:
    """Return the profile for each value of a condition: "" for a part whose profile it does not say, None for what may be a whole GPU.

    The set is empty if the condition says nothing of parts.
    """
    read = _PROFILES.get(condition.key)
    found = set(map(read, condition.values)) if read and condition.operator == "In" else set()
    return found - {None} and found


def _known(profile: str) -> str:
    return profile if profile_of(f"nvidia.com/mig-{profile}") else ""


def _of_product(value: str) -> str | None:
    profile = profile_in(value)
    return _known(profile) if profile else None


def _of_layout(value: str) -> str | None:
    """Of the layouts that NVIDIA's MIG manager brings, all-1g.5gb makes parts of one profile."""
    return _known(value.removeprefix("all-")) or None


def _of_strategy(value: str) -> str | None:
    """A node with this strategy may have whole GPUs all the same, while no MIG devices are made there."""
    return "" if value == "single" else None


_PROFILES: Mapping[str, Callable[[str], str | None]] = {
    "nvidia.com/gpu.product": _of_product,
    "nvidia.com/mig.config": _of_layout,
    "nvidia.com/mig.strategy": _of_strategy,
    PARTITION_LABEL: _known,
}


def without_partition(spec: dict[str, Any]) -> None:
    """Take GKE's label of nodes with parts out of a pod's spec, if its requests have the profile."""
    labels = inside(spec, "nodeSelector")
    if PARTITION_LABEL in labels and _of_nodes(spec).profile:
        del labels[PARTITION_LABEL]
        if not labels:
            del spec["nodeSelector"]
