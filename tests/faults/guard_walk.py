# SPDX-License-Identifier: Apache-2.0
"""A random walk over a node with two plugins for the same GPUs: a stand-in for NVIDIA's device plugin, and this driver.

Both have the resource nvidia.com/gpu and the same IDs. The driver's services are the real ones, on a real state file; the kubelet, the
scheduler and time are played here. `holders` is the truth that the walk itself keeps: which pods run on each device, or are about to start.

The rule after each step: the driver gave no device to a pod while another pod had it. Two things are counted, not forbidden, because nobody
can prevent them: the foreign plugin gives out a device that a pod has through the driver (`given_twice`), and the driver gives out a device in the moment
between the foreign plugin's answer and the kubelet's note of it (`in_between`).
"""

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dra_driver.errors import DriverError
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import DeviceName, PodUid, UnitId
from dra_driver.model.plan import Refusal
from dra_driver.model.plugin import KubeletCheckpoint, PodUnits, UnitsOfContainer
from dra_driver.node.foreign_memory import ForeignMemory
from dra_driver.planning.plugin.listed import Listing
from dra_driver.services.foreign.guard import (
    ForeignGuard,
    ForeignInputs,
    without_held,
)
from dra_driver.services.foreign.kubelet import ForeignWitnesses
from dra_driver.services.plugin.allocate import AllocateUnits, Answers
from dra_driver.services.prepare import PrepareClaims
from dra_driver.testing.builders import A_PLACE, a_claim, a_result
from tests.support.guarded_node import gpus
from tests.support.local_node import ManualClock
from tests.support.plugin_node import GPU, PluginNode, a_resource, all_edits

COUNT = 4
FORGOTTEN_SECONDS = 300.0
UNITS = {f"uuid-gpu-{n}": f"gpu-{n}" for n in range(COUNT)}


class Broken(AssertionError):
    """A promise did not hold; the message has the seed and the last steps."""


@dataclass(slots=True)
class Pod:
    """One pod. `path` is "foreign", "plugin" or "claim"."""

    name: str
    path: str
    device: str
    unit: str = ""
    claim: ClaimRef | None = None
    active: bool = True
    started: bool = False


@dataclass(slots=True)
class Walked:
    """What the walk has met."""

    seed: int
    taken: Counter[str] = field(default_factory=Counter)
    given_twice: int = 0
    in_between: int = 0
    refused: int = 0
    by_path: Counter[str] = field(default_factory=Counter)

    def summary(self) -> str:
        steps = ", ".join(f"{name} {count}" for name, count in sorted(self.taken.items()))
        pods = ", ".join(f"{path} {count}" for path, count in sorted(self.by_path.items()))
        return (
            f"seed {self.seed}: {self.taken.total()} steps ({steps})\npods: {pods}; refused by the driver: {self.refused}\n"
            f"no device was given to a second pod by the driver while the kubelet had written who has it\n"
            f"the foreign plugin gave out a device of a pod of the driver: {self.given_twice}\n"
            f"the driver gave out a device before the kubelet had written that the foreign plugin gave it away: {self.in_between}"
        )


class GuardWalk:
    """The node and the steps. `server` is the plugin that the kubelet calls: "foreign", "ours" or ""."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.random = random.Random(seed)
        self.walked = Walked(seed)
        self.steps: list[str] = []
        self.node = PluginNode(root, clock=ManualClock(), inventory=gpus(COUNT))
        self.node.resource = a_resource(COUNT)
        self.path = "dra"
        self.server = ""
        self.stopped_at: float | None = None  # when the last plugin of the resource ended
        self.listed: set[str] = set()
        self.registered: frozenset[UnitId] | None = None
        self.pods: dict[str, Pod] = {}
        self.given: dict[str, str] = {}  # what the kubelet has in memory: the unit of each pod
        self.holders: dict[str, dict[str, None]] = {device: {} for device in UNITS.values()}
        self.excused: set[str] = set()
        self.published: set[str] = set()
        self.allocated: dict[str, ClaimRef] = {}  # devices of claims that the scheduler allocated
        self.waiting: list[Pod] = []
        self.count = 0
        self.now = self.node.clock
        assert self.now is not None
        self.clock = self.now
        self._begin()

    def _begin(self) -> None:
        node = self.node
        self.guard = ForeignGuard(
            ForeignWitnesses(
                lambda: (str(node.writes), KubeletCheckpoint(node.containers, self._registered())),
                lambda: {GPU: len(self.listed)} if self.registered is not None else {},
                self._active,
                node._presence,
            ),
            ForeignInputs(
                lambda: node.inventory,
                self._rows,
                lambda: {GPU: set(map(UnitId, UNITS))} if self.path == "device-plugin" else {},
                {},
            ),
            ForeignMemory(self.root / "foreign.json", node.boot_id),
            place=A_PLACE,
            tell_node=lambda _event: None,
            clock=self.clock,
        )
        self.guard.subscribe(self._publish)
        node.prepare_claims = PrepareClaims(
            node.parts, self.guard.refusing(node._fetch), node.workers
        )
        node.allocate_units = AllocateUnits(
            node.parts,
            node.holders,
            resources=without_held(
                lambda name: node.resource if name == GPU else None, self.guard.current
            ),
            answers=lambda: Answers(all_edits),
        )

    def _registered(self) -> dict[object, frozenset[UnitId]]:
        return {} if self.registered is None else {GPU: self.registered}

    def _active(self) -> frozenset[PodUnits]:
        return frozenset(
            PodUnits("default", pod.name, "main", GPU, frozenset({UnitId(pod.unit)}))
            for pod in self.pods.values()
            if pod.active and pod.unit
        )

    def _rows(self) -> tuple[object, ...]:
        with self.node.store.reading() as state:
            return tuple(state.all_claims())

    # What the driver shows: slices, and the list of its plugin.

    def _publish(self) -> None:
        with self.node.store.reading() as state:
            owned = set(state.owned_devices(A_PLACE.pool))
        kept = set(self.guard.taints())
        free = {name for name in UNITS.values() if name not in kept and name not in owned}
        self.published = free if self.path == "dra" else set()
        if self.server == "ours":
            self._receive(self._list())

    def _list(self) -> set[str]:
        node = self.node
        with node.store.reading() as state:
            rows, occupied = tuple(state.all_claims()), state.occupied(A_PLACE.pool)
        listing = Listing(
            node.inventory,
            rows,
            occupied,
            A_PLACE.pool,
            offered=lambda _device: self.path == "device-plugin",
            foreign=self.guard.devices(),
        )
        assert node.resource is not None
        return {unit.id for unit in listing.of(node.resource) if unit.healthy}

    def _receive(self, healthy: set[str]) -> None:
        """The kubelet gets a list, and writes its checkpoint."""
        if healthy != self.listed or self.registered is None:
            self.listed = healthy
            self._write()

    def _write(self) -> None:
        # The driver has had time to read the file of before: it is woken by each write, and two writes are some tenths of a second apart.
        self.guard.look()
        self.node.holders.once()
        node = self.node
        node.containers = tuple(
            UnitsOfContainer(PodUid(pod), "main", GPU, frozenset({UnitId(unit)}))
            for pod, unit in sorted(self.given.items())
        )
        if self.registered is not None or self.server:
            self.registered = frozenset(map(UnitId, self.listed))
        node.writes += 1

    def _take_back(self) -> None:
        """The kubelet forgets the units of pods that are not active."""
        self.given = {
            pod: unit
            for pod, unit in self.given.items()
            if pod in self.pods and self.pods[pod].active
        }

    # Pods.

    def _name(self) -> str:
        self.count += 1
        return f"pod-{self.count}"

    def _has(self, pod: Pod) -> None:
        self.pods[pod.name] = pod
        self.holders[pod.device][pod.name] = None
        self.walked.by_path[pod.path] += 1
        if pod.unit:
            self.node.active[pod.name] = frozenset({UnitId(pod.unit)})

    def _free_unit(self) -> str:
        self._take_back()
        free = sorted(self.listed - set(self.given.values()))
        return self.random.choice(free) if free else ""

    def foreign_admits(self) -> None:
        """The foreign plugin gives a unit to a pod; sometimes the driver prepares a claim before the kubelet has written it."""
        unit = self._free_unit() if self.server == "foreign" else ""
        if not unit:
            return
        device = UNITS[unit]
        pod = Pod(self._name(), "foreign", device, unit)
        before = [self.pods[name] for name in self.holders[device]]
        if any(one.path != "foreign" for one in before):
            self.walked.given_twice += 1
            self.excused.add(pod.name)
        self._has(pod)
        self.given[pod.name] = unit
        late = [one for one in self.waiting if one.device == device and not before]
        if late and self.random.random() < 0.5:
            self._prepare(late[0], in_between=True)
        self._write()
        if self.random.random() < 0.7:
            self._start(pod)

    def own_plugin_admits(self) -> None:
        """The driver's plugin gives a unit to a pod."""
        unit = self._free_unit() if self.server == "ours" else ""
        if not unit:
            return
        answer = self.node.allocate(unit)
        if isinstance(answer, Refusal):
            self.walked.refused += 1
            return
        pod = Pod(self._name(), "plugin", UNITS[unit], unit)
        self._check_free(pod)
        self._has(pod)
        self.given[pod.name] = unit
        self._write()
        if self.random.random() < 0.7:
            self._start(pod)

    def own_plugin_is_called_for_nothing(self) -> None:
        """The driver's plugin gives a unit to a pod that the kubelet then refuses, for another resource: it writes nothing."""
        unit = self._free_unit() if self.server == "ours" else ""
        if unit and isinstance(self.node.allocate(unit), Refusal):
            self.walked.refused += 1

    def schedule(self) -> None:
        """The scheduler allocates a published device to a claim."""
        free = sorted(self.published - set(self.allocated))
        if free:
            device, name = self.random.choice(free), self._name()
            claim = a_claim(name, results=[a_result(device)])
            (ref,) = self.node.add(claim)
            self.allocated[device] = ref
            self.waiting.append(Pod(name, "claim", device, claim=ref))

    def prepare(self) -> None:
        """The kubelet prepares a claim that waits."""
        if self.waiting:
            self._prepare(self.random.choice(self.waiting))

    def _prepare(self, pod: Pod, *, in_between: bool = False) -> None:
        assert pod.claim is not None
        answer = self.node.prepare(pod.claim)[pod.claim.uid]
        self.waiting.remove(pod)
        if isinstance(answer, Refusal):
            self.walked.refused += 1
            self.node.unprepare(pod.claim)
            self._forget_claim(pod)
            return
        if in_between:
            self.walked.in_between += 1
        else:
            self._check_free(pod)
        self._has(pod)
        self._start(pod)

    def _forget_claim(self, pod: Pod) -> None:
        if pod.claim is not None:
            self.node.delete(pod.claim)
            self.allocated.pop(pod.device, None)

    def _check_free(self, pod: Pod) -> None:
        others = list(self.holders[pod.device])
        if others:
            kinds = ", ".join(f"{name} ({self.pods[name].path})" for name in others)
            raise Broken(
                f"seed {self.walked.seed}, step {len(self.steps)}: the driver gave {pod.device} to {pod.name} ({pod.path}), and {kinds} "
                f"has it; last steps: {' '.join(self.steps[-12:])}"
            )

    def _start(self, pod: Pod) -> None:
        pod.started = True
        self.node.run(pod.name)
        if pod.claim is not None:
            # The claim of a template names its pod as the owner.
            self.node.run(f"pod-{pod.name}")

    def start(self) -> None:
        """The containers of an admitted pod start."""
        late = [pod for pod in self.pods.values() if pod.active and not pod.started]
        if late:
            self._start(self.random.choice(late))

    def end(self) -> None:
        """A pod ends as it should."""
        pods = [pod for pod in self.pods.values() if pod.active]
        if pods:
            pod = self.random.choice(pods)
            self._gone(pod)
            if pod.claim is not None:
                self.node.unprepare(pod.claim)
                self._forget_claim(pod)

    def force_delete(self) -> None:
        """A pod is deleted by force: the kubelet forgets it, and its containers run on."""
        pods = [pod for pod in self.pods.values() if pod.active and pod.started]
        if pods:
            pod = self.random.choice(pods)
            pod.active = False
            self.node.force_delete(pod.name)
            if pod.claim is not None:
                self.node.unprepare(pod.claim)
                self._forget_claim(pod)

    def end_containers(self) -> None:
        """The containers of a forgotten pod end."""
        pods = [pod for pod in self.pods.values() if not pod.active]
        if pods:
            self._gone(self.random.choice(pods))

    def _gone(self, pod: Pod) -> None:
        self.node.end(pod.name)
        self.node.end(f"pod-{pod.name}")
        self.holders[pod.device].pop(pod.name, None)
        self.excused.discard(pod.name)
        del self.pods[pod.name]

    # Processes.

    def restart_driver(self) -> None:
        """A new process of the driver, on the same disk."""
        self.node.restart(boot_id=self.node.boot_id)
        self.node.recover()
        self._begin()
        self._after_restart()
        if self.server == "ours":
            self.server = ""
            self._end_of_server()
            self._register_ours()
        self._publish()

    def _after_restart(self) -> None:
        """What pods have is taken up where the driver serves the API, or did so."""
        if self.path == "device-plugin" or self.node.rows():
            self.node.taking_up.once()

    def reboot(self) -> None:
        """Nothing runs any more. The kubelet starts the pods that it knows, without a call for those with units, and prepares claims anew."""
        for pod in list(self.pods.values()):
            if pod.active:
                pod.started = False
            else:
                self._gone(pod)
        self.node.reboot()
        self._begin()
        self._after_restart()
        self.restart_kubelet()
        for pod in list(self.pods.values()):
            if pod.claim is not None:
                self._prepare_again(pod)

    def _prepare_again(self, pod: Pod) -> None:
        assert pod.claim is not None
        if isinstance(self.node.prepare(pod.claim)[pod.claim.uid], Refusal):
            self.walked.refused += 1
            self._gone(pod)
            self.node.unprepare(pod.claim)
            self._forget_claim(pod)
        else:
            self._start(pod)

    def restart_kubelet(self) -> None:
        """A new kubelet knows what its checkpoint says, and no healthy unit until a plugin registers."""
        self.given = {
            str(entry.pod): next(iter(entry.units))
            for entry in self.node.containers
            if str(entry.pod) in self.pods and self.pods[str(entry.pod)].active
        }
        before, self.server, self.listed = self.server, "", set()
        self.stopped_at = self.clock() if self.registered is not None else None
        if before == "foreign":
            self._register_foreign()
        elif before == "ours":
            self._register_ours()

    def _register_foreign(self) -> None:
        self.server, self.stopped_at, self.registered = "foreign", None, frozenset()
        self.listed = set(UNITS)
        self._write()

    def _register_ours(self) -> None:
        self.server, self.stopped_at = "ours", None
        if self.registered is None:
            self.registered = frozenset()
        self.listed = self._list()
        self._write()

    def _end_of_server(self) -> None:
        """The stream of a plugin has ended: its units are unhealthy. The file is not written."""
        self.listed = set()
        self.stopped_at = self.clock()

    def foreign_comes(self) -> None:
        """The foreign plugin registers; on kubelets before 1.37 it replaces the driver's."""
        if self.server != "foreign":
            self._register_foreign()

    def foreign_goes(self) -> None:
        """The foreign plugin ends."""
        if self.server == "foreign":
            self.server = ""
            self._end_of_server()
            if self.path == "device-plugin":
                self._serve_ours()

    def switch_path(self) -> None:
        """The node changes from one API to the other."""
        self.path = "dra" if self.path == "device-plugin" else "device-plugin"
        if self.path == "dra" and self.server == "ours":
            self.server = ""
            self._end_of_server()
        elif self.path == "device-plugin" and not self.server:
            self._serve_ours()
        self.guard.look()
        self._publish()

    def _serve_ours(self) -> None:
        """What pods have already is reserved before anything is listed."""
        with suppress(DriverError):
            self.node.taking_up.once()
        self.guard.look()
        self._register_ours()

    def time_passes(self) -> None:
        """Some time, in which the driver and the kubelet look as they do all the time."""
        self._pass(self.random.choice((1, 2, 5, 12, 60, 330)))

    def _pass(self, seconds: float) -> None:
        self.clock.now += seconds
        ended = self.stopped_at
        if ended is not None and self.clock() - ended > FORGOTTEN_SECONDS:
            self.registered, self.stopped_at = None, None
            self._write()
        self.look()

    def look(self) -> None:
        """The driver looks."""
        self.node.look()
        self.guard.look()
        self._publish()

    # The walk.

    def step(self) -> None:
        action = self.random.choices(list(ACTIONS), weights=list(ACTIONS.values()))[0]
        self.steps.append(action)
        self.walked.taken[action] += 1
        act: Callable[[], None] = getattr(self, action)
        act()
        self._check()

    def _check(self) -> None:
        """No device has two owners in the state, and each device that a foreign pod has is kept once the driver has looked."""
        if self.steps[-1] in ("look", "time_passes"):
            for device, pods in self.holders.items():
                foreign = [name for name in pods if self.pods[name].path == "foreign"]
                with self.node.store.reading() as state:
                    owned = set(state.owned_devices(A_PLACE.pool))
                safe = {*self.guard.devices(), *owned}
                if foreign and DeviceName(device) not in safe:
                    raise Broken(
                        f"seed {self.walked.seed}, step {len(self.steps)}: {foreign[0]} has {device}, and the driver offers it; last steps: "
                        f"{' '.join(self.steps[-12:])}"
                    )
        # What was taken up from the foreign plugin has no CDI file of the driver.
        wrong = self.node.violations() if len(self.steps) % 50 == 0 else []
        if wrong := [one for one in wrong if not one.endswith("has no right file")]:
            raise Broken(f"seed {self.walked.seed}, step {len(self.steps)}: {'; '.join(wrong)}")

    # The end.

    def end_all(self) -> None:
        """Let all pods end and the foreign plugin go. Then nothing may be left: no owner, no device that is kept. Raises Broken."""
        for pod in list(self.waiting):
            self._prepare(pod)
        for pod in list(self.pods.values()):
            self._gone(pod)
            if pod.active and pod.claim is not None:
                self.node.unprepare(pod.claim)
                self._forget_claim(pod)
        self.foreign_goes()
        for _ in range(3):
            self._take_back()
            self._write()
            self._pass(FORGOTTEN_SECONDS + 1)
        with self.node.store.reading() as state:
            owned = sorted(state.owned_devices(A_PLACE.pool))
        if owned or self.guard.devices():
            rows = [f"{row.ref} {row.users} {row.held}" for row in self.node.rows()]
            raise Broken(
                f"seed {self.walked.seed}: all pods have ended, and {owned or sorted(self.guard.devices())} stay taken: {'; '.join(rows)}"
            )


ACTIONS = {
    "foreign_admits": 12,
    "own_plugin_admits": 8,
    "own_plugin_is_called_for_nothing": 2,
    "schedule": 12,
    "prepare": 10,
    "start": 4,
    "end": 10,
    "force_delete": 5,
    "end_containers": 5,
    "restart_driver": 2,
    "restart_kubelet": 2,
    "reboot": 1,
    "foreign_comes": 3,
    "foreign_goes": 6,
    "switch_path": 3,
    "time_passes": 10,
    "look": 10,
}
"""How often each step is taken, against the others."""


def walk(steps: int, seed: int, tell: Callable[[str], None] = lambda _line: None) -> Walked:
    """Walk. Raises Broken when a promise does not hold."""
    with tempfile.TemporaryDirectory(prefix="guard-", dir="/tmp") as root:
        found = GuardWalk(Path(root), seed)
        try:
            for _ in range(steps):
                found.step()
                tell(f"{len(found.steps)} {found.steps[-1]}")
            found.end_all()
        finally:
            found.node.close()
        return found.walked
