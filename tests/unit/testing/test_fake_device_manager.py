# SPDX-License-Identifier: Apache-2.0
"""The rules that the fake kubelet keeps for device plugins."""

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dra_driver.errors import Temporary
from dra_driver.kubelet.pod_resources import allocatable
from dra_driver.model.cdi import DeviceNode, Mount
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, ResourceName, UnitId
from dra_driver.model.plan import Refusal
from dra_driver.model.plugin import ContainerAnswer
from dra_driver.testing.device_checkpoint import FILE_NAME, ContainerOptions
from dra_driver.testing.fake_kubelet import VERSIONS, FakeKubelet, KubeletError
from dra_driver.testing.kubelet_calls import ClaimInfo
from tests.support.plugin_calls import GPU, unit
from tests.support.plugins import BarePlugin

NIC = ResourceName("other.com/nic")
ONE = {"main": {GPU: 1}}
Start = Callable[..., BarePlugin]


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def root(ends: ExitStack) -> Path:
    return Path(ends.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))


@pytest.fixture
def kubelet(root: Path, ends: ExitStack, request: pytest.FixtureRequest) -> FakeKubelet:
    found = FakeKubelet(root, version=getattr(request, "param", "1.37"))
    ends.callback(found.close)
    return found


@pytest.fixture
def start(kubelet: FakeKubelet, ends: ExitStack) -> Start:
    def make(name: str, *units: str, resource: ResourceName = GPU) -> BarePlugin:
        plugin = BarePlugin(kubelet, name, *units, resource=resource)
        ends.callback(plugin.close)
        assert plugin.register() == ""
        return plugin

    return make


def checkpoint(kubelet: FakeKubelet) -> dict[tuple[str, str, str], dict[str, list[str]]]:
    """The units in the checkpoint, by pod, container and resource."""
    data = json.loads((kubelet.device_manager.folder / FILE_NAME).read_text())["Data"]
    return {
        (entry["PodUID"], entry["ContainerName"], entry["ResourceName"]): entry["DeviceIDs"]
        for entry in data["PodDeviceEntries"] or ()
    }


def refused(kubelet: FakeKubelet, pod: str, **limits: dict[str, int]) -> str:
    with pytest.raises(KubeletError) as error:
        kubelet.admit(pod, limits)
    return str(error.value)


def why(text: str) -> str:
    return f"UnexpectedAdmissionError: Allocate failed due to {text}, which is unexpected"


# Registration.


def test_a_plugin_that_registers_is_in_the_capacity(kubelet: FakeKubelet, start: Start) -> None:
    plugin = start("a.sock", "gpu-0", "gpu-1")
    assert kubelet.device_manager.capacity() == ({GPU: 2}, {GPU: 2})
    plugin.units.tell(unit("gpu-0"), unit("gpu-1", healthy=False), unit("gpu-2"))
    kubelet.device_manager.until(lambda: kubelet.device_manager.lists == 2)
    assert kubelet.device_manager.capacity() == ({GPU: 3}, {GPU: 2})


def test_what_the_kubelet_refuses_is_named(kubelet: FakeKubelet, ends: ExitStack) -> None:
    plugin = BarePlugin(kubelet, "a.sock", resource=ResourceName("kubernetes.io/gpu"))
    ends.callback(plugin.close)
    refusal = "the kubelet refused the registration: UNKNOWN: "
    assert plugin.register() == refusal + 'the ResourceName "kubernetes.io/gpu" is invalid'
    assert plugin.register("v1") == refusal + (
        'requested API version "v1" is not supported by kubelet. Supported version is ["v1beta1"]'
    )
    plugin.resource = GPU
    kubelet.device_manager.registration.refuses = "not now"
    assert plugin.register() == refusal + "not now"


@pytest.mark.parametrize("kubelet", ["1.30", "1.36"], indirect=True)
def test_before_1_37_the_end_of_the_old_stream_ends_the_new_plugin(
    kubelet: FakeKubelet, start: Start
) -> None:
    manager = kubelet.device_manager
    old, new = start("a.sock", "gpu-0"), start("b.sock", "gpu-0")
    kubelet.admit("default/one", ONE)
    assert (len(old.work.asked), len(new.work.asked)) == (0, 2)
    old.close()
    manager.until(lambda: manager.capacity() == ({GPU: 1}, {GPU: 0}))
    new.units.until_waiting(0)  # the kubelet has left the stream of the new plugin, too
    assert refused(kubelet, "default/two", main={GPU: 1}) == why(
        f"no healthy devices present; cannot allocate unhealthy devices {GPU}"
    )


def test_a_kubelet_1_37_calls_the_newest_and_goes_back_to_one_that_remains(
    kubelet: FakeKubelet, start: Start
) -> None:
    manager = kubelet.device_manager
    names = ("gpu-0", "gpu-1", "gpu-2")
    old, new = start("a.sock", *names), start("b.sock", *names)
    kubelet.admit("default/one", ONE)
    assert [len(plugin.work.asked) for plugin in (old, new)] == [0, 2]
    new.close()
    manager.until(lambda: manager._endpoints[GPU].client.path == old.path)  # type: ignore[union-attr]
    assert manager.capacity() == ({GPU: 3}, {GPU: 3})
    kubelet.admit("default/two", ONE)
    assert [len(plugin.work.asked) for plugin in (old, new)] == [2, 2]
    old.close()
    manager.until(lambda: manager.capacity() == ({GPU: 3}, {GPU: 0}))


def test_a_kubelet_1_37_that_saw_a_path_twice_refuses_it_until_it_restarts(
    kubelet: FakeKubelet, start: Start
) -> None:
    plugin = start("a.sock", "gpu-0")
    again = "the kubelet refused the registration: UNKNOWN: device plugin already connected: "
    assert plugin.register() == f"{again}{plugin.path}"
    plugin.close()
    plugin.units.until_waiting(0)
    # The kubelet has forgotten the client, so nobody tells it that the stream ended: the units stay healthy.
    assert kubelet.device_manager.capacity() == ({GPU: 1}, {GPU: 1})
    plugin = BarePlugin(kubelet, "a.sock", "gpu-0")
    assert plugin.register() == f"{again}{plugin.path}"
    kubelet.restart()
    plugin.server.ensure()
    assert plugin.register() == ""
    plugin.close()


def test_a_plugin_that_ends_leaves_its_capacity_for_five_minutes(
    kubelet: FakeKubelet, start: Start
) -> None:
    manager, now = kubelet.device_manager, [0.0]
    manager.clock = lambda: now[0]
    start("a.sock", "gpu-0").close()
    manager.until(lambda: manager.capacity() == ({GPU: 1}, {GPU: 0}))
    now[0] = 300.0
    assert manager.capacity() == ({GPU: 1}, {GPU: 0})
    now[0] = 300.1
    assert manager.capacity() == ({}, {})
    assert json.loads((manager.folder / FILE_NAME).read_text())["Data"] == {
        "PodDeviceEntries": None,
        "RegisteredDevices": {},
    }


# Admission.


def test_a_container_gets_what_the_plugin_prefers_and_the_rest_in_order(
    kubelet: FakeKubelet, start: Start
) -> None:
    plugin = start("a.sock", "gpu-0", "gpu-1", "gpu-2", "gpu-3")
    plugin.work.preferred = lambda: (UnitId("gpu-3"), UnitId("gpu-9"))
    uid = kubelet.admit("default/one", {"main": {GPU: 2}})
    assert kubelet.device_manager.units(uid) == {GPU: {"gpu-0", "gpu-3"}}
    assert plugin.work.asked == [
        ("prefer", GPU, ("gpu-0", "gpu-1", "gpu-2", "gpu-3"), (), 2),
        ("allocate", GPU, "gpu-0", "gpu-3"),
    ]
    assert refused(kubelet, "default/two", main={GPU: 3}) == why(
        f"requested number of devices unavailable for {GPU}. Requested: 3, Available: 2"
    )


def test_a_container_gets_every_part_of_the_answer_at_each_start(
    kubelet: FakeKubelet, start: Start
) -> None:
    plugin = start("a.sock", "gpu-0")
    plugin.work.answer = lambda: ContainerAnswer(
        env={"GPU": "0"},
        device_nodes=(DeviceNode("/dev/gpu0"),),
        mounts=(Mount("/usr/lib/a", "/lib/a"),),
        annotations={"a": "b"},
        cdi_ids=("example.com/gpu=0",),
    )
    uid = kubelet.admit("default/one", ONE)
    assert not kubelet.cgroups.is_running(uid)
    gets = ContainerOptions(
        {"GPU": "0"},
        {"/dev/gpu0": ("/dev/gpu0", "rw")},
        {"/lib/a": ("/usr/lib/a", True)},
        {"a": "b"},
        ("example.com/gpu=0",),
    )
    assert kubelet.start("default/one") == gets
    assert kubelet.cgroups.is_running(uid)
    plugin.work.answer = ContainerAnswer
    assert kubelet.start("default/one") == gets
    assert [call[0] for call in plugin.work.asked].count("allocate") == 1
    kubelet.device_manager.takes_cdi = False
    assert kubelet.start("default/one").cdi_devices == ()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Refusal("gpu-0 is in use"), "rpc error: FAILED_PRECONDITION: gpu-0 is in use"),
        (Temporary("wait"), "rpc error: UNAVAILABLE: wait"),
    ],
)
def test_a_refused_pod_has_failed_and_its_units_are_free(
    kubelet: FakeKubelet, start: Start, answer: Refusal | Temporary, text: str
) -> None:
    plugin = start("a.sock", "gpu-0")

    def refuse() -> Refusal:
        if isinstance(answer, Temporary):
            raise answer
        return answer

    plugin.work.answer = refuse
    assert refused(kubelet, "default/one", main={GPU: 1}) == why(text)
    assert checkpoint(kubelet) == {}
    plugin.work.answer = ContainerAnswer
    assert kubelet.admit("default/one", ONE)


def test_the_checkpoint_has_a_container_when_all_its_resources_are_allocated(
    kubelet: FakeKubelet, start: Start
) -> None:
    gpu, nic = start("a.sock", "gpu-0"), start("b.sock", "nic-0", resource=NIC)
    gpu.units.tell(unit("gpu-0", numa=(0, 1)))
    kubelet.device_manager.until(lambda: kubelet.device_manager.lists == 3)
    nic.work.answer = lambda: Refusal("no")
    refused(kubelet, "default/one", main={GPU: 1, NIC: 1})
    assert checkpoint(kubelet) == {}
    # What anybody writes next has the units of the refused pod too, until they are taken back.
    nic.units.tell(unit("nic-0"), unit("nic-1"))
    kubelet.device_manager.until(lambda: kubelet.device_manager.lists == 4)
    assert [key[1:] for key in checkpoint(kubelet)] == [("main", GPU)]
    nic.work.answer = ContainerAnswer
    uid = kubelet.admit("default/one", {"main": {GPU: 1, NIC: 1}})
    assert checkpoint(kubelet) == {
        (uid, "main", GPU): {"0": ["gpu-0"], "1": ["gpu-0"]},
        (uid, "main", NIC): {"-1": ["nic-0"]},
    }
    assert (kubelet.device_manager.folder / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_the_containers_before_the_refused_one_are_in_the_checkpoint(
    kubelet: FakeKubelet, start: Start
) -> None:
    plugin = start("a.sock", "gpu-0", "gpu-1")
    answers = iter((ContainerAnswer(), Refusal("no")))
    plugin.work.answer = lambda: next(answers)
    refused(kubelet, "default/one", first={GPU: 1}, second={GPU: 1})
    assert [key[1:] for key in checkpoint(kubelet)] == [("first", GPU)]


def test_units_of_an_init_container_are_given_again_to_the_same_pod(
    kubelet: FakeKubelet, start: Start
) -> None:
    start("a.sock", "gpu-0", "gpu-1")
    init = {"init": {GPU: 1}}
    uid = kubelet.admit("default/one", {"first": {GPU: 1}, "second": {GPU: 1}}, init=init)
    units = kubelet.device_manager.units
    assert [units(uid, name) for name in ("init", "first", "second")] == [
        {GPU: {"gpu-0"}},
        {GPU: {"gpu-0"}},
        {GPU: {"gpu-1"}},
    ]


def test_the_start_of_a_container_waits_for_the_plugin(
    kubelet: FakeKubelet, ends: ExitStack
) -> None:
    plugin = BarePlugin(kubelet, "a.sock", "gpu-0")
    ends.callback(plugin.close)
    plugin.work.pre_start_required = True
    plugin.register()
    uid = kubelet.admit("default/one", ONE)
    plugin.work.refuses = Refusal("not clean")
    with pytest.raises(KubeletError, match=r"PreStartContainer rpc failed with err: .*not clean"):
        kubelet.start("default/one")
    assert not kubelet.cgroups.is_running(uid)
    plugin.work.refuses = None
    kubelet.start("default/one")
    assert plugin.work.asked[-2:] == [("pre_start", GPU, "gpu-0")] * 2


# The end of pods.


@pytest.mark.parametrize("how", ["force_delete", "end"])
def test_units_are_taken_back_from_a_pod_that_is_not_active(
    kubelet: FakeKubelet, start: Start, how: str
) -> None:
    start("a.sock", "gpu-0")
    uid = kubelet.admit("default/one", ONE)
    kubelet.start("default/one")
    getattr(kubelet, how)("default/one")
    assert kubelet.cgroups.is_running(uid) == (how == "force_delete")
    assert list(checkpoint(kubelet)) == [(uid, "main", GPU)]
    two = kubelet.admit("default/two", ONE)
    assert kubelet.device_manager.units(two) == {GPU: {"gpu-0"}}
    assert list(checkpoint(kubelet)) == [(two, "main", GPU)]


def test_a_list_of_pod_resources_takes_units_back_and_leaves_the_checkpoint(
    kubelet: FakeKubelet, start: Start
) -> None:
    start("a.sock", "gpu-0")
    uid = kubelet.admit("default/one", ONE)
    kubelet.force_delete("default/one")
    assert kubelet.device_manager.units(uid) == {GPU: {"gpu-0"}}
    kubelet._list(None, None)
    assert kubelet.device_manager.units(uid) == {}
    assert list(checkpoint(kubelet)) == [(uid, "main", GPU)]


def test_pod_resources_list_units_for_each_numa_node(kubelet: FakeKubelet, start: Start) -> None:
    plugin = start("a.sock", "gpu-0")
    plugin.units.tell(unit("gpu-0", numa=(0, 1)), unit("gpu-1"))
    kubelet.device_manager.until(lambda: kubelet.device_manager.lists == 2)
    kubelet.admit("default/one", {"main": {GPU: 2}}, init={"init": {GPU: 1}})
    assert [
        (pod.namespace, pod.name, container.name, list(found.device_ids), len(found.topology.nodes))
        for pod in kubelet._list(None, None).pod_resources
        for container in pod.containers
        for found in container.devices
    ] == [
        ("default", "one", "main", ["gpu-0"], 1),
        ("default", "one", "main", ["gpu-0"], 1),
        ("default", "one", "main", ["gpu-1"], 0),
    ]
    assert allocatable(kubelet.pod_resources_socket) == {GPU: 3}


# The kubelet ends and comes back.


def test_a_new_kubelet_deletes_sockets_and_keeps_the_units_of_its_pods(
    kubelet: FakeKubelet, start: Start
) -> None:
    plugin = start("a.sock", "gpu-0", "gpu-1")
    uid = kubelet.admit("default/one", ONE)
    kubelet.start("default/one")
    before = (kubelet.device_manager.folder / "kubelet.sock").stat()
    kubelet.restart()
    after = (kubelet.device_manager.folder / "kubelet.sock").stat()
    assert (before.st_ino, before.st_ctime_ns) != (after.st_ino, after.st_ctime_ns)
    assert not plugin.path.exists()
    assert kubelet.device_manager.units(uid) == {GPU: {"gpu-0"}}
    assert kubelet.device_manager.capacity() == ({GPU: 0}, {GPU: 0})
    assert refused(kubelet, "default/two", main={GPU: 1}) == why(
        f"no healthy devices present; cannot allocate unhealthy devices {GPU}"
    )
    plugin.server.ensure()
    plugin.register()
    two = kubelet.admit("default/two", ONE)
    assert kubelet.device_manager.units(two) == {GPU: {"gpu-1"}}
    assert [call for call in plugin.work.asked if call[0] == "allocate"] == [
        ("allocate", GPU, "gpu-0"),
        ("allocate", GPU, "gpu-1"),
    ]


def test_a_new_kubelet_refuses_a_pod_that_did_not_run_yet(
    kubelet: FakeKubelet, start: Start
) -> None:
    start("a.sock", "gpu-0")
    uid = kubelet.admit("default/one", ONE)
    kubelet.restart()
    kubelet.device_manager.take_back()
    assert kubelet.device_manager.units(uid) == {}


def test_after_a_reboot_a_pod_needs_its_units_to_be_healthy(
    kubelet: FakeKubelet, start: Start
) -> None:
    plugin = start("a.sock", "gpu-0", "gpu-1")
    uid = kubelet.admit("default/one", ONE)
    kubelet.start("default/one")
    kubelet.reboot()
    assert not kubelet.cgroups.is_running(uid)
    with pytest.raises(KubeletError, match="no healthy devices present"):
        kubelet.device_manager.admit_again(uid)
    plugin.units.units = (unit("gpu-0", healthy=False), unit("gpu-1"))
    plugin.server.ensure()
    plugin.register()
    with pytest.raises(KubeletError, match="previously allocated devices are no longer healthy"):
        kubelet.device_manager.admit_again(uid)
    plugin.units.tell(unit("gpu-0"))
    kubelet.device_manager.until(lambda: kubelet.device_manager.lists == 3)
    kubelet.device_manager.admit_again(uid)
    assert [call[0] for call in plugin.work.asked] == ["prefer", "allocate"]


def test_without_its_checkpoint_the_kubelet_allocates_again_for_a_container_that_restarts(
    kubelet: FakeKubelet, start: Start
) -> None:
    plugin = start("a.sock", "gpu-0", "gpu-1")
    uid = kubelet.admit("default/one", ONE)
    kubelet.start("default/one")
    kubelet.device_manager.lose_checkpoint()
    assert kubelet.device_manager.units(uid) == {}
    assert kubelet.device_manager.capacity() == ({}, {})
    plugin.server.ensure()
    plugin.register()
    plugin.work.answer = lambda: ContainerAnswer(env={"again": "1"})
    assert kubelet.start("default/one").env == {"again": "1"}
    assert list(checkpoint(kubelet)) == [(uid, "main", GPU)]


def test_a_resource_that_no_plugin_offers_is_not_allocated(kubelet: FakeKubelet) -> None:
    uid = kubelet.admit("default/one", ONE)
    assert kubelet.device_manager.units(uid) == {}
    assert kubelet.start("default/one") == ContainerOptions()


# DRA beside it.


@pytest.mark.parametrize("kubelet", VERSIONS, indirect=True)
def test_every_version_serves_device_plugins(kubelet: FakeKubelet, start: Start) -> None:
    start("a.sock", "gpu-0")
    uid = kubelet.admit("default/one", ONE)
    assert kubelet.device_manager.units(uid) == {GPU: {"gpu-0"}}


def test_claims_and_units_of_one_container_are_listed_together(
    kubelet: FakeKubelet, start: Start
) -> None:
    start("a.sock", "gpu-0")
    uid = kubelet.admit("default/one", ONE)
    ref = ClaimRef("default", "claim", ClaimUid("uid-1"))
    kubelet.claims[ref.uid] = ClaimInfo(ref, "gpu.example.com", {uid})
    [pod] = kubelet._list(None, None).pod_resources
    assert [
        (found.name, [claim.claim_name for claim in found.dynamic_resources], len(found.devices))
        for found in pod.containers
    ] == [("main", ["claim"], 1)]
