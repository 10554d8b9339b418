# SPDX-License-Identifier: Apache-2.0
"""A random walk: pods come and go while everything breaks, and after each step the books must agree.

The walk has a model of its own, which knows nothing of the driver: which pods exist, which of them run and what their
containers were given, and which disturbances are in force. From that follows what the driver may answer (`_excused`) and
what must be true (`tests.support.invariants`, and what the simulated hardware has seen, `tests.support.hardware`, which
the driver cannot talk out of anything). The driver is the real process between the stand-ins of a kubelet and an API server, over
real sockets. Pods that leave in odd ways are in `tests.faults.departures`.

One number, the seed, makes the walk; the steps are written down as they are taken, so that a failure shows its history.
"""

import random
import re
import signal
import tempfile
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, DeviceName, PodUid
from dra_driver.model.state import Phase
from dra_driver.testing.fake_api import Answer, FakeApi, Reset, refusal
from dra_driver.testing.fake_api.store import Store
from dra_driver.testing.fake_kubelet import KubeletError
from dra_driver.testing.stage import DRIVER, wait_for
from tests.faults.bed import PLACE, Bed
from tests.faults.departures import (
    DEPARTURES,
    end_forgotten,
    ends_unseen,
    forget_others,
    last_breath,
)
from tests.faults.restored import RESTORED
from tests.faults.still_open import is_named
from tests.faults.walk_tables import ACTIONS, ALSO_UNPREPARE, EXCUSES, POINTS, is_for_people
from tests.support.hardware import Runtime, Use, Witness
from tests.support.invariants import Picture, Rule, Running, Violation, violations

DEVICES = tuple(f"gpu-{index}" for index in range(8))
MOST_PODS = 10
GARBAGE = Answer(200, {"Content-Type": "application/json"}, b'{"kind": "Resour')
ELSEWHERE = {**DEPARTURES, **RESTORED}
TROUBLES = (refusal(429), refusal(500), refusal(503), refusal(403), GARBAGE, Reset())
SETTLE_EVERY = 100
DOWN_STEPS = 5
CALM_SECONDS = 30.0  # a deadline, ten times what a background thread takes


class Broken(AssertionError):
    """A promise was broken: which, and the steps that led there."""


@dataclass(slots=True)
class Pod:
    """A pod and its one claim, which is `named` or made for it alone. `runs` once its containers were started."""

    name: str
    uid: PodUid
    claim: ClaimRef
    devices: tuple[str, ...]
    admin: bool = False
    named: bool = False
    runs: bool = False
    ending: bool = False


@dataclass(slots=True)
class Walk:
    """One walk on a fresh node below `root`."""

    root: Path
    seed: int
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
    runtime: Runtime = field(init=False)
    witness: Witness = field(init=False)
    call_seconds: float = 0.0
    backup: tuple[Store, dict[str, Pod], list[Pod]] | None = None
    # Disturbances in force.
    vanished: set[str] = field(default_factory=set)  # now, or since the last settling
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
        self.bed = Bed(self.root, api)
        self.runtime, self.witness = Runtime(self.bed.journal), Witness(self.bed.journal)
        self.call_seconds = self.bed.kubelet.call_seconds

    # The loop.

    def run(self, steps: int) -> None:
        """Take so many steps; Broken, with the history, when a promise does not hold."""
        begun = time.monotonic()
        self.bed.start_registered()
        names, weights = zip(*((name, weight) for name, weight in ACTIONS.items()), strict=True)
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
        wished = list(DEVICES) if admin else self.free_devices()
        count = min(self.chance.randint(1, 2), len(wished))
        if not count:
            return
        chosen = tuple(sorted(self.chance.sample(wished, count)))
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
        self.bed.allocate(claim, devices, [(uid, name)], admin=admin)
        self.pods[name] = Pod(name, uid, claim, devices, admin, named)
        self.note(f"{name} {claim.uid[:8]} {','.join(devices)}{' admin' * admin}{' named' * named}")

    def free_devices(self) -> list[str]:
        """What the scheduler may give away; it does not know of lingering containers, which are met now and then."""
        taken = self._allocated()
        if self.chance.random() < 0.6:
            taken |= {device for pod in self.lingering.values() for device in pod.devices}
        return [device for device in DEVICES if device not in taken]

    def _allocated(self) -> set[str]:
        return {
            result["device"]
            for claim in self.bed.api.objects("resourceclaims")
            for result in claim["status"].get("allocation", {"devices": {"results": []}})[
                "devices"
            ]["results"]
            if not result.get("adminAccess")
        }

    def lingers(self, devices: tuple[str, ...]) -> list[str]:
        """Forgotten pods that have one of these devices open."""
        return [name for name, pod in self.lingering.items() if set(pod.devices) & set(devices)]

    def users(self, uid: ClaimUid) -> list[Pod]:
        """Everybody who has, or is to have, the claim's devices."""
        everybody = (*self.pods.values(), *self.lingering.values())
        return [pod for pod in everybody if pod.claim.uid == uid]

    def _second_pod(self) -> None:
        """A pod that uses a claim of another pod."""
        named = [pod for pod in self.pods.values() if pod.named and not pod.ending]
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
        living = [pod for pod in self.pods.values() if not pod.ending]
        fitting = [pod for pod in living if runs is None or pod.runs == runs]
        return self.chance.choice(fitting) if fitting else None

    def _prepare(self) -> None:
        """The kubelet starts a pod, or asks again for one that runs."""
        pod = self.any_pod(runs=False) or self.any_pod()
        if pod is not None:
            self.try_to_start(pod)

    def try_to_start(self, pod: Pod) -> None:
        uid = pod.claim.uid
        row = self.bed.claims().get(uid)
        prepared = row is not None and row.phase is Phase.PREPARED
        if "down" in self.unsettled and (not prepared or "state" in self.unsettled):
            return  # the call would wait 35 s for the API server; the tests of the room do
        self.note(pod.name)
        known = self.bed.kubelet.claims.get(uid)
        asks = known is None or not known.prepared
        breath = last_breath(self, pod.devices)
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
            if row is None or self.bed.cdi_text(uid) != row.cdi_spec:
                self._not_started(pod, "tampered")
                return
            self.tampered.discard(self._file(uid))
            self.lost.discard(self._file(uid))
        given = self.bed.opened_devices(uid)
        if sorted(given) != sorted(pod.devices):
            raise AssertionError(f"{pod.name} was given {given}, allocated are {pod.devices}")
        found = self.bed.running_claim(uid)
        if pod.admin:
            found = Running(found.cdi_ids, (), found.document)
        before = self.running.setdefault(uid, found)
        if before != found:
            raise AssertionError(f"{pod.name} runs with {before} and was now given {found}")
        uses = [Use(DeviceName(device), uid) for device in given]
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

    # Disturbances.

    def _kill(self) -> None:
        self.bed.kill()
        self._meanwhile()
        self._start()

    def _meanwhile(self) -> None:
        """What nobody notices while the driver is down."""
        if self.chance.random() < 0.5:
            self._touch_cdi()

    def _stop(self) -> None:
        if "down" in self.unsettled:
            self._api_up()
        code = self.bed.stop()
        if code:
            raise AssertionError(f"a graceful stop ended with {code}")
        self._meanwhile()
        self._start()

    def _end_process(self) -> None:
        # A graceful end waits some seconds for threads that are asking an API server that is gone.
        gently = self.chance.random() < 0.5 and "down" not in self.unsettled
        self.bed.stop(signal.SIGTERM if gently else signal.SIGKILL)

    def _start(self) -> None:
        """A new process: it repairs CDI files and sees the hardware as it is; the kubelet finds it again."""
        self.unsettled -= {"disk", "sockets"}
        self.bed.disarm()
        self.bed.start_registered()
        self._repaired()

    def _repaired(self) -> None:
        """A start puts files right, but those of claims that a lost state does not know yet."""
        if "state" in self.unsettled:
            self.lost |= self.tampered
        self.tampered.clear()

    def _crash(self) -> None:
        """Death at a failpoint of a call."""
        call, point = self._call_and_point()
        self.note(point)
        self.bed.arm(point, "die")
        self.unsettled.add("armed")
        call()
        self._came_back()

    def _call_and_point(self) -> tuple[Callable[[], None], str]:
        """A call that reaches the driver, and a failpoint on its way."""
        pod = self.any_pod(runs=True)
        if pod is None or self.chance.random() < 0.5:
            return self.new_and_prepare, self.chance.choice(POINTS["prepare"])
        return partial(self.end, pod), self.chance.choice(POINTS["unprepare"])

    def _crash_at_start(self) -> None:
        """Death at a failpoint of the start after a reboot or the loss of the state."""
        point = self.chance.choice(POINTS["start"])
        self.note(point)
        self.bed.kill()
        if "damaged" in point:
            self._damage()
        else:
            self._forget_boot()
        self.bed.arm(point, "die")
        self.bed.start()
        wait_for(lambda: not self._lives() or self.bed.registers(), "a start or a death")
        self._repaired()
        self._came_back()

    def _came_back(self) -> None:
        self.unsettled.discard("armed")
        if self._lives():
            self.bed.disarm()
        else:
            self.crashes += 1
            self.note("died")
            self.bed.stop()
            self._start()

    def new_and_prepare(self) -> None:
        known = set(self.pods)
        self._new_pod()
        for name in self.pods.keys() - known:
            self.try_to_start(self.pods[name])

    def _lives(self) -> bool:
        # A process that armed itself to die does so before the call is answered.
        return self.bed.control.exists() or not self._dead()

    def _dead(self) -> bool:
        assert self.bed.process is not None
        try:
            self.bed.process.wait(0.5)
        except Exception:  # noqa: BLE001  it lives
            return False
        return True

    def _reboot(self) -> None:
        self.bed.kill()
        self._forget_boot()
        self._start()

    def _forget_boot(self) -> None:
        self.bed.reboot()
        self.runtime.booted()
        self.running.clear()
        self.lingering.clear()
        for pod in self.pods.values():
            pod.runs = False

    def _restart_kubelet(self) -> None:
        """The kubelet forgets what is prepared, wipes the driver's slices, and asks again for what runs."""
        self.bed.kubelet.restart()
        for found in self.bed.slices():
            self.bed.api.remove("resourceslices", found["metadata"]["name"])
        if "sockets" in self.unsettled:
            return
        self.bed.register()
        for pod in list(self.pods.values()):
            if pod.runs:
                self.try_to_start(pod)

    def _trouble_api(self) -> None:
        trouble = self.chance.choice(TROUBLES)
        resource = self.chance.choice(("resourceclaims", "resourceslices", "*"))
        times = self.chance.randint(1, 2)
        self.note(f"{trouble} {resource} x{times}"[:60])
        self.bed.api.faults.add(trouble, resource=resource, times=times)
        self.unsettled.add("api")

    def _api_down(self) -> None:
        """Gone, or back; a restart of the API server looks the same."""
        if "down" in self.unsettled:
            self._api_up()
        else:
            self._port = self.bed.stop_api()
            self.unsettled |= {"down", "api"}

    def _api_up(self, store: Store | None = None) -> None:
        self.bed.start_api(self._port, store)
        self.unsettled.discard("down")

    def restart_api(self, store: Store) -> None:
        """The API server ends, and comes back with what is stored there."""
        self._port = self.bed.stop_api()
        self._api_up(store)

    def _touch_cdi(self) -> None:
        """Somebody edits or removes a file, or leaves one of his own making."""
        # In the order of the pods: the names of files differ from walk to walk.
        uids = dict.fromkeys(pod.claim.uid for pod in self.pods.values())
        files = [file for uid in uids if (file := self.bed.cdi_dir / self._file(uid)).exists()]
        stray = self.bed.cdi_dir / self._file(ClaimUid(f"0000-{self.numbers}"))
        file = stray if not files or self.chance.random() < 0.1 else self.chance.choice(files)
        how = self.chance.choice(("remove", "edit", "empty", "binary"))
        self.note(f"{how} {file.name}")
        if how == "remove":
            file.unlink(missing_ok=True)
        else:
            file.write_bytes({"edit": b"{}\n", "empty": b"", "binary": b"\xff\x00"}[how])
        self.tampered.add(file.name)
        if file == stray:
            self.strays.add(file.name)

    def _lose_state(self) -> None:
        """The state file is deleted, cut short or damaged while the driver is down."""
        self._end_process()
        self._damage()
        self._start()
        if self.chance.random() < 0.7 and not self.unsettled & {"api", "down"}:
            self._wait_for_sweep()

    def _damage(self) -> None:
        end_forgotten(self)
        self.leftover |= self.witness.look().configured
        how = self.chance.choice(("delete", "cut", "flip", "flip", "flip"))
        files = self.bed.state_files()
        file = self.chance.choice(files)
        if how == "delete":
            for path in files:
                path.unlink()
        elif how == "cut":
            content = file.read_bytes()
            file.write_bytes(content[: self.chance.randrange(len(content) + 1)])
        elif file.stat().st_size:
            near = self.chance.choice((b"", b'"minor": ', b'"device": "gpu-'))
            how += f" bit {self.bed.flip_bit(file, self.chance, near=near)}"
        self.note(f"{how} {file.name}")
        self.unsettled.add("state")

    def _give_up(self) -> None:
        """Row, file and API server are all wrong about a claim: nobody can know it; its pods are ended.

        So are those of which a device has vanished too: it is reserved, but its file cannot be made anew.
        """
        known = {found["metadata"]["uid"] for found in self.bed.api.objects("resourceclaims")}
        for pod in self.pods.values():
            if self._file(pod.claim.uid) not in self.lost:
                continue
            if pod.claim.uid not in known or self.vanished & set(pod.devices):
                ends_unseen(self, pod)
        self.strays |= self.lost  # they stay until the kubelet unprepares them
        self.lost.clear()

    def _wait_for_sweep(self) -> None:
        if self.lost:
            self._give_up()

        def wrong() -> list[Violation]:
            self.bed.alive()
            found = self._wrong(slices=False, without={"state"})
            return [one for one in found if not is_named(self.bed, one)]

        try:
            wait_for(lambda: not wrong(), "the state to be rebuilt")
        except AssertionError as error:
            raise AssertionError(f"{error}: {[str(found) for found in wrong()]}") from error
        self.unsettled.discard("state")

    def _vanish(self) -> None:
        gone = set(self.chance.sample(DEVICES, self.chance.choice((0, 0, 1, 2))))
        self.bed.vanish(*sorted(gone))
        self.vanished |= gone
        self.note(",".join(sorted(gone)))

    def _fill_disk(self) -> None:
        """Full disks for a call or two, at once or from a failpoint on; then there is room again."""
        call, point = self._call_and_point()
        self.unsettled.add("disk")
        if self.chance.random() < 0.3:
            self.bed.fill_disks()
        else:
            self.note(point)
            self.bed.arm(point, "full")
        call()
        self.chance.choice((self._prepare, self._end_pod))()
        self.bed.disarm()
        self.bed.empty_disks()
        self.unsettled.discard("disk")

    def _recreate_sockets(self) -> None:
        """The kubelet's plugin directories are removed and made anew; the driver comes back by itself."""
        self.bed.remove_sockets()
        self.unsettled.add("sockets")
        self._prepare()
        self.bed.kubelet.restart()
        self.bed.register()
        self.unsettled.discard("sockets")

    # What must be true.

    def _settle(self) -> None:
        """Everything is whole again: then every promise holds, and every pod gets its devices."""
        if "down" in self.unsettled:
            self._api_up()
        self.bed.api.faults.clear()
        self.bed.vanish()
        # Whose claim the API server forgot, or allocates elsewhere, the kubelet ends; what nobody knows, goes.
        forgotten = [
            pod for pod in self.pods.values() if not self.bed.is_allocated(pod.claim, pod.devices)
        ]
        while self.terminating:
            self.release_in_api(self.terminating.pop())
        self.idle = []
        self._free_orphans()
        broken = self.tampered | self.lost | self.vanished | self.missed | self.unsettled
        if broken or self.chance.random() < 0.5:
            self._end_process()
            self._start()
        self.vanished.clear()
        self.strays.clear()
        self.missed &= self.running.keys()
        if "state" in self.unsettled:
            end_forgotten(self)
        self.unsettled &= {"state"}
        self._vouch()
        self._wait_for_sweep()
        self.unsettled.clear()
        for pod in forgotten:
            self.end(pod)
        self.missed.clear()
        self._vouch()
        for pod in list(self.pods.values()):
            self.end(pod) if pod.ending else self.try_to_start(pod)
        self._free_orphans()
        wait_for(lambda: not self._wrong(slices=True), "the slices")
        self._settings_are_owned()

    def _vouch(self) -> None:
        """What a lost state and an absent API server made nobody's, an admin gives back."""
        for uid, row in self.bed.claims().items():
            if is_for_people(row) and uid not in self.running:
                self.bed.vouch(row)

    def _settings_are_owned(self) -> None:
        """What the hardware is set up for belongs to a claim of the state, but what a lost state has forgotten."""
        owned = {
            Use(key.device, uid, key.share)
            for uid, row in self.bed.claims().items()
            for key in row.owned
        }
        forgotten = self.witness.look().configured - owned - self.leftover
        if forgotten:
            raise AssertionError(f"nobody owns {', '.join(map(str, sorted(forgotten)))} any more")

    def _free_orphans(self) -> None:
        used = {pod.claim.uid for pod in self.pods.values()}
        for found in self.bed.api.objects("resourceclaims"):
            if found["metadata"]["uid"] not in used:
                self.bed.api.remove("resourceclaims", found["metadata"]["name"])

    def _check(self) -> None:
        """Nobody has two owners at any moment; the rest may take a background thread of the driver a moment."""
        seen = self.witness.look()
        over = [str(one) for one in seen.overridden if one.before not in self.leftover]
        if misuse := [*seen.misuse, *over]:
            raise AssertionError("\n".join(misuse))
        end = time.monotonic() + CALM_SECONDS
        while wrong := self._wrong(slices=False):
            if time.monotonic() > end or any(one.rule is Rule.ONE_OWNER for one in wrong):
                raise AssertionError("\n".join(map(str, wrong)))
            time.sleep(0.02)

    def _wrong(self, *, slices: bool, without: set[str] = frozenset()) -> list[Violation]:  # type: ignore[assignment]
        unsettled = self.unsettled - without
        picture = self.bed.picture(
            slices=slices, running=self._running(), living=self._living(unsettled)
        )
        found = list(violations(picture))
        if self.tampered | self.lost | self.strays:
            found = [one for one in found if not self._is_tampered(one)]
        if "state" in unsettled:
            # The sweep is still to come, or cannot ask; what running pods need on the disk is there all the same.
            found = [
                one
                for one in found
                if one.rule is Rule.ONE_OWNER
                or ("CDI file" in one.found and one.rule is Rule.KEEPS_DEVICE)
            ]
        if "sockets" in unsettled:
            found = [one for one in found if not one.subject.startswith("socket")]
        return found

    def _running(self) -> dict[ClaimUid, Running]:
        """Of a claim that the kubelet has forgotten, or all its pods, only the devices stay its own."""
        used = {pod.claim.uid for pod in self.pods.values() if pod.runs}
        known = (used & self.bed.kubelet.claims.keys()) - self.missed
        return {
            uid: replace(running, forgotten=uid not in known)
            for uid, running in self.running.items()
        }

    def _living(self, unsettled: set[str]) -> frozenset[ClaimUid]:
        """Claims whose rows may stand: a named one that is held stays so while the API server cannot be asked who used it."""
        known = {*self.bed.kubelet.claims, *self.running, *self.missed}
        known |= {pod.claim.uid for pod in self.pods.values()}
        unasked = unsettled & {"api", "down", "restored"}
        nobodys = {uid for uid, row in self.bed.claims().items() if unasked or is_for_people(row)}
        return frozenset(known | nobodys)

    def _is_tampered(self, violation: Violation) -> bool:
        if "CDI file" not in str(violation):
            return False
        touched = self.tampered | self.lost | self.strays
        uids = {name.partition("_")[2].removesuffix(".json") for name in touched}
        return any(uid in violation.subject for uid in uids)

    def _file(self, uid: ClaimUid) -> str:
        return Picture(PLACE, "", {}, {}, {}).file_name(uid)

    def refused(self, text: str, pod: Pod, *, unprepare: bool = False) -> None:
        excuse = self._excuse(text, pod, unprepare=unprepare)
        if not excuse:
            raise AssertionError(f"{pod.name} was refused for no reason: {text}")
        self.excuses[excuse] += 1
        self.note(f"({excuse})")

    def _excuse(self, text: str, pod: Pod, *, unprepare: bool) -> str:
        """Which disturbance explains the answer; nothing when none does."""
        return next(
            (
                name
                for name, pattern in EXCUSES.items()
                if re.search(pattern, text)
                and (not unprepare or name in ALSO_UNPREPARE)
                and self._applies(name, text, pod)
            ),
            "",
        )

    def _applies(self, name: str, text: str, pod: Pod) -> bool:
        known = {found["metadata"]["uid"] for found in self.bed.api.objects("resourceclaims")}
        owner = re.search(EXCUSES["conflict"], text)
        applies = {
            "crash": "armed" in self.unsettled and not self.bed.control.exists(),
            "sockets": "sockets" in self.unsettled,
            "disk": "disk" in self.unsettled,
            "api": "api" in self.unsettled,
            "ending": any(
                other.ending for other in self.pods.values() if other.claim.uid == pod.claim.uid
            ),
            "gone": pod.claim.uid not in known,
            "vanished": bool(self.vanished & set(pod.devices)),
            # The sweep is at it: a row that was lost and came back. Or a release asks for pods longer than a short call lasts.
            "releasing": "state" in self.unsettled
            or self.bed.kubelet.call_seconds < self.call_seconds,
            "held": bool(self.lingers(pod.devices) or self._is_nobodys(owner)),
            "unreserved": "restored" in self.unsettled,
            "conflict": bool(
                owner
                and ({ClaimUid(owner[1])} & {*self.bed.kubelet.claims, *self.missed, *self.running})
            ),
        }
        return applies[name]

    def _is_nobodys(self, owner: re.Match[str] | None) -> bool:
        """Whether the claim in the way is one of which a loss left no pods to ask about."""
        row = self.bed.claims().get(ClaimUid(owner[1])) if owner else None
        return row is None or is_for_people(row) or (row.held is not None and row.held.unasked)


def walk(steps: int, seed: int, *, tell: Callable[[str], None] = lambda _line: None) -> Walk:
    """Walk in a fresh directory; answers the walk, for its counts."""
    with tempfile.TemporaryDirectory(prefix="walk-", dir="/tmp") as root:
        walked = Walk(Path(root), seed, tell)
        walked.run(steps)
        return walked
