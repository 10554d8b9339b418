# SPDX-License-Identifier: Apache-2.0
"""Does a kubeconfig with a login program log in, by the rules of client.authentication.k8s.io? Real programs are started."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.errors import Fatal, Temporary
from dra_driver.kube import login_program
from dra_driver.kube.auth import connect
from dra_driver.kube.connection import Credentials
from dra_driver.kube.exec_login import VERSIONS, ExecLogin, ExecPlugin
from dra_driver.kube.kubeconfig import load_kubeconfig

Object = dict[str, Any]
Write = Callable[..., Path]
PROGRAM = """
import json, os, pathlib, sys
here = pathlib.Path(__file__).parent
calls = here / "calls"
calls.write_text(calls.read_text() + os.environ["KUBERNETES_EXEC_INFO"] + "\\n" if calls.exists() else os.environ["KUBERNETES_EXEC_INFO"] + "\\n")
what = json.loads((here / "answer.json").read_text())
if "exit" in what:
    sys.exit(what["exit"])
if "raw" in what:
    print(what["raw"])
else:
    count = len(calls.read_text().splitlines())
    status = {"token": f"token-{count}-{os.environ.get('TEAM', '')}-{''.join(sys.argv[1:])}", **what.get("status", {})}
    version = what.get("apiVersion", json.loads(os.environ["KUBERNETES_EXEC_INFO"])["apiVersion"])
    print(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))
"""
NO_TIME = "its status.expirationTimestamp is no time with a zone, such as 2026-01-31T12:00:00Z; update the program, or let it leave this field out"
BROKEN = """
Traceback (most recent call last):
  File "/opt/lab/login", line 1, in <module>
ModuleNotFoundError: No module named 'lab'
"""
MEANING = "it broke with “ModuleNotFoundError: No module named 'lab'”; install or update the program and the Python that it runs in"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a kubeconfig beside a program that answers as it is told."""

    def write_(answer: Object | None = None, cluster: Object | None = None, **entry: Any) -> Path:
        program = tmp_path / "login"
        program.write_text(f"#!{sys.executable}\n{PROGRAM}")
        program.chmod(0o755)
        (tmp_path / "answer.json").write_text(json.dumps(answer or {}))
        user = {"apiVersion": VERSIONS[0], "command": "./login", **entry}
        content = {
            "clusters": [{"name": "lab", "cluster": {"server": "https://lab", **(cluster or {})}}],
            "users": [{"name": "admin", "user": {"exec": user}}],
            "contexts": [{"name": "here", "context": {"cluster": "lab", "user": "admin"}}],
            "current-context": "here",
        }
        path = tmp_path / "config"
        path.write_text(yaml.safe_dump(content))
        return path

    return write_


def credentials(path: Path) -> Credentials:
    return load_kubeconfig(path).credentials(lambda: 0.0)


def calls(tmp_path: Path) -> list[Object]:
    return [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]


def bearer(token: str) -> Object:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_program_logs_in_once_and_again_after_a_refusal(
    write: Write, tmp_path: Path, version: str
) -> None:
    env = [{"name": "TEAM", "value": "gpu"}]
    found = credentials(write(apiVersion=version, args=["get", "token"], env=env))
    assert found.headers() == found.headers() == bearer("token-1-gpu-gettoken")
    found.forget()
    assert found.headers() == bearer("token-2-gpu-gettoken")
    told = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
    assert calls(tmp_path) == [told, told]


def test_a_token_is_renewed_a_minute_before_it_ends(write: Write) -> None:
    answer = {"status": {"expirationTimestamp": "2026-01-01T00:10:00Z"}}
    path, now = write(answer), [0.0]
    plugin = ExecPlugin(path, "here", VERSIONS[0], str(path.parent / "login"))
    found = ExecLogin(plugin, now=lambda: now[0])
    ends = 1767226200.0
    now[0] = ends - 61
    assert found.headers() == found.headers() == bearer("token-1--")
    now[0] = ends - 60
    assert found.headers() == bearer("token-2--")


def test_a_program_that_wants_it_is_told_about_the_cluster(write: Write, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("pem")
    cluster = {
        "certificate-authority": "ca.pem",
        "tls-server-name": "lab.example.com",
        "proxy-url": "http://proxy.example.com:3128",
        "extensions": [
            {"name": "other", "extension": 1},
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "lab"}},
        ],
    }
    path = write(None, cluster, provideClusterInfo=True, interactiveMode="Never")
    credentials(path).headers()
    assert calls(tmp_path)[0]["spec"]["cluster"] == {
        "server": "https://lab",
        "tls-server-name": "lab.example.com",
        "certificate-authority-data": "cGVt",
        "proxy-url": "http://proxy.example.com:3128",
        "config": {"audience": "lab"},
    }


def test_a_program_on_the_path_needs_no_folder(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert credentials(write(command="login")).headers() == bearer("token-1--")


def test_a_program_beside_a_kubeconfig_of_the_current_folder_is_not_looked_up_in_path(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write()
    other = tmp_path / "bin" / "login"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\ntouch started")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{other.parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    assert credentials(Path("config")).headers() == bearer("token-1--")
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("entry", [".", ""])
def test_a_program_in_the_current_folder_is_not_started_by_its_name(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    path = write(command="login")
    monkeypatch.setenv("PATH", f"{entry}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Temporary, match=r"PATH finds .*login by the current folder"):
        credentials(path).headers()
    assert not (tmp_path / "calls").exists()


def test_what_runs_on_a_node_starts_no_program(write: Write, tmp_path: Path) -> None:
    path = write()
    with pytest.raises(Fatal, match="on a node, as root, none is started; give one with a token"):
        connect(path)
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"exit": "no ticket\x1b[31m"}, "it ended with 1: “no ticket [31m”"),
        ({"exit": 7}, "it ended with 7: it said nothing"),
        ({"raw": "hunter2"}, "it printed no ExecCredential with a status (JSONDecodeError)"),
        ({"raw": "[]"}, "it printed no ExecCredential with a status (TypeError)"),
        ({"raw": "{}"}, "it printed no ExecCredential with a status (KeyError)"),
        ({"raw": "[" * 99_999}, "it printed no ExecCredential with a status (RecursionError)"),
        *(
            ({"status": {"expirationTimestamp": written}}, NO_TIME)
            for written in ("soon", "", 1767226200, "2026-01-31T12:00:00")
        ),
        ({"exit": BROKEN}, f"it ended with 1: {MEANING}"),
        (
            {"apiVersion": "v9"},
            f"it answered in apiVersion “v9”, and the kubeconfig wants {VERSIONS[0]}",
        ),
        (
            {"status": {"token": "", "clientCertificateData": "PEM"}},
            "it printed no token (client certificates from programs are not supported); try kubectl proxy",
        ),
        (
            {"status": {"token": "a\nb"}},
            "it printed no token (client certificates from programs are not supported); try kubectl proxy",
        ),
    ],
)
def test_a_program_without_a_token_is_temporary_and_what_it_printed_stays_unsaid(
    write: Write, answer: Object, said: str
) -> None:
    path = write(answer)
    with pytest.raises(Temporary) as caught:
        credentials(path).headers()
    assert str(caught.value) == (
        f"kubeconfig {path}, context 'here': logging in with {path.parent}/login failed: {said}; try "
        f"kubectl --kubeconfig {path} auth whoami"
    )


def test_a_missing_program_is_told_with_its_hint(write: Write) -> None:
    path = write(command="no-such-login", installHint="install the lab's tools")
    with pytest.raises(
        Temporary, match="no program no-such-login; “install the lab's tools”; try kubectl"
    ):
        credentials(path).headers()
    with pytest.raises(Temporary, match="no program no-such-login; try kubectl"):
        credentials(write(command="no-such-login")).headers()


def test_a_program_that_cannot_be_started_is_temporary(write: Write) -> None:
    with pytest.raises(Temporary, match="it cannot be started: "):
        credentials(write(command="./answer.json")).headers()


def shell(path: Path, script: str) -> ExecPlugin:
    """A login by a shell script, which is what people write by themselves."""
    return ExecPlugin(path, "here", VERSIONS[0], "/bin/sh", ("-c", script))


def refusal(plugin: ExecPlugin) -> str:
    with pytest.raises(Temporary) as caught:
        ExecLogin(plugin).headers()
    text = str(caught.value)
    assert text.startswith(
        f"kubeconfig {plugin.path}, context 'here': logging in with /bin/sh failed: "
    )
    assert text.endswith(f"; try kubectl --kubeconfig {plugin.path} auth whoami")
    return text.partition("failed: ")[2].rpartition("; try ")[0]


def wait_until_dead(pid: int) -> None:
    """A zombie is dead: whoever inherited it has only not asked yet."""
    stat = Path(f"/proc/{pid}/stat")
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} lives on")


def test_a_program_that_hangs_is_stopped_with_what_it_started_and_its_words_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_program, "ANSWER_SECONDS", 3.0)
    script = f"echo open https://lab/login >&2; sleep 600 & echo $! > {tmp_path}/child; wait"
    assert refusal(shell(tmp_path, script)) == (
        "it did not end within 3 s and was stopped: “open https://lab/login”; run it by hand and see what it waits for or prints"
    )
    wait_until_dead(int((tmp_path / "child").read_text()))


@pytest.mark.parametrize("stream", [1, 2])
def test_a_program_whose_output_does_not_end_is_stopped(tmp_path: Path, stream: int) -> None:
    script = f"yes hunter2 >&{stream} & echo $! > {tmp_path}/child; wait"
    assert refusal(shell(tmp_path, script)) == (
        "it printed more than 4 MiB and was stopped; run it by hand and see what it waits for or prints"
    )
    wait_until_dead(int((tmp_path / "child").read_text()))


def test_an_answer_counts_when_its_program_has_ended_though_a_helper_keeps_its_output_open(
    tmp_path: Path,
) -> None:
    """As programs do that start an agent which keeps tokens."""
    token = {"apiVersion": VERSIONS[0], "kind": "ExecCredential", "status": {"token": "t"}}
    script = f"sleep 600 & echo $! > {tmp_path}/child; echo '{json.dumps(token)}'"
    try:
        assert ExecLogin(shell(tmp_path, script)).headers() == bearer("t")
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


def test_a_program_ends_with_ctrl_c_a_closed_terminal_and_timeout_as_its_group_does(
    tmp_path: Path,
) -> None:
    group = "$(cut -d ' ' -f 5 /proc/$$/stat)"
    token = (
        f'{{"apiVersion":"{VERSIONS[0]}","kind":"ExecCredential","status":{{"token":"{group}"}}}}'
    )
    script = f"echo '{token}'".replace(group, f"'{group}'")
    assert ExecLogin(shell(tmp_path, script)).headers() == bearer(str(os.getpgrp()))


def test_a_program_that_closes_its_output_and_stays_is_waited_for(tmp_path: Path) -> None:
    token = {"apiVersion": VERSIONS[0], "kind": "ExecCredential", "status": {"token": "t"}}
    script = f"echo '{json.dumps(token)}'; exec >&- 2>&-; sleep 0.3; exit 3"
    assert refusal(shell(tmp_path, script)) == "it ended with 3: it said nothing"


def test_a_program_that_must_ask_a_person_needs_a_terminal(write: Write, tmp_path: Path) -> None:
    path = write(interactiveMode="Always")
    script = (
        "import sys; from pathlib import Path; from dra_driver.kube.kubeconfig import load_kubeconfig\n"
        "try: print(load_kubeconfig(Path(sys.argv[1])).credentials(lambda: 0.0).headers())\n"
        "except Exception as error: print(error)"
    )
    command = [sys.executable, "-c", script, str(path)]

    def said(stdin: int) -> str:
        return subprocess.run(
            command, stdin=stdin, capture_output=True, text=True, check=True
        ).stdout

    assert "it wants to ask a person, and standard input is no terminal" in said(subprocess.DEVNULL)
    master, terminal = pty.openpty()
    try:
        assert "token-1" in said(terminal)
        write({"exit": "no ticket"}, interactiveMode="Always")
        assert "it ended with 1: see above what it said; try kubectl" in said(terminal)
    finally:
        os.close(master)
        os.close(terminal)
    assert calls(tmp_path)[0]["spec"]["interactive"] is True


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            {"apiVersion": "client.authentication.k8s.io/v1alpha1"},
            "apiVersion is 'client.authentication.k8s.io/v1alpha1'; it must be ",
        ),
        ({"command": ""}, "command is missing"),
        ({"command": 3}, "command must be text"),
        ({"interactiveMode": "Sometimes"}, "interactiveMode is 'Sometimes'; it must be "),
        ({"args": "get"}, "args must be a list of texts"),
        ({"args": [1]}, "args must be a list of texts"),
        ({"env": {"A": "b"}}, "env must be a list of name and value"),
        ({"env": ["A"]}, "env: it must be a YAML mapping"),
        ({"provideClusterInfo": "yes"}, "provideClusterInfo must be true or false"),
    ],
)
def test_an_entry_with_a_mistake_names_it(write: Write, entry: Object, said: str) -> None:
    path = write(**entry)
    with pytest.raises(Fatal) as caught:
        load_kubeconfig(path)
    assert str(caught.value).startswith(f"kubeconfig {path}, user 'admin', exec")
    assert said in str(caught.value)
