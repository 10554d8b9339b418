# SPDX-License-Identifier: Apache-2.0
"""What does it cost to divide devices: 1,000 shares of one device, and 504 partitions of 28 GPUs on one node?

Published to an API server of this package, by the driver as it ships. Allocated by this project's allocator from the slices that were
published. Prepared over the driver's socket, in turn on a node where nothing is prepared and on one that is full. And how soon is a
taint at the API server, after the hardware says that a device is ill?
"""

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from dra_driver.allocator.allocate import Allocator
from dra_driver.allocator.state import AllocatedState, DeviceID, SharedDeviceID
from dra_driver.kube.wire.objects import load
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_claim import DeviceClass, ResourceClaim
from dra_driver.model.api.resource_slice import ResourceSlice
from hack.bench.cost import machine
from hack.bench.cost.bed import Context
from hack.bench.cost.figures import Times, in_turn, ratio
from hack.bench.cost.node import DRIVER, NODE, BenchNode, Caller, a_claim, wait_for
from hack.bench.cost.report import Answer, Table, Target, times_table
from hack.bench.cost.standins import StandIns

SHARES = 1_000
SHARE = f"shared.{machine.SHARED}"
TAINT_LIMIT_SECONDS = 0.5
CLASS = "any"


def measure(context: Context) -> Answer:
    """Publish, allocate, prepare; and taint."""
    repeats, rounds, changes = (3, 20, 6) if context.quick else (9, 60, 30)
    tainted = Times("fault file written to taint at the API server")
    with StandIns() as node:
        about, slices = _published(node)
        written = _taint(node, tainted, changes)
    share, part = Times("allocate one more share"), Times("allocate one more partition")
    _allocate_shares(slices, share)
    _allocate_partitions(slices, part)
    loop = _Prepared(repeats, rounds)
    loop.run()
    targets = (
        Target("taint at the API server, p50", tainted.quantile(0.5), TAINT_LIMIT_SECONDS, "s"),
        Target("taint at the API server, p99", tainted.quantile(0.99), None, "s"),
        Target("slices that one taint changes, at most", written, 1),
        *loop.targets,
    )
    return Answer(
        targets,
        (
            about,
            times_table("A taint, and its end:", (tainted,)),
            times_table(
                "Each claim alone, after the ones before it (at the right: the first tenth, the last tenth, and those between):",
                (share, part),
            ),
            times_table(
                f"Prepare, {repeats} repeats of {rounds} rounds, in turn on each node:", loop.times
            ),
        ),
    )


def _published(node: StandIns) -> tuple[Table, list[ResourceSlice]]:
    """Start the driver and wait until everything is published."""
    node.faults.write_text("devices: {}\n")
    begun = time.time()
    node.start(backend=machine.NAME, **{"backend-option": f"faults={node.faults}"})
    ended = node.log.wait("published")
    listening = node.log.wait("serving") if node.log.moments("serving") else begun
    asked = Counter(one.verb for one in node.api.requests if one.resource == "resourceslices")
    found = [load(ResourceSlice, one) for one in node.api.objects("resourceslices")]
    devices = sum(len(one.spec.devices or ()) for one in found)
    rows = (
        ("devices in slices", f"{devices} in {len(found)}"),
        ("start of the process to everything published", f"{ended - begun:.2f} s"),
        ("of it after the sockets listened", f"{ended - listening:.2f} s"),
        ("requests for slices", ", ".join(f"{count} {verb}" for verb, count in asked.items())),
    )
    return Table("Publish:", ("", "found"), rows), found


def _taint(node: StandIns, times: Times, changes: int) -> int:
    """Make devices ill and well; returns how many slices one change wrote, at most."""
    times.begin_repeat()
    most = 0
    for number in range(changes):
        for fault in (f"{{gpu-{number % machine.GPUS}: {{unhealthy: hot}}}}", "{}"):
            time.sleep(0.1 + 0.037 * (number % 7))  # at any moment between two looks at the file
            before = _writes(node)
            _write(node.faults, f"devices: {fault}\n")
            begun = time.perf_counter()
            wait_for(lambda before=before: _writes(node) > before, "the taint")
            times.add(time.perf_counter() - begun)
            time.sleep(0.3)
            most = max(most, _writes(node) - before)
    return most


def _writes(node: StandIns) -> int:
    verbs = (
        "update",
        "patch",
        "delete",
    )  # with "create" the driver only asks which fields the server keeps
    return sum(one.resource == "resourceslices" and one.verb in verbs for one in node.api.requests)


def _write(path: Path, text: str) -> None:
    whole = path.with_suffix(".new")
    whole.write_text(text)
    whole.replace(path)


def _allocator(slices: Sequence[ResourceSlice]) -> Allocator:
    classes = [msgspec.convert({"metadata": {"name": CLASS}, "spec": {}}, DeviceClass)]
    return Allocator(slices, classes)


def _claim(**exactly: object) -> ResourceClaim:
    request = {
        "name": "gpu",
        "exactly": {
            "deviceClassName": CLASS,
            "allocationMode": "ExactCount",
            "count": 1,
            **exactly,
        },
    }
    content = {
        "metadata": {"name": "claim", "namespace": "default", "uid": "uid"},
        "spec": {"devices": {"requests": [request]}},
    }
    return msgspec.convert(content, ResourceClaim)


def _node() -> Node:
    return msgspec.convert({"metadata": {"name": NODE}}, Node)


def _allocate_shares(slices: Sequence[ResourceSlice], times: Times) -> None:
    allocator, device = _allocator(slices), DeviceID(DRIVER, NODE, machine.SHARED)
    ids: set[SharedDeviceID] = set()
    for number in range(SHARES):
        _tenth(times, number, SHARES)
        taken = {device: {"memory": f"{number}Mi"}} if number else {}
        state = AllocatedState(frozenset(), frozenset(ids), taken)
        selector = {"cel": {"expression": "device.allowMultipleAllocations"}}
        claim = _claim(capacity={"requests": {"memory": "1Mi"}}, selectors=[selector])
        _allocated(allocator, state, claim, times)
        ids.add(SharedDeviceID(*device, str(number)))


def _allocate_partitions(slices: Sequence[ResourceSlice], times: Times) -> None:
    allocator, taken = _allocator(slices), set[DeviceID]()
    count = machine.GPUS * machine.SMALL_PER_GPU
    expression = f'device.attributes["{DRIVER}"].?profile.orValue("") == "{machine.SMALL}"'
    for number in range(count):
        _tenth(times, number, count)
        claim = _claim(selectors=[{"cel": {"expression": expression}}])
        taken.add(_allocated(allocator, AllocatedState(frozenset(taken)), claim, times))


def _tenth(times: Times, number: int, count: int) -> None:
    if number in (0, count // 10, count - count // 10):
        times.begin_repeat()


def _allocated(
    allocator: Allocator, state: AllocatedState, claim: ResourceClaim, times: Times
) -> DeviceID:
    begun = time.perf_counter()
    found = allocator.after(state).allocate(_node(), [claim])
    times.add(time.perf_counter() - begun)
    if found is None:
        raise SystemExit(f"a claim does not fit: {claim}")
    (result,) = found[0].devices.results
    return DeviceID(result.driver, result.pool, result.device)


class _Prepared:
    """One claim more, on an empty and on a full node."""

    def __init__(self, repeats: int, rounds: int) -> None:
        self._repeats, self._rounds = repeats, rounds
        self._first, self._last = (
            Times("a share, none prepared"),
            Times(f"a share beside {SHARES:,}"),
        )
        self._alone, self._beside = (
            Times("a partition, none prepared"),
            Times("a partition beside 195"),
        )
        self.times = (self._first, self._last, self._alone, self._beside)

    @property
    def targets(self) -> tuple[Target, ...]:
        """Full in units of empty."""
        return (
            Target(
                f"prepare a share beside {SHARES:,} ÷ the first, p50",
                ratio(self._last, self._first),
                None,
            ),
            Target(
                "prepare a partition beside 195 ÷ the first, p50",
                ratio(self._beside, self._alone),
                None,
            ),
        )

    def run(self) -> None:
        """In turn on four nodes: one that is called more often than another would be faster."""
        *most, last = machine.small_partitions()
        with ExitStack() as stack:
            first, shared, alone, divided = (
                stack.enter_context(BenchNode(machine=True)).call for _ in range(4)
            )
            shared.fill(SHARES, SHARE)
            for name in most:
                divided.prepare([a_claim(name)])
            actions = (
                lambda: _prepare(first, SHARE, self._first),
                lambda: _prepare(shared, SHARE, self._last),
                lambda: _prepare(alone, last, self._alone),
                lambda: _prepare(divided, last, self._beside),
            )
            for repeat in range(self._repeats + 1):
                for times in self.times:
                    if repeat == 1:
                        times.repeats.clear()
                    times.begin_repeat()
                in_turn(actions, self._rounds)


def _prepare(call: Caller, name: str, times: Times) -> None:
    wanted = [a_claim(name)]
    times.add(call.prepare(wanted))
    call.unprepare(wanted)
