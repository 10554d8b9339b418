# SPDX-License-Identifier: Apache-2.0
"""`dra-driver release`: whose devices are given back on an admin's word, and whose never."""

import dataclasses
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from dra_driver.cli.main import main
from dra_driver.model.ids import DeviceName
from dra_driver.model.state import Held, Phase, PreparedClaim, PreparedDevice, Users
from dra_driver.node.state import StateStore
from dra_driver.planning.unprepare import UNASKED
from dra_driver.testing.builders import A_POOL, a_ref

DEVICE = PreparedDevice(("gpu",), A_POOL, DeviceName("gpu-0"), (), "uuid")
OTHER = dataclasses.replace(DEVICE, device=DeviceName("gpu-1"))
HELD = Held("the kubelet unprepared it", "2027-01-15T08:00:00Z", unasked=True)
ROW = PreparedClaim(a_ref("one"), Phase.STARTED, "boot-1", (DEVICE,), "", Users(("pod",)), HELD)


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    (tmp_path / "boot_id").write_text("boot-1\n")
    return [
        *("--state-dir", str(tmp_path / "state")),
        *("--boot-id-file", str(tmp_path / "boot_id"), "--cgroup-root", str(tmp_path / "cgroup")),
    ]


def state(tmp_path: Path) -> closing[StateStore]:
    return closing(StateStore(tmp_path / "state" / "state.db", boot_id="boot-1"))


def start(tmp_path: Path, *rows: PreparedClaim) -> None:
    with state(tmp_path) as store, store.transaction("started") as transaction:
        for row in rows:
            transaction.start(row)


@pytest.mark.parametrize("name", ["default/one", "uid-one"])
def test_a_held_claim_is_confirmed_by_name_or_uid(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    other = replace(ROW, ref=a_ref("two"), devices=(OTHER,))
    start(tmp_path, ROW, other)
    assert main(["release", *arguments, name]) == 0
    assert capsys.readouterr().out.splitlines() == [
        (
            "node-1/gpu-0 of claim default/one (uid uid-one), held since 2027-01-15T08:00:00Z because "
            f"{UNASKED}: you confirm that nothing uses it any more"
        ),
        "the driver releases it within seconds, or at its next start if it does not run on this node now",
    ]
    with state(tmp_path) as store, store.reading() as rows:
        assert rows.all_claims() == (replace(ROW, held=replace(HELD, by_admin=True)), other)


def cgroup(tmp_path: Path, pod: str, *, processes: bool) -> Path:
    """The pod's cgroup, below a kubelet's."""
    root = tmp_path / "cgroup"
    folder = root / "kubepods" / f"pod{pod}"
    folder.mkdir(parents=True, exist_ok=True)
    (root / "cgroup.controllers").write_text("cpu memory pids\n")
    (root / "kubepods" / "cgroup.events").write_text("populated 1\n")
    (folder / "cgroup.events").write_text(f"populated {int(processes)}\n")
    return folder


@pytest.mark.parametrize("held", [HELD, replace(HELD, unasked=False)])
def test_a_pod_that_is_seen_to_run_keeps_its_devices_whatever_an_admin_says(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], held: Held
) -> None:
    row = replace(ROW, held=held)
    start(tmp_path, row)
    folder = cgroup(tmp_path, "pod", processes=True)
    assert main(["release", *arguments, "default/one"]) == 4
    said = capsys.readouterr().err
    assert (
        f"claim default/one (uid uid-one) is used: pod pod still runs: its cgroup {folder} has processes"
        in said
    )
    assert "--force" in said
    with state(tmp_path) as store, store.reading() as rows:
        assert rows.all_claims() == (row,)


def test_who_insists_is_told_what_runs(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start(tmp_path, ROW)
    cgroup(tmp_path, "pod", processes=True)
    assert main(["release", *arguments, "default/one", "--force"]) == 0
    assert "because pod pod still runs: its cgroup" in capsys.readouterr().out
    with state(tmp_path) as store, store.reading() as rows:
        assert rows.all_claims() == (replace(ROW, held=replace(HELD, by_admin=True)),)


def test_a_pod_of_another_boot_runs_no_more(arguments: list[str], tmp_path: Path) -> None:
    """A static pod keeps its UID over a boot."""
    start(tmp_path, replace(ROW, boot_id="boot-0"))
    cgroup(tmp_path, "pod", processes=True)
    assert main(["release", *arguments, "default/one"]) == 0


@pytest.mark.parametrize(
    ("processes", "reason"),
    [
        (None, " because whether pod pod has ended is not known: cannot read cgroups"),
        (False, ": you confirm"),
    ],
)
def test_why_it_was_held_is_told(
    arguments: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    processes: bool | None,
    reason: str,
) -> None:
    start(tmp_path, replace(ROW, held=replace(HELD, unasked=False)))
    if processes is not None:
        cgroup(tmp_path, "pod", processes=processes)
    assert main(["release", *arguments, "default/one"]) == 0
    assert f"2027-01-15T08:00:00Z{reason}" in capsys.readouterr().out


def test_a_claim_that_pods_may_use_is_refused(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared = replace(ROW, phase=Phase.PREPARED, held=None)
    start(tmp_path, prepared)
    assert main(["release", *arguments, "default/one"]) == 4
    assert "is Prepared and not held: pods of this node may use it; delete those pods" in (
        capsys.readouterr().err
    )
    with state(tmp_path) as store, store.reading() as rows:
        assert rows.all_claims() == (prepared,)


def test_of_two_claims_of_one_name_the_held_one_is_meant(
    arguments: list[str], tmp_path: Path
) -> None:
    """The kubelet forgot the first; the second was made under its name."""
    second = replace(
        ROW, ref=a_ref("one", uid="uid-2"), devices=(OTHER,), phase=Phase.PREPARED, held=None
    )
    start(tmp_path, ROW, second)
    assert main(["release", *arguments, "default/one"]) == 0
    with state(tmp_path) as store, store.reading() as rows:
        assert {row.ref.uid: row.held for row in rows.all_claims()} == {
            "uid-2": None,
            "uid-one": replace(HELD, by_admin=True),
        }


def test_a_claim_that_nobody_knows_is_refused_and_no_file_is_made(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["release", *arguments, "default/one"]) == 1
    path = tmp_path / "state" / "state.db"
    assert (
        f"there is no state file at {path}. Does the driver have another --driver-name or --state-dir?"
        in (capsys.readouterr().err)
    )
    assert not (tmp_path / "state").exists()
    start(tmp_path, ROW)
    assert main(["release", *arguments, "default/two"]) == 1
    assert "no claim default/two is known on this node" in capsys.readouterr().err
