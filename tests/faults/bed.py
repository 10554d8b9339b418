# SPDX-License-Identifier: Apache-2.0
"""A node on which everything can be broken while the driver runs, and one look at all parties' books."""

import fcntl
import json
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from threading import Thread
from typing import Any

import yaml

from dra_driver.cli.main import main
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import (
    ClaimUid,
    DeviceKey,
    DeviceName,
    DriverName,
    PodUid,
    PoolName,
    ShareId,
)
from dra_driver.model.state import PreparedClaim
from dra_driver.planning.prepare import NodePlace
from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.fake_api.store import Store
from dra_driver.testing.fake_kubelet import KubeletError
from dra_driver.testing.kubelet_calls import CALL_SECONDS, ClaimInfo, checked, claims_call
from dra_driver.testing.oci import inject
from dra_driver.testing.stage import DEADLINE_SECONDS, DRIVER, NODE, Stage, wait_for
from tests.faults.armed import empty_disks, fill_disks
from tests.faults.machines import FAILED, READY, given_in, result
from tests.support import starting
from tests.support.hardware import Runtime, Witness
from tests.support.invariants import (
    Picture,
    Running,
    Violation,
    read_files,
    read_sockets,
    read_state,
    violations,
)

FORGOTTEN_SECONDS = 300.0
MOMENT = "2026-01-01T00:00:00Z"
PLACE = NodePlace(DriverName(DRIVER), PoolName(NODE))


class Bed(Stage):
    """A `Stage` with handles for faults. `slowly` waits are only deadlines against hanging."""

    def __init__(self, root: Path, api: FakeApi, *flags: str, program: bool = False) -> None:
        super().__init__(root, api, "--log-level", "debug", *flags)
        self.program = program
        self.control = root / "control"
        self.fault_file = root / "faults.yaml"
        self.fault_file.write_text("devices: {}\n")
        self.journal = root / "hardware.jsonl"
        self._updates = 0
        self._reader: Thread | None = None
        self.beside: tuple[Any, Thread | None] | None = None  # an older process that runs too
        self.troubled = False  # the hardware, in a way that a refusal may name
        self.hangs = False  # a look at the hardware, now
        self._gone: dict[str, Any] = {}
        self._ill: dict[str, Any] = {}

    # The driver.

    def start(self, *extra: str, die_at: str = "", report: Path | None = None) -> int:
        """Start the driver; its log comes through a pipe, since files may be impossible to write."""
        assert not die_at, "arm it instead"
        self.log_file.touch()
        self.process = starting.start(
            "tests.faults.armed",
            [str(self.control), "--", *self.arguments(), *self.hardware_flags(), *extra],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            program=self.program,
        )
        self._reader = Thread(target=self._copy_log, args=(self.process.stdout,))
        self._reader.start()
        return self.process.pid

    def hardware_flags(self) -> tuple[str, ...]:
        """What a driver is told of the hardware when it starts."""
        faults = ("--simulated-faults", str(self.fault_file))
        return (*faults, "--backend-option", f"journal={self.journal}")

    def hardware(self) -> tuple[Runtime, Witness]:
        """Who tells the hardware what containers do, and who asks it what it has seen."""
        return Runtime(self.journal), Witness(self.journal)

    def _copy_log(self, lines: Any) -> None:
        with self.log_file.open("ab", buffering=0) as log:
            for line in lines:
                log.write(line)
        lines.close()

    def stop(self, *arguments: Any) -> int:
        """The driver ends; an older process beside it is killed."""
        if self.beside is not None:
            process, reader = self.beside
            self.beside = None
            process.kill()
            process.wait(DEADLINE_SECONDS)
            if reader is not None:
                reader.join()
        code = super().stop(*arguments)
        self._join()
        return code

    def close(self) -> None:
        if self.beside is not None:
            self.beside[0].kill()
            self.beside[0].wait(DEADLINE_SECONDS)
        super().close()
        self._join()
        self.api.close()

    def _join(self) -> None:
        if self._reader is not None:
            self._reader.join()

    def is_running(self) -> bool:
        """Whether the process lives."""
        return self.process is not None and self.process.poll() is None

    def register(self) -> None:
        """Wait until the kubelet calls this very process, not the socket of a killed one."""
        wait_for(lambda: self.alive() and self.registers(), "registration", log=self.log)

    def registers(self) -> bool:
        """Whether the kubelet found the driver."""
        try:
            plugin = self.kubelet.register(DRIVER)
        except KubeletError:
            return False
        return plugin is not None and plugin.listens()

    def update(self) -> tuple[Any, Thread | None]:
        """A new process serves beside the old one; answers the old one, which still runs."""
        old = self.process, self._reader
        self._updates += 1
        pod = PodUid(f"update-{self._updates}")
        self.kubelet.cgroups.run(pod)  # a driver that does not find its own believes no tree
        self.start("--pod-uid", pod)
        self.alive()
        Stage.register(self)
        return old

    def processes(self) -> list[Any]:
        """Those that should run: one, or two in an update."""
        return [self.process, *([self.beside[0]] if self.beside else [])]

    def go_on(self) -> None:
        """One of two processes has ended, or ends now; the kubelet calls the other one."""
        assert self.beside is not None
        ended: tuple[Any, Thread | None] = self.process, self._reader
        if self.beside[0].poll() is None:
            self.process, self._reader = self.beside
        else:
            ended = self.beside
        self.beside = None
        ended[0].wait(DEADLINE_SECONDS)
        if ended[1] is not None:
            ended[1].join()

    def end_old(self, process: Any, reader: Thread | None) -> None:
        """The old process of an update is asked to end."""
        process.send_signal(signal.SIGTERM)
        code = process.wait(DEADLINE_SECONDS)
        if reader is not None:
            reader.join()
        assert code == 0, self.log()[-3000:]

    # Claims, as scheduler and control plane change them.

    def new_claim(
        self,
        name: str,
        devices: Sequence[str],
        *,
        pod: tuple[PodUid, str] | None,
        admin: bool = False,
    ) -> ClaimRef:
        """A claim: made for a pod from a template, or a named one that any pod may use."""
        metadata: dict[str, Any] = {"name": name, "namespace": "default"}
        if pod is not None:
            owner = {"apiVersion": "v1", "kind": "Pod", "name": pod[1], "uid": pod[0]}
            metadata["ownerReferences"] = [owner | {"controller": True}]
            metadata["annotations"] = {"resource.kubernetes.io/pod-claim-name": "gpu"}
        stored = self.api.put("resourceclaims", {"metadata": metadata, "spec": {"devices": {}}})
        ref = ClaimRef("default", name, ClaimUid(stored["metadata"]["uid"]))
        self.allocate(ref, devices, [] if pod is None else [pod], admin=admin)
        return ref

    def allocate(
        self,
        claim: ClaimRef,
        devices: Sequence[str],
        pods: Sequence[tuple[PodUid, str]],
        *,
        admin: bool = False,
        bound: Sequence[str] = (),
    ) -> None:
        """The scheduler's write: devices, and for whom. Devices in `bound` wait for conditions."""
        results = [result(device, admin=admin) for device in devices]
        for one in results:
            if one["device"] in bound:
                one |= {"bindingConditions": [READY], "bindingFailureConditions": [FAILED]}
        stored = self.api.object("resourceclaims", claim.name)
        found: dict[str, Any] = {"results": results}
        if config := self.config(claim, devices):
            found["config"] = config
        stored["status"] = {
            "allocation": {"devices": found},
            "reservedFor": [_consumer(uid, name) for uid, name in pods],
        }
        self.api.put("resourceclaims", stored)

    def config(self, claim: ClaimRef, devices: Sequence[str]) -> list[dict[str, Any]]:
        """What the claim says about its devices, as its allocation repeats it."""
        del claim, devices
        return []

    def reserve_for(self, claim: ClaimRef, pod: tuple[PodUid, str]) -> bool:
        """One more pod may use it; False when the API server knows no such claim."""
        stored = self._stored(claim)
        if stored is None:
            return False
        stored["status"].setdefault("reservedFor", []).append(_consumer(*pod))
        self.api.put("resourceclaims", stored)
        return True

    def unreserve(self, claim: ClaimRef, pod: PodUid) -> int | None:
        """The pod uses it no more; answers how many do, None when the API server knows no such claim."""
        stored = self._stored(claim)
        if stored is None:
            return None
        users = stored["status"].get("reservedFor") or []
        stored["status"]["reservedFor"] = [user for user in users if user["uid"] != pod]
        self.api.put("resourceclaims", stored)
        return len(stored["status"]["reservedFor"])

    def deallocate(self, claim: ClaimRef) -> None:
        """Nobody uses it: its devices are free for others."""
        stored = self._stored(claim)
        assert stored is not None
        stored["status"] = {}
        self.api.put("resourceclaims", stored)

    def knows(self, claim: ClaimRef) -> bool:
        """Whether the API server has it."""
        return self._stored(claim) is not None

    def is_allocated(self, claim: ClaimRef, devices: Sequence[str]) -> bool:
        """Whether the API server has it, with these devices."""
        status = (self._stored(claim) or {}).get("status", {})
        results = status.get("allocation", {"devices": {"results": []}})["devices"]["results"]
        return sorted(map(given_in, results)) == sorted(devices)

    def has(self, claim: ClaimRef, pod: PodUid, devices: Sequence[str]) -> bool:
        """Whether the API server has the claim with this pod and these devices."""
        users = (self._stored(claim) or {}).get("status", {}).get("reservedFor") or []
        return pod in [user["uid"] for user in users] and self.is_allocated(claim, devices)

    def vouch(self, row: PreparedClaim) -> None:
        """An admin says that nothing uses the claim's devices: nobody else can, where its pods are not known any more."""
        code = main(["release", *self.arguments(), row.ref.uid])
        assert code == 0 or row.ref.uid not in self.claims()  # the driver was quicker

    def set_condition(self, claim: ClaimRef, condition: str, devices: Sequence[str]) -> None:
        """Somebody says of the claim's devices that they are ready, or that they never will be."""
        stored = self._stored(claim)
        if stored is None:
            return
        when = {"status": "True", "reason": "Walk", "message": "", "lastTransitionTime": MOMENT}
        stored["status"]["devices"] = [
            {"driver": DRIVER, "pool": NODE, "device": device}
            | {"conditions": [{"type": condition, **when}]}
            for device in devices
        ]
        self.api.put("resourceclaims", stored)

    def _stored(self, claim: ClaimRef) -> dict[str, Any] | None:
        for found in self.api.objects("resourceclaims"):
            if found["metadata"]["uid"] == claim.uid:
                copied: dict[str, Any] = deepcopy(found)
                return copied
        return None

    # The kubelet and the runtime.

    def opened_devices(self, uid: ClaimUid) -> list[str]:
        """What a container that starts now finds in its /dev. Raises UnresolvableDevices when no runtime would start it."""
        config = inject({}, self.kubelet.cdi_ids(uid), self.cdi_dir)
        return [Path(device["path"]).name for device in config["linux"]["devices"]]

    def is_allocation_of(self, claim: ClaimRef, uid: ClaimUid) -> bool:
        """Whether the devices that the kubelet remembers are those that the claim is allocated now."""
        stored = self._stored(claim)
        allocation = (stored or {}).get("status", {}).get("allocation")
        if not allocation:
            return False
        now = sorted(map(_key, allocation["devices"]["results"]))
        info = self.kubelet.claims[uid]
        row = self.claims().get(uid)
        told = [name for device in info.devices for name in device.cdi_device_ids]
        # A held claim has no CDI file.
        known = (
            []
            if row is None or row.held is not None
            else [name for device in row.devices for name in device.cdi_ids]
        )
        answered = sorted((device.device_name, device.share_id) for device in info.devices)
        return now == answered and told == known

    def unprepare_again(self, claim: ClaimRef) -> None:
        """The same NodeUnprepareResources once more, as after a lost answer."""
        plugin = self.kubelet._plugin(DRIVER)
        info = ClaimInfo(claim, DRIVER)
        entries = claims_call(plugin, "NodeUnprepareResources", [info], CALL_SECONDS)
        for _ in checked("NodeUnprepareResources", [info], entries):
            pass

    # Faults.

    def hang(self, *devices: str) -> None:
        """Setting these devices up does not end, until `vanish` writes the file anew."""
        self._gone = {device: {"hangs": True} for device in devices}
        self._write_faults()

    def arm(self, point: str, do: str, *, skip: int = 0) -> None:
        """Let the process die, or its disks be full, at that failpoint."""
        waiting = self.root / "control.new"
        waiting.write_text(json.dumps({"point": point, "skip": skip, "do": do}))
        waiting.rename(self.control)

    def disarm(self) -> bool:
        """Take the order back; whether it was reached before."""
        reached = not self.control.exists()
        self.control.unlink(missing_ok=True)
        return reached

    def fill_disks(self) -> None:
        """No write of the driver succeeds from now on."""
        for process in self.processes():
            fill_disks(process.pid)

    def empty_disks(self) -> None:
        """Writes succeed again."""
        for process in self.processes():
            if process is not None and process.poll() is None:
                empty_disks(process.pid)

    def vanish(self, *devices: str) -> None:
        """These devices are gone, all others are there."""
        self._gone = {device: {"vanished": True} for device in devices}
        self._write_faults()

    def fall_ill(self, *devices: str) -> frozenset[str]:
        """The hardware reports these devices as ill, and no others; answers those that it does report."""
        self._ill = {device: {"unhealthy": "it is too hot"} for device in devices}
        self._write_faults()
        return frozenset(devices)

    def _write_faults(self) -> None:
        names = self._gone.keys() | self._ill.keys()
        entries = {name: self._gone.get(name, {}) | self._ill.get(name, {}) for name in names}
        fresh = self.root / "faults.new"
        fresh.write_text(yaml.safe_dump({"devices": entries}))
        fresh.rename(self.fault_file)

    def stop_api(self) -> int:
        """The API server is gone; answers its port."""
        port = self.api.port
        self.api.close()
        return port

    def start_api(self, port: int, store: Store | None = None) -> None:
        """It is back, with its own objects or those of a backup."""
        versions, store = self.api._cluster.versions, store or self.api.store
        self.api = FakeApi(versions=versions, port=port, store=store)
        self.api.__enter__()

    def snapshot(self) -> Store:
        """A copy of etcd's data directory."""
        store = self.api.store
        with store.condition:
            return Store(
                version=store.version,
                compacted=store.compacted,
                history=list(store.history),
                _objects=deepcopy(store._objects),
            )

    def remove_sockets(self) -> None:
        """Somebody removes the kubelet's directories for plugins and makes them anew."""
        for folder in (self.kubelet.plugins_dir, self.kubelet.registry_dir):
            shutil.rmtree(folder)
            folder.mkdir()

    def state_files(self) -> list[Path]:
        """The state file and its companions, not what was set aside."""
        names = (self.state_file.name + suffix for suffix in ("", "-wal", "-shm"))
        return [path for name in names if (path := self.state_file.with_name(name)).exists()]

    def flip_bit(self, path: Path, chance: random.Random, *, near: bytes = b"") -> int:
        """Turn one bit of a file over, in the byte after a place where `near` stands if it does; answers which."""
        content = bytearray(path.read_bytes())
        places = [found.end() for found in re.finditer(re.escape(near), content)] if near else []
        byte = chance.choice(places) if places else chance.randrange(len(content))
        bit = byte * 8 + chance.randrange(8)
        content[min(byte, len(content) - 1)] ^= 1 << bit % 8
        path.write_bytes(content)
        return bit

    # Looking.

    def boot_id(self) -> str:
        """This boot's name."""
        return self.boot_id_file.read_text().strip()

    def claims(self) -> dict[ClaimUid, PreparedClaim]:
        """The rows of the state."""
        return read_state(self.state_file)[0]

    def running_claim(self, uid: ClaimUid) -> Running:
        """What containers that start now get of a claim."""
        info = self.kubelet.claims[uid]
        owned = tuple(
            DeviceKey(
                PoolName(device.pool_name),
                DeviceName(device.device_name),
                ShareId(device.share_id),
            )
            for device in info.devices
        )
        return Running(self.kubelet.cdi_ids(uid), owned, self.cdi_text(uid))

    def cdi_text(self, uid: ClaimUid) -> str:
        """The claim's CDI document as it stands; "" when there is none."""
        name = Picture(PLACE, "", {}, {}, {}).file_name(uid)
        return read_files(self.cdi_dir).get(name, "")

    def picture(self, *, slices: bool = True, **known: Any) -> Picture:
        """Everybody's books, now; `known` are fields of the picture that only the test knows."""
        rows, owners = read_state(self.state_file)
        locks = self.state_file.parent / "locks"
        # Those of devices and their hardware stay, those of claims for a few seconds (node/lock.py).
        strays = [path.name for path in locks.glob("claim-*") if _is_forgotten(path)]
        books: dict[str, Any] = {
            "place": PLACE,
            "boot_id": self.boot_id(),
            "rows": rows,
            "owners": owners,
            "cdi_files": read_files(self.cdi_dir),
            "living": frozenset(self.kubelet.claims),
            "slices": self.slices() if slices else None,
            "sockets": read_sockets(self.kubelet.plugins_dir, self.kubelet.registry_dir),
            "strays": tuple(sorted(strays)),
        }
        return Picture(**(books | known))

    def wrong(self, **known: Any) -> list[str]:
        """Broken promises, as sentences."""
        return sentences(violations(self.picture(**known)))

    def settles(self, **known: Any) -> None:
        """Wait until no promise is broken."""
        last: list[str] = []

        def well() -> bool:
            self.alive()
            last[:] = self.wrong(**known)
            return not last

        try:
            wait_for(well, "agreement")
        except AssertionError as error:
            raise AssertionError("\n".join([*last, self.log()[-3000:]])) from error


def _key(result: dict[str, Any]) -> tuple[str, str]:
    return result["device"], result.get("shareID", "")


def _consumer(uid: PodUid, name: str) -> dict[str, str]:
    return {"resource": "pods", "name": name, "uid": uid}


def is_for_people(row: PreparedClaim) -> bool:
    """Whether a loss left no names of the pods that used a held claim, so that nobody but an admin can free it."""
    return row.held is not None and (row.users.pods is None or row.users.unnamed)


def _is_forgotten(lock: Path) -> bool:
    """Whether nobody has the lock, and its file is much older than files of free locks become."""
    try:
        return nobody_holds(lock) and time.time() - lock.stat().st_mtime > FORGOTTEN_SECONDS
    except FileNotFoundError:
        return False


def nobody_holds(lock: Path) -> bool:
    """Whether this is the lock of a process that is gone."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False  # somebody holds it, or removed it just now
    return lock.exists()


def sentences(found: tuple[Violation, ...]) -> list[str]:
    """Violations for people."""
    return [str(violation) for violation in found]
