# SPDX-License-Identifier: Apache-2.0
"""Who else answers under our name: real sockets, other people's plugins played by registrars."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from dra_driver.kubelet.foreign import ForeignPlugin, foreign_plugins
from dra_driver.kubelet.registration import Registrar
from dra_driver.model.ids import DriverName

OURS = DriverName("gpu.dra-driver.dev")
ENDPOINT = Path("/plugins/gpu/dra.sock")
Make = Callable[..., Registrar]


@pytest.fixture
def plugin(root: Path) -> Iterator[Make]:
    started: list[Registrar] = []

    def make(name: str, path: str, endpoint: Path = ENDPOINT) -> Registrar:
        registrar = Registrar(
            root / path, driver=DriverName(name), endpoint=endpoint, log=structlog.get_logger()
        )
        registrar.start()
        started.append(registrar)
        return registrar

    yield make
    for registrar in started:
        registrar.stop(0)


def nobody(_endpoint: Path) -> bool:
    return False


def test_a_plugin_of_our_name_is_named_with_socket_endpoint_and_process(
    root: Path, plugin: Make
) -> None:
    plugin(OURS, "other-reg.sock")
    plugin("csi.example.com", "csi-reg.sock")
    found = foreign_plugins(root, OURS, is_ours=nobody)
    assert found == (ForeignPlugin(root / "other-reg.sock", str(ENDPOINT), os.getpid()),)
    assert str(found[0]) == f"{root}/other-reg.sock (endpoint {ENDPOINT}, process {os.getpid()})"
    assert str(ForeignPlugin(root, "x", 0)) == f"{root} (endpoint x)"


def test_what_a_stranger_calls_itself_cannot_act_in_an_event_or_a_log(
    root: Path, plugin: Make
) -> None:
    plugin(OURS, "other\x1b[2J-reg.sock", Path("/plugins/\x1b]0;owned\x07\n" + 5000 * "x"))
    (found,) = foreign_plugins(root, OURS, is_ours=nobody)
    text = str(found)
    assert text.isprintable()
    assert text.startswith(
        f"{root}/other\\x1b[2J-reg.sock (endpoint /plugins/\\x1b]0;owned\\x07\\nxxx"
    )
    assert len(text) < 1024  # an Event has room for it


def test_our_own_processes_are_not_foreign(root: Path, plugin: Make) -> None:
    plugin(OURS, "a-reg.sock", Path("/plugins/gpu/dra-a.sock"))
    plugin(OURS, "b-reg.sock", Path("/plugins/gpu/dra-b.sock"))
    found = foreign_plugins(root, OURS, is_ours=lambda endpoint: endpoint.name == "dra-a.sock")
    assert [foreign.socket.name for foreign in found] == ["b-reg.sock"]


def test_what_the_kubelet_does_not_look_at_does_not_count(root: Path, plugin: Make) -> None:
    plugin(OURS, ".hidden-reg.sock")
    plugin(OURS, ".folder/x-reg.sock")
    plugin(OURS, "below/x-reg.sock")
    (root / "file.sock").write_text("")
    found = foreign_plugins(root, OURS, is_ours=nobody)
    assert [str(foreign.socket.relative_to(root)) for foreign in found] == ["below/x-reg.sock"]


def test_a_plugin_of_another_type_may_have_our_name(root: Path, plugin: Make) -> None:
    plugin(OURS, "csi-reg.sock")._info.type = "CSIPlugin"
    assert foreign_plugins(root, OURS, is_ours=nobody) == ()


def test_a_socket_that_nobody_answers_is_none(root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(root / "dead-reg.sock"))
    assert foreign_plugins(root, OURS, is_ours=nobody) == ()
    assert foreign_plugins(root / "missing", OURS, is_ours=nobody) == ()
