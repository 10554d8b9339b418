# SPDX-License-Identifier: Apache-2.0
"""The real daemon with two differences: its API server answers at once, and its DRA server has an empty method.

    python bench_daemon.py [--marks FILE] -- ARGUMENTS OF dra-driver run

A claim is invented from its name: its devices with dots between, each whole; with "shared." in front the claim has a
share of each, so that any number of claims fits on eight devices. `--marks` writes the moments at which the steps of
the plans begin and end, for the question where the time goes, and those at which a scan of the devices has ended.
The kernel knows each thread by its name.
"""

import argparse
import gc
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from dra_driver.backends.registry import Loaded
from dra_driver.cli import main as command_line
from dra_driver.cli.settings import settings_from
from dra_driver.config.settings import Settings
from dra_driver.daemon import compose, lifecycle
from dra_driver.daemon import dependencies as ground
from dra_driver.kube.base import ClaimEvent, ClaimFound, KubeApi, NodeEvent, SliceEvent, SliceList
from dra_driver.kubelet.sockets import service, unary
from dra_driver.model.api.resource_claim import DeviceClass, DeviceRequestAllocationResult
from dra_driver.model.api.resource_slice import ResourceSliceSpec
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.events import Observer
from dra_driver.model.ids import (
    NO_SHARE,
    ClaimUid,
    DriverName,
    NodeName,
    PodUid,
    PoolName,
    ShareId,
)
from dra_driver.model.inventory import Inventory
from dra_driver.model.plugin import Path as PluginApi
from dra_driver.model.slices import CreateSlice, DeleteSlice, SliceChange, StoredSlice, UpdateSlice
from dra_driver.node.files import never

EMPTY_SERVICE, EMPTY_METHOD = "bench.Empty", "Nothing"
SHARED = "shared"
SCANNED, EXPECTS, EXPECTED = "scanned", "expect.before", "expect.after"
A_SHARE = {"memory": "1Mi"}
POD = PodUid("bench")  # which has ended whenever a claim is released


class InstantApi:
    """A `KubeApi` in this process: no request leaves it."""

    def __init__(self, driver: DriverName, node: NodeName, point: Callable[[str], None]) -> None:
        self._driver = driver
        self._node = node
        self._point = point

    def get_claim(self, ref: ClaimRef) -> Claim:
        self._point("get_claim")
        names = ref.name.split(".")
        share = ShareId(ref.uid) if names[0] == SHARED else NO_SHARE
        results = tuple(
            DeviceRequestAllocationResult(
                request="gpu",
                driver=self._driver,
                pool=self._node,
                device=name,
                share_id=share or None,
                consumed_capacity=A_SHARE if share else None,
            )
            for name in names
            if name != SHARED
        )
        return Claim(ref, results, reserved_for=(POD,), sole_pod=POD)

    def find_claim(self, ref: ClaimRef) -> ClaimFound:
        return ClaimFound("1", self.get_claim(ref))

    def watch_claim(
        self, _ref: ClaimRef, resource_version: str, stop: Event, **_more: object
    ) -> Iterator[ClaimEvent]:
        stop.wait()
        yield ClaimEvent("BOOKMARK", resource_version, None)

    def list_slices(self) -> SliceList:
        return SliceList("1", ())

    def watch_slices(self, resource_version: str, stop: Event) -> Iterator[SliceEvent]:
        stop.wait()
        yield SliceEvent("BOOKMARK", resource_version, None)

    def apply_slice_change(self, change: SliceChange) -> StoredSlice | None:
        match change:
            case CreateSlice(name, spec):
                return StoredSlice(name, f"uid-{name}", "1", spec)
            case UpdateSlice(present, spec):
                return StoredSlice(present.name, present.uid, "2", spec)
            case DeleteSlice():
                return None

    def allocated_claims(self, _pool: PoolName) -> tuple[Claim, ...]:
        return ()

    def device_classes(self) -> tuple[DeviceClass, ...]:
        return ()

    def node_labels(self) -> Mapping[str, str]:
        return {}

    def node_amounts(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        return {}, {}

    def kubelet_version(self) -> str:
        return "v1.37.1"

    def serves_dra(self) -> None:
        """It does."""

    def server_version(self) -> str:
        return "v1.37.1"

    def try_slice(self, _name: str, spec: ResourceSliceSpec) -> ResourceSliceSpec:
        return spec

    def emit_event(self, event: NodeEvent) -> None:
        """Nobody reads it."""

    def close(self) -> None:
        """Nothing is open."""


class Marks:
    """Remembers when each failpoint was passed, in seconds of the machine's monotonic clock."""

    def __init__(self) -> None:
        self.passed: list[tuple[str, float]] = []

    def __call__(self, name: str) -> None:
        self.passed.append((name, time.perf_counter()))


def main() -> int:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--marks", type=Path, metavar="FILE")
    parser.add_argument("arguments", nargs="*")
    chosen = parser.parse_args()
    gc.freeze()  # as `dra-driver` does when it has imported what it needs
    settings = settings_from(command_line.parser("run").parse_args(["run", *chosen.arguments]))
    marks = Marks()
    make_backends = ground.make_backends
    point = marks if chosen.marks else never

    def instant_api(
        _connection: object, *, driver: DriverName, node: NodeName, observe: Observer
    ) -> KubeApi:
        del observe  # every answer can be read
        return InstantApi(driver, node, point)

    def with_empty_method(*arguments: Any, **named: Any) -> compose.Daemon:
        daemon = compose.compose(*arguments, **named)
        nothing = unary(lambda _request, _context: Empty(), Empty)
        daemon.kubelet._server._handlers += (service(EMPTY_SERVICE, {EMPTY_METHOD: nothing}),)  # noqa: SLF001  no setting adds services
        return daemon

    def with_a_shared_device(given: Settings) -> Loaded:
        loaded = make_backends(given)
        for backend in loaded.backends.values():
            *others, last = backend._devices  # type: ignore[attr-defined]  # noqa: SLF001  no profile has one
            api = structs.replace(last.api, allow_multiple_allocations=True)
            backend._devices = (*others, replace(last, api=api))  # type: ignore[attr-defined]  # noqa: SLF001
            backend.scan = partial(_scan, backend.scan, point)  # type: ignore[method-assign]
        return loaded

    # The daemon has no setting for any of them, and shall not have one.
    vars(ground).update(HttpKubeApi=instant_api, make_backends=with_a_shared_device)
    vars(lifecycle).update(compose=with_empty_method)
    _name_threads()
    if chosen.marks and settings.plugin.path is PluginApi.DEVICE_PLUGIN:
        _mark_expect(point)
    lifecycle.serve(settings, point=point)
    if chosen.marks:
        chosen.marks.write_text(json.dumps(marks.passed))
    return 0


def _scan(scan: Callable[[], Inventory], point: Callable[[str], None]) -> Inventory:
    found = scan()
    point(SCANNED)
    return found


def _mark_expect(point: Callable[[str], None]) -> None:
    """The device plugin API is imported only where it is served."""
    from dra_driver.services.plugin.holders import Holders  # noqa: PLC0415

    expect = Holders.expect

    def marked(holders: Holders, uid: ClaimUid) -> None:
        point(EXPECTS)
        expect(holders, uid)
        point(EXPECTED)

    Holders.expect = marked  # type: ignore[method-assign]


def _name_threads() -> None:
    """Tell the kernel the name of each thread that begins; it keeps 15 bytes."""
    begin = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]  # noqa: SLF001  Python does it from 3.14 on

    def begin_named(thread: threading.Thread) -> None:
        Path("/proc/thread-self/comm").write_text(thread.name[:15])
        begin(thread)

    threading.Thread._bootstrap_inner = begin_named  # type: ignore[attr-defined]  # noqa: SLF001


class Empty:
    """A message without fields."""

    @staticmethod
    def FromString(_text: bytes) -> "Empty":  # noqa: N802  as protobuf has it
        return Empty()

    def SerializeToString(self) -> bytes:  # noqa: N802  as protobuf has it
        return b""


if __name__ == "__main__":
    raise SystemExit(main())
