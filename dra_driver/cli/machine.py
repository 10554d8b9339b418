# SPDX-License-Identifier: Apache-2.0
"""Does a machine of a profile have what converted pods ask for? The classes are those of deviceclasses/, and the search is the scheduler's."""

import importlib.metadata
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from dra_driver import PROJECT
from dra_driver.backends.base import BackendContext
from dra_driver.backends.profiles import PROFILES
from dra_driver.backends.simulated import WITHOUT_FAULT_FILE
from dra_driver.backends.simulated_machine import machine_of
from dra_driver.cli.added_node import new_node
from dra_driver.errors import Permanent
from dra_driver.explain.outcome import Report
from dra_driver.explain.report import ManifestSubject, explain
from dra_driver.model.api.core import NodeStatus
from dra_driver.model.api.meta import ObjectMeta, QuantityText
from dra_driver.model.api.resource_claim import DeviceClass
from dra_driver.model.api.resource_slice import Device, ResourceSlice
from dra_driver.model.cluster import ClusterState
from dra_driver.model.exit_codes import DONE

_PLENTY: dict[str, QuantityText] = {
    "cpu": "1024",
    "memory": "16Ti",
    "ephemeral-storage": "64Ti",
    "pods": "1024",
}
"""What the machine has besides devices: profiles do not say it."""
_DEEPEST = 10  # a CronJob has its pods there
_NVIDIA = "gpu.nvidia.com"
FLAG = "--profile"


class Answer(Struct, frozen=True):
    """Whether everything fits together on one machine, and the sentence for people."""

    fits: bool
    text: str


@cache
def product_names() -> tuple[str, ...]:
    """Return the products of all known machines, as their devices name them."""
    names: set[str] = set()
    for profile in PROFILES.values():
        found = machine_of(profile, BackendContext("a-node"), WITHOUT_FAULT_FILE)
        for device in found.devices:
            value = (device.api.attributes or {}).get("productName")
            if value is not None and value.string_value is not None:
                names.add(value.string_value)
    return tuple(sorted(names))


def fits(profile: str, documents: Sequence[dict[str, Any]]) -> Answer:
    """Ask the scheduler's search whether one such machine has all of it. Raises Permanent if there is no such profile."""
    added = new_node(profile, flag=FLAG)
    slices = added.slices
    if _NVIDIA in yaml.safe_dump_all(documents):
        # The classes of NVIDIA's driver select devices by that driver's name: it has NVIDIA's devices, and this driver the others.
        theirs = new_node(f"{profile}:{_NVIDIA}", flag=FLAG).slices
        slices = (*_only(slices, ours=True), *_only(theirs, ours=False))
    node = msgspec.structs.replace(added.node, status=NodeStatus(allocatable=_PLENTY))
    state = ClusterState(nodes=(node,), resource_slices=slices, device_classes=classes())
    asked = tuple(_without_labels(document, _DEEPEST) for document in documents)
    subject = ManifestSubject(asked, "default", "the converted pods")
    report = explain(state, subject, recorded=True)
    if report.exit_code == DONE:
        return Answer(fits=True, text=f"fits on {profile}: {report.summary}")
    return Answer(fits=False, text=f"does not fit on {profile}: {_why_not(report)}")


def _why_not(report: Report) -> str:
    """Return which pods do not fit, why, and what to do."""
    pods = report.pods
    if pods and pods.fit:
        each = f"{pods.fit:,} of {pods.wanted:,} pods have room together on one such machine"
        return f"{each}; {report.subject} needs another one, or ask for less"
    found = [reason for node in report.nodes[:1] for reason in (*node.devices, *node.pod)]
    why = ", ".join(map(str, found)) or report.summary
    return (
        f"{report.subject}: {why}; change what it asks for, or name a machine that has it by {FLAG}"
    )


def _only(slices: Sequence[ResourceSlice], *, ours: bool) -> Iterator[ResourceSlice]:
    """Yield the slices with the devices of NVIDIA, or with all others if they are `ours`."""
    for one in slices:
        devices = [
            device for device in one.spec.devices or () if ours is (_vendor(device) != "nvidia")
        ]
        spec = msgspec.structs.replace(one.spec, devices=devices or None)
        name = f"{one.metadata.name}-{one.spec.driver}"
        yield msgspec.structs.replace(one, metadata=ObjectMeta(name=name), spec=spec)


def _vendor(device: Device) -> str:
    value = (device.attributes or {}).get("vendor")
    return (value.string_value if value else "") or ""


def _without_labels(content: Any, levels: int) -> Any:
    """Return an object without what its pods ask of labels: a profile has devices, and no labels."""
    if isinstance(content, list):
        return [_without_labels(one, levels) for one in content]
    if not isinstance(content, dict) or not levels:
        return content
    left_out = ("nodeSelector", "affinity") if "containers" in content else ()
    return {
        key: _without_labels(one, levels - 1) for key, one in content.items() if key not in left_out
    }


@cache
def classes() -> tuple[DeviceClass, ...]:
    """Return the DeviceClasses that the driver brings."""
    found = [
        msgspec.convert(document, DeviceClass)
        for path in _class_files()
        for document in yaml.safe_load_all(path.read_text())
        if document["kind"] == "DeviceClass"
    ]
    if not found:
        raise Permanent(
            f"the folder deviceclasses of {PROJECT} is not there: run it from a clone, or install it again"
        )
    return tuple(found)


def _class_files() -> Iterator[Path]:
    """Yield the files: from the Git clone, or from the installed files of the wheel."""
    clone = Path(__file__).resolve().parents[2] / "deviceclasses"
    if clone.is_dir():
        yield from sorted((*clone.glob("*.yaml"), *clone.glob("nvidia/*.yaml")))
        return
    for file in importlib.metadata.files(PROJECT) or ():
        if "deviceclasses" in file.parts and "examples" not in file.parts:
            yield Path(str(file.locate()))
