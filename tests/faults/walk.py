# SPDX-License-Identifier: Apache-2.0
"""A random walk: pods come and go while everything breaks, and after each step the books must agree.

The walk has a model of its own, which knows nothing of the driver: which pods exist, which of them run and what their
containers were given, and which disturbances are in force. From that follows what the driver may answer (`_excused`) and
what must be true (`dra_driver.testing.invariants`). The driver is the real process between the stand-ins of a kubelet and
an API server, over real sockets.

One number, the seed, makes the walk; the steps are written down as they are taken, so that a failure shows its history.
"""

import random
import re
import signal
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid
from dra_driver.testing.failpoints import FAILPOINTS
from dra_driver.testing.fake_api import Answer, FakeApi, Reset, refusal
from dra_driver.testing.fake_api.store import Store
from dra_driver.testing.fake_kubelet import KubeletError
from dra_driver.testing.invariants import Picture, Rule, Running, Violation, violations
from tests.faults.bed import PLACE, Bed
from tests.node_process import DRIVER, wait_for

DEVICES = tuple(f"gpu-{index}" for index in range(8))
MOST_PODS = 10
GARBAGE = Answer(200, {"Content-Type": "application/json"}, b'{"kind": "Resour')
TROUBLES = (refusal(429), refusal(500), refusal(503), refusal(403), GARBAGE, Reset())
SETTLE_EVERY = 100
CALM_SECONDS = 30.0  # a deadline, ten times what a background thread takes
GROUPS = {
    "prepare": (
        "MarkStarted",
        "ConfigureDevice",
        "WriteCdiSpec",
        "MarkPrepared",
        "started",
        "prepared",
        "file",
    ),
    "unprepare": (
        "MarkStartedAgain",
        "RemoveCdiSpec",
        "ResetDevice",
        "Forget",
        "releasing",
        "released",
    ),
    "start": ("MarkStartedAgain", "recovered", "damaged"),
}
POINTS = {
    group: [point for point in FAILPOINTS if point.split(".")[1] in subjects]
    for group, subjects in GROUPS.items()
}


class Broken(AssertionError):
    """A promise was broken: which, and the steps that led there."""


@dataclass(slots=True)
class Pod:
    """A pod and its one claim. `runs` once its containers were started."""

    name: str
    claim: ClaimRef
    devices: tuple[str, ...]
    admin: bool = False
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
    backup: tuple[Store, dict[str, Pod]] | None = None
    # Disturbances in force.
    vanished: set[str] = field(default_factory=set)  # now, or since the last settling
    tampered: set[str] = field(default_factory=set)  # CDI files that somebody touched, by name
    lost: set[str] = field(default_factory=set)  # CDI files that were wrong when the state was lost
    unsettled: set[str] = field(default_factory=set)  # "api", "disk", "sockets", "state"
    crashes: int = 0
    seconds: float = 0.0
    _port: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        api = FakeApi(versions=("v1",))
        api.__enter__()
        self.bed = Bed(self.root, api)

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
        finally:
            self.bed.close()
            self.seconds = time.monotonic() - begun

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
            getattr(self, f"_{name}")()
            self._check()
        except Exception as error:
            history = "\n".join(self.steps[-60:])
            raise Broken(
                f"seed {self.seed}, step {number} ({name}): {error}\n\n{history}\n\n{self.bed.log()[-4000:]}"
            ) from error
        self.spent[name] += time.monotonic() - begun
        self.tell(self.steps[-1])

    def _note(self, text: str) -> None:
        self.steps[-1] += f" {text}"

    # Pods.

    def _new_pod(self) -> None:
        """The scheduler places a pod: devices that no allocated claim has, or any one with admin access."""
        if len(self.pods) >= MOST_PODS or "down" in self.unsettled:
            return
        admin = self.chance.random() < 0.1
        free = [device for device in DEVICES if device not in self._allocated()]
        wished = DEVICES if admin else free
        count = min(self.chance.randint(1, 2), len(wished))
        if not count:
            return
        chosen = tuple(sorted(self.chance.sample(wished, count)))
        self.numbers += 1
        claim = self._claim(f"c{self.numbers}", chosen, admin=admin)
        self.pods[f"p{self.numbers}"] = Pod(f"p{self.numbers}", claim, chosen, admin)
        self._note(f"p{self.numbers} {claim.uid[:8]} {','.join(chosen)}{' admin' * admin}")

    def _claim(self, name: str, devices: tuple[str, ...], *, admin: bool) -> ClaimRef:
        ref = self.bed.claim(name, devices)
        if admin:
            stored = self.bed.api.object("resourceclaims", name)
            for result in stored["status"]["allocation"]["devices"]["results"]:
                result["adminAccess"] = True
            self.bed.api.put("resourceclaims", stored)
        return ref

    def _allocated(self) -> set[str]:
        return {
            result["device"]
            for claim in self.bed.api.objects("resourceclaims")
            for result in claim["status"]["allocation"]["devices"]["results"]
            if not result.get("adminAccess")
        }

    def _second_pod(self) -> None:
        """A pod that uses a claim of another pod."""
        other = self._any_pod()
        if len(self.pods) >= MOST_PODS or other is None:
            return
        self.numbers += 1
        name = f"p{self.numbers}"
        self.pods[name] = Pod(name, other.claim, other.devices, other.admin)
        self._note(f"{name} of {other.name}")

    def _any_pod(self, *, runs: bool | None = None) -> Pod | None:
        living = [pod for pod in self.pods.values() if not pod.ending]
        fitting = [pod for pod in living if runs is None or pod.runs == runs]
        return self.chance.choice(fitting) if fitting else None

    def _prepare(self) -> None:
        """The kubelet starts a pod, or asks again for one that runs."""
        pod = self._any_pod(runs=False) or self._any_pod()
        if pod is not None:
            self._try_to_start(pod)

    def _try_to_start(self, pod: Pod) -> None:
        uid = pod.claim.uid
        if "down" in self.unsettled and (uid not in self.running or "state" in self.unsettled):
            return  # the call would wait 35 s for the API server; the tests of the room do
        self._note(pod.name)
        try:
            self.bed.kubelet.prepare(DRIVER, [pod.claim], pod=f"default/{pod.name}")
        except KubeletError as error:
            self._refused(str(error), pod)
            return
        self._has_started(pod)

    def _has_started(self, pod: Pod) -> None:
        uid = pod.claim.uid
        if self._file(uid) in self.tampered | self.lost:
            # The kubelet may not have asked again: then it is the file as it is, until the driver looks.
            row = self.bed.claims().get(uid)
            if row is None or self.bed.cdi_text(uid) != row.cdi_spec:
                self._note("(tampered)")
                return
            self.tampered.discard(self._file(uid))
            self.lost.discard(self._file(uid))
        found = self.bed.running_claim(uid)
        given = tuple(key.device for key in found.owned)
        if sorted(given) != sorted(pod.devices):
            raise AssertionError(f"{pod.name} was given {given}, allocated are {pod.devices}")
        if pod.admin:
            found = Running(found.cdi_ids, (), found.document)
        before = self.running.setdefault(uid, found)
        if before != found:
            raise AssertionError(f"{pod.name} runs with {before} and was now given {found}")
        pod.runs = True

    def _end_pod(self) -> None:
        """A pod is deleted: the kubelet unprepares, the control plane frees the claim."""
        pod = self.chance.choice(list(self.pods.values())) if self.pods else None
        if pod is not None:
            self._end(pod)

    def _end(self, pod: Pod) -> None:
        self._note(f"-{pod.name}")
        others = [other for other in self.pods.values() if other is not pod]
        info = self.bed.kubelet.claims.get(pod.claim.uid)
        shared = info is not None and bool(info.pods - {f"default/{pod.name}"})
        pod.runs, pod.ending = False, True
        if not shared:
            self.running.pop(pod.claim.uid, None)  # its containers have ended before
        try:
            self.bed.kubelet.unprepare(DRIVER, [pod.claim], pod=f"default/{pod.name}")
        except KubeletError as error:
            self._refused(str(error), pod, unprepare=True)
            return
        del self.pods[pod.name]
        if not any(other.claim.uid == pod.claim.uid for other in others):
            self.tampered.discard(self._file(pod.claim.uid))
            self._free(pod.claim)

    def _free(self, claim: ClaimRef) -> None:
        names = {found["metadata"]["uid"] for found in self.bed.api.objects("resourceclaims")}
        if claim.uid in names:
            self.bed.api.remove("resourceclaims", claim.name)

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
        self._note(point)
        self.bed.arm(point, "die")
        self.unsettled.add("armed")
        call()
        self._came_back()

    def _call_and_point(self) -> tuple[Callable[[], None], str]:
        """A call that reaches the driver, and a failpoint on its way."""
        pod = self._any_pod(runs=True)
        if pod is None or self.chance.random() < 0.5:
            return self._new_and_prepare, self.chance.choice(POINTS["prepare"])
        return partial(self._end, pod), self.chance.choice(POINTS["unprepare"])

    def _crash_at_start(self) -> None:
        """Death at a failpoint of the start after a reboot or the loss of the state."""
        point = self.chance.choice(POINTS["start"])
        self._note(point)
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
            self._note("died")
            self.bed.stop()
            self._start()

    def _new_and_prepare(self) -> None:
        known = set(self.pods)
        self._new_pod()
        for name in self.pods.keys() - known:
            self._try_to_start(self.pods[name])

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
        self.running.clear()
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
                self._try_to_start(pod)

    def _trouble_api(self) -> None:
        trouble = self.chance.choice(TROUBLES)
        resource = self.chance.choice(("resourceclaims", "resourceslices", "*"))
        times = self.chance.randint(1, 2)
        self._note(f"{trouble} {resource} x{times}"[:60])
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

    def _back_up(self) -> None:
        kept = {name: Pod(p.name, p.claim, p.devices, p.admin) for name, p in self.pods.items()}
        self.backup = self.bed.snapshot(), kept

    def _restore(self) -> None:
        """etcd is what it was at the last backup: later claims are unknown, ended pods are back."""
        if "down" in self.unsettled:
            return
        if self.backup is None:
            self._back_up()
            for _ in range(3):  # a day passes
                self._end_pod()
                self._new_and_prepare()
        assert self.backup is not None
        store, pods = self.backup
        self.backup = None
        self._port = self.bed.stop_api()
        self._api_up(store)
        self.unsettled |= {"api", "restored"}
        known = {pod.claim.uid for pod in self.pods.values()}
        for pod in pods.values():
            if pod.claim.uid not in known:
                self.numbers += 1
                name = f"p{self.numbers}"
                self.pods[name] = Pod(name, pod.claim, pod.devices, pod.admin)
                self._try_to_start(self.pods[name])
        self._new_and_prepare()

    def _touch_cdi(self) -> None:
        """Somebody edits or removes a file, or leaves one of his own making."""
        # In the order of the pods: the names of files differ from walk to walk.
        uids = dict.fromkeys(pod.claim.uid for pod in self.pods.values())
        files = [file for uid in uids if (file := self.bed.cdi_dir / self._file(uid)).exists()]
        stray = self.bed.cdi_dir / self._file(ClaimUid(f"0000-{self.numbers}"))
        file = stray if not files or self.chance.random() < 0.1 else self.chance.choice(files)
        how = self.chance.choice(("remove", "edit", "empty", "binary"))
        self._note(f"{how} {file.name}")
        if how == "remove":
            file.unlink(missing_ok=True)
        else:
            file.write_bytes({"edit": b"{}\n", "empty": b"", "binary": b"\xff\x00"}[how])
        self.tampered.add(file.name)
        if file == stray:
            self.unsettled.add("stray")

    def _lose_state(self) -> None:
        """The state file is deleted, cut short or damaged while the driver is down."""
        self._end_process()
        self._damage()
        self._start()
        if self.chance.random() < 0.7 and not self.unsettled & {"api", "down"}:
            self._wait_for_sweep()

    def _damage(self) -> None:
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
        self._note(f"{how} {file.name}")
        self.unsettled.add("state")

    def _give_up(self) -> None:
        """Row, file and API server are all wrong about a claim: nobody can know it; its pods are ended."""
        known = {found["metadata"]["uid"] for found in self.bed.api.objects("resourceclaims")}
        for pod in self.pods.values():
            if self._file(pod.claim.uid) in self.lost and pod.claim.uid not in known:
                pod.runs, pod.ending = False, True
                self.running.pop(pod.claim.uid, None)
        self.unsettled.add("stray")  # their files stay until the kubelet unprepares them
        self.lost.clear()

    def _wait_for_sweep(self) -> None:
        if self.lost:
            self._give_up()

        def swept() -> bool:
            self.bed.alive()
            return not self._wrong(slices=False, without={"state"})

        try:
            wait_for(swept, "the state to be rebuilt")
        except AssertionError as error:
            wrong = self._wrong(slices=False, without={"state"})
            raise AssertionError(f"{error}: {[str(found) for found in wrong]}") from error
        self.unsettled.discard("state")

    def _vanish(self) -> None:
        gone = set(self.chance.sample(DEVICES, self.chance.choice((0, 0, 1, 2))))
        self.bed.vanish(*sorted(gone))
        self.vanished |= gone
        self._note(",".join(sorted(gone)))

    def _fill_disk(self) -> None:
        """Full disks for a call or two, at once or from a failpoint on; then there is room again."""
        call, point = self._call_and_point()
        self.unsettled.add("disk")
        if self.chance.random() < 0.3:
            self.bed.fill_disks()
        else:
            self._note(point)
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
        # What the API server forgot, the kubelet ends; what nobody knows, goes.
        known = {found["metadata"]["uid"] for found in self.bed.api.objects("resourceclaims")}
        self._end_process()
        self._start()
        self.vanished.clear()
        self.unsettled &= {"state"}
        self._wait_for_sweep()
        self.unsettled.clear()
        for pod in [pod for pod in self.pods.values() if pod.claim.uid not in known]:
            self._end(pod)
        for pod in list(self.pods.values()):
            self._end(pod) if pod.ending else self._try_to_start(pod)
        self._free_orphans()
        wait_for(lambda: not self._wrong(slices=True), "the slices")

    def _free_orphans(self) -> None:
        used = {pod.claim.uid for pod in self.pods.values()}
        for found in self.bed.api.objects("resourceclaims"):
            if found["metadata"]["uid"] not in used:
                self.bed.api.remove("resourceclaims", found["metadata"]["name"])

    def _check(self) -> None:
        """Nobody has two owners at any moment; the rest may take a background thread of the driver a moment."""
        end = time.monotonic() + CALM_SECONDS
        while wrong := self._wrong(slices=False):
            if time.monotonic() > end or any(one.rule is Rule.ONE_OWNER for one in wrong):
                raise AssertionError("\n".join(map(str, wrong)))
            time.sleep(0.02)

    def _wrong(self, *, slices: bool, without: set[str] = frozenset()) -> list[Violation]:  # type: ignore[assignment]
        unsettled = self.unsettled - without
        picture = self.bed.picture(slices=slices, running=self.running)
        found = list(violations(picture))
        if self.tampered or self.lost:
            found = [one for one in found if not self._is_tampered(one)]
        if "state" in unsettled:
            # The sweep is still to come, or cannot ask; what running pods need on the disk is there all the same.
            found = [
                one for one in found if "CDI file" in one.found and one.rule is Rule.KEEPS_DEVICE
            ]
        if "sockets" in unsettled:
            found = [one for one in found if not one.subject.startswith("socket")]
        if "stray" in unsettled:
            found = [one for one in found if not one.subject.startswith("CDI file")]
        return found

    def _is_tampered(self, violation: Violation) -> bool:
        if "CDI file" not in str(violation):
            return False
        touched = self.tampered | self.lost
        uids = {name.partition("_")[2].removesuffix(".json") for name in touched}
        return any(uid in violation.subject for uid in uids)

    def _file(self, uid: ClaimUid) -> str:
        return Picture(PLACE, "", {}, {}, {}).file_name(uid)

    def _refused(self, text: str, pod: Pod, *, unprepare: bool = False) -> None:
        excuse = self._excuse(text, pod, unprepare=unprepare)
        if not excuse:
            raise AssertionError(f"{pod.name} was refused for no reason: {text}")
        self.excuses[excuse] += 1
        self._note(f"({excuse})")

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
            "releasing": "state"
            in self.unsettled,  # the sweep is at it: a row that was lost and came back
            "conflict": bool(owner and ClaimUid(owner[1]) in self.bed.kubelet.claims),
        }
        return applies[name]


# What the kubelet is told under each disturbance.
EXCUSES = {
    "crash": "",
    "sockets": "not registered|UNAVAILABLE|connect",
    "disk": "cannot write|cannot remove|cannot open|too large",
    "api": "cannot read claim",
    "ending": "is being unprepared",
    "gone": "not found|was replaced",
    "vanished": "vanished|not found on this node",
    "releasing": "it is gone, but releasing it failed: claim-.* is locked by",
    "conflict": r"is prepared for claim \S+ \(uid ([^)]+)\)",
}
ALSO_UNPREPARE = ("crash", "sockets", "disk")

# How often each happens.
ACTIONS = {
    "new_pod": 18,
    "second_pod": 3,
    "prepare": 32,
    "end_pod": 12,
    "touch_cdi": 4,
    "trouble_api": 4,
    "restart_kubelet": 3,
    "kill": 2,
    "stop": 0.3,
    "crash": 4,
    "crash_at_start": 0.5,
    "reboot": 0.8,
    "api_down": 1.5,
    "back_up": 1,
    "restore": 1.5,
    "lose_state": 2,
    "vanish": 1.5,
    "fill_disk": 4,
    "recreate_sockets": 0.1,
}


def walk(steps: int, seed: int, *, tell: Callable[[str], None] = lambda _line: None) -> Walk:
    """Walk in a fresh directory; answers the walk, for its counts."""
    with tempfile.TemporaryDirectory(prefix="walk-", dir="/tmp") as root:
        walked = Walk(Path(root), seed, tell)
        walked.run(steps)
        return walked
