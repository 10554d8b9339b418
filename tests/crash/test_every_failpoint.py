# SPDX-License-Identifier: Apache-2.0
"""Kill the real process at every failpoint, start it again, and compare disk, answers and the kubelet's view.

Each failpoint is reached by one of seven stories: a claim is prepared, a claim is unprepared, a claim whose device
vanished is unprepared, a pod joins a claim, the driver starts after a reboot, the driver finds its state file damaged, the driver publishes. The process dies there by SIGKILL and reports the point first; a point that is never reached fails its test.
Afterwards the kubelet does what a kubelet does, it tries again, and everything must be as if nothing had happened.
"""

import signal
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from dra_driver.model.ids import ClaimUid
from dra_driver.model.state import Phase, PreparedClaim
from dra_driver.testing.failpoints import FAILPOINTS
from dra_driver.testing.fake_kubelet import KubeletError
from dra_driver.testing.stage import DEADLINE_SECONDS, DRIVER, Stage, wait_for
from tests.support.invariants import read_state

REFUSED_WITHIN_SECONDS = 12.0  # the driver waits for a held device as long as the call allows
REMOVING = "remove.metadata.before"
RECOVERING = ("MarkStartedAgain", "recovered")
UNPREPARING = (
    "MarkHeld",
    "RemoveCdiSpec",
    "ShowUnused",
    "ResetDevice",
    "Forget",
    "releasing",
    "released",
)


def story_of(failpoint: str) -> str:
    subject = failpoint.split(".")[1]
    if subject in ("ready", "damaged", "successor"):
        return "damage"
    if subject == "published":
        return "publish"
    if subject == "joined":
        return "join"
    if subject == "undone":
        return "vanish"
    if subject in RECOVERING:
        return "reboot"
    return "unprepare" if subject in UNPREPARING or failpoint == REMOVING else "prepare"


def died(node: Stage, failpoint: str, report: Path) -> None:
    """The process ended by its own hand, there."""
    assert node.process is not None
    assert node.process.wait(DEADLINE_SECONDS) == -signal.SIGKILL, node.log()
    assert report.read_text() == failpoint


def described(node: Stage) -> dict[str, str]:
    """The texts of the metadata files, by their path: claim UID and request."""
    root = node.kubelet.plugins_dir / DRIVER / "metadata"
    return {str(path.relative_to(root)): path.read_text() for path in sorted(root.glob("*/*"))}


def expected_file(node: Stage, uid: str) -> str:
    return f"k8s.{DRIVER}-claim_{uid}.json"


@pytest.mark.parametrize(
    "failpoint", [point for point in FAILPOINTS if story_of(point) == "prepare"]
)
def test_a_crash_in_prepare_leaves_nothing_half_done(
    node: Stage, failpoint: str, tmp_path: Path
) -> None:
    claim = node.claim("one", ["gpu-0", "gpu-3"])
    other = node.claim("two", ["gpu-1"])
    node.start_registered()
    kept = node.kubelet.prepare(DRIVER, [other], pod="default/other")
    other_file, other_described = node.cdi_files(), described(node)
    assert other_described
    node.kill()

    node.start_registered(die_at=failpoint, report=tmp_path / "report")
    with pytest.raises(KubeletError):
        node.kubelet.prepare(DRIVER, [claim])
    died(node, failpoint, tmp_path / "report")
    row = read_state(node.state_file)[0].get(claim.uid)
    # A file comes after the commit that makes the row Prepared, so it alone vouches for a Started row, whose commit was lost. And
    # what may be set up is in the row.
    if expected_file(node, claim.uid) in node.cdi_files():
        assert row is not None
        assert row.phase is Phase.PREPARED
    if row is not None:
        assert [lease.device for lease in row.leases or ()] == ["gpu-0", "gpu-3"]
        assert bool(row.cdi_spec) is (row.phase is Phase.PREPARED)

    node.start_registered()
    # Nobody else's claim was touched, whatever is there of this one belongs to a row, and nothing is half written.
    assert other_file.items() <= node.cdi_files().items()
    assert set(node.cdi_files()) <= {expected_file(node, uid) for uid in node.rows()}
    assert {path.partition("/")[0] for path in described(node)} <= set(node.rows())
    node.kubelet.restart()
    devices = node.kubelet.prepare(DRIVER, [claim])[claim.uid]
    assert [device.device_name for device in devices] == ["gpu-0", "gpu-3"]
    assert node.kubelet.prepare(DRIVER, [other], pod="default/other") == kept
    assert {uid: phase for uid, (phase, _) in node.rows().items()} == {
        claim.uid: "Prepared",
        other.uid: "Prepared",
    }
    assert node.owners() == {"gpu-0": claim.uid, "gpu-3": claim.uid, "gpu-1": other.uid}
    assert set(node.cdi_files()) == {expected_file(node, claim.uid), expected_file(node, other.uid)}
    assert {path.partition("/")[0] for path in described(node)} == {claim.uid, other.uid}
    node.kubelet.unprepare(DRIVER, [claim])
    assert node.cdi_files() == other_file
    assert described(node) == other_described
    assert node.owners() == {"gpu-1": other.uid}


@pytest.mark.parametrize(
    "failpoint", [point for point in FAILPOINTS if story_of(point) == "unprepare"]
)
def test_a_crash_in_unprepare_is_finished_by_the_next_try(
    node: Stage, failpoint: str, tmp_path: Path
) -> None:
    claim = node.claim("one", ["gpu-0"])
    other = node.claim("two", ["gpu-1"])
    node.start_registered()
    node.kubelet.prepare(DRIVER, [claim], pod="default/pod")
    node.kubelet.prepare(DRIVER, [other], pod="default/other")
    other_file = {name: text for name, text in node.cdi_files().items() if other.uid in name}
    node.kill()

    node.start_registered(die_at=failpoint, report=tmp_path / "report")
    with pytest.raises(KubeletError):
        node.kubelet.unprepare(DRIVER, [claim])
    died(node, failpoint, tmp_path / "report")

    node.start_registered()
    node.kubelet.unprepare(DRIVER, [claim])
    assert node.cdi_files() == other_file
    assert node.owners() == {"gpu-1": other.uid}
    assert set(node.rows()) == {other.uid}
    assert claim.uid not in node.kubelet.claims
    assert {path.partition("/")[0] for path in described(node)} == {other.uid}


@pytest.mark.parametrize(
    "failpoint", [point for point in FAILPOINTS if story_of(point) == "unprepare"]
)
def test_a_crash_while_a_pod_runs_on_gives_its_device_to_nobody(
    node: Stage, failpoint: str, tmp_path: Path
) -> None:
    """The pod was removed from the API; the crash strikes where the walk comes by, and the device stays held through it."""
    claim = node.claim("one", ["gpu-0"])
    rival = node.claim("two", ["gpu-0"])
    node.start_registered()
    node.kubelet.prepare(DRIVER, [claim], pod="default/pod")
    old = node.kubelet.force_delete("default/pod")
    node.kill()

    node.start_registered(die_at=failpoint, report=tmp_path / "report")
    node.kubelet.reconcile(DRIVER)
    reached = failpoint.split(".")[1] in (
        "MarkHeld",
        "RemoveCdiSpec",
        "metadata",
        "releasing",
    ) or failpoint == ("step.ShowUnused.before")
    if reached:
        died(node, failpoint, tmp_path / "report")
        node.start_registered()
        node.kubelet.reconcile(DRIVER)
    else:  # behind the proof: while the pod runs nobody comes by there
        assert node.alive()
    assert node.owners() == {"gpu-0": claim.uid}
    assert node.cdi_files() == {}
    assert {uid: phase for uid, (phase, _) in node.rows().items()} == {claim.uid: "Started"}

    node.kubelet.end_containers(old)
    if not reached:
        died(node, failpoint, tmp_path / "report")
        node.start_registered()
    node.kubelet.prepare(DRIVER, [rival], pod="default/next")
    assert node.owners() == {"gpu-0": rival.uid}
    assert set(node.cdi_files()) == {expected_file(node, rival.uid)}


@pytest.mark.parametrize(
    "failpoint", [point for point in FAILPOINTS if story_of(point) == "vanish"]
)
def test_a_crash_while_the_lease_of_a_vanished_device_is_undone_ends_with_the_next_try(
    node: Stage, failpoint: str, tmp_path: Path
) -> None:
    """Nobody can say any more whether others share its hardware, so its lease leaves the row at once."""
    claim = node.claim("one", ["gpu-0", "gpu-1"])
    faults = tmp_path / "faults.yaml"
    faults.write_text("devices: {gpu-1: {vanished: true}}")
    node.start_registered()
    node.kubelet.prepare(DRIVER, [claim])
    node.kill()

    options = ("--simulated-faults", str(faults))
    node.start_registered(*options, die_at=failpoint, report=tmp_path / "report")
    with pytest.raises(KubeletError):
        node.kubelet.unprepare(DRIVER, [claim])
    died(node, failpoint, tmp_path / "report")
    left = [lease.device for row in rows(node) for lease in row.leases or ()]
    assert left == (["gpu-0", "gpu-1"] if failpoint.endswith("before") else ["gpu-0"])
    assert node.owners() == {"gpu-0": claim.uid, "gpu-1": claim.uid}

    node.start_registered(*options)
    node.kubelet.unprepare(DRIVER, [claim])
    assert rows(node) == []
    assert node.owners() == {}


def rows(node: Stage) -> list[PreparedClaim]:
    """The rows as they stand on the disk."""
    return list(read_state(node.state_file)[0].values())


@pytest.mark.parametrize("failpoint", [point for point in FAILPOINTS if story_of(point) == "join"])
def test_a_crash_while_a_pod_joins_a_claim_forgets_no_pod(
    node: Stage, failpoint: str, tmp_path: Path
) -> None:
    claim = node.claim("one", ["gpu-0"])
    node.start_registered()
    before = node.kubelet.prepare(DRIVER, [claim], pod="default/first")
    node.kubelet.restart()
    node.stop()

    node.start_registered(die_at=failpoint, report=tmp_path / "report")
    with suppress(KubeletError):  # or it dies aside of the call, by the watch
        node.kubelet.prepare(DRIVER, [claim], pod="default/second")
    died(node, failpoint, tmp_path / "report")

    node.start_registered()
    assert node.kubelet.prepare(DRIVER, [claim], pod="default/second") == before
    node.kubelet.unprepare(DRIVER, [claim], pod="default/first")
    second = node.kubelet.force_delete("default/second")
    node.kubelet.reconcile(DRIVER)
    assert node.owners() == {"gpu-0": claim.uid}
    node.kubelet.end_containers(second)
    wait_for(lambda: not node.owners(), "the device to be free")


@pytest.mark.parametrize(
    "failpoint", [point for point in FAILPOINTS if story_of(point) == "reboot"]
)
def test_a_crash_while_recovering_from_a_reboot_is_recovered_from(
    node: Stage, failpoint: str, tmp_path: Path
) -> None:
    claim = node.claim("one", ["gpu-0"])
    node.start_registered()
    before = node.kubelet.prepare(DRIVER, [claim])
    file = node.cdi_files()
    node.kill()
    node.reboot()

    node.start(die_at=failpoint, report=tmp_path / "report")
    died(node, failpoint, tmp_path / "report")

    node.start_registered()
    assert node.cdi_files() == {}
    assert node.rows() == {claim.uid: ("Started", "boot-1")}
    assert node.owners() == {"gpu-0": claim.uid}
    assert node.kubelet.prepare(DRIVER, [claim]) == before
    assert node.cdi_files() == file
    assert node.rows() == {claim.uid: ("Prepared", "boot-1+")}


def is_known_whole(node: Stage, uid: ClaimUid) -> bool:
    """Whether the claim has its row again, and the names of its requests, which only the API server knows."""
    row = read_state(node.state_file)[0].get(uid)
    return row is not None and all(device.request_names for device in row.devices)


@pytest.mark.parametrize(
    "failpoint", [point for point in FAILPOINTS if story_of(point) == "damage"]
)
def test_a_crash_while_setting_a_damaged_state_aside_loses_no_device(
    node: Stage, failpoint: str, tmp_path: Path
) -> None:
    claim = node.claim("one", ["gpu-0"])
    node.start_registered()
    before = node.kubelet.prepare(DRIVER, [claim], pod="default/running")
    file = node.cdi_files()
    node.stop()
    damaged = b"no database" * 1000
    node.state_file.write_bytes(damaged)

    node.start(die_at=failpoint, report=tmp_path / "report")
    died(node, failpoint, tmp_path / "report")

    node.start_registered()
    wait_for(lambda: is_known_whole(node, claim.uid), "the running pod's claim, taken up again")
    assert node.owners() == {"gpu-0": claim.uid}
    assert node.state_file.with_name("state.db.damaged-1").read_bytes() == damaged
    assert node.cdi_files() == file
    node.kubelet.restart()
    node.register()
    assert node.kubelet.prepare(DRIVER, [claim], pod="default/running") == before


@pytest.mark.parametrize(
    "failpoint", [point for point in FAILPOINTS if story_of(point) == "damage"]
)
def test_a_crash_while_setting_a_damaged_row_aside_lets_go_of_no_held_device(
    node: Stage, failpoint: str, tmp_path: Path
) -> None:
    """The pod is forgotten by the API server and the kubelet, and its containers run on: only the row knows."""
    claim, other = node.claim("one", ["gpu-0"]), node.claim("two", ["gpu-1"])
    node.start_registered()
    node.kubelet.prepare(DRIVER, [claim], pod="default/pod")
    node.kubelet.prepare(DRIVER, [other], pod="default/other")
    old = node.kubelet.force_delete("default/pod")
    node.api.remove("resourceclaims", "one")
    node.kubelet.reconcile(DRIVER)
    node.stop()
    with closing(sqlite3.connect(node.state_file)) as db, db:
        db.execute(
            "UPDATE claims SET devices = replace(devices, 'gpu-1', 'gpu-5') WHERE name = 'two'"
        )

    node.start(die_at=failpoint, report=tmp_path / "report")
    died(node, failpoint, tmp_path / "report")

    node.start_registered()
    wait_for(lambda: len(node.owners()) == 2, "the other claim, taken up again")
    assert node.owners() == {"gpu-0": claim.uid, "gpu-1": other.uid}
    reported = '"event": "state_file_damaged"' in node.log()
    assert reported is (failpoint != "rename.successor.after")  # the next start cannot see it then
    rival = node.claim("three", ["gpu-0"])
    patient, node.kubelet.call_seconds = node.kubelet.call_seconds, REFUSED_WITHIN_SECONDS
    with pytest.raises(KubeletError, match="is held since"):
        node.kubelet.prepare(DRIVER, [rival], pod="default/next")
    node.kubelet.call_seconds = patient
    node.kubelet.end_containers(old)
    node.kubelet.prepare(DRIVER, [rival], pod="default/next")
    assert node.owners() == {"gpu-0": rival.uid, "gpu-1": other.uid}


@pytest.mark.program
@pytest.mark.parametrize(
    "failpoint", [point for point in FAILPOINTS if story_of(point) == "publish"]
)
def test_a_crash_while_publishing_is_made_good_by_the_next_start(
    node: Stage, failpoint: str, tmp_path: Path
) -> None:
    node.start(die_at=failpoint, report=tmp_path / "report")
    died(node, failpoint, tmp_path / "report")
    node.start_registered()
    (found,) = wait_for(node.slices, "the slice")
    assert len(found["spec"]["devices"]) == 8
    assert node.owners() == {}


def test_each_failpoint_has_a_story() -> None:
    assert {story_of(point) for point in FAILPOINTS} == {
        "prepare",
        "unprepare",
        "reboot",
        "damage",
        "publish",
        "join",
        "vanish",
    }
    assert len(set(FAILPOINTS)) == len(FAILPOINTS) > 20


@pytest.mark.program
def test_a_killed_driver_comes_back_with_everything(node: Stage) -> None:
    claim = node.claim("one", ["gpu-0"])
    node.start_registered()
    answer = node.kubelet.prepare(DRIVER, [claim])
    file = node.cdi_files()
    wait_for(node.slices, "the slice")
    node.kill()
    for path in node.cdi_dir.iterdir():
        path.write_text("somebody's edit")
    node.start_registered()
    assert node.cdi_files() == file
    node.kubelet.restart()
    node.register()
    assert node.kubelet.prepare(DRIVER, [claim]) == answer


def test_a_lost_state_file_is_rebuilt_from_the_cluster_and_the_kubelet(node: Stage) -> None:
    claim = node.claim("one", ["gpu-0"])
    gone = node.claim("two", ["gpu-1"])
    node.start_registered()
    node.kubelet.prepare(DRIVER, [claim], pod="default/running")
    node.kubelet.prepare(DRIVER, [gone], pod="default/gone")
    file = {name: text for name, text in node.cdi_files().items() if claim.uid in name}
    node.kill()
    for path in node.state_file.parent.glob("state.db*"):
        path.unlink()
    # While nobody looked, the second pod and its claim went away, and the kubelet forgot both.
    node.api.remove("resourceclaims", "two")
    del node.kubelet.claims[gone.uid]
    node.start_registered()
    wait_for(lambda: node.cdi_files() == file, "only the living claim's file")
    # Nobody can say whether the containers of the pod that is gone have ended: its device stays held.
    owners = {"gpu-0": claim.uid, "gpu-1": gone.uid}
    wait_for(lambda: node.owners() == owners, "the living claim's row, and a held one")
    phases = {uid: phase for uid, (phase, _) in node.rows().items()}
    assert phases == {claim.uid: "Prepared", gone.uid: "Started"}
