# SPDX-License-Identifier: Apache-2.0
"""When the device plugin API is started, and what is told of it before."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path as Folder
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from dra_driver.daemon import plugin_path
from dra_driver.daemon.path_watch import PathWatch
from dra_driver.daemon.plugin_starter import PluginStarter
from dra_driver.daemon.supervisor import Supervisor
from dra_driver.errors import Temporary
from dra_driver.kube.base import NotServed
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid
from dra_driver.model.plugin import Path
from dra_driver.model.plugin_policy import PluginPolicy
from dra_driver.model.state import Phase, PreparedClaim
from dra_driver.planning.gfd_labels import GfdRules
from dra_driver.services.release import Silence
from dra_driver.testing.builders import A_BOOT
from tests.support.local_node import LocalNode

DEADLINE = 300  # seconds, against hanging only
ROW = PreparedClaim(
    ClaimRef("device-plugin", "nvidia.com/gpu", ClaimUid("plugin-1")), Phase.STARTED, A_BOOT, (), ""
)


class Served:
    """Stands where the device plugin API stands. `made` are all of them; `told` is what the kubelet does not know."""

    made: list["Served"]
    told: Mapping[str, str]

    def __init__(self, *parts: object) -> None:
        self.parts = parts
        self.runs = Event()
        Served.made.append(self)

    def needed(self, row: PreparedClaim) -> str:
        return f"{row.ref.uid} runs"

    def reasons(self) -> Mapping[str, str]:
        return Served.told

    def resources(self) -> frozenset[str] | None:
        return frozenset(Served.told) if Served.told else None

    def units(self) -> Mapping[str, frozenset[str]]:
        return {name: frozenset({"gpu-0"}) for name in Served.told}

    def listed(self) -> int:
        return 0

    def gfd_rules(self) -> GfdRules:
        return GfdRules()

    def loops(self) -> Mapping[str, Callable[[Event], None]]:
        return {"plugin-server": self._run}

    def _run(self, stop: Event) -> None:
        self.runs.set()
        stop.wait(DEADLINE)


class Process:
    """A process with a starter. `serves` is raised by the API server; None: it serves DRA, and the kubelet has registered the driver."""

    def __init__(self, node: LocalNode, *, policy: PluginPolicy | None = None) -> None:
        self.node = node
        self.serves: Exception | None = None
        log = structlog.get_logger()
        self.supervisor = Supervisor(log, lambda _event: None)
        self.deps: Any = SimpleNamespace(
            settings=SimpleNamespace(plugin=SimpleNamespace(policy=policy or PluginPolicy())),
            store=node.store,
        )
        self.starter = PluginStarter(self.deps, self.supervisor)
        self.guard: Any = object()  # only handed on
        self.path = PathWatch(
            None,
            serves=self._serves,
            registered=lambda: self.serves is None,
            kubelet_version=lambda: "v1.34.1",
            observe=lambda _event: None,
        )

    def _serves(self) -> None:
        if self.serves is not None:
            raise self.serves

    def look(self) -> None:
        """One round of the loop, without its pause."""
        self.starter.run(self.node.parts, self.path, self.guard, OneRound())


class OneRound(Event):
    """A stop event that lets a loop run once: its pause ends with the stop."""

    def wait(self, timeout: float | None = None) -> bool:
        self.set()
        return True


@pytest.fixture
def node(tmp_path: Folder) -> Iterator[LocalNode]:
    made = LocalNode(tmp_path)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def standing_in(monkeypatch: pytest.MonkeyPatch) -> None:
    Served.made, Served.told = [], {}
    monkeypatch.setattr(plugin_path, "PluginPath", Served)


@pytest.fixture
def process(node: LocalNode) -> Iterator[Process]:
    made = Process(node)
    yield made
    assert made.supervisor.end(seconds=DEADLINE) == ()


def test_where_claims_work_nothing_is_started(process: Process) -> None:
    assert process.starter.problems() is None
    process.look()
    assert process.path.choice.path is Path.DRA
    assert Served.made == []
    assert process.starter.problems() is None
    assert process.starter.units() == {}
    assert process.starter.resources() == frozenset()
    needed = process.starter.units_needed(ROW)
    assert isinstance(
        needed, Silence
    )  # nobody may take the units away before the holders are asked
    assert "device plugin API" in needed


def test_without_dra_the_api_is_started_once_and_then_answers(process: Process) -> None:
    process.serves = NotServed("no resource.k8s.io")
    process.look()
    (served,) = Served.made
    assert served.parts == (process.deps, process.node.parts, process.path, process.guard)
    assert served.runs.wait(DEADLINE)
    process.look()
    assert Served.made == [served]
    assert process.starter.units_needed(ROW) == "plugin-1 runs"


def test_a_process_is_ready_when_the_kubelet_knows_its_resources(process: Process) -> None:
    process.serves = NotServed("no resource.k8s.io")
    process.look()
    nothing = ("no resource has been offered to the kubelet yet",)
    assert process.starter.problems() == nothing
    assert process.starter.resources() is None
    Served.told = {"nvidia.com/gpu": "", "nvidia.com/mig": "the kubelet does not listen"}
    assert process.starter.resources() == {"nvidia.com/gpu", "nvidia.com/mig"}
    assert process.starter.units() == {"nvidia.com/gpu": {"gpu-0"}, "nvidia.com/mig": {"gpu-0"}}
    assert process.starter.problems() == ("resource nvidia.com/mig: the kubelet does not listen",)
    Served.told = {"nvidia.com/gpu": ""}
    assert process.starter.problems() == ()


def test_before_it_is_started_a_process_without_dra_is_not_ready(process: Process) -> None:
    process.serves = NotServed("no resource.k8s.io")
    process.path.look()
    process.starter.run(process.node.parts, process.path, process.guard, _ended())
    assert Served.made == []
    assert process.starter.problems() == ("no resource has been offered to the kubelet yet",)


def _ended() -> Event:
    stop = Event()
    stop.set()
    return stop


def test_a_resource_alone_can_need_it(node: LocalNode) -> None:
    policy = PluginPolicy(paths={"nvidia.com/gpu": Path.DEVICE_PLUGIN})
    process = Process(node, policy=policy)
    process.look()
    assert len(Served.made) == 1
    assert process.starter.problems() is None  # the node itself has DRA
    assert process.supervisor.end(seconds=DEADLINE) == ()


def test_what_was_given_out_has_to_be_taken_back(process: Process) -> None:
    process.look()
    with process.node.store.transaction("started") as transaction:
        transaction.start(ROW)
    process.look()
    assert len(Served.made) == 1


def test_a_state_that_cannot_be_read_starts_nothing(process: Process) -> None:
    def broken() -> object:
        raise Temporary("the state is locked")

    process.deps.store = SimpleNamespace(reading=broken)
    process.look()
    assert Served.made == []
