# SPDX-License-Identifier: Apache-2.0
"""What belongs to this driver, what belongs to others, and who is at work: real files, sockets and locks."""

import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from dra_driver.errors import Permanent
from dra_driver.model.ids import DriverName
from dra_driver.model.leftovers import Leftover, LeftoverKind, Others
from dra_driver.node.leftovers import NodeFiles
from dra_driver.node.lock import Locks
from dra_driver.node.peers import Peer, Peers
from dra_driver.node.state import StateStore

DRIVER = DriverName("gpu.dra-driver.dev")
POD = "0aa4b5bc-5b07-4b5f-9a47-7d7a3a1f3d35"
DEADLINE = 300  # seconds, against hanging only

OURS = {
    LeftoverKind.SOCKET: (
        f"registry/{DRIVER}-{POD}-reg.sock",
        f"registry/{DRIVER}-0badcafe-reg.sock",
        f"registry/{DRIVER}-reg.sock",
        "plugin/.1a2f",
        f"plugin/dra-{POD}.sock",
        "plugin/dra-0badcafe.sock",
        "plugin/dra.sock",
    ),
    LeftoverKind.FEATURES: (f"features.d/.{DRIVER}.abcd-0.tmp", f"features.d/{DRIVER}"),
    LeftoverKind.CDI_FILE: (
        f"cdi/.k8s.{DRIVER}-claim_1.json.x7.tmp",
        f"cdi/k8s.{DRIVER}-claim_1.json",
    ),
    LeftoverKind.METADATA: (
        "plugin/metadata/uid-1/gpu.json",
        "plugin/metadata/uid-2/.gpu.json.x7.tmp",
    ),
    LeftoverKind.STATE: (
        "plugin/state.db",
        "plugin/state.db-journal",
        "plugin/state.db-shm",
        "plugin/state.db-wal",
        "plugin/state.db.damaged-1",
        "plugin/state.db.damaged-1-wal",
        "plugin/state.db.damaged-12",
        "plugin/state.db.new",
        "plugin/state.db.new-1",
    ),
    LeftoverKind.LOCK: (
        "plugin/locks/claim-1.lock",
        "plugin/locks/leader.lock",
        "plugin/peers/dra.sock.peer",
        "plugin/state.db.guard",
    ),
    LeftoverKind.DIRECTORY: (
        "plugin/locks",
        "plugin/peers",
        "plugin/metadata/uid-1",
        "plugin/metadata/uid-2",
        "plugin/metadata",
        "plugin",
    ),
}
THEIRS = (
    f"cdi/k8s.{DRIVER}.example.com-claim_1.json",
    f"cdi/k8s.{DRIVER}-claim.yaml",
    f"cdi/k8s.{DRIVER}-claims_1.json",
    "cdi/nvidia.yaml",
    "features.d/gfd",
    f"features.d/{DRIVER}.example.com",
    "plugin/state.db.damaged-1.mine",
    "plugin/state.db.backup",
    "plugin/old-state.db",
    "plugin/dra.socket",
    f"registry/{DRIVER}.example.com-reg.sock",
    f"registry/{DRIVER}-other-reg.sock",
    "registry/gpu.nvidia.com-reg.sock",
    "registry/.1a2f",
)


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture
def files(root: Path) -> NodeFiles:
    for directory in ("cdi", "plugin", "registry"):
        (root / directory).mkdir()
    return NodeFiles(
        driver=DRIVER,
        cdi_kind=f"k8s.{DRIVER}/claim",
        state_file=root / "plugin" / "state.db",
        lock_dir=root / "plugin" / "locks",
        peer_dir=root / "plugin" / "peers",
        cdi_dir=root / "cdi",
        metadata_dir=root / "plugin" / "metadata",
        plugin_dir=root / "plugin",
        registry_dir=root / "registry",
        features_dir=root / "features.d",
    )


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")


def left(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def remove_all(files: NodeFiles) -> list[str]:
    return [files.remove(leftover) for leftover in files.leftovers()]


def test_everything_of_this_driver_is_found_in_the_order_of_removal(
    files: NodeFiles, root: Path
) -> None:
    put(
        root,
        *(
            name
            for kind, names in OURS.items()
            if kind is not LeftoverKind.DIRECTORY
            for name in names
        ),
    )
    expected = tuple(
        Leftover(kind, str(root / name)) for kind, names in OURS.items() for name in names
    )
    assert files.leftovers() == expected
    assert files.others() == ()
    assert str(expected[0]) == f"socket {root}/registry/{DRIVER}-{POD}-reg.sock"
    assert set(remove_all(files)) == {""}
    assert left(root) == {"cdi", "features.d", "registry"}
    assert files.leftovers() == ()
    assert files.remove(expected[0]) == files.remove(expected[-1]) == ""


def test_nothing_of_others_is_touched(files: NodeFiles, root: Path) -> None:
    put(root, *THEIRS, "plugin/locks/claim-1.lock")
    assert files.leftovers() == (
        Leftover(LeftoverKind.LOCK, f"{root}/plugin/locks/claim-1.lock"),
        Leftover(LeftoverKind.DIRECTORY, f"{root}/plugin/locks"),
    )
    assert files.others() == tuple(
        Others(
            f"{root}/{directory}",
            tuple(
                sorted(
                    name.partition("/")[2] for name in THEIRS if name.startswith(f"{directory}/")
                )
            ),
        )
        for directory in ("cdi", "plugin", "registry")
    )
    remove_all(files)
    assert left(root) == {"cdi", "features.d", "plugin", "registry", *THEIRS}


def test_the_state_may_lie_elsewhere(files: NodeFiles, root: Path) -> None:
    put(root, "state/state.db", "state/diary", "plugin/dra.sock")
    files = replace(files, state_file=root / "state" / "state.db")
    assert remove_all(files) == ["", "", ""]
    assert left(root) == {"cdi", "registry", "state", "state/diary"}


def test_a_node_without_any_of_the_directories_is_clean(files: NodeFiles, root: Path) -> None:
    for directory in ("cdi", "plugin", "registry"):
        (root / directory).rmdir()
    (root / "cdi").write_text("a file where a directory should be")
    assert (files.leftovers(), files.others(), files.at_work(), files.claims()) == ((), (), (), ())
    with files.alone():
        assert left(root) == {"cdi"}


def test_a_directory_that_is_no_longer_empty_stays_and_that_is_no_error(
    files: NodeFiles, root: Path
) -> None:
    put(root, "plugin/new")
    assert files.remove(Leftover(LeftoverKind.DIRECTORY, f"{root}/plugin")) == (
        f"{root}/plugin stays: Directory not empty (a mounted volume goes with its pod)"
    )


def test_a_directory_that_is_none_is_named(files: NodeFiles, root: Path) -> None:
    put(root, "plugin/file")
    with pytest.raises(Permanent, match=f"cannot remove {root}/plugin/file: "):
        files.remove(Leftover(LeftoverKind.DIRECTORY, f"{root}/plugin/file"))


def test_a_loop_of_links_instead_of_a_directory_is_named(files: NodeFiles, root: Path) -> None:
    (root / "cdi").rmdir()
    (root / "cdi").symlink_to(root / "cdi")
    with pytest.raises(Permanent, match=f"cannot list {root}/cdi: "):
        files.leftovers()


# Who is at work.


def test_a_listening_socket_is_somebody_at_work_and_a_stale_one_is_not(
    files: NodeFiles, root: Path
) -> None:
    with ExitStack() as opened:
        for name in (f"registry/{DRIVER}-reg.sock", "plugin/dra.sock", "plugin/.1a2f"):
            listener = opened.enter_context(closing(socket.socket(socket.AF_UNIX)))
            listener.bind(str(root / name))
            if "1a2f" not in name:
                listener.listen()
        assert files.at_work() == (
            f"process {os.getpid()} listens on {root}/registry/{DRIVER}-reg.sock",
            f"process {os.getpid()} listens on {root}/plugin/dra.sock",
        )
    assert files.at_work() == ()


def test_registration_sockets_and_who_listens_on_each(files: NodeFiles, root: Path) -> None:
    (root / "registry").mkdir(exist_ok=True)
    (root / "registry" / "other-reg.sock").touch()
    stale = root / "registry" / f"{DRIVER}-0badcafe-reg.sock"
    stale.touch()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(root / "registry" / f"{DRIVER}-reg.sock"))
        listening.listen()
        found = files.registrations()
    assert found == {stale: "", root / "registry" / f"{DRIVER}-reg.sock": f"process {os.getpid()}"}


def test_damaged_state_files_are_found_without_their_companions(files: NodeFiles) -> None:
    folder = files.state_file.parent
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("", ".damaged-7", ".damaged-7-wal", ".damaged-x"):
        files.state_file.with_name(f"{files.state_file.name}{name}").touch()
    assert files.set_aside() == (f"{files.state_file}.damaged-7",)


def test_a_listener_that_accepts_nothing_is_somebody_at_work_and_hangs_nobody(
    files: NodeFiles, root: Path
) -> None:
    with ExitStack() as opened:
        path = str(root / "plugin/dra.sock")
        listener = opened.enter_context(closing(socket.socket(socket.AF_UNIX)))
        listener.bind(path)
        listener.listen(0)
        for _ in range(2):  # until the kernel takes no more
            waiting = opened.enter_context(closing(socket.socket(socket.AF_UNIX)))
            waiting.setblocking(False)
            waiting.connect_ex(path)
        said = f"a process that accepts nothing listens on {path}"
        assert files.at_work() == (said,)


def test_a_living_driver_is_named_by_what_it_says_of_itself(files: NodeFiles, root: Path) -> None:
    peers = Peers(files.peer_dir)
    peers.join(Peer(4711, "1.2.3", f"{root}/plugin/dra.sock", f"{root}/registry/x-reg.sock"))
    store = StateStore(files.state_file, boot_id="boot-1")
    try:
        assert files.at_work() == (
            f"driver process 4711, version 1.2.3, serves {root}/plugin/dra.sock",
        )
    finally:
        peers.leave()
        store.close()
    assert files.at_work() == ()


def test_whoever_holds_a_lock_or_the_state_is_at_work(files: NodeFiles, root: Path) -> None:
    put(root, "plugin/locks/free.lock")
    (root / "plugin" / "locks" / "directory.lock").mkdir()
    store = StateStore(files.state_file, boot_id="boot-1")
    with Locks(files.lock_dir).locked(["leader"], until=0, purpose="leading"):
        assert files.at_work() == (
            f"process {os.getpid()}, leading holds {root}/plugin/locks/leader.lock",
            f"a driver process of boot boot-1 holds {root}/plugin/state.db.guard",
        )
        with pytest.raises(Permanent) as caught, files.alone():
            pass
        assert str(caught.value) == (
            f"another process has just opened {root}/plugin/state.db; end it, then try again"
        )
    store.close()
    assert files.at_work() == ()


def test_a_guard_that_cannot_be_opened_is_named(files: NodeFiles, root: Path) -> None:
    (root / "plugin" / "state.db.guard").mkdir()
    with pytest.raises(Permanent, match=r"cannot open .*state\.db\.guard: "), files.alone():
        pass


def waiters_for(inode: int) -> int:
    """How many wait for a lock on that file, as the kernel says."""
    return sum(
        f":{inode} " in line
        for line in Path("/proc/locks").read_text().splitlines()
        if " -> " in line
    )


def test_a_driver_that_starts_meanwhile_waits_and_begins_anew(files: NodeFiles, root: Path) -> None:
    StateStore(files.state_file, boot_id="boot-1").close()
    with ThreadPoolExecutor(2) as pool:
        with files.alone():
            starting = [
                pool.submit(StateStore, files.state_file, boot_id="boot-1") for _ in range(2)
            ]
            guard = (root / "plugin" / "state.db.guard").stat().st_ino
            while waiters_for(guard) < len(starting):
                time.sleep(0.001)
            remove_all(files)
        stores = [start.result(DEADLINE) for start in starting]
    try:
        # Both have the lock on the file that is there now: whoever wants to be alone sees them.
        stores.pop().close()
        with pytest.raises(Permanent, match="has just opened"), files.alone():
            pass
    finally:
        stores.pop().close()
    with files.alone():
        assert files.claims() == ()


OTHER = """
import sys
from pathlib import Path
from dra_driver.node.state import StateStore
store = StateStore(Path(sys.argv[1]), boot_id="boot-1")
print("open", flush=True)
sys.stdin.readline()
"""


def test_another_process_that_has_the_state_open_is_noticed(files: NodeFiles, root: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(files.state_file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    assert len(files.at_work()) == 1
    process.communicate("\n", timeout=DEADLINE)
    assert files.at_work() == ()


def test_the_claims_are_those_of_the_state(files: NodeFiles) -> None:
    assert files.claims() == ()
    StateStore(files.state_file, boot_id="boot-1").close()
    assert files.claims() == ()
    with closing(sqlite3.connect(files.state_file)) as db:
        db.execute(
            """INSERT INTO claims (uid, namespace, name, phase, boot_id, devices, cdi_spec)
            VALUES ('u', 'ns', 'n', 'Prepared', 'b', '[]', '')"""
        )
        db.commit()
    assert [claim.ref.name for claim in files.claims()] == ["n"]
