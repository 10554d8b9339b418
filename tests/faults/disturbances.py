# SPDX-License-Identifier: Apache-2.0
"""What breaks in the random walk (`tests.faults.walk`): processes, disks, the API server, files, devices."""

import signal
import time
from collections.abc import Callable
from functools import partial

from dra_driver.model.ids import ClaimUid
from dra_driver.testing.fake_api import Answer, Reset, refusal
from dra_driver.testing.fake_api.store import Store
from dra_driver.testing.stage import wait_for
from tests.faults.departures import SHORT_CALL_SECONDS, end_forgotten, ends_unseen
from tests.faults.machines import devices_of, vanishing
from tests.faults.still_open import is_named
from tests.faults.walk_tables import POINTS
from tests.support.invariants import Violation

GARBAGE = Answer(200, {"Content-Type": "application/json"}, b'{"kind": "Resour')
TROUBLES = (refusal(429), refusal(500), refusal(503), refusal(403), GARBAGE, Reset())


class Disturbances:
    """The walk's methods that break something."""

    __slots__ = ()

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
        self.unsettled -= {"disk", "sockets", "half"}
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
            return
        self.crashes += 1
        self.note("died")
        if self.bed.beside is not None:
            self.bed.go_on()  # with the process that is left
            self.unsettled.add("half")
            return
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
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            if any(process.poll() is not None for process in self.bed.processes()):
                return True
            time.sleep(0.01)
        return False

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

        So are those of which a device has vanished too: it is reserved, but its file cannot be made anew. While the hardware hangs, no
        file can be; they are made when it answers.
        """
        known = {found["metadata"]["uid"] for found in self.bed.api.objects("resourceclaims")}
        for pod in self.pods.values():
            if self._file(pod.claim.uid) not in self.lost:
                continue
            if pod.claim.uid not in known or self.vanished & devices_of(pod.devices):
                ends_unseen(self, pod)
        if self.bed.hangs:
            return
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
        gone = vanishing(self)
        self.bed.vanish(*sorted(gone))
        self.vanished |= gone
        self.note(",".join(sorted(gone))[:200])

    def _fill_disk(self) -> None:
        """Full disks for a call or two, at once or from a failpoint on; then there is room again."""
        call, point = self._call_and_point()
        self.unsettled.add("disk")
        if self.chance.random() < 0.3:
            self.bed.fill_disks()
        else:
            self.note(point)
            self.bed.arm(point, "full")
        self.bed.kubelet.call_seconds = SHORT_CALL_SECONDS
        call()
        self.chance.choice((self._prepare, self._end_pod))()
        self.bed.kubelet.call_seconds = self.call_seconds
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
