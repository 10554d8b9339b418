# SPDX-License-Identifier: Apache-2.0
"""Which steps does `dra-driver demo` show? A claim: from the published devices to the container and back.

Each step does something, checks its result, and yields a `DemoStep` with text for people and facts for programs. If the result is
not as the text says, the step raises Permanent: the demo shows nothing that is not true.
"""

import importlib.metadata
import json
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct, field

from dra_driver import PACKAGE, PROJECT
from dra_driver.cli import render_explain
from dra_driver.errors import Permanent
from dra_driver.explain.report import PodSubject, explain
from dra_driver.kube.cluster import read_cluster
from dra_driver.kube.connection import Connection
from dra_driver.model.quantity import Quantity
from dra_driver.model.vocabulary import NUMA_NODE
from dra_driver.testing import oci
from dra_driver.testing.fake_scheduler import Placed, Unschedulable, results
from dra_driver.testing.plain_client import Object
from dra_driver.testing.stage import (
    DRIVER,
    KUBERNETES,
    Stage,
    StartChild,
    start_program,
    temporary_stage,
)

NODE = "demo-node"
WIDTH = 96
SIZES_GI = (4, 8, 10, 16, 24, 40, 64, 80, 100, 150, 180)
IMPOSSIBLE = "2Ti"
BIG, SMALL, HOPELESS = "wants-much", "wants-less", "wants-too-much"

Row = tuple[str, ...]


class DemoStep(Struct, frozen=True):
    """One step of the demo. People see `title`, `lines` and the table of `headers` and `rows`; programs get `facts`."""

    name: str
    title: str
    facts: Mapping[str, object]
    lines: Sequence[str] = ()
    headers: Row = ()
    rows: Sequence[Row] = field(default=())


def demo_stage(
    profile: str, start_child: StartChild = start_program
) -> AbstractContextManager[Stage]:
    """Return the demo's node: it runs the driver with the simulated devices of `profile`, in a temporary directory."""
    return temporary_stage(
        "--simulated-profile", profile, node=NODE, start_child=start_child, prefix="dra-demo-"
    )


def story(stage: Stage) -> Iterator[DemoStep]:
    """Run the steps in order, and yield each one. Each step needs the state after the step before, so the order is fixed."""
    yield _opening(stage)
    devices = _devices(stage)
    yield _published(devices)
    device_class = deviceclass(_class_for(devices))
    yield from _pods(stage, device_class, devices)
    yield from _first_pod(stage, devices)
    yield from _killed(stage)


def deviceclass(name: str) -> Object:
    """Read the DeviceClass in deviceclasses/NAME.yaml: from the Git clone, or from the installed files of the wheel."""
    clone = Path(__file__).resolve().parents[2]
    installed = [
        Path(str(file.locate()))
        for file in importlib.metadata.files(PACKAGE) or ()
        if (file.parent.name, file.name) == ("deviceclasses", f"{name}.yaml")
    ]
    for path in (clone / "deviceclasses" / f"{name}.yaml", *installed):
        if path.exists():
            loaded: Object = yaml.safe_load(path.read_text())
            return loaded
    raise Permanent(
        f"DeviceClass {name}: no {name}.yaml in {clone}/deviceclasses nor among the installed files of dra-driver;"
        " run the demo from a clone or install the driver again"
    )


def _opening(stage: Stage) -> DemoStep:
    pid = stage.start()
    lines = (
        "Stand-ins inside this process (dra_driver/testing):",
        f"  an API server on {stage.api.url}, a scheduler with the driver's own allocator,",
        f"  and the kubelet's side of Kubernetes {KUBERNETES} on unix sockets below {stage.root}.",
        "  No container is started; the demo itself reads the CDI file, as a container runtime does.",
        f"Real: the driver, `dra-driver run` as process {pid}, with simulated GPUs.",
    )
    embedded = ["API server", "scheduler", "kubelet", "CDI step of a container runtime"]
    return DemoStep(
        "opening",
        f"{PROJECT} demo: no cluster, no GPU, no root",
        {"embedded": embedded, "driver_pid": pid, "directory": str(stage.root)},
        lines,
    )


# Step 1: the published devices.


def _devices(stage: Stage) -> dict[str, Object]:
    slices = stage.wait_for(stage.published, "the driver's ResourceSlices are published")
    stage.register()
    return {
        device["name"]: device for stored in slices for device in stored["spec"].get("devices", ())
    }


def _published(devices: Mapping[str, Object]) -> DemoStep:
    rows = [
        (
            name,
            str(_attribute(device, "productName") or _attribute(device, "model")),
            device["capacity"]["memory"]["value"],
            str(_attribute(device, NUMA_NODE) or 0),
            str(_attribute(device, "uuid")),
        )
        for name, device in devices.items()
    ]
    return DemoStep(
        "published",
        f"1. The driver registered with the kubelet and published {len(rows)} devices of node {NODE}",
        {"driver": DRIVER, "node": NODE, "devices": list(devices.values())},
        headers=("DEVICE", "PRODUCT", "MEMORY", "NUMA", "UUID"),
        rows=rows,
    )


def _attribute(device: Object, name: str) -> Any:
    value = device.get("attributes", {}).get(name, {})
    return next(iter(value.values()), "")


# Steps 2 to 4: pods that select devices, their allocation, and the explanation for the pod that stays pending.


def _class_for(devices: Mapping[str, Object]) -> str:
    kinds = {_attribute(device, "type") for device in devices.values()}
    return "gaudi" if kinds == {"accelerator"} else "gpu"


def _requested_memory(devices: Mapping[str, Object]) -> dict[str, str]:
    """Return the memory that each pod requests: two amounts that devices of this machine have, and one that no device has."""
    memories = [
        Quantity.parse(device["capacity"]["memory"]["value"]) for device in devices.values()
    ]
    of_largest, of_smallest = (_sizes_up_to(memory) for memory in (max(memories), min(memories)))
    less = of_smallest[-1] if of_smallest != of_largest else of_largest[-2]
    return {BIG: of_largest[-1], SMALL: less, HOPELESS: IMPOSSIBLE}


def _sizes_up_to(memory: Quantity) -> list[str]:
    return [f"{size}Gi" for size in SIZES_GI if Quantity.parse(f"{size}Gi") <= memory]


def _memory_at_least(wanted: str) -> str:
    return f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{wanted}")) >= 0'


def _pods(stage: Stage, device_class: Object, devices: Mapping[str, Object]) -> Iterator[DemoStep]:
    requested = _requested_memory(devices)
    class_name = device_class["metadata"]["name"]
    stage.client.create(device_class)
    for pod, wanted in requested.items():
        stage.client.create(_template(pod, class_name, _memory_at_least(wanted)))
        stage.client.create(_pod(pod))
    expression = device_class["spec"]["selectors"][0]["cel"]["expression"].strip()
    yield DemoStep(
        "created",
        f"2. A DeviceClass, and {len(requested)} pods whose claims select memory with CEL",
        {
            "deviceClass": device_class,
            "selectors": {pod: _memory_at_least(wanted) for pod, wanted in requested.items()},
        },
        (
            f"DeviceClass {class_name} (deviceclasses/{class_name}.yaml):",
            *(f"  {line}" for line in _code(expression)),
            *(f"pod {pod:14}  {_memory_at_least(wanted)}" for pod, wanted in requested.items()),
        ),
    )
    yield _scheduled(stage)
    yield _explained(stage)


def _scheduled(stage: Stage) -> DemoStep:
    outcomes = {outcome.pod.partition("/")[2]: outcome for outcome in stage.scheduler.schedule()}
    lines: list[str] = []
    facts: list[Object] = []
    for name, outcome in sorted(
        outcomes.items(), key=lambda item: isinstance(item[1], Unschedulable)
    ):
        if isinstance(outcome, Placed):
            (claim,) = stage.claims_of(name)
            stored = stage.client.get("resourceclaims", claim.name) or {}
            given = [result["device"] for result in results(stored)]
            lines.append(f"pod {name}: {', '.join(given)} on {outcome.node}")
            facts.append({"pod": name, "node": outcome.node, "devices": given})
        else:
            lines.append(f"pod {name}: pending: {outcome.reason}")
            facts.append({"pod": name, "pending": outcome.reason})
    expect("two pods are placed", sum("node" in fact for fact in facts), 2)
    return DemoStep(
        "scheduled",
        "3. The scheduler allocates devices, and says why one pod gets none",
        {"pods": facts},
        [part for line in lines for part in _fold(line)],
    )


def _explained(stage: Stage) -> DemoStep:
    """Read the demo's API server, and show the report of `dra-driver explain` for the pod that stays pending."""
    subject = PodSubject("default", HOPELESS)
    report = explain(read_cluster(Connection(stage.api.url)), subject)
    expect("the devices do not fit", report.exit_code, 1)
    return DemoStep(
        "explained",
        f"4. Why? `dra-driver explain pod/{HOPELESS}` asks device by device",
        {"pod": HOPELESS, "report": render_explain.document(report)},
        render_explain.text(report, width=WIDTH, color=False),
    )


def _template(pod: str, class_name: str, expression: str) -> Object:
    exactly = {"deviceClassName": class_name, "selectors": [{"cel": {"expression": expression}}]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": pod, "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    }


def _pod(name: str) -> Object:
    container = {"name": "main", "image": "example", "resources": {"claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": name}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], "resourceClaims": claims},
    }


# Steps 5 to 7: the devices of one pod, from the kubelet's call to the container.


def _first_pod(stage: Stage, devices: Mapping[str, Object]) -> Iterator[DemoStep]:
    names = stage.prepare(BIG)
    (spec_path,) = _cdi_files(stage)
    spec = json.loads(spec_path.read_text())
    yield DemoStep(
        "prepared",
        "5. The kubelet asks the driver to prepare the claim; the driver writes a CDI file",
        {"pod": BIG, "cdiDevices": names, "file": spec_path.name, "spec": spec},
        (f"{stage.cdi_dir.name}/{spec_path.name}:", *_document(spec)),
    )
    yield _container(stage, names, devices)
    stage.end_pod(BIG)
    expect("no CDI file is left", len(_cdi_files(stage)), 0)
    yield DemoStep(
        "released",
        f"7. Pod {BIG} is deleted: the claim is unprepared, its CDI file and the claim are gone",
        {"pod": BIG, "cdiFiles": [], "claims": _claim_names(stage)},
        (f"claims left in the cluster: {', '.join(_claim_names(stage))}",),
    )


def _container(stage: Stage, names: Sequence[str], devices: Mapping[str, Object]) -> DemoStep:
    config = oci.inject({"process": {"env": []}}, names, stage.cdi_dir)
    env, linux = config["process"]["env"], config["linux"]
    (claim,) = stage.claims_of(BIG)
    stored = stage.client.get("resourceclaims", claim.name) or {}
    uuids = {_attribute(devices[result["device"]], "uuid") for result in results(stored)}
    names_given = {str(result["device"]) for result in results(stored)}
    seen = {entry.partition("=")[2] for entry in env if entry.startswith("GPU_DEVICE_")}
    # The variables of the profile `example` have the names of the devices.
    known = names_given if seen & names_given else uuids
    expect("the container sees the allocated devices", seen & known, known)
    rules = linux["resources"]["devices"]
    return DemoStep(
        "container",
        "6. What the container would get: the CDI edits applied to an OCI config",
        {"names": names, "config": config},
        (
            *(f"variable     {entry}" for entry in env),
            *(
                f"device file  {node['path']} ({node['type']} {node['major']}:{node['minor']})"
                for node in linux["devices"]
            ),
            *(
                f"device rule  allow {rule['type']} {rule['major']}:{rule['minor']} {rule['access']}"
                for rule in rules
            ),
        ),
    )


# Steps 8 and 9: the driver is killed and starts again.


def _killed(stage: Stage) -> Iterator[DemoStep]:
    before = stage.prepare(SMALL)
    (spec_path,) = _cdi_files(stage)
    content = spec_path.read_bytes()
    stage.kill()
    expect("the CDI file outlives the driver", [spec_path.read_bytes()], [content])
    begun = time.monotonic()
    pid = stage.start()
    stage.kubelet.restart()
    stage.register()
    seconds = time.monotonic() - begun
    expect("the same devices are answered", stage.prepare(SMALL), before)
    expect("the CDI file is the same", [path.read_bytes() for path in _cdi_files(stage)], [content])
    yield DemoStep(
        "killed",
        f"8. Pod {SMALL} has its claim prepared; the driver is killed (SIGKILL) and started again",
        {
            "pod": SMALL,
            "driver_pid": pid,
            "back_after_seconds": round(seconds, 2),
            "cdiDevices": before,
        },
        (
            f"restarted as process {pid}, registered after {seconds:.1f} s; the kubelet called again and got",
            *(f"  {name}" for name in before),
            "the same as before, and the CDI file has the same bytes.",
        ),
    )
    stage.end_pod(SMALL)
    code = stage.stop()
    expect("nothing is prepared any more", (code, _cdi_files(stage)), (0, []))
    yield DemoStep(
        "ended",
        f"9. Pod {SMALL} is deleted, and the driver is stopped (SIGTERM)",
        {"exit_code": code, "cdiFiles": [], "slices": len(stage.slices())},
        (f"exit code {code}; no CDI file is left; the slices stay for the next start.",),
    )


# Checks and formatting.


def expect(what: str, found: object, wanted: object) -> None:
    """Stop the demo with Permanent if `found` is not `wanted`."""
    if found != wanted:
        raise Permanent(
            f"the demo expected that {what}: found {found!r}, wanted {wanted!r}; please report this"
        )


def _cdi_files(stage: Stage) -> list[Path]:
    return sorted(stage.cdi_dir.glob("*.json"))


def _claim_names(stage: Stage) -> list[str]:
    return [claim["metadata"]["name"] for claim in stage.client.list("resourceclaims")]


def _code(expression: str) -> list[str]:
    return expression.replace("&& ", "&&\n").replace("|| ", "||\n").splitlines()


def _document(document: object) -> list[str]:
    return ["  " + line for line in json.dumps(document, indent=2).splitlines()]


def _fold(line: str) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(
        line,
        WIDTH,
        subsequent_indent=indent + "    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
