# SPDX-License-Identifier: Apache-2.0
"""What does a pod or workload look like that asks for the same devices by claims? The entry point of the package.

Each container keeps what it asked for: each amount of a resource becomes a request, and the container gets only the devices of its own
requests. Labels of nodes that are about devices become selectors of these requests. What cannot be asked of a device stays, and is told.
"""

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from dra_driver.convert.around import around, without_partition
from dra_driver.convert.kinds import each_has, says_a_kind, selector_of, vendor_of
from dra_driver.convert.names import Names
from dra_driver.convert.no_pods import without_pods
from dra_driver.convert.nodes import choice_of_nodes, inside, without_request
from dra_driver.convert.resources import (
    Around,
    Choice,
    NotConverted,
    Wanted,
    answers,
    of_whole_pod,
)
from dra_driver.convert.written import claim, template
from dra_driver.explain.subject.manifest_kinds import group_and_version, kind_of, name_of
from dra_driver.explain.subject.workloads import pod_path
from dra_driver.model.plugin_resources import has_nvidias_runtime
from dra_driver.model.pod_templates import CUSTOM_GROUPS, pod_templates
from dra_driver.model.yaml_documents import Path, path_text

Object = dict[str, Any]
GPU, SHARED = "gpu", "shared-gpu"
_LONGEST_LABEL = 63
_CUSTOM = (
    "the CustomResourceDefinition must have resourceClaims in its pod templates, in the form of Kubernetes 1.31 or later: one that lacks the field drops it "
    "without a word. After applying it, look whether the object still has it"
)
_TAINT = "nvidia.com/gpu"
"""The usual taint of nodes with GPUs. It has the name of the resource, so that an admission plugin can add the toleration."""
_TOLERATION = (
    f"nodes with a taint for their devices ({_TAINT}): the API server may have added a toleration for the resource; add it to the "
    "pod if it has none"
)
_RUNTIME = (
    "runtimeClassName: a container without a claim gets every GPU that NVIDIA_VISIBLE_DEVICES of the pod or its image names from NVIDIA's runtime; "
    "claims do not need it: leave it out"
)


class Converted(Struct, frozen=True):
    """The objects in place of one: claims and templates first. `notes` become comments; `left` stays as it was.

    `without_request` are the labels of devices in pods that ask for none: they stay, and nothing is missing.
    """

    title: str
    documents: tuple[Object, ...]
    notes: tuple[str, ...] = ()
    left: tuple[NotConverted, ...] = ()
    without_request: tuple[NotConverted, ...] = ()

    @property
    def is_changed(self) -> bool:
        """Whether anything became a claim."""
        return len(self.documents) > 1


class Asked(Struct, frozen=True):
    """One request of a pod, and the container that has its devices."""

    name: str
    container: str
    resource: str
    wanted: Wanted


class _Pod(Struct):
    """A pod while its containers are converted."""

    choice: Choice
    around: Around
    asked: list[Asked] = field(default_factory=list)
    left: list[NotConverted] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def request_for(self, container: Object, resource: str, found: Wanted) -> Asked:
        """Add a request. It has the name of its container, and a number if that is taken."""
        base = str(container.get("name") or GPU)[: _LONGEST_LABEL - 3]
        names = {one.name for one in self.asked}
        name = next(
            one
            for number in range(1, 1000)
            if (one := f"{base}-{number}" if number > 1 else base) not in names
        )
        self.asked.append(Asked(name, base, resource, found))
        return self.asked[-1]


def convert(
    document: Object,
    choice: Choice,
    products: Collection[str],
    taken: Names | None = None,
) -> Converted:
    """Return what stands in place of an object. `products` are the names of known products, for labels that have them in another spelling.

    `taken` are the names that claims and templates have already; those that are made are added.
    """
    title = f"{kind_of(document)} {name_of(document)}"
    made = copy.deepcopy(document)
    pods = dict(_pods_of(made))
    names = Names() if taken is None else taken
    each = [_convert(made, pod["spec"], choice, products, names) for pod in pods.values()]
    first = [one for found in each for one in found.documents]
    notes = [one for found in each for one in found.notes]
    left = [one for found in each for one in found.left]
    labels = tuple(one for found in each for one in found.without_request)
    if not pods or is_custom(document):
        paths = tuple(f"{path_text(path)}." for path in pods)
        left += [one for one in without_pods(made, choice) if not one.what.startswith(paths)]
    if first and is_custom(document):
        notes.append(_CUSTOM)
    documents = (*first, made) if first else (document,)
    return Converted(title, documents, tuple(dict.fromkeys(notes)), tuple(left), labels)


def _convert(
    made: Object,
    spec: Object,
    choice: Choice,
    products: Collection[str],
    taken: Names,
) -> Converted:
    """Change the spec of one pod of an object. The documents are what must be made before it; there are none if the pod stays as it was."""
    state = _Pod(choice, around(made, spec))
    state.left += of_whole_pod(amounts_of(inside(spec, "resources")))
    without_partition(spec)
    uses = list(_containers(spec, state))
    if not state.asked:
        if not state.left and not _is_of_cluster(made, spec):
            state.left += _unscheduled(spec, state.around)
        return Converted("", (), (), tuple(state.left), tuple(without_request(spec)))
    selected = choice_of_nodes(spec, [one.wanted for one in state.asked], products)
    asked = [
        replace(one, wanted=replace(one.wanted, selectors=(*one.wanted.selectors, *more)))
        for one, more in zip(state.asked, selected.selectors, strict=True)
    ]
    claims = _claims(made, spec, asked, taken)
    for container, found in uses:
        _use(container, [one for one in asked if one.name in found], claims)
    notes = [*state.notes, *(note for one in asked for note in one.wanted.notes)]
    if any(one.resource == _TAINT for one in asked) and not _tolerates(spec):
        notes.append(_TOLERATION)
    if has_nvidias_runtime(spec):
        notes.append(_RUNTIME)
    made_first = tuple(_object(made, entry, asked) for entry in claims.values())
    return Converted("", made_first, tuple(notes), (*state.left, *selected.left))


def _is_of_cluster(made: Object, spec: Object) -> bool:
    """Whether it is a pod that was read from a cluster, so that the scheduler may have written its nodeName."""
    metadata = made.get("metadata")
    return spec is made.get("spec") and isinstance(metadata, dict) and bool(metadata.get("uid"))


def _unscheduled(spec: Object, there: Around) -> Iterator[NotConverted]:
    """Yield why the claims that the pod has already get no devices."""
    if there.unscheduled and spec.get("resourceClaims"):
        yield NotConverted(f"nodeName: {there.node_name}", there.unscheduled)


def _tolerates(spec: Object) -> bool:
    """Whether a pod has a toleration for the usual taint of nodes with GPUs."""
    return any(
        (one.get("key") == _TAINT or (one.get("operator") == "Exists" and not one.get("key")))
        and one.get("effect") in (None, "", "NoSchedule")
        for one in listed(spec, "tolerations")
    )


def is_custom(document: Mapping[str, Any]) -> bool:
    """Return whether this is a custom resource of a group whose templates are those of pods."""
    return group_and_version(document)[0] in CUSTOM_GROUPS


def as_pods(document: Object) -> tuple[Object, ...]:
    """Return a pod for each template of an object that `explain` does not understand; another object as it is."""
    if not (is_custom(document) or document.get("kind") == "PodTemplate"):
        return (document,)
    metadata = document.get("metadata")
    outer = metadata if isinstance(metadata, dict) else {}
    kept = {"namespace": outer["namespace"]} if "namespace" in outer else {}
    return tuple(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{outer.get('name') or 'pod'}-{number}", **kept},
            "spec": pod["spec"],
        }
        for number, (_, pod) in enumerate(_pods_of(document))
    )


def _pods_of(document: Object) -> Iterator[tuple[Path, Object]]:
    """Yield each pod, or template of one, that an object has."""
    group = group_and_version(document)[0]
    if group in CUSTOM_GROUPS:
        yield from pod_templates(document)
        return
    path = pod_path(str(document.get("kind")), group)
    if path is None:
        return
    found: Any = document
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    if isinstance(found, dict) and isinstance(found.get("spec"), dict):
        yield path, found


def _containers(spec: Object, state: _Pod) -> Iterator[tuple[Object, set[str]]]:
    """Take the resources out of the containers, and yield each container with the names of its requests. Init containers come last.

    An init container ends before the others begin, and the kubelet gives its devices to one of them. So it uses requests of other containers with
    as many devices together, else one with more, which is told, and gets one of its own only for what they do not have together. The one after
    it uses that too.
    """
    for container in listed(spec, "containers"):
        found = [state.request_for(container, name, one) for name, one in _taken(container, state)]
        yield container, {one.name for one in found}
    others = list(state.asked)
    for container in listed(spec, "initContainers"):
        names = set()
        stays = container.get("restartPolicy") == "Always"
        for name, one in _taken(container, state):
            there = [] if stays else [each for each in others if each.resource == name]
            reused, missing = _together(there, one.count)
            if missing < 0:
                state.notes.append(_more(container, one.count, reused[0]))
            names |= {each.name for each in reused}
            if missing > 0:
                made = state.request_for(container, name, replace(one, count=missing))
                names.add(made.name)
                others += [] if stays else [made]
        yield container, names


def _together(there: Sequence[Asked], count: int) -> tuple[Sequence[Asked], int]:
    """Return requests for an init container, and how many devices they lack; a negative number is how many they have too many.

    The best are those with as many together, then the smallest one with more, then those with the most of what is asked for.
    """
    sums: dict[int, tuple[Asked, ...]] = {0: ()}
    for each in there:
        for total, found in list(sums.items()):
            if total + each.wanted.count <= count:
                sums.setdefault(total + each.wanted.count, (*found, each))
    larger = [each for each in there if each.wanted.count > count]
    if count not in sums and larger:
        smallest = min(larger, key=lambda each: each.wanted.count)
        return [smallest], count - smallest.wanted.count
    most = max(sums)
    return sums[most], count - most


def _more(container: Object, count: int, used: Asked) -> str:
    return (
        f"the init container {container.get('name')} asks for {count}, and gets all {used.wanted.count} devices of the request {used.name}: "
        "no other request of the pod has as few as it asks for, and one of its own would be more than the pod had"
    )


def listed(spec: Mapping[str, Any], name: str) -> list[Object]:
    """Return the objects in a list of a pod's spec, such as its containers."""
    found = spec.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _taken(container: Object, state: _Pod) -> Iterator[tuple[str, Wanted]]:
    """Remove the resources from a container that can be converted, and yield the requests for them."""
    resources = container.get("resources")
    if not isinstance(resources, dict):
        return
    amounts = amounts_of(resources)
    each = answers(amounts, state.around, state.choice)
    kinds = {
        name: amount
        for name, amount in amounts.items()
        if says_a_kind(name, amount) and name not in each
    }
    for name, one in each.items():
        if isinstance(one, NotConverted):
            state.left.append(one)
            continue
        mine = {kind: kinds[kind] for kind in kinds if vendor_of(kind) == one.vendor}
        for kind in mine:
            _remove(resources, kind)
        _remove(resources, name)
        more = [selector_of(kind, amount, one.driver) for kind, amount in mine.items()]
        notes = (*one.notes, *each_has(mine, one.count))
        yield name, replace(one, selectors=(*one.selectors, *more), notes=notes)


def amounts_of(resources: Mapping[str, Any]) -> dict[str, str]:
    """Return what the resources of a container ask for: the limits, and the requests that have none."""
    parts = (resources.get(name) for name in ("requests", "limits"))
    each = [part for part in parts if isinstance(part, dict)]
    return {str(key): str(value) for part in each for key, value in part.items()}


def _remove(resources: Object, name: str) -> None:
    for part in ("limits", "requests"):
        found = resources.get(part)
        if isinstance(found, dict) and name in found:
            del found[name]
            if not found:
                del resources[part]


class _Entry(Struct, frozen=True):
    """An entry of the pod's spec.resourceClaims, and the object that it names."""

    entry: str
    object_name: str
    is_shared: bool


def _claims(document: Object, spec: Object, asked: list[Asked], taken: Names) -> dict[bool, _Entry]:
    """Add the entries to the pod: a template for what each pod has alone, and a claim for what they share. By whether it is shared."""
    found_metadata = document.get("metadata")
    metadata = found_metadata if isinstance(found_metadata, dict) else {}
    name = str(metadata.get("name") or str(metadata.get("generateName") or "").rstrip("-") or "pod")
    namespace = str(metadata.get("namespace") or "")
    listed = spec.get("resourceClaims")
    there = spec["resourceClaims"] = list(listed) if isinstance(listed, list) else []
    entries = {str(one.get("name")) for one in there if isinstance(one, dict)}
    found: dict[bool, _Entry] = {}
    for is_shared in sorted({one.wanted.shared for one in asked}):
        base = SHARED if is_shared else GPU
        entry = next(
            one
            for number in range(1, 1000)
            if (one := f"{base}-{number}" if number > 1 else base) not in entries
        )
        found[is_shared] = _Entry(entry, taken.new(namespace, f"{name}-{base}"), is_shared)
        field_name = "resourceClaimName" if is_shared else "resourceClaimTemplateName"
        there.append({"name": entry, field_name: found[is_shared].object_name})
    return found


def _use(container: Object, asked: list[Asked], claims: dict[bool, _Entry]) -> None:
    if not asked:
        return
    resources = container.setdefault("resources", {})
    there = resources.get("claims")
    uses = resources["claims"] = list(there) if isinstance(there, list) else []
    for one in asked:
        uses.append({"name": claims[one.wanted.shared].entry, "request": one.name})


def _object(document: Object, entry: _Entry, asked: list[Asked]) -> Object:
    mine = [(one.name, one.wanted) for one in asked if one.wanted.shared is entry.is_shared]
    metadata = document.get("metadata")
    namespace = (metadata if isinstance(metadata, dict) else {}).get("namespace")
    make = claim if entry.is_shared else template
    return make(entry.object_name, namespace, mine)
