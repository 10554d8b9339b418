# SPDX-License-Identifier: Apache-2.0
"""What do pods bring along from the time of device plugins, and what is it today?"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from dra_driver.check.finding import Finding
from dra_driver.check.given import Given, Known, Object, at, entries, mapping
from dra_driver.check.no_resources import kind_findings, name_findings, names_a_kind
from dra_driver.check.parts import PodPart, is_of_dra
from dra_driver.check.pods_in import pods_in
from dra_driver.convert.kept import Kept
from dra_driver.convert.labels import Condition
from dra_driver.convert.nodes import condition_of
from dra_driver.convert.resources import NotConverted, Wanted
from dra_driver.model.other_resources import Elsewhere, elsewhere
from dra_driver.model.plugin_resources import (
    has_nvidias_runtime,
    is_device_label,
    is_device_resource,
)
from dra_driver.model.printable import printable
from dra_driver.model.quantity import Quantity
from dra_driver.model.resource_names import is_sent_extended
from dra_driver.model.yaml_documents import Path

_CONVERTED = "`dra-driver convert` writes the claim that asks for the same"
_KEPT = "`dra-driver convert` leaves it as it is: "
_UUIDS = re.compile(
    r"-1|NoDevFiles|(\d+|GPU-[0-9a-f-]+|MIG-[0-9A-Za-z/-]+)(,(\d+|GPU-[0-9a-f-]+|MIG-[0-9A-Za-z/-]+))*"
)
_DEVICE_FILES = re.compile(r"/dev/(nvidia.*|dri(/.*)?|kfd|accel.*)")
_NANO = 10**9
_POD_SECURITY = "pod-security.kubernetes.io/"
_AFFINITY = ("affinity", "nodeAffinity")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
Answers = Mapping[str, Wanted | NotConverted]


def pod_findings(one: Given, offered: Collection[str]) -> Iterator[Finding]:
    """Yield what the pods of an object bring along. `offered` are the resources that are known to exist."""
    for pod in pods_in(one):
        for finding in _of_pod(one, pod, offered):
            # What the controller of a custom resource adds may be what is missing.
            if not (pod.is_nested and finding.rule == "device-plugin-amount"):
                yield finding


def _of_pod(one: Given, pod: PodPart, offered: Collection[str]) -> Iterator[Finding]:
    kept = Kept(one.content, pod.spec, is_nested=pod.is_nested)
    for path, container in pod.containers():
        yield from _resources(one, path, container, kept.resources(container), offered)
        yield from name_findings(one, path, container, offered)
        yield from _environment(one, path, container, pod.spec)
    yield from _node_name(one, pod)
    yield from _choice_of_nodes(one, pod, kept)
    yield from _labels(one, pod)
    yield from _volumes(one, pod)


def _resources(
    one: Given, path: Path, container: Object, answers: Answers, offered: Collection[str]
) -> Iterator[Finding]:
    resources = mapping(container.get("resources"))
    limits, wanted = (mapping(resources.get(field)) for field in ("limits", "requests"))
    for field, amounts in (("limits", limits), ("requests", wanted)):
        for name, amount in amounts.items():
            place = (*path, "resources", field, name)
            if names_a_kind(str(name)):
                yield from kind_findings(one, place, str(name), str(amount), offered)
            elif is_sent_extended(str(name)) and _is_part(str(amount)):
                yield _part(one, place, str(name), amount)
            elif field == "requests" and name in limits:
                continue  # told as a limit
            elif other := elsewhere(str(name)):
                yield _of_others(one, place, f"{name}: {amount}", other)
            elif is_device_resource(str(name)):
                yield _asked(one, place, str(name), amount, answers)
    for name in wanted:
        differs = _value(limits.get(name, "")) != _value(wanted[name])
        is_told = names_a_kind(str(name))
        if is_sent_extended(str(name)) and differs and not is_told:
            found = f"the limit is {limits[name]}" if name in limits else "there is no limit"
            yield one.finding(
                "device-plugin-amount",
                (*path, "resources", "requests", name),
                f"the API server would refuse it: the request for {printable(str(name))} is {wanted[name]}, and {found}",
                "write the same amount as limit; the request can be left out",
            )


def offered_resources(given: Sequence[Given], known: Known) -> Iterator[str]:
    """Yield the resources of the nodes and classes of the cluster, and those of the classes of the files."""
    for one in given:
        if is_of_dra(one) and one.kind == "DeviceClass":
            yield str(at(one.content, ("spec", "extendedResourceName")))
    if known.state is None:
        return
    for node in known.state.nodes:
        yield from node.status.allocatable or ()
    for device_class in known.state.device_classes:
        if device_class.spec.extended_resource_name:
            yield device_class.spec.extended_resource_name


def _asked(one: Given, path: Path, name: str, amount: object, answers: Answers) -> Finding:
    asked = f"{printable(name)}: {printable(str(amount))}"
    if _value(amount) == 0:
        message = f"{asked} asks for no device, and the pod runs on any node"
        return one.finding("device-plugin", path, message, "leave it out")
    message = (
        f"{asked} is served by a device plugin, or by a DeviceClass with this extendedResourceName"
    )
    answer = answers[name]
    if isinstance(answer, NotConverted):
        return one.finding(
            "device-plugin", path, message, f"{_KEPT}{printable(answer.reason, most=400)}"
        )
    action = "; ".join((_CONVERTED, *answer.notes))
    return one.finding("device-plugin", path, message, action)


def _part(one: Given, path: Path, name: str, amount: object) -> Finding:
    message = f"the API server would refuse it: {printable(name)} is {printable(str(amount))}, and must be a whole number"
    action = "ask for a share by a claim, or for a resource of shares that the plugin offers"
    return one.finding("device-plugin-amount", path, message, action)


def _of_others(one: Given, path: Path, asked: str, other: Elsewhere) -> Finding:
    return one.finding("device-plugin", path, f"{printable(asked)} is {other.what}", other.action)


def _is_part(text: str) -> bool:
    """Whether this is a quantity that is no whole number."""
    value = _value(text)
    return isinstance(value, int) and bool(value % _NANO)


def _value(amount: object) -> int | str:
    """Return the amount in billionths; the text if it is no quantity, which is told as a value that the API server refuses."""
    try:
        return Quantity.parse(str(amount)).nanos
    except ValueError:
        return str(amount)


def _environment(one: Given, path: Path, container: Object, spec: Object) -> Iterator[Finding]:
    for place, variable in entries(container, ("env",)):
        name, value = variable.get("name"), variable.get("value")
        where = (*path, *place, "value")
        if (
            name == "CUDA_VISIBLE_DEVICES"
            and value is not None
            and not _UUIDS.fullmatch(str(value))
        ):
            yield one.finding(
                "hidden-devices",
                where,
                f"CUDA_VISIBLE_DEVICES is {value!a:.40}: CUDA wants numbers or UUIDs, and anything else hides every GPU",
                "remove the variable: a container sees the devices of its claims only",
            )
        elif name == "NVIDIA_VISIBLE_DEVICES" and value not in (None, "void", "none"):
            without = "every GPU it names" if has_nvidias_runtime(spec) else "no GPU"
            yield one.finding(
                "visible-devices",
                where,
                f"NVIDIA_VISIBLE_DEVICES is {value!a:.40}: a container without a claim sees {without}, and one with a claim its own only",
                "remove the variable",
            )


def _node_name(one: Given, pod: PodPart) -> Iterator[Finding]:
    """Yield that a pod with claims names its node. In a pod that was read from a cluster, the scheduler may have written the name."""
    node = pod.spec.get("nodeName")
    is_of_cluster = not pod.path and bool(at(pod.content, ("metadata", "uid")))
    if node and pod.spec.get("resourceClaims") and not is_of_cluster:
        shown = printable(str(node))
        yield one.finding(
            "node-name",
            (*pod.path, "spec", "nodeName"),
            f"the pod names its node {shown} itself, so the scheduler never sees it and allocates no claim for it: it starts only if its claims have devices already",
            f"leave nodeName out; if it must be this node, require it by nodeAffinity with matchFields metadata.name In {shown}",
        )


def _choice_of_nodes(one: Given, pod: PodPart, kept: Kept) -> Iterator[Finding]:
    for key, value in mapping(pod.spec.get("nodeSelector")).items():
        if is_device_label(str(key)):
            place = (*pod.path, "spec", "nodeSelector", key)
            yield _chosen(one, place, Condition(str(key), "In", (str(value),)), kept)
    required = ("spec", *_AFFINITY, _REQUIRED, "nodeSelectorTerms")
    for path, term in entries(pod.content, required):
        yield from _expressions(one, (*pod.path, *path), term, kept)
    for path, preference in entries(pod.content, ("spec", *_AFFINITY, _PREFERRED)):
        term = mapping(preference.get("preference"))
        yield from _expressions(one, (*pod.path, *path, "preference"), term, kept)


def _expressions(one: Given, path: Path, term: Object, kept: Kept) -> Iterator[Finding]:
    for place, expression in entries(term, ("matchExpressions",)):
        condition = condition_of(expression)
        if is_device_label(condition.key):
            yield _chosen(one, (*path, *place), condition, kept)


def _chosen(one: Given, path: Path, condition: Condition, kept: Kept) -> Finding:
    shown = printable(str(condition), most=120)
    message = f"the node is chosen by a label of its devices: {shown}"
    reason = kept.label(condition)
    if reason:
        return one.finding("node-choice", path, message, f"{_KEPT}{printable(reason, most=400)}")
    action = f"a claim asks the device itself, by a selector; {_CONVERTED}"
    return one.finding("node-choice", path, message, action)


def _labels(one: Given, pod: PodPart) -> Iterator[Finding]:
    for key in mapping(at(pod.content, ("metadata", "labels"))):
        if str(key).startswith(_POD_SECURITY):
            yield one.finding(
                "pod-security-label",
                (*pod.path, "metadata", "labels", key),
                f"the label {printable(str(key))} changes nothing on a pod",
                "put it on the Namespace",
            )


def _volumes(one: Given, pod: PodPart) -> Iterator[Finding]:
    for path, volume in entries(pod.content, ("spec", "volumes")):
        host = mapping(volume.get("hostPath"))
        file = str(host.get("path", ""))
        if not _DEVICE_FILES.fullmatch(file):
            continue
        message = f"the pod gets {printable(file)} from the host, and nobody knows that it uses the device: another pod gets it too"
        if host.get("type") == "DirectoryOrCreate":
            message = f"DirectoryOrCreate makes a directory {printable(file)} if the kernel driver is not loaded yet, and the device file never comes"
        yield one.finding(
            "device-path",
            (*pod.path, *path, "hostPath"),
            message,
            "ask for the device by a claim, and remove the volume and `privileged`",
        )
