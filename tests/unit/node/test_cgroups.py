# SPDX-License-Identifier: Apache-2.0
"""Does a pod still have a process?"""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dra_driver.model.ids import PodUid
from dra_driver.model.presence import Alive, CannotTell, Gone
from dra_driver.node import cgroups
from dra_driver.node.cgroups import PodCgroups

POD = PodUid("0a1b2c3d-0000-4000-8000-00000000000a")
OTHER = PodUid("0a1b2c3d-0000-4000-8000-00000000000b")
SYSTEMD = POD.replace("-", "_")


def _cgroup(folder: Path, *, processes: bool, version: int = 2) -> Path:
    """A cgroup as far as it is read; those above are made too, as the kernel has them."""
    folder.mkdir(parents=True, exist_ok=True)
    _say(folder, processes=processes, version=version)
    return folder


def _say(folder: Path, *, processes: bool, version: int = 2) -> None:
    if version == 2:
        (folder / "cgroup.events").write_text(f"populated {int(processes)}\nfrozen 0\n")
    else:
        (folder / "pids.current").write_text(f"{3 * processes}\n")


def _unified(root: Path, kubepods: str = "kubepods") -> Path:
    """A tree of version 2 with the kubelet's cgroup."""
    root.mkdir(exist_ok=True)
    (root / "cgroup.controllers").write_text("cpu memory pids\n")
    return _cgroup(root / kubepods, processes=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "cgroup"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("kubepods", "pod"),
    [
        ("kubepods", f"pod{POD}"),
        ("kubepods", f"burstable/pod{POD}"),
        ("kubepods", f"besteffort/pod{POD}"),
        ("kubelet/kubepods", f"burstable/pod{POD}"),
        ("a/b/c/d/e/kubepods", f"pod{POD}"),
        ("kubepods.slice", f"kubepods-pod{SYSTEMD}.slice"),
        ("kubepods.slice", f"kubepods-burstable.slice/kubepods-burstable-pod{SYSTEMD}.slice"),
        ("kubepods.slice", f"kubepods-besteffort.slice/kubepods-besteffort-pod{SYSTEMD}.slice"),
        (
            "kubelet.slice/kubelet-kubepods.slice",
            f"kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{SYSTEMD}.slice",
        ),
        ("a.slice/a-b.slice/a-b-kubepods.slice", f"a-b-kubepods-pod{SYSTEMD}.slice"),
    ],
)
def test_a_pod_is_alive_while_its_cgroup_has_processes_and_gone_when_it_has_none(
    root: Path, kubepods: str, pod: str
) -> None:
    folder = _cgroup(_unified(root, kubepods) / pod, processes=True)
    pods = PodCgroups(root)
    assert pods.presence([POD]) == {POD: Alive(f"its cgroup {folder} has processes")}

    _say(folder, processes=False)
    assert pods.presence([POD]) == {POD: Gone()}
    (folder / "cgroup.events").unlink()
    folder.rmdir()
    assert pods.presence([POD]) == {POD: Gone()}


@pytest.mark.parametrize("name", ["pids", "unified"])
def test_a_cgroup_of_version_2_may_have_the_name_of_a_hierarchy(root: Path, name: str) -> None:
    folder = _cgroup(_unified(root) / f"pod{POD}", processes=True)
    _cgroup(root / name, processes=True)
    assert PodCgroups(root).presence([POD]) == {POD: Alive(f"its cgroup {folder} has processes")}


def test_each_pod_has_an_answer_of_its_own(root: Path) -> None:
    kubepods = _unified(root)
    alive = _cgroup(kubepods / "burstable" / f"pod{POD}", processes=True)
    answers = PodCgroups(root).presence([POD, OTHER])
    assert answers == {POD: Alive(f"its cgroup {alive} has processes"), OTHER: Gone()}
    assert PodCgroups(root).presence([]) == {}


def test_version_1_is_read_by_the_count_of_pids_which_every_reader_sees(root: Path) -> None:
    kubepods = _cgroup(root / "pids" / "kubepods", processes=True, version=1)
    _cgroup(root / "memory" / "kubepods" / f"pod{POD}", processes=True, version=1)  # not asked
    pod = _cgroup(kubepods / "burstable" / f"pod{POD}", processes=True, version=1)
    pods = PodCgroups(root)
    assert pods.presence([POD]) == {POD: Alive(f"its cgroup {pod} has processes")}

    # What a reader in another pid namespace sees: no process is listed, and yet there are some.
    (pod / "cgroup.procs").write_text("")
    assert isinstance(pods.presence([POD])[POD], Alive)
    _say(pod, processes=False, version=1)
    assert pods.presence([POD]) == {POD: Gone()}


def test_on_a_machine_with_both_versions_either_can_say_that_a_pod_is_alive(root: Path) -> None:
    counted = _cgroup(root / "pids" / "kubepods" / f"pod{POD}", processes=False, version=1)
    _say(counted.parent, processes=True, version=1)
    unified = _cgroup(root / "unified" / "kubepods" / f"pod{POD}", processes=True)
    _say(unified.parent, processes=True)
    pods = PodCgroups(root)
    assert pods.presence([POD]) == {POD: Alive(f"its cgroup {unified} has processes")}

    _say(unified, processes=False)
    assert pods.presence([POD]) == {POD: Gone()}
    _say(counted, processes=True, version=1)
    assert isinstance(pods.presence([POD])[POD], Alive)


def test_of_both_versions_the_controllers_must_have_the_kubelets_cgroup(root: Path) -> None:
    """A runtime need not put anything into the other tree."""
    (root / "pids").mkdir()
    _cgroup(root / "unified" / "kubepods", processes=True)
    assert "was not found below" in PodCgroups(root).blind()


def test_without_the_kubelets_cgroup_nothing_is_known(root: Path) -> None:
    (root / "cgroup.controllers").write_text("")
    _cgroup(root / "system.slice" / "ssh.service", processes=True)
    (root / "user.slice" / "kubepods").mkdir(parents=True)  # a folder of that name is no cgroup
    pods = PodCgroups(root)
    answer = pods.presence([POD])[POD]
    assert isinstance(answer, CannotTell)
    assert answer.reason == pods.blind()
    assert f"was not found below {root}" in answer.reason
    for way_out in ("--cgroup-root", "cgroupsPerQOS: false", "--release-proof unprepare"):
        assert way_out in answer.reason


def test_a_root_that_is_not_there_is_told(root: Path) -> None:
    pods = PodCgroups(root / "nowhere")
    assert "cannot read cgroups" in pods.blind()
    assert "--cgroup-root" in pods.blind()
    assert isinstance(pods.presence([POD])[POD], CannotTell)


def test_the_kubelets_cgroup_is_looked_for_again_when_a_pod_is_not_where_pods_were(
    root: Path,
) -> None:
    before = _unified(root)
    pods = PodCgroups(root)
    assert pods.blind() == ""
    # The kubelet came back with the other cgroup driver.
    (before / "cgroup.events").unlink()
    before.rmdir()
    after = _unified(root, "kubepods.slice")
    folder = _cgroup(after / f"kubepods-pod{SYSTEMD}.slice", processes=True)
    assert pods.presence([POD]) == {POD: Alive(f"its cgroup {folder} has processes")}


def test_a_kubelets_cgroup_that_vanished_proves_nothing(root: Path) -> None:
    kubepods = _unified(root)
    pods = PodCgroups(root)
    assert pods.presence([POD]) == {POD: Gone()}
    (kubepods / "cgroup.events").unlink()
    kubepods.rmdir()
    assert isinstance(pods.presence([POD])[POD], CannotTell)


def test_a_cgroup_without_the_drivers_own_pod_is_not_the_kubelets(root: Path) -> None:
    """The remains of a kubelet that was told to use another cgroup look like one whose pods are all gone."""
    left = _unified(root)
    pods = PodCgroups(root, own_pod=OTHER)
    answer = pods.presence([POD])[POD]
    assert isinstance(answer, CannotTell)
    assert f"the driver's own pod {OTHER} has no cgroup below {left}" in answer.reason

    _cgroup(left / f"pod{OTHER}", processes=True)
    assert pods.presence([POD]) == {POD: Gone()}
    assert pods.blind() == ""


@pytest.mark.parametrize("text", ["", "frozen 0\n", "populated", "-1\n", "1 2\n"])
def test_a_file_that_does_not_say_it_is_no_proof(root: Path, text: str) -> None:
    folder = _cgroup(_unified(root) / f"pod{POD}", processes=False)
    (folder / "cgroup.events").write_text(text)
    answer = PodCgroups(root).presence([POD])[POD]
    assert isinstance(answer, CannotTell)
    assert f"cannot read the cgroup {folder} of pod {POD}" in answer.reason
    assert "does not say whether there are processes" in answer.reason


def test_a_cgroup_without_the_file_is_no_proof(root: Path) -> None:
    folder = _unified(root) / f"pod{POD}"
    folder.mkdir()
    answer = PodCgroups(root).presence([POD])[POD]
    assert isinstance(answer, CannotTell)
    assert "it has no cgroup.events" in answer.reason


def test_a_cgroup_that_vanishes_between_two_looks_is_gone(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _cgroup(_unified(root) / f"pod{POD}", processes=True)
    real = cgroups._content

    def vanish(path: str) -> bytes | None:
        if path.startswith(str(folder)):
            (folder / "cgroup.events").unlink()
            folder.rmdir()
        return real(path)

    monkeypatch.setattr(cgroups, "_content", vanish)
    assert PodCgroups(root).presence([POD]) == {POD: Gone()}


def test_a_name_that_no_folder_can_have_is_told(root: Path) -> None:
    _unified(root)
    uid = PodUid("a" * 300)
    answer = PodCgroups(root).presence([uid])[uid]
    assert isinstance(answer, CannotTell)
    assert "File name too long" in answer.reason


def test_a_cgroup_that_cannot_be_read_is_no_proof(root: Path) -> None:
    folder = _unified(root) / f"pod{POD}"
    (folder / "cgroup.events").mkdir(parents=True)  # even root cannot read a folder as a file
    answer = PodCgroups(root).presence([POD])[POD]
    assert isinstance(answer, CannotTell)
    assert "Is a directory" in answer.reason


@pytest.mark.parametrize("uid", ["", "..", "a/b", "../../etc", "a\0b", "-a"])
def test_what_is_no_uid_is_not_looked_for(root: Path, uid: str) -> None:
    _unified(root)
    answer = PodCgroups(root).presence([PodUid(uid)])[PodUid(uid)]
    assert isinstance(answer, CannotTell)
    assert "is no pod's UID" in answer.reason


def test_a_search_has_an_end(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "MOST_FOLDERS", 3)
    (root / "cgroup.controllers").write_text("")
    for name in "abc":
        (root / name).mkdir()
    assert "more than 3 folders" in PodCgroups(root).blind()
    _cgroup(root / "1" / "2" / "3" / "4" / "5" / "6" / "kubepods", processes=True)
    monkeypatch.undo()
    assert "was not found" in PodCgroups(root).blind()


def test_mounts_of_pods_do_not_end_the_search(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "MOST_FOLDERS", 3)
    _unified(root, "kubepods.slice")
    for number in range(4):
        (root / "system.slice" / f"var-lib-kubelet-pods-{POD}-v{number}.mount" / "below").mkdir(
            parents=True
        )
    pods = PodCgroups(root)
    assert pods.blind() == ""
    assert pods.presence([POD]) == {POD: Gone()}


def test_what_vanishes_while_it_is_read_is_gone(tmp_path: Path) -> None:
    assert cgroups._folders(str(tmp_path / "vanished")) == []
    assert cgroups._content(str(tmp_path / "vanished" / "cgroup.events")) is None


def test_other_errors_of_a_search_are_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _unified(root)

    def refuse(_path: object) -> Iterator[os.DirEntry[str]]:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    assert "Permission denied" in PodCgroups(root).blind()


@pytest.mark.parametrize(
    ("kubepods", "folders"),
    [
        ("kubepods", (f"pod{POD}", f"burstable/pod{OTHER}", "burstable/other")),
        ("kubelet/kubepods", (f"besteffort/pod{POD}", f"pod{OTHER}")),
        (
            "kubepods.slice",
            (
                f"kubepods-pod{SYSTEMD}.slice",
                f"kubepods-burstable.slice/kubepods-burstable-pod{OTHER.replace('-', '_')}.slice",
                "kubepods-burstable.slice/kubepods-burstable-pod.scope",
            ),
        ),
        (
            "kubelet.slice/kubelet-kubepods.slice",
            (
                f"kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{SYSTEMD}.slice",
                f"kubelet-kubepods-pod{OTHER.replace('-', '_')}.slice",
            ),
        ),
    ],
)
def test_all_pods_with_a_cgroup_are_listed_with_and_without_processes(
    root: Path, kubepods: str, folders: tuple[str, ...]
) -> None:
    above = _unified(root, kubepods)
    assert PodCgroups(root).pods() == frozenset()
    for number, folder in enumerate(folders):
        _cgroup(above / folder, processes=bool(number))
    assert PodCgroups(root).pods() == {POD, OTHER}


def test_after_the_kubelets_cgroup_has_moved_the_pods_are_listed_from_the_new_one(
    root: Path,
) -> None:
    """An empty list would say that no pod has come since."""
    before = _unified(root)
    _cgroup(before / f"pod{POD}", processes=True)
    pods = PodCgroups(root)
    assert pods.pods() == {POD}
    before.rename(root / "left")
    assert isinstance(pods.pods(), CannotTell)
    _cgroup(_unified(root, "kubelet/kubepods") / f"pod{OTHER}", processes=True)
    assert pods.pods() == {OTHER}


def test_pods_whose_cgroups_cannot_be_listed_are_not_known(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubepods = _unified(root)
    whole = os.scandir

    def refuse(path: str) -> object:
        if path.startswith(str(kubepods)):
            raise PermissionError(errno.EACCES, "Permission denied")
        return whole(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = PodCgroups(root).pods()
    assert isinstance(found, CannotTell)
    assert found.reason == "cannot list the cgroups of pods: [Errno 13] Permission denied"


@pytest.fixture
def real_cgroups() -> Iterator[list[Path]]:
    """A kubelet's cgroup with one pod in each hierarchy that counts, made in the machine's own."""
    top = Path("/sys/fs/cgroup")
    starts = [top] if (top / "cgroup.controllers").exists() else [top / "pids", top / "unified"]
    pods = [start / f"dra-test-{os.getpid()}" / "kubepods" / f"pod{POD}" for start in starts]
    containers = [pod / "container" for pod in pods]
    for folder in containers:
        folder.mkdir(parents=True)
    yield containers
    for folder in containers:
        for made in (folder, folder.parent, folder.parent.parent, folder.parent.parent.parent):
            with suppress(FileNotFoundError):
                made.rmdir()


@pytest.mark.real
def test_the_kernels_own_cgroups_tell_it_to_a_reader_in_another_pid_namespace(
    real_cgroups: list[Path],
) -> None:
    pods = PodCgroups(Path("/sys/fs/cgroup"))
    assert pods.presence([POD]) == {POD: Gone()}
    with subprocess.Popen(["sleep", "600"]) as process:
        for folder in real_cgroups:
            (folder / "cgroup.procs").write_text(str(process.pid))
        assert isinstance(pods.presence([POD])[POD], Alive)
        ask = (
            "from pathlib import Path; from dra_driver.node.cgroups import PodCgroups; "
            f"print(PodCgroups(Path('/sys/fs/cgroup')).presence(['{POD}']))"
        )
        asked = [sys.executable, "-c", ask]
        told = subprocess.run(
            ["unshare", "--pid", "--fork", *asked], check=True, capture_output=True, text=True
        )
        assert "Alive(" in told.stdout
        process.kill()
    assert pods.presence([POD]) == {POD: Gone()}
    # A cgroup that goes while its file is open: the error that counts as gone.
    opened = os.open(real_cgroups[0] / "cgroup.procs", os.O_RDONLY)
    real_cgroups[0].rmdir()
    with pytest.raises(OSError, match="No such device") as raised:
        os.read(opened, 10)
    os.close(opened)
    assert raised.value.errno in cgroups._VANISHED
    assert pods.presence([POD]) == {POD: Gone()}


def test_two_threads_may_look_at_once(root: Path) -> None:
    _cgroup(_unified(root) / f"pod{POD}", processes=True)
    pods = PodCgroups(root)
    wrong: list[object] = []

    def look() -> None:
        for _ in range(200):
            answers = pods.presence([POD, OTHER])
            if not isinstance(answers[POD], Alive) or answers[OTHER] != Gone():
                wrong.append(answers)

    threads = [threading.Thread(target=look, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
