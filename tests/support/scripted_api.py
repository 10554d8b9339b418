# SPDX-License-Identifier: Apache-2.0
"""The API server behind its door (`dra_driver.kube.base.KubeApi`), in memory and on one thread, for exact sequences.

    api = ScriptedApi()
    api.fail("update", Conflict("..."))      # the next update
    api.follow(mirror.watch, step, lambda: api.lose("00000-..."), step)

`follow` runs a watch loop to the end of a script: each step is called in turn, and the watch then reports what the step
changed, as a server would. What needs real HTTP and real threads is tested against `dra_driver.testing.fake_api`.
"""

from collections.abc import Callable, Iterator, Mapping
from threading import Event
from typing import Literal

from msgspec.structs import replace

from dra_driver.errors import DriverError
from dra_driver.kube.base import (
    ClaimEvent,
    ClaimFound,
    Conflict,
    NameTaken,
    NodeEvent,
    NotFound,
    SliceEvent,
    SliceList,
)
from dra_driver.model.api.resource_claim import DeviceClass
from dra_driver.model.api.resource_slice import ResourceSliceSpec
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.ids import PoolName
from dra_driver.model.slices import (
    CreateSlice,
    DeleteSlice,
    SliceChange,
    SliceHolder,
    StoredSlice,
    UpdateSlice,
)

Step = Callable[[], object]
Wait = Callable[[Event, float], bool]


class ScriptedApi:
    """Keeps slices with UIDs and resource versions; `requests` names every call that arrived, oldest first."""

    def __init__(self) -> None:
        self.slices: dict[str, StoredSlice] = {}
        self.strangers: dict[
            str, SliceHolder
        ] = {}  # slices that exist and that our lists do not show
        self.claims: tuple[Claim, ...] = ()
        self.claim_news: list[ClaimEvent] = []  # what a watch of a claim reports next
        self.claim_past: list[ClaimEvent] = []  # what the server remembers of claims
        self.requests: list[str] = []
        self.node_events: list[NodeEvent] = []
        self.tried: list[ResourceSliceSpec] = []  # by dry runs
        self.version = "v1.37.1"
        self.pauses: list[float] = []
        self.stores: Callable[[ResourceSliceSpec], ResourceSliceSpec] = lambda spec: spec
        # What stands in every slice that is written, whatever was written.
        self.adds: Mapping[str, str] = {}
        self.on_write: Step = lambda: None  # runs after a write is stored and before it is answered
        self._version = 0
        self._errors: dict[str, list[DriverError]] = {}
        self._news: list[SliceEvent] = []
        self._steps: list[Step] = []
        self._wrong: Exception | None = None
        self._stop = Event()

    def fail(self, call: str, *errors: DriverError) -> None:
        """Let the next calls of this name ("list", "watch", "create", "update", "delete", "get", "claims", "find", "changes", "event", "try", "version") fail."""
        self._errors.setdefault(call, []).extend(errors)

    def follow(self, watch: Callable[..., None], *steps: Step) -> None:
        """Run `watch(stop, wait=...)` until the script ends; waiting takes no time and is written to `pauses`."""
        self._steps = list(steps)
        self._stop = Event()
        self._wrong = None
        watch(self._stop, wait=self._wait)
        if self._wrong is not None:
            raise self._wrong

    def put(self, name: str, spec: ResourceSliceSpec, **content: Mapping[str, str]) -> None:
        """Somebody else creates or replaces a slice; `content` is its labels, annotations and what is `unlike`."""
        known = self.slices.get(name)
        uid = known.uid if known else f"uid-{self._version + 1}"
        self._store(StoredSlice(name, uid, "", spec, **content))

    def lose(self, *names: str) -> None:
        """Somebody else deletes slices."""
        for name in names:
            self._delete(name)

    # The door.

    def get_claim(self, ref: ClaimRef) -> Claim:
        raise NotFound(f"claim {ref} does not exist")

    def find_claim(self, ref: ClaimRef) -> ClaimFound:
        self._arrive(f"find {ref.namespace}/{ref.name}", "find")
        same = [
            claim
            for claim in self.claims
            if (claim.ref.namespace, claim.ref.name) == (ref.namespace, ref.name)
        ]
        return ClaimFound(str(self._version), same[0] if same else None)

    def watch_claim(
        self, ref: ClaimRef, resource_version: str, _stop: Event, *, seconds: int | None = None
    ) -> Iterator[ClaimEvent]:
        if seconds is not None:
            self._arrive(f"changes {ref.namespace}/{ref.name} {resource_version}", "changes")
            past = int(resource_version)
            yield from (one for one in self.claim_past if int(one.resource_version) > past)
            return
        self._arrive(f"watch {ref.namespace}/{ref.name} {resource_version}", "watch")
        while self._steps:
            self._steps.pop(0)()
            while self.claim_news:
                yield self.claim_news.pop(0)
            self._raise("watch")
        self._stop.set()

    def device_classes(self) -> tuple[DeviceClass, ...]:
        return ()

    def node_labels(self) -> Mapping[str, str]:
        return {}

    def kubelet_version(self) -> str:
        return "v1.37.1"

    def list_slices(self) -> SliceList:
        self._arrive("list")
        self._news.clear()
        return SliceList(str(self._version), tuple(self.slices.values()))

    def watch_slices(self, resource_version: str, _stop: Event) -> Iterator[SliceEvent]:
        self._arrive(f"watch {resource_version}", "watch")
        while self._steps:
            try:
                self._steps.pop(0)()
            except Exception as error:  # noqa: BLE001  the test's own; the watch would take it for the server's, and go on
                self._wrong = error
                break
            yield from self._take_news()
            self._raise("watch")
        self._stop.set()

    def apply_slice_change(self, change: SliceChange) -> StoredSlice | None:
        stored: StoredSlice | None = None
        match change:
            case CreateSlice(name, spec):
                self._arrive(f"create {name}", "create")
                if name in self.slices or name in self.strangers:
                    raise NameTaken(f"slice {name} exists", name=name)
                stored = self._written(StoredSlice(name, f"uid-{self._version + 1}", "", spec))
            case UpdateSlice(present, spec):
                self._arrive(f"update {present.name}", "update")
                self._check(present)
                stored = self._written(replace(present, spec=spec))
            case DeleteSlice(present):
                self._arrive(f"delete {present.name}", "delete")
                self._check(present)
                self._delete(present.name)
        self.on_write()
        return stored

    def try_slice(self, name: str, spec: ResourceSliceSpec) -> ResourceSliceSpec:
        self.tried.append(spec)
        self._raise("try")
        if name in self.strangers:
            raise NameTaken(f"slice {name} exists", name=name)
        return self.stores(spec)

    def server_version(self) -> str:
        self._raise("version")
        return self.version

    def slice_holder(self, name: str) -> SliceHolder:
        self._arrive(f"get {name}", "get")
        if name not in self.strangers:
            raise NotFound(f"slice {name} does not exist")
        return self.strangers[name]

    def allocated_claims(self, _pool: PoolName) -> tuple[Claim, ...]:
        self._arrive("claims")
        return self.claims

    def emit_event(self, event: NodeEvent) -> None:
        self._arrive("event")
        self.node_events.append(event)

    def _arrive(self, request: str, call: str = "") -> None:
        self.requests.append(request)
        self._raise(call or request)

    def _raise(self, call: str) -> None:
        errors = self._errors.get(call)
        if errors:
            raise errors.pop(0)

    def _wait(self, stop: Event, seconds: float) -> bool:
        self.pauses.append(seconds)
        if not self._steps:
            stop.set()
        return stop.is_set()

    def _check(self, present: StoredSlice) -> None:
        found = self.slices.get(present.name)
        if found is None or found.resource_version != present.resource_version:
            raise Conflict(f"slice {present.name} was changed by somebody else")

    def _written(self, written: StoredSlice) -> StoredSlice:
        return self._store(replace(written, spec=self.stores(written.spec), unlike=self.adds))

    def _store(self, wanted: StoredSlice) -> StoredSlice:
        self._version += 1
        stored = replace(wanted, resource_version=str(self._version))
        self._tell("MODIFIED" if stored.name in self.slices else "ADDED", stored)
        self.slices[stored.name] = stored
        return stored

    def _delete(self, name: str) -> None:
        self._version += 1
        stored = replace(self.slices.pop(name), resource_version=str(self._version))
        self._tell("DELETED", stored)

    def _tell(self, kind: Literal["ADDED", "MODIFIED", "DELETED"], stored: StoredSlice) -> None:
        self._news.append(SliceEvent(kind, stored.resource_version, stored))

    def _take_news(self) -> Iterator[SliceEvent]:
        while self._news:
            yield self._news.pop(0)
