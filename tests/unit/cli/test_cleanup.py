# SPDX-License-Identifier: Apache-2.0
"""`dra-driver cleanup`: what is printed where, and the exit codes. What it does to a real node is in tests/integration."""

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from dra_driver.cli.main import main
from dra_driver.model.ids import DeviceName, PodUid
from dra_driver.model.state import Held, Phase, PreparedClaim, PreparedDevice, Users
from dra_driver.node.state import StateStore
from dra_driver.services.cleanup import FORCED, FORCED_HELD
from dra_driver.testing.builders import A_POOL, a_ref

UNTOUCHED = [
    "not touched: DeviceClasses and ResourceClaims (`kubectl delete -f`, or `helm uninstall`)",
    "not touched: the kubelet's own state, and the ResourceSlices of other nodes and other drivers",
]


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture
def arguments(root: Path) -> list[str]:
    (root / "cdi").mkdir()
    return [
        *("cleanup", "--node-name", "node-1", "--keep-slices", "--cdi-dir", str(root / "cdi")),
        *("--plugins-dir", str(root / "plugins"), "--registry-dir", str(root / "registry")),
        *("--pod-resources-socket", str(root / "none.sock"), "--state-dir", str(root / "state")),
        *("--nfd-features-dir", str(root / "features.d")),
    ]


def state(root: Path) -> closing[StateStore]:
    return closing(StateStore(root / "state" / "state.db", boot_id="boot-1"))


def hold(root: Path) -> None:
    held = PreparedDevice(("gpu",), A_POOL, DeviceName("gpu-0"), (), "uuid")
    with state(root) as store, store.transaction("started") as transaction:
        transaction.start(PreparedClaim(a_ref("mine"), Phase.PREPARED, "boot-1", (held,), ""))


def test_a_clean_node_is_said_to_be_clean(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        "nothing of this driver is left on this node",
        *UNTOUCHED,
    ]
    assert captured.err == ""


def test_what_goes_is_listed_and_what_stays_too(
    arguments: list[str], root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with state(root):
        pass
    (root / "cdi" / "theirs.json").write_text("{}")
    kinds = ("state file", "state.db"), ("lock file", "state.db.guard")
    names = [f"{kind} {root}/state/{name}" for kind, name in kinds]
    rest = [f"not touched: {root}/cdi: theirs.json", *UNTOUCHED]
    assert main([*arguments, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        *(f"would remove {name}" for name in names),
        *rest,
    ]
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines() == [*(f"removed {name}" for name in names), *rest]


def test_a_refusal_is_on_standard_error_with_exit_code_4(
    arguments: list[str], root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hold(root)
    claim = f"claim {a_ref('mine')} is Prepared with gpu-0"
    assert main(arguments) == 4
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        f"dra-driver: refused: {claim}",
        *(f"dra-driver: --force breaks: {consequence}" for consequence in FORCED),
        (
            "dra-driver: drain the node or delete these pods, so that the driver unprepares the claims, then try again; if the driver is "
            "gone from this node, install it again first (`helm rollback`), because only a running driver can unprepare them"
        ),
    ]
    assert main([*arguments, "--force"]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        f"dra-driver: forced: {claim}",
        *(f"dra-driver: broken: {consequence}" for consequence in FORCED),
    ]
    assert main(arguments) == 0


def hold_after_unprepare(root: Path, held: Held, boot_id: str = "boot-1") -> None:
    device = PreparedDevice(("gpu",), A_POOL, DeviceName("gpu-0"), (), "uuid")
    users = Users((PodUid("pod"),))
    row = PreparedClaim(a_ref("old"), Phase.STARTED, boot_id, (device,), "", users, held)
    with state(root) as store, store.transaction("started") as transaction:
        transaction.start(row)


def pod_runs(root: Path, *, processes: bool) -> None:
    """The pod has a cgroup below a kubelet's."""
    folder = root / "cgroup" / "kubepods" / "podpod"
    folder.mkdir(parents=True, exist_ok=True)
    (root / "cgroup" / "cgroup.controllers").write_text("cpu memory pids\n")
    (root / "cgroup" / "kubepods" / "cgroup.events").write_text("populated 1\n")
    (folder / "cgroup.events").write_text(f"populated {int(processes)}\n")


@pytest.fixture
def on_node(arguments: list[str], root: Path) -> list[str]:
    (root / "boot_id").write_text("boot-1\n")
    paths = ("--boot-id-file", str(root / "boot_id"), "--cgroup-root", str(root / "cgroup"))
    return [*arguments, *paths]


HELD = Held("the kubelet unprepared it", "2027-01-15T08:00:00Z")


def test_a_held_claim_whose_pod_runs_names_the_pod_and_the_way_out(
    on_node: list[str], root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hold_after_unprepare(root, HELD)
    pod_runs(root, processes=True)
    assert main(on_node) == 4
    first, *breaks, last = capsys.readouterr().err.splitlines()
    assert first == (
        f"dra-driver: refused: claim {a_ref('old')} is held since 2027-01-15T08:00:00Z with gpu-0: pod pod still runs: its cgroup "
        f"{root}/cgroup/kubepods/podpod has processes"
    )
    assert breaks == [f"dra-driver: --force breaks: {one}" for one in (*FORCED, FORCED_HELD)]
    assert "two pods use one device" in breaks[-1]
    assert "crictl stop" in last
    assert "reboot" in last
    assert "only a running driver" not in last
    # Its containers end, and no driver has to run for the rest.
    pod_runs(root, processes=False)
    assert main([*on_node, "--dry-run"]) == 0
    assert main(on_node) == 0
    assert not (root / "state" / "state.db").exists()


@pytest.mark.parametrize(
    ("held", "boot_id", "more"),
    [
        (HELD, "boot-0", ()),
        (replace(HELD, by_admin=True), "boot-1", ()),
        (HELD, "boot-1", ("--release-proof", "unprepare")),
    ],
    ids=["another boot", "an admin's word", "the kubelet's word"],
)
def test_a_held_claim_that_the_driver_would_release_does_not_count(
    on_node: list[str],
    root: Path,
    capsys: pytest.CaptureFixture[str],
    held: Held,
    boot_id: str,
    more: tuple[str, ...],
) -> None:
    hold_after_unprepare(root, held, boot_id)
    pod_runs(root, processes=True)
    assert main([*on_node, *more]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.splitlines()[0] == (
        f"held claim {a_ref('old')} does not count: nothing uses gpu-0 any more; what the driver has set up there is not undone"
    )


def test_who_has_both_kinds_of_claims_is_told_both_ways(
    on_node: list[str], root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hold_after_unprepare(root, replace(HELD, unasked=True))
    device = PreparedDevice(("gpu",), A_POOL, DeviceName("gpu-1"), (), "uuid")
    with state(root) as store, store.transaction("started") as transaction:
        transaction.start(PreparedClaim(a_ref("new"), Phase.PREPARED, "boot-1", (device,), ""))
    assert main(on_node) == 4
    *_, pods, containers = capsys.readouterr().err.splitlines()
    assert "only a running driver can unprepare them" in pods
    assert "If no pod is named, a driver that runs here again" in containers


def test_a_running_process_is_not_overridden(
    arguments: list[str], root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with state(root):
        assert main([*arguments, "--force"]) == 4
    first, last = capsys.readouterr().err.splitlines()
    assert first == (
        f"dra-driver: refused: a driver process of boot boot-1 holds {root}/state/state.db.guard"
    )
    assert last.startswith("dra-driver: end it first (`helm uninstall`")


def test_what_cannot_be_removed_is_named_with_exit_code_1(
    arguments: list[str], root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "plugins" / "gpu.dra-driver.dev" / "dra.sock").mkdir(parents=True)
    assert main(arguments) == 1
    captured = capsys.readouterr()
    socket = f"{root}/plugins/gpu.dra-driver.dev/dra.sock"
    assert captured.err.startswith(f"dra-driver: socket {socket} is left: cannot remove {socket}: ")
    assert captured.out.splitlines()[0].startswith(f"{root}/plugins/gpu.dra-driver.dev stays: ")
