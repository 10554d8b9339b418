# SPDX-License-Identifier: Apache-2.0
"""`dra-driver record`: what is written and where, what is said, and what the exit code says."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dra_driver.cli.main import main
from dra_driver.model.cluster import decode
from dra_driver.testing.fake_api import Answer, FakeApi, refusal

BEFORE = "what was there before\n"


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as found:
        found.put("nodes", {"metadata": {"name": "n1"}})
        found.put("deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
        yield found


@pytest.fixture
def kubeconfig(tmp_path: Path, api: FakeApi) -> Path:
    path = tmp_path / "config"
    api.kubeconfig(path)
    return path


Record = Callable[..., int]


@pytest.fixture
def record(kubeconfig: Path) -> Record:
    return lambda *words: main(["record", "--kubeconfig", str(kubeconfig), *map(str, words)])


ROLE = "dra-driver: the ClusterRole …-explain of the driver's chart gives the rights to read all of this (docs/kubectl-dra.md)"


def names(content: bytes) -> list[str]:
    return [node.metadata.name for node in decode(content, source="this test").nodes]


def test_a_record_can_be_read_again(tmp_path: Path, record: Record, capsys) -> None:
    file = tmp_path / "cluster.json"
    assert record(file) == 0
    assert names(file.read_bytes()) == ["n1"]
    captured = capsys.readouterr()
    assert captured.out == (
        f"{file}: Kubernetes v1.37.0+fake: 1 nodes, 0 slices, 1 classes, 0 claims, 0 pods\n"
    )
    assert captured.err.startswith("dra-driver: not in the record: /metrics: get /metrics at ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cluster.json", "config"]


def test_nobody_but_the_owner_may_read_it(tmp_path: Path, record: Record) -> None:
    before = os.umask(0)
    try:
        for words in ((tmp_path / "new",), (tmp_path / "old", "--force")):
            (tmp_path / "old").write_text(BEFORE * 1000)
            (tmp_path / "old").chmod(0o666)
            assert record(*words) == 0
            assert stat.S_IMODE(words[0].stat().st_mode) == 0o600
            assert names(words[0].read_bytes()) == ["n1"]
    finally:
        os.umask(before)


def test_a_record_can_go_to_standard_output(record: Record, capfdbinary) -> None:
    assert record("-") == 0
    state = decode(capfdbinary.readouterr().out, source="this test")
    assert [found.metadata.name for found in state.device_classes] == ["gpu"]


def test_a_file_that_exists_is_overwritten_only_when_told_so(
    tmp_path: Path, record: Record, api: FakeApi, capsys
) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(BEFORE)
    assert record(file) == 1
    assert file.read_text() == BEFORE
    assert "it exists; choose another name, or give --force" in capsys.readouterr().err
    assert api.requests == []  # said before anybody is asked
    assert record(file, "--force") == 0
    assert names(file.read_bytes()) == ["n1"]


def test_a_symlink_is_followed_and_never_replaced(tmp_path: Path, record: Record, capsys) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    assert record(link) == 1
    assert f"it is a symlink to {target}, which does not exist" in capsys.readouterr().err
    assert not target.exists()
    target.write_text(BEFORE)
    assert record(link) == 1
    assert target.read_text() == BEFORE
    inode = target.stat().st_ino
    assert record(link, "--force") == 0
    assert (link.is_symlink(), target.stat().st_ino) == (True, inode)
    assert names(target.read_bytes()) == ["n1"]


def test_devices_and_pipes_are_written_to_and_stay_what_they_are(
    tmp_path: Path, record: Record
) -> None:
    link = tmp_path / "nowhere"
    link.symlink_to("/dev/null")
    assert record(link) == 0
    assert (link.is_symlink(), stat.S_ISCHR(link.stat().st_mode)) == (True, True)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        assert record(pipe) == 0
        assert reader.stdout is not None
        assert names(reader.stdout.read()) == ["n1"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("name", ["/dev/stdout", "/proc/self/fd/1"])
def test_standard_output_may_be_named_as_a_file_whatever_it_is(
    tmp_path: Path, kubeconfig: Path, name: str
) -> None:
    command = [sys.executable, "-m", "dra_driver", "record", "--kubeconfig", str(kubeconfig), name]
    piped = subprocess.run(command, capture_output=True, check=True)
    assert names(piped.stdout) == ["n1"]
    file = tmp_path / "redirected"
    with file.open("wb") as into:
        subprocess.run(command, stdout=into, stderr=subprocess.PIPE, check=True)
    assert names(file.read_bytes()) == ["n1"]


def test_a_file_of_somebody_else_is_not_filled(
    tmp_path: Path, record: Record, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    file = tmp_path / "planted"
    file.write_text(BEFORE)
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    assert record(file, "--force") == 1
    assert "who could read it" in capsys.readouterr().err
    assert file.read_text() == BEFORE


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, record: Record, capsys) -> None:
    file = tmp_path / "none" / "cluster.json"
    assert record(file) == 1
    assert capsys.readouterr().err == (
        f"dra-driver: cannot write {file}: No such file or directory; "
        "choose a directory that this user may write to\n"
    )
    assert record(tmp_path) == 1
    assert "it is a directory" in capsys.readouterr().err


def test_a_disk_that_is_full_leaves_nothing_half_written(tmp_path: Path, kubeconfig: Path) -> None:
    program = (
        "import resource, signal, sys; from dra_driver.cli.main import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    file = tmp_path / "cluster.json"
    command = [sys.executable, "-c", program, "record", "--kubeconfig", kubeconfig, file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"cannot write {file}: File too large" in done.stderr
    assert not file.exists()


def test_what_could_not_be_read_is_said_and_the_exit_code_says_so(
    tmp_path: Path, record: Record, api: FakeApi, capsys
) -> None:
    api.faults.add(refusal(403), verb="list", resource="pods")
    file = tmp_path / "cluster.json"
    assert record(file) == 3
    (gap,) = (
        one for one in decode(file.read_bytes(), source="").not_read if one.resource == "pods"
    )
    said = capsys.readouterr().err
    assert f"dra-driver: not in the record: pods: {gap.message}\n" in said
    assert said.endswith(f"\n{ROLE}\n")
    assert main(["explain", "--from", str(file), "pod/p"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == ROLE
    assert main(["explain", "--from", str(file), "pod/p", "-o", "json"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == ROLE


def test_a_cluster_without_devices_is_recorded_whole(tmp_path: Path, capsys) -> None:
    with FakeApi(versions=()) as api:
        api.kubeconfig(tmp_path / "config")
        code = main(["record", "--kubeconfig", str(tmp_path / "config"), str(tmp_path / "file")])
    assert code == 0
    assert "not in the record: resourceslices: " in capsys.readouterr().err


def test_what_the_server_calls_its_version_cannot_command_the_terminal(
    tmp_path: Path, record: Record, api: FakeApi, capsys
) -> None:
    body = json.dumps({"gitVersion": "v1.37.0\033[2J"}).encode()
    api.faults.add(Answer(200, {}, body))
    assert record(tmp_path / "cluster.json") == 0
    out = capsys.readouterr().out
    assert "\033" not in out
    assert "Kubernetes v1.37.0\\x1b[2J: " in out


def test_a_cluster_that_cannot_be_reached_is_named(tmp_path: Path, capsys) -> None:
    with FakeApi() as api:
        path = tmp_path / "config"
        api.kubeconfig(path)
    assert main(["record", "--kubeconfig", str(path), str(tmp_path / "cluster.json")]) == 1
    assert "get /version at" in capsys.readouterr().err
    assert not (tmp_path / "cluster.json").exists()
