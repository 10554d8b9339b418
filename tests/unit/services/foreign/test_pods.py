# SPDX-License-Identifier: Apache-2.0
"""No device of a foreign pod is given away before the pod has ended."""

from structlog.testing import capture_logs

from dra_driver.errors import Permanent
from dra_driver.model.ids import PodUid, UnitId
from dra_driver.model.plugin import PodUnits
from dra_driver.model.presence import CannotTell
from dra_driver.model.state import Unknown
from tests.support.guarded_node import GPU, GuardedNode, entry


def test_a_pod_is_waited_for_until_its_cgroup_is_gone() -> None:
    node = GuardedNode()
    node.writes(entry("p", "uuid-gpu-0"))
    node.runs("p")
    assert node.kept() == {"gpu-0"}
    node.writes()  # it was deleted by force, and another pod was admitted
    assert node.after(1000) == {"gpu-0"}
    node.ends("p")
    assert node.kept() == set()
    assert node.listed == 0


def test_a_restart_forgets_no_pod() -> None:
    node = GuardedNode()
    node.writes(entry("p", "uuid-gpu-0"))
    node.runs("p")
    node.kept()
    node.writes()
    node.restart()
    assert node.guard.taints() == {"gpu-0": "nvidia.com_gpu"}
    node.ends("p")
    assert node.kept() == set()
    node.restart()
    assert node.kept() == set()


def test_a_process_that_stands_by_loses_no_pod_and_knows_it_when_it_leads() -> None:
    node = GuardedNode()
    leads = node.guard
    leads.look()
    stands_by = node.restart()
    stands_by.look()
    node.writes(entry("p", "uuid-gpu-0"))
    node.runs("p")
    leads.look()
    node.writes(
        entry("q", "uuid-gpu-1")
    )  # p was deleted by force, and its device is not named any more
    node.runs("q")
    stands_by.look()
    assert set(stands_by.devices()) == {"gpu-0", "gpu-1"}
    assert {one.pod for one in node.memory.content[0]} == {"p", "q"}
    node.ends("p")
    node.ends("q")
    node.writes()
    leads.look()
    stands_by.look()
    assert (set(leads.devices()), set(stands_by.devices())) == (set(), set())


def test_a_pod_that_is_about_to_start_has_its_device() -> None:
    node = GuardedNode()
    node.writes(entry("p", "uuid-gpu-0"))
    assert node.kept() == {"gpu-0"}
    node.active = frozenset(
        {PodUnits("default", "p", "main", GPU, frozenset({UnitId("uuid-gpu-0")}))}
    )
    assert node.after(60) == {"gpu-0"}
    node.active = Unknown("kubelet restarts")
    assert node.after(60) == {"gpu-0"}
    node.active = frozenset()
    assert node.after(60) == set()
    assert node.after(1) == set()  # the entry of the ended pod is there still
    node.runs("p")
    assert node.kept() == {"gpu-0"}


def test_what_cannot_be_told_is_no_proof() -> None:
    node = GuardedNode()
    node.writes(entry("p", "uuid-gpu-0"))
    node.presences[PodUid("p")] = CannotTell("no cgroups here")
    assert node.kept() == {"gpu-0"}
    assert node.after(1000) == {"gpu-0"}


def test_where_the_kubelet_is_believed_its_list_counts() -> None:
    node = GuardedNode()
    node.believes_kubelet = True
    node.restart()
    node.writes(entry("p", "uuid-gpu-0"))
    assert node.kept() == {"gpu-0"}
    assert node.after(60) == set()


def test_units_of_several_containers_are_one_pods() -> None:
    node = GuardedNode()
    node.writes(entry("p", "uuid-gpu-0"), entry("p", "uuid-gpu-1", container="other"))
    assert node.kept() == {"gpu-0", "gpu-1"}
    node.after(60)
    node.writes(entry("p", "uuid-gpu-0"), entry("p", "uuid-gpu-2", container="third"))
    assert node.kept() == {"gpu-0", "gpu-1", "gpu-2"}


def test_a_failure_to_remember_is_told_and_harmless() -> None:
    node = GuardedNode()
    node.memory.error = Permanent("disk full")
    node.writes(entry("p", "uuid-gpu-0"))
    with capture_logs() as logs:
        assert node.kept() == {"gpu-0"}
    assert "foreign_pods_not_remembered" in [line["event"] for line in logs]
    node.memory.error = None
    node.kept()
    node.kept()
    assert node.memory.writes == 1


def test_a_node_without_foreign_plugins_writes_nothing() -> None:
    node = GuardedNode()
    node.kept()
    assert (node.memory.writes, node.events, node.changes) == (0, [], 0)
