# SPDX-License-Identifier: Apache-2.0
"""What speaks against a cleanup, in which order things go, and what a failure costs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from dra_driver.errors import Fatal, Permanent, Temporary
from dra_driver.kube.base import Conflict
from dra_driver.model.ids import DeviceName, DriverName
from dra_driver.model.leftovers import Leftover, LeftoverKind, Others
from dra_driver.model.own_node import NodeCondition, OwnNode
from dra_driver.model.state import Held, Phase, PodDevice, PreparedClaim, PreparedDevice, Unknown
from dra_driver.services.cleanup import CleanupParts, Outcome, Survey, clean, survey
from dra_driver.testing.builders import A_DRIVER, A_PLACE, A_POOL, a_ref
from tests.support.api_values import slice_spec
from tests.support.scripted_api import ScriptedApi

STATE = Leftover(LeftoverKind.STATE, "/plugin/state.db")
CDI = Leftover(LeftoverKind.CDI_FILE, "/cdi/one.json")
SOCKET = Leftover(LeftoverKind.SOCKET, "/plugin/dra.sock")
FOLDER = Leftover(LeftoverKind.DIRECTORY, "/plugin")
SLICE = Leftover(LeftoverKind.SLICE, "00000-slice")


def a_row(name: str, *devices: str) -> PreparedClaim:
    held = tuple(
        PreparedDevice(("gpu",), A_POOL, DeviceName(device), (), "uuid") for device in devices
    )
    return PreparedClaim(a_ref(name), Phase.PREPARED, "boot-1", held, "text")


def a_held(name: str, device: str, *, driver: DriverName = A_DRIVER) -> PodDevice:
    return PodDevice("default", name, driver, A_POOL, DeviceName(device))


@dataclass
class Disk:
    """Files in memory."""

    present: list[Leftover] = field(default_factory=lambda: [SOCKET, CDI, STATE, FOLDER])
    rows: tuple[PreparedClaim, ...] = ()
    unreadable: Permanent | None = None
    working: tuple[str, ...] = ()
    stuck: dict[Leftover, str | Permanent] = field(default_factory=dict)
    is_alone: bool = False

    def at_work(self) -> tuple[str, ...]:
        return self.working

    def claims(self) -> tuple[PreparedClaim, ...]:
        if self.unreadable:
            raise self.unreadable
        return self.rows

    def leftovers(self) -> tuple[Leftover, ...]:
        return tuple(self.present)

    def others(self) -> tuple[Others, ...]:
        return (Others("/cdi", ("nvidia.yaml",)),)

    def remove(self, leftover: Leftover, /) -> str:
        assert self.is_alone
        found = self.stuck.get(leftover, "")
        if isinstance(found, Permanent):
            raise found
        if not found:
            self.present.remove(leftover)
        return found

    @contextmanager
    def alone(self) -> Iterator[None]:
        self.is_alone = True
        yield
        self.is_alone = False


@pytest.fixture
def api() -> ScriptedApi:
    found = ScriptedApi()
    found.put(SLICE.name, slice_spec(A_POOL, 1, 1, ()))
    return found


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def parts(api: ScriptedApi, disk: Disk) -> CleanupParts:
    return CleanupParts(A_PLACE, disk, lambda: api, frozenset, lambda _: "")


def test_everything_is_found_and_goes_in_order(
    parts: CleanupParts, api: ScriptedApi, disk: Disk
) -> None:
    found = survey(parts)
    assert found == Survey(
        at_work=(),
        claims=(),
        claims_unknown="",
        pod_devices=(),
        files=(SOCKET, CDI, STATE, FOLDER),
        slices=tuple(api.slices.values()),
        slices_unknown="",
        others=(Others("/cdi", ("nvidia.yaml",)),),
    )
    assert found.leftovers == (SOCKET, SLICE, CDI, STATE, FOLDER)
    assert found.used == ()
    assert list(clean(parts, found)) == [Outcome(leftover) for leftover in found.leftovers]
    assert (disk.present, api.slices, disk.is_alone) == ([], {}, False)
    again = survey(parts)
    assert again.leftovers == ()
    assert list(clean(parts, again)) == []


def test_a_look_changes_nothing(parts: CleanupParts, api: ScriptedApi, disk: Disk) -> None:
    survey(parts)
    assert len(disk.present) == 4
    assert api.requests == ["list"]


def test_prepared_claims_speak_against_it_by_name(parts: CleanupParts, disk: Disk) -> None:
    disk.rows = (
        a_row("one", "gpu-0", "gpu-3"),
        replace(a_row("two"), phase=Phase.STARTED),
    )
    assert survey(parts).used == (
        "claim default/one (uid uid-one) is Prepared with gpu-0, gpu-3",
        "claim default/two (uid uid-two) is Started with no device",
    )


HELD = Held("the kubelet unprepared it", "2026-01-02T03:04:05Z")


def test_a_held_claim_speaks_against_it_as_long_as_its_devices_may_be_in_use(
    parts: CleanupParts, disk: Disk
) -> None:
    asked: list[PreparedClaim] = []

    def still_used(row: PreparedClaim) -> str:
        asked.append(row)
        if row.ref.name == "unreadable":
            raise Fatal("no boot id")
        return {"runs": "pod p still runs"}.get(row.ref.name, "")

    names = ("runs", "ended", "unreadable", "prepared")
    runs, ended, unreadable, prepared = (a_row(name, f"gpu-{name}") for name in names)
    runs, ended, unreadable = (
        replace(row, phase=Phase.STARTED, held=HELD) for row in (runs, ended, unreadable)
    )
    disk.rows = (runs, ended, unreadable, prepared)
    found = survey(replace(parts, still_used=still_used))
    since = "is held since 2026-01-02T03:04:05Z with"
    assert found.used == (
        f"claim default/runs (uid uid-runs) {since} gpu-runs: pod p still runs",
        f"claim default/unreadable (uid uid-unreadable) {since} gpu-unreadable: no boot id",
        "claim default/prepared (uid uid-prepared) is Prepared with gpu-prepared",
    )
    assert (found.unused, found.in_doubt, found.needed) == (
        (ended,),
        (runs, unreadable),
        (prepared,),
    )
    assert asked == [runs, ended, unreadable]  # of a prepared claim only a driver can tell


def test_a_pod_that_the_kubelet_names_counts_also_if_its_claim_does_not(
    parts: CleanupParts, disk: Disk
) -> None:
    disk.rows = (replace(a_row("one", "gpu-0"), held=HELD),)
    held = frozenset({a_held("one", "gpu-0")})
    assert survey(replace(parts, pod_devices=lambda: held)).used == (
        "the kubelet says that a pod uses device gpu-0 through claim default/one",
    )


def test_a_state_that_cannot_be_read_speaks_against_it(parts: CleanupParts, disk: Disk) -> None:
    disk.unreadable = Permanent("state file is damaged")
    assert survey(parts).used == ("which claims are prepared is not known: state file is damaged",)


def test_a_pod_that_the_state_does_not_know_speaks_against_it(
    parts: CleanupParts, disk: Disk
) -> None:
    disk.rows = (a_row("one", "gpu-0"),)
    held = frozenset(
        {
            a_held("one", "gpu-0"),
            a_held("lost", "gpu-2"),
            a_held("lost", "gpu-1"),
            a_held("nic", "eth0", driver=DriverName("dra.net")),
        }
    )
    assert survey(replace(parts, pod_devices=lambda: held)).used == (
        "claim default/one (uid uid-one) is Prepared with gpu-0",
        "the kubelet says that a pod uses device gpu-1 through claim default/lost",
        "the kubelet says that a pod uses device gpu-2 through claim default/lost",
    )


def test_a_kubelet_that_cannot_be_asked_speaks_against_nothing(parts: CleanupParts) -> None:
    assert survey(replace(parts, pod_devices=lambda: Unknown("no socket"))).used == ()


def test_who_is_at_work_is_told_apart_from_what_is_used(parts: CleanupParts, disk: Disk) -> None:
    disk.working = ("process 7 listens",)
    found = survey(parts)
    assert (found.at_work, found.used) == (("process 7 listens",), ())


def test_without_an_api_server_the_node_is_cleaned_all_the_same(
    parts: CleanupParts, api: ScriptedApi, disk: Disk
) -> None:
    api.fail("list", Temporary("no answer"))
    found = survey(parts)
    assert (found.slices, found.slices_unknown) == ((), "no answer")
    assert found.leftovers == (SOCKET, CDI, STATE, FOLDER)
    assert [outcome.failed for outcome in clean(parts, found)] == [False] * 4
    assert len(api.slices) == 1


def test_without_any_client_too(parts: CleanupParts) -> None:
    def none() -> ScriptedApi:
        raise Fatal("no API server is known")

    assert survey(replace(parts, kube=none)).slices_unknown == "no API server is known"


def test_slices_that_shall_stay_are_not_even_asked_for(
    parts: CleanupParts, api: ScriptedApi
) -> None:
    found = survey(replace(parts, keep_slices=True))
    assert (found.slices, found.slices_unknown, api.requests) == ((), "", [])


def test_what_fails_costs_only_itself(parts: CleanupParts, api: ScriptedApi, disk: Disk) -> None:
    disk.stuck = {CDI: Permanent("read-only"), FOLDER: "/plugin stays: busy"}
    api.fail("delete", Conflict("changed meanwhile"))
    assert list(clean(parts, survey(parts))) == [
        Outcome(SOCKET),
        Outcome(SLICE, "changed meanwhile", failed=True),
        Outcome(CDI, "read-only", failed=True),
        Outcome(STATE),
        Outcome(FOLDER, "/plugin stays: busy"),
    ]
    assert disk.present == [CDI, FOLDER]
    assert list(api.slices) == [SLICE.name]


# What the driver wrote on its Node


class OnNode:
    """A Node with labels and a condition of the driver."""

    def __init__(self) -> None:
        ready = NodeCondition(True, "Published", "")
        self.found: OwnNode | Permanent = OwnNode(
            "uid", {"a": "1", "theirs": "2"}, frozenset({"a"}), condition=ready
        )
        self.written: list[object] = []

    def read(self) -> OwnNode:
        if isinstance(self.found, Permanent):
            raise self.found
        return self.found

    def apply_labels(self, labels: Mapping[str, str], uid: str) -> None:
        self.written.append((dict(labels), uid))

    def apply_condition(self, condition: NodeCondition | None, uid: str) -> None:
        self.written.append((condition, uid))

    def remove_taint(self, key: str) -> bool:
        raise AssertionError(key)


def test_labels_and_condition_of_the_node_go_after_the_slices(parts: CleanupParts) -> None:
    node = OnNode()
    parts = replace(parts, node=lambda: node)
    found = survey(parts)
    labels = Leftover(LeftoverKind.LABELS, "a")
    condition = Leftover(LeftoverKind.CONDITION, "DevicesReady")
    assert found.leftovers == (SOCKET, SLICE, labels, condition, CDI, STATE, FOLDER)
    assert [one for one in clean(parts, found) if one.failed] == []
    assert node.written == [({}, "uid"), (None, "uid")]


def test_a_node_without_them_or_that_cannot_be_read_is_left_alone(parts: CleanupParts) -> None:
    node = OnNode()
    parts = replace(parts, node=lambda: node)
    for found in (OwnNode("uid", {"theirs": "2"}), Permanent("no right")):
        node.found = found
        assert survey(parts).leftovers == (SOCKET, SLICE, CDI, STATE, FOLDER)
    node.found = OnNode().found
    kept = survey(replace(parts, keep_slices=True))
    assert kept.leftovers == (SOCKET, CDI, STATE, FOLDER)
