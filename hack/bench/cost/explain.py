# SPDX-License-Identifier: Apache-2.0
"""How long does it take to explain a claim on a large fleet, and how much memory?

The whole process counts, from its start to its end: an interpreter that reads a recorded cluster of 1,000 nodes with
8 devices each, with claims that hold half of them or all, and ten ordinary pods per node, and explains one claim. Every device
has a serial number of its own, so no two are equal. Then the same with 100,000 devices, of which none, three of each eight, or all are held.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Collection, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from hack.bench.cost import installed
from hack.bench.cost.bed import Context
from hack.bench.cost.figures import Times, in_turn, ratio
from hack.bench.cost.report import Answer, Table, Target, times_table

NODES, DEVICES, PODS = 1_000, 8, 10
LIMIT_SECONDS, LIMIT_MIB, LIMIT_HELP = 1.0, 300.0, 3.0
LARGE_NODES, LARGE_SECONDS, LARGE_MIB = 12_500, 5.0, 250.0
DRIVER = "gpu.example.com"
FITS, NOT = "devices fit", "devices do not fit"
_ATTRIBUTES = f'device.attributes["{DRIVER}"]'
_MEMORY = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("%s")) >= 0'
_NUMA = {"constraints": [{"requests": ["a", "b"], "matchAttribute": f"{DRIVER}/numa"}]}


def _request(name: str, expression: str = "", **more: Any) -> dict[str, Any]:
    selectors = [{"cel": {"expression": expression}}] if expression else []
    return {"name": name, "exactly": {"deviceClassName": "gpu", "selectors": selectors, **more}}


# What is asked for, by what makes it easy or hard; all but the first are hopeless where half of the devices are held.
EASY = "a GPU that exists"
MANY, TOGETHER = "more devices than a node has left", "two requests that cannot go together"
PROBLEMS: dict[str, dict[str, Any]] = {
    EASY: {"requests": [_request("gpu")]},
    "more memory than any GPU has": {"requests": [_request("gpu", _MEMORY % "200Gi")]},
    "a model that nobody has": {"requests": [_request("gpu", f'{_ATTRIBUTES}.model == "H10O"')]},
    "one serial number, mistyped": {"requests": [_request("gpu", f'{_ATTRIBUTES}.uuid == "X"')]},
    MANY: {"requests": [_request("gpu", count=6)]},
    TOGETHER: {
        "requests": [_request("a", count=2), _request("b", count=2)],
        **_NUMA,
    },
}

FLEETS: tuple[tuple[Sequence[int], Collection[str]], ...] = (
    ((0, 2, 4, 6), {EASY}),
    (range(DEVICES), ()),
)
"""The devices of each node that claims have, and the problems that can be solved then."""


def record(path: Path, nodes: int, held: Sequence[int], pods: int) -> None:
    """Write the recorded cluster. `held` are the devices of each node that claims have."""
    cluster = {
        "kubernetesVersion": "v1.37.1",
        "served": ["v1"],
        "nodes": [_node(number) for number in range(nodes)],
        "pods": [_pod(node, number) for node in range(nodes) for number in range(pods)],
        "namespaces": [{"metadata": {"name": "default"}}],
        "deviceClasses": [_class()],
        "resourceSlices": [_slice(number) for number in range(nodes)],
        "resourceClaims": [_holder(node, index) for node in range(nodes) for index in held],
    }
    whole = {"format": "dra-driver/record", "formatVersion": 1, "cluster": cluster}
    path.write_text(json.dumps(whole))


def record_apart(path: Path, nodes: int, held: Sequence[int], pods: int) -> None:
    """Write the recorded cluster in a process that ends.

    What a process needed before its program starts counts as its memory, too: that of the process that starts it. The objects of a
    large cluster in this process would be the memory of each run.
    """
    process = get_context("fork").Process(target=record, args=(path, nodes, held, pods))
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"the record {path} was not written: exit code {process.exitcode}")


def _class() -> dict[str, Any]:
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    return {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}}


def _node(number: int) -> dict[str, Any]:
    name = f"node-{number}"
    labels = {"kubernetes.io/hostname": name, "zone": f"zone-{number % 3}", "pool": "gpu"}
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}


def _pod(node: int, number: int) -> dict[str, Any]:
    containers = [{"name": "main", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]
    return {
        "metadata": {"name": f"pod-{node}-{number}", "namespace": "work"},
        "spec": {"nodeName": f"node-{node}", "containers": containers},
        "status": {"phase": "Running"},
    }


def _slice(number: int) -> dict[str, Any]:
    name = f"node-{number}"
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    devices = [_device(number, index) for index in range(DEVICES)]
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"{name}-gpus"}, "spec": spec}


def _device(node: int, index: int) -> dict[str, Any]:
    return {
        "name": f"gpu-{index}",
        "attributes": {
            "model": {"string": ("A100", "H100")[node % 2]},
            "uuid": {"string": f"GPU-{node:04d}-{index}"},
            "numa": {"int": index // 4},
            "driverVersion": {"version": f"5{node % 4}0.54.15"},
        },
        "capacity": {"memory": {"value": ("40Gi", "80Gi")[node % 2]}},
    }


def _holder(node: int, index: int) -> dict[str, Any]:
    result = {"request": "gpu", "driver": DRIVER, "pool": f"node-{node}", "device": f"gpu-{index}"}
    return {
        "metadata": {
            "name": f"claim-{node}-{index}",
            "namespace": "work",
            "uid": f"{node}-{index}",
        },
        "spec": {"devices": {"requests": [_request("gpu")]}},
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": f"pod-{node}-{index}", "uid": "u"}],
        },
    }


def measure(context: Context) -> Answer:
    """Every problem in turn, a process each."""
    repeats = 2 if context.quick else 10
    half, all_held = (_of_fleet(held, fits, repeats) for held, fits in FLEETS)
    times, peaks = (*half[0], *all_held[0]), (*half[1], *all_held[1])
    large, tables = _large(1 if context.quick else 3)
    about = (
        f"`dra-driver explain -f CLAIM --from RECORD`, {NODES:,} nodes x {DEVICES} devices, {repeats} runs of each, "
        "the whole process."
    )
    slowest = max(each.quantile(0.99) for each in times)
    helped, nothing = _help(3 if context.quick else 7)
    beside = "`dra-driver --help` beside an interpreter that does nothing, in turn."
    return Answer(
        (
            Target("slowest of the problems, p99", slowest, LIMIT_SECONDS, "s"),
            Target("most memory of any run, resident", max(peaks), LIMIT_MIB, "MiB"),
            *large,
            Target("`--help` ÷ `python -c pass`", ratio(helped, nothing), LIMIT_HELP),
        ),
        (
            times_table(f"{about} Half of the devices are held:", half[0]),
            times_table("The same, all devices are held:", all_held[0]),
            *tables,
            times_table(beside, [helped, nothing]),
        ),
    )


def _of_fleet(
    held: Sequence[int], fits: Collection[str], repeats: int
) -> tuple[list[Times], list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        recorded = Path(folder) / "fleet.json"
        record_apart(recorded, NODES, held, PODS)
        return _problems(Path(folder), recorded, repeats, fits)


def _large(repeats: int) -> tuple[tuple[Target, ...], tuple[Table, ...]]:
    """The same problems with 100,000 devices. The targets are about those that nobody has; with claims it is reported."""
    targets, tables = [], []
    for held, about, fits, limits in (
        ((), "no claims", {EASY, MANY, TOGETHER}, (LARGE_SECONDS, LARGE_MIB)),
        ((0, 3, 6), "claims that hold three of each eight", {EASY}, (None, None)),
        (range(DEVICES), "claims that hold all", set[str](), (None, None)),
    ):
        count = f"{LARGE_NODES * DEVICES:,} devices, {about}"
        with tempfile.TemporaryDirectory() as folder:
            recorded = Path(folder) / "fleet.json"
            record_apart(recorded, LARGE_NODES, held, pods=0)
            times, peaks = _problems(Path(folder), recorded, repeats, fits)
        slowest = max(each.quantile(1.0) for each in times)
        targets += [
            Target(f"{count}: slowest of the problems", slowest, limits[0], "s"),
            Target(f"{count}: most memory, resident", max(peaks), limits[1], "MiB"),
        ]
        tables.append(times_table(f"{count}, {repeats} runs of each:", times))
    return tuple(targets), tuple(tables)


def _problems(
    folder: Path, recorded: Path, repeats: int, fits: Collection[str]
) -> tuple[list[Times], list[float]]:
    """The times and the largest resident set of every problem. `fits` are those that can be solved."""
    times, peaks = [], []
    for number, (name, devices) in enumerate(PROBLEMS.items()):
        manifest = folder / f"{number}.json"
        manifest.write_text(json.dumps(_claim(devices)))
        expected = FITS if name in fits else NOT
        found, peak = _problem(name, (recorded, manifest), repeats, expected)
        times.append(found)
        peaks.append(peak)
    return times, peaks


def _help(repeats: int) -> tuple[Times, Times]:
    """The help of the command line, and nothing at all."""
    interpreter = Path(installed.python())
    found = Times("--help"), Times("python -c pass")
    commands = (
        (str(interpreter.with_name("dra-driver")), "--help"),
        (str(interpreter), "-c", "pass"),
    )

    def once(times: Times, command: tuple[str, ...]) -> None:
        begun = time.perf_counter()
        subprocess.run(command, env=installed.environment(), stdout=subprocess.DEVNULL, check=True)
        times.add(time.perf_counter() - begun)

    for number in range(repeats + 1):
        for times in found:
            times.begin_repeat()
        in_turn([partial(once, *pair) for pair in zip(found, commands, strict=True)], 20)
        if not number:  # the disk's cache was cold
            for times in found:
                times.repeats.clear()
    return found


def _claim(devices: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "wanted"},
        "spec": {"devices": devices},
    }


def _problem(
    name: str, files: tuple[Path, Path], repeats: int, expected: str
) -> tuple[Times, float]:
    """The times of one problem and its largest resident set in MiB; the first run warms the disk's cache."""
    times, peak = Times(name), 0.0
    for number in range(repeats + 1):
        seconds, mib = _once(*files, expected)
        if number:
            times.begin_repeat()
            times.add(seconds)
            peak = max(peak, mib)
    return times, peak


def _once(recorded: Path, manifest: Path, expected: str) -> tuple[float, float]:
    """One run. A program that fails is quick: the answer itself is looked at, as a traceback ends with 1 as well."""
    source = ("--from", str(recorded), "-f", str(manifest), "-o", "json")
    answer = manifest.with_suffix(".answer")
    with answer.open("wb") as said:
        begun = time.perf_counter()
        process = subprocess.Popen(
            [installed.python(), "-m", "dra_driver", "explain", *source],
            env=installed.environment(),
            stdout=said,
        )
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    text = answer.read_text()
    outcome = json.loads(text)["outcome"] if text else f"nothing, exit code {process.returncode}"
    if outcome != expected:
        raise RuntimeError(f"explain {manifest} should say {expected!r}, and said {outcome!r}")
    return seconds, used.ru_maxrss / 1024
