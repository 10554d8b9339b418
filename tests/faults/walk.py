# SPDX-License-Identifier: Apache-2.0
"""A random walk: pods come and go while everything breaks, and after each step the books must agree.

The walk has a model of its own, which knows nothing of the driver: which pods exist, which of them run and what their
containers were given, and which disturbances are in force. From that follows what the driver may answer (`_excused`) and
what must be true (`tests.support.invariants`, and what the simulated hardware has seen, `tests.support.hardware`, which
the driver cannot talk out of anything). The driver is the real process between the stand-ins of a kubelet and an API server, over
real sockets; now and then two processes, as in a rolling update. The machines and their schedulers are in `tests.faults.machines`, what
breaks in `tests.faults.disturbances`, what must be true in `tests.faults.promises`; pods that leave in odd ways are in
`tests.faults.departures`, what is newer than a claim of whole devices in `tests.faults.newer`.

One number, the seed, makes the walk; the steps are written down as they are taken, so that a failure shows its history.
"""

import random
import tempfile
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, DeviceName, PodUid, ShareId
from dra_driver.model.state import Phase
from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.fake_api.store import Store
from dra_driver.testing.fake_kubelet import KubeletError
from dra_driver.testing.stage import DRIVER
from tests.faults.bed import Bed
from tests.faults.departures import DEPARTURES, forget_others, last_breath
from tests.faults.disturbances import Disturbances
from tests.faults.machines import MACHINES, Machine, clash, device_of, devices_of, share_of
from tests.faults.newer import NEWER
from tests.faults.nvidia_machine import NVIDIA, Nvidia, NvidiaBed
from tests.faults.promises import Promises
from tests.faults.restored import RESTORED
from tests.faults.walk_tables import ACTIONS
from tests.support.hardware import Runtime, Use, Witness
from tests.support.invariants import Running

MOST_PODS = 10
ALL_MACHINES: dict[str, Machine] = {**MACHINES, "nvidia": Nvidia()}
ELSEWHERE = {**DEPARTURES, **RESTORED, **NEWER, **NVIDIA}
SETTLE_EVERY = 100
DOWN_STEPS = 5


class Broken(AssertionError):
    """A promise was broken: which, and the steps that led there."""


@dataclass(slots=True)
class Pod:
    """A pod and its one claim, which is `named` or made for it alone. `runs` once its containers were started; before it is `bound`, the
    kubelet does not know it.
    """

    name: str
    uid: PodUid
    claim: ClaimRef
    devices: tuple[str, ...]
    admin: bool = False
    named: bool = False
    runs: bool = False
    ending: bool = False
    bound: bool = True


@dataclass(slots=True)
class Walk(Disturbances, Promises):
    """One walk on a fresh node below `root`."""

    root: Path
    seed: int
    machine: Machine = MACHINES["equal"]
    tell: Callable[[str], None] = lambda _line: None
    steps: list[str] = field(default_factory=list)
    taken: Counter[str] = field(default_factory=Counter)
    excuses: Counter[str] = field(default_factory=Counter)
    spent: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    chance: random.Random = field(init=False)
    bed: Bed = field(init=False)
    pods: dict[str, Pod] = field(default_factory=dict)
    running: dict[ClaimUid, Running] = field(default_factory=dict)
    numbers: int = 0
    # Containers that everybody has forgotten, pods that a finalizer keeps, named claims without a pod, and claims that the kubelet
    # will never unprepare.
    lingering: dict[str, Pod] = field(default_factory=dict)
    terminating: list[Pod] = field(default_factory=list)
    idle: list[ClaimRef] = field(default_factory=list)
    missed: set[ClaimUid] = field(default_factory=set)
    leftover: set[Use] = field(default_factory=set)  # settings of claims that a lost state forgot
    stuck: set[str] = field(
        default_factory=set
    )  # GPUs whose mode nobody could undo, as docs/faults.md says
    runtime: Runtime = field(init=False)
    witness: Witness = field(init=False)
    call_seconds: float = 0.0
    backup: tuple[Store, dict[str, Pod], list[Pod]] | None = None
    # Disturbances in force.
    vanished: set[str] = field(default_factory=set)  # now, or since the last settling
    ill: frozenset[str] = frozenset()
    seen_slices: list[dict[str, Any]] = field(default_factory=list)  # by the scheduler, earlier
    tampered: set[str] = field(default_factory=set)  # CDI files that somebody touched, by name
    lost: set[str] = field(default_factory=set)  # CDI files that were wrong when the state was lost
    strays: set[str] = field(default_factory=set)  # CDI files of nobody's
    unsettled: set[str] = field(default_factory=set)  # "api", "disk", "sockets", "state"
    crashes: int = 0
    seconds: float = 0.0
    _port: int = 0
    _down_since: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        api = FakeApi(versions=("v1",))
        api.__enter__()
        bed = NvidiaBed if isinstance(self.machine, Nvidia) else Bed
        self.bed = bed(self.root, api, *self.machine.flags)
        self.runtime, self.witness = self.bed.hardware()
        self.call_seconds = self.bed.kubelet.call_seconds

    # The loop.

    def run(self, steps: int) -> None:
        """Take so many steps; Broken, with the history, when a promise does not hold."""
        begun = time.monotonic()
        self.bed.start_registered()
        self.bed.wait_for(self.bed.published, "the slices")
        actions = dict(ACTIONS)
        if isinstance(self.machine, Nvidia):
            actions |= {name: weight for name, (_, weight) in NVIDIA.items()}
        names, weights = list(actions), list(actions.values())
        try:
            for number in range(steps):
                last = number == steps - 1 or number % SETTLE_EVERY == SETTLE_EVERY - 1
                name = "settle" if last else self.chance.choices(names, weights)[0]
                self._step(number, name)
                self._calm_down(number)
        finally:
            self.bed.close()
            self.seconds = time.monotonic() - begun

    def _calm_down(self, number: int) -> None:
        """The API server is back after some steps, and from then on it is an excuse for nobody."""
        if "down" in self.unsettled:
            self._down_since = self._down_since or number
            if number - self._down_since >= DOWN_STEPS:
                self._api_up()
        else:
            self._down_since = 0
            if not self.bed.api.faults.pending():
                self.unsettled.discard("api")

    def summary(self) -> str:
        """What happened, in numbers."""
        taken = ", ".join(
            f"{name} {count} ({self.spent[name]:.1f} s)" for name, count in self.taken.most_common()
        )
        excuses = ", ".join(f"{name} {count}" for name, count in self.excuses.most_common())
        return f"{self.taken.total()} steps in {self.seconds:.0f} s: {taken}\nrefusals: {excuses}\ncrashes: {self.crashes}"

    def _step(self, number: int, name: str) -> None:
        self.steps.append(f"{number} {name}")
        self.taken[name] += 1
        begun = time.monotonic()
        try:
            if name in ELSEWHERE:
                ELSEWHERE[name][0](self)
            else:
                getattr(self, f"_{name}")()
            self._check()
        except Exception as error:
            history = "\n".join(self.steps[-60:])
            raise Broken(
                f"seed {self.seed}, step {number} ({name}): {error}\n\n{history}\n\n{self.bed.log()[-4000:]}"
            ) from error
        self.spent[name] += time.monotonic() - begun
        self.tell(self.steps[-1])

    def note(self, text: str) -> None:
        self.steps[-1] += f" {text}"

    # Pods.

    def _new_pod(self) -> None:
        """The scheduler places a pod: devices that no allocated claim has, or any one with admin access."""
        if len(self.pods) >= MOST_PODS or "down" in self.unsettled:
            return
        admin = self.chance.random() < 0.1
        chosen = self.machine.choose(self, admin=admin)
        if not chosen:
            return
        pod = self._pod()
        named = self.chance.random() < 0.4
        claim = self.bed.new_claim(
            f"c{self.numbers}",
            chosen,
            pod=None if named else (pod, f"p{self.numbers}"),
            admin=admin,
        )
        self.place(claim, chosen, admin=admin, named=named, pod=pod)

    def _pod(self) -> PodUid:
        self.numbers += 1
        return PodUid(str(uuid.UUID(int=self.chance.getrandbits(128))))

    def place(
        self,
        claim: ClaimRef,
        devices: tuple[str, ...],
        *,
        admin: bool = False,
        named: bool = True,
        pod: PodUid | None = None,
    ) -> None:
        """Allocate the devices to the claim, for a new pod."""
        uid = pod or self._pod()
        name = f"p{self.numbers}"
        self.bed.allocate(claim, devices, [(uid, name)], admin=admin, bound=self.machine.bound)
        bound = admin or not devices_of(devices) & set(self.machine.bound)
        self.pods[name] = Pod(name, uid, claim, devices, admin, named, bound=bound)
        self.note(f"{name} {claim.uid[:8]} {','.join(devices)}{' admin' * admin}{' named' * named}")

    def free_devices(self) -> list[str]:
        """What the scheduler may give away; it does not know of lingering containers, which are met now and then."""
        taken = self._allocated()
        if self.chance.random() < 0.6:
            taken |= {device for pod in self.lingering.values() for device in pod.devices}
        return [device for device in self.machine.devices if device not in taken]

    def _allocated(self) -> set[str]:
        return {
            result["device"]
            for claim in self.bed.api.objects("resourceclaims")
            for result in claim["status"].get("allocation", {"devices": {"results": []}})[
                "devices"
            ]["results"]
            if not result.get("adminAccess")
        }

    def in_the_way(self, pod: Pod) -> list[str]:
        """Forgotten pods that have the pod's hardware open, or what its claim had before it was allocated anew."""
        same = [
            name
            for name, one in self.lingering.items()
            if one.claim.uid == pod.claim.uid and not one.admin
        ]
        return [*same, *(name for name in self.lingers(pod.devices) if name not in same)]

    def lingers(self, devices: tuple[str, ...]) -> list[str]:
        """Forgotten pods that have some of this hardware open."""
        return [
            name
            for name, pod in self.lingering.items()
            if any(clash(one, other) for one in pod.devices for other in devices)
        ]

    def users(self, uid: ClaimUid) -> list[Pod]:
        """Everybody who has, or is to have, the claim's devices."""
        everybody = (*self.pods.values(), *self.lingering.values())
        return [pod for pod in everybody if pod.claim.uid == uid]

    def _second_pod(self) -> None:
        """A pod that uses a claim of another pod."""
        named = [pod for pod in self.pods.values() if pod.named and pod.bound and not pod.ending]
        if len(self.pods) >= MOST_PODS or not named or "down" in self.unsettled:
            return
        other = self.chance.choice(named)
        if not self.bed.is_allocated(other.claim, other.devices):
            return  # a restored API server has an older allocation: the new pod would get other devices than the first one has
        uid = self._pod()
        name = f"p{self.numbers}"
        if not self.bed.reserve_for(other.claim, (uid, name)):
            return  # the API server knows it no more
        self.pods[name] = Pod(name, uid, other.claim, other.devices, other.admin, named=True)
        self.note(f"{name} of {other.name}")

    def any_pod(self, *, runs: bool | None = None) -> Pod | None:
        living = [pod for pod in self.pods.values() if pod.bound and not pod.ending]
        fitting = [pod for pod in living if runs is None or pod.runs == runs]
        return self.chance.choice(fitting) if fitting else None

    def _prepare(self) -> None:
        """The kubelet starts a pod, or asks again for one that runs."""
        pod = self.any_pod(runs=False) or self.any_pod()
        if pod is not None:
            self.try_to_start(pod)

    def try_to_start(self, pod: Pod) -> None:
        uid = pod.claim.uid
        if not pod.bound:
            return
        row = self.bed.claims().get(uid)
        prepared = row is not None and row.phase is Phase.PREPARED
        if "down" in self.unsettled and (not prepared or "state" in self.unsettled):
            return  # the call would wait 35 s for the API server; the tests of the room do
        self.note(pod.name)
        known = self.bed.kubelet.claims.get(uid)
        asks = known is None or not known.prepared
        breath = last_breath(self, pod)
        try:
            self.bed.kubelet.prepare(DRIVER, [pod.claim], pod=f"default/{pod.name}", uid=pod.uid)
        except KubeletError as error:
            self.refused(str(error), pod)
            return
        finally:
            self.bed.kubelet.call_seconds = self.call_seconds
            if breath is not None:
                breath.join()
        self.missed.discard(uid)  # the kubelet knows it, again
        if asks or self.bed.is_allocation_of(pod.claim, uid):
            self.has_started(pod)
        elif not pod.runs:
            self._not_started(pod, "the kubelet did not ask, and names an older allocation")

    def has_started(self, pod: Pod) -> None:
        """The driver has answered: a runtime applies what stands in the CDI files, and the containers open what they got."""
        uid = pod.claim.uid
        if pod.runs:
            return
        if self._file(uid) in self.tampered | self.lost:
            # The kubelet may not have asked again: then it is the file as it is, until the driver looks.
            row = self.bed.claims().get(uid)
            if row is None or self.bed.cdi_text(uid) != row.cdi_spec or not row.cdi_spec:
                self._not_started(pod, "tampered")
                return
            self.tampered.discard(self._file(uid))
            self.lost.discard(self._file(uid))
        given = self.bed.opened_devices(uid)
        if set(given) != devices_of(pod.devices):
            raise AssertionError(f"{pod.name} was given {given}, allocated are {pod.devices}")
        found = self.bed.running_claim(uid)
        if pod.admin:
            found = Running(found.cdi_ids, (), found.document)
        before = self.running.setdefault(uid, found)
        if before != found:
            raise AssertionError(f"{pod.name} runs with {before} and was now given {found}")
        uses = [Use(DeviceName(device_of(one)), uid, ShareId(share_of(one))) for one in pod.devices]
        self.runtime.opened(pod.name, uses, admin=pod.admin)
        pod.runs = True

    def _not_started(self, pod: Pod, why: str) -> None:
        self.note(f"({why})")
        self.bed.kubelet.cgroups.end(pod.uid)

    def _end_pod(self) -> None:
        """A pod is deleted: the kubelet unprepares, the control plane frees the claim."""
        pod = self.chance.choice(list(self.pods.values())) if self.pods else None
        if pod is not None:
            self.end(pod)

    def end(self, pod: Pod) -> None:
        """Its containers end, and everybody is told in order."""
        self.note(f"-{pod.name}")
        if not pod.bound:  # the kubelet never knew it
            del self.pods[pod.name]
            self.release_in_api(pod)
            return
        if self.ends_on_node(pod):
            self.release_in_api(pod)

    def ends_on_node(self, pod: Pod) -> bool:
        """The containers end and the kubelet unprepares; whether that succeeded."""
        if pod.runs:
            self.runtime.closed(pod.name)
        pod.runs, pod.ending = False, True
        forget_others(self, pod)
        self.stop_running(pod)
        if pod.claim.uid not in self.bed.kubelet.claims:
            self.missed.add(pod.claim.uid)
        try:
            self.bed.kubelet.unprepare(DRIVER, [pod.claim], pod=f"default/{pod.name}")
        except KubeletError as error:
            self.refused(str(error), pod, unprepare=True)
            return False
        del self.pods[pod.name]
        if not self.users(pod.claim.uid):
            self.tampered.discard(self._file(pod.claim.uid))
        return True

    def stop_running(self, pod: Pod) -> None:
        """Forget what the claim's containers were given, if none of them runs any more."""
        if not any(other.runs for other in self.users(pod.claim.uid) if other is not pod):
            self.running.pop(pod.claim.uid, None)

    def release_in_api(self, pod: Pod) -> None:
        """The control plane: a claim that was made for the pod goes with it; a named one is free with its last pod."""
        left = self.bed.unreserve(pod.claim, pod.uid)
        if left is None or left:
            return
        if pod.named and self.chance.random() < 0.6:
            self.bed.deallocate(pod.claim)
            self.idle.append(pod.claim)
        else:
            self.bed.api.remove("resourceclaims", pod.claim.name)


def walk(
    steps: int,
    seed: int,
    *,
    machine: str = "equal",
    tell: Callable[[str], None] = lambda _line: None,
) -> Walk:
    """Walk in a fresh directory; answers the walk, for its counts."""
    with tempfile.TemporaryDirectory(prefix="walk-", dir="/tmp") as root:
        walked = Walk(Path(root), seed, ALL_MACHINES[machine], tell)
        walked.run(steps)
        return walked
