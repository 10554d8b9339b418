# SPDX-License-Identifier: Apache-2.0
"""The rules that the fake kubelet keeps, against a driver that answers what each test says."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest

from dra_driver.kubelet import dra, dra_v1beta1, pod_resources
from dra_driver.kubelet.pb import dra_v1_pb2 as v1
from dra_driver.kubelet.pb import dra_v1beta1_pb2 as v1beta1
from dra_driver.kubelet.pb import pluginregistration_v1_pb2 as registration_pb
from dra_driver.kubelet.pb import podresources_v1_pb2 as pods_pb
from dra_driver.kubelet.registration import SERVICE, SUPPORTED_VERSIONS
from dra_driver.kubelet.sockets import SocketServer, service, unary
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, PodUid
from dra_driver.model.presence import Alive, Gone
from dra_driver.node.cgroups import PodCgroups
from dra_driver.testing.fake_kubelet import VERSIONS, FakeKubelet, KubeletError

DRIVER = "gpu.example.com"
ONE = ClaimRef("default", "one", ClaimUid("uid-1"))
TWO = ClaimRef("default", "two", ClaimUid("uid-2"))
HANG_SECONDS = 300


class ScriptedDriver:
    """A plugin that answers whatever is in its attributes, and records what it was asked."""

    def __init__(self, root: Path) -> None:
        self.info = registration_pb.PluginInfo(
            type="DRAPlugin",
            name=DRIVER,
            endpoint=str(root / "plugins" / "dra.sock"),
            supported_versions=SUPPORTED_VERSIONS,
        )
        self.accepts = True
        self.told: list[tuple[bool, str]] = []
        self.calls: list[tuple[str, list[str]]] = []
        self.extra: tuple[str, ...] = ()
        self.skips: tuple[str, ...] = ()
        self.errors: dict[str, str] = {}
        self.before: Callable[[], object] = lambda: None
        handlers = [
            service(name, {verb: self.method(pb, verb) for verb in VERBS})
            for name, pb in ((dra.SERVICE, v1), (dra_v1beta1.SERVICE, v1beta1))
        ]
        self.endpoint = SocketServer(Path(self.info.endpoint), handlers, workers=4, name="dra")
        methods = {
            "GetInfo": unary(lambda _request, _context: self.info, registration_pb.InfoRequest),
            "NotifyRegistrationStatus": unary(self.notify, registration_pb.RegistrationStatus),
        }
        registry = root / "plugins_registry" / "driver-reg.sock"
        self.registry = SocketServer(registry, [service(SERVICE, methods)], workers=2, name="reg")

    def notify(
        self, request: registration_pb.RegistrationStatus, context: grpc.ServicerContext
    ) -> registration_pb.RegistrationStatusResponse:
        self.told.append((request.plugin_registered, request.error))
        if not self.accepts:
            context.abort(grpc.StatusCode.INTERNAL, "not now")
        return registration_pb.RegistrationStatusResponse()

    def method(self, pb: Any, verb: str) -> Any:
        def answer(request: Any, _context: grpc.ServicerContext) -> Any:
            uids = [claim.uid for claim in request.claims]
            self.calls.append((f"{pb.DESCRIPTOR.package.rpartition('.')[2]} {verb}", uids))
            self.before()
            response = getattr(pb, f"{verb}Response")()
            for uid in (*uids, *self.extra):
                if uid in self.skips:
                    continue
                response.claims[uid].error = self.errors.get(uid, "")
                if verb == "NodePrepareResources":
                    response.claims[uid].devices.append(device(pb, uid))
            return response

        return unary(answer, getattr(pb, f"{verb}Request"))


VERBS = ("NodePrepareResources", "NodeUnprepareResources")


def device(pb: Any, uid: str) -> Any:
    return pb.Device(
        request_names=["gpu"],
        pool_name="node1",
        device_name="gpu-0",
        cdi_device_ids=[f"example.com/gpu={uid}"],
    )


def sent(calls: Sequence[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
    return [(verb.removeprefix("v1 "), uids) for verb, uids in calls]


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # socket paths must be short
        yield Path(folder)


@pytest.fixture
def driver(root: Path) -> Iterator[ScriptedDriver]:
    found = ScriptedDriver(root)
    found.endpoint.start()
    found.registry.start()
    yield found
    found.registry.stop(0)
    found.endpoint.stop(0)


@pytest.fixture
def kubelet(root: Path) -> Iterator[FakeKubelet]:
    found = FakeKubelet(root)
    yield found
    found.close()


@pytest.mark.parametrize(
    ("version", "service_name", "health"),
    [
        ("1.32", "v1beta1.DRAPlugin", ""),
        ("1.33", "v1beta1.DRAPlugin", ""),
        ("1.34", "v1.DRAPlugin", ""),
        ("1.35", "v1.DRAPlugin", ""),
        ("1.36", "v1.DRAPlugin", "v1alpha1.DRAResourceHealth"),
        ("1.37", "v1.DRAPlugin", "v1.DRAResourceHealth"),
    ],
)
def test_each_version_chooses_from_the_list_of_this_driver(
    root: Path, driver: ScriptedDriver, version: str, service_name: str, health: str
) -> None:
    kubelet = FakeKubelet(root, version=version)
    try:
        plugin = kubelet.register(DRIVER)
        assert plugin is not None
        assert (plugin.service, plugin.health_service) == (service_name, health)
        kubelet.prepare(DRIVER, [ONE])
        package = service_name.partition(".")[0]
        assert driver.calls == [(f"{package} NodePrepareResources", ["uid-1"])]
    finally:
        kubelet.close()


@pytest.mark.parametrize("version", ["1.30", "1.31"])
def test_a_kubelet_whose_gate_is_off_refuses_every_driver(
    root: Path, driver: ScriptedDriver, version: str
) -> None:
    kubelet = FakeKubelet(root, version=version)
    error = "RegisterPlugin error -- no handler registered for plugin type: DRAPlugin"
    try:
        with pytest.raises(KubeletError, match=error):
            kubelet.register(DRIVER)
        assert driver.told == [(False, error)]
    finally:
        kubelet.close()


@pytest.mark.parametrize(
    ("version", "offered", "chosen"),
    [
        ("1.36", ["v1beta1.DRAPlugin", "v1.DRAPlugin"], "v1beta1.DRAPlugin v1alpha1"),
        ("1.37", ["1.0.0", "v1.DRAPlugin", "v1alpha1.DRAResourceHealth"], "v1.DRAPlugin v1alpha1"),
        (
            "1.37",
            ["v1alpha1.DRAResourceHealth", "v1.DRAResourceHealth", "v1.DRAPlugin"],
            "v1.DRAPlugin v1",
        ),
        ("1.37", ["v1.DRAPlugin"], "v1.DRAPlugin "),
    ],
)
def test_the_drivers_order_counts_for_dra_and_the_kubelets_for_health(
    root: Path, driver: ScriptedDriver, version: str, offered: list[str], chosen: str
) -> None:
    del driver.info.supported_versions[:]
    driver.info.supported_versions.extend(offered)
    kubelet = FakeKubelet(root, version=version)
    try:
        plugin = kubelet.register(DRIVER)
        assert plugin is not None
        assert f"{plugin.service} {plugin.health_service.partition('.')[0]}" == chosen
    finally:
        kubelet.close()


@pytest.mark.parametrize(
    ("kind", "offered", "error"),
    [
        ("CSIPlugin", ["v1.DRAPlugin"], "no handler registered for plugin type: CSIPlugin"),
        ("DRAPlugin", [], "empty list of supported gRPC services (aka supported versions)"),
        ("DRAPlugin", ["1.0.0"], "none of services supported by the plugin (['1.0.0'])"),
    ],
)
def test_an_unfit_driver_is_told_why(
    driver: ScriptedDriver, kubelet: FakeKubelet, kind: str, offered: list[str], error: str
) -> None:
    driver.info.type = kind
    del driver.info.supported_versions[:]
    driver.info.supported_versions.extend(offered)
    with pytest.raises(KubeletError) as refusal:
        kubelet.register(DRIVER)
    assert error in str(refusal.value)
    assert driver.told == [(False, str(refusal.value))]


def test_a_driver_that_does_not_accept_is_not_registered(
    driver: ScriptedDriver, kubelet: FakeKubelet
) -> None:
    driver.accepts = False
    with pytest.raises(
        KubeletError, match=r"^the driver did not accept its registration: INTERNAL: not now$"
    ):
        kubelet.prepare(DRIVER, [ONE])
    assert driver.told == [(True, "")]
    assert kubelet.claims == {}


def test_an_empty_endpoint_means_the_registration_socket(
    driver: ScriptedDriver, kubelet: FakeKubelet
) -> None:
    driver.info.endpoint = ""
    plugin = kubelet.register(DRIVER)
    assert plugin is not None
    assert plugin.endpoint == str(driver.registry.path)


def test_dot_files_other_files_and_dead_sockets_are_passed_over(
    driver: ScriptedDriver, kubelet: FakeKubelet, root: Path
) -> None:
    (kubelet.registry_dir / "a.sock").write_text("no socket")
    driver.registry.path.rename(kubelet.registry_dir / ".hidden.sock")
    assert kubelet.register(DRIVER) is None
    (kubelet.registry_dir / "below").mkdir()
    (kubelet.registry_dir / ".hidden.sock").rename(kubelet.registry_dir / "below" / "x.sock")
    assert kubelet.register(DRIVER) is not None
    assert kubelet.register("other.example.com") is None


def test_a_removed_registration_socket_is_a_driver_that_left(
    driver: ScriptedDriver, kubelet: FakeKubelet
) -> None:
    kubelet.prepare(DRIVER, [ONE])
    driver.registry.path.unlink()
    for attempt in (kubelet.prepare, kubelet.unprepare):
        with pytest.raises(KubeletError, match=f"DRA driver {DRIVER} is not registered"):
            attempt(DRIVER, [ONE])
    assert list(kubelet.claims) == [ONE.uid]
    assert driver.registry.ensure()
    kubelet.unprepare(DRIVER, [ONE])
    assert driver.told == [(True, ""), (True, "")]


def test_without_a_driver_nothing_is_remembered(kubelet: FakeKubelet) -> None:
    with pytest.raises(KubeletError, match=f"DRA driver {DRIVER} is not registered"):
        kubelet.prepare(DRIVER, [ONE])
    assert kubelet.claims == {}


def test_a_prepared_claim_is_sent_again_only_after_a_restart(
    driver: ScriptedDriver, kubelet: FakeKubelet
) -> None:
    first = kubelet.prepare(DRIVER, [ONE], pod="default/a")
    assert kubelet.prepare(DRIVER, [ONE, TWO], pod="default/b") == {
        ONE.uid: (device(v1, "uid-1"),),
        TWO.uid: (device(v1, "uid-2"),),
    }
    kubelet.restart()
    assert kubelet.prepare(DRIVER, [ONE], pod="default/a") == first
    assert sent(driver.calls) == [
        ("NodePrepareResources", ["uid-1"]),
        ("NodePrepareResources", ["uid-2"]),
        ("NodePrepareResources", ["uid-1"]),
    ]
    assert kubelet.claims[ONE.uid].pods == set(map(kubelet.pod_uid, ("default/a", "default/b")))


@pytest.mark.parametrize(("version", "times"), [("1.36", 2), ("1.37", 1)])
def test_devices_of_a_repeated_answer_are_added_before_137(
    root: Path, driver: ScriptedDriver, version: str, times: int
) -> None:
    kubelet = FakeKubelet(root, version=version)
    try:
        driver.skips = ("uid-2",)
        with pytest.raises(KubeletError, match="NodePrepareResources skipped 1 ResourceClaims"):
            kubelet.prepare(DRIVER, [ONE, TWO])
        driver.skips = ()
        kubelet.prepare(DRIVER, [ONE, TWO])
        assert kubelet.cdi_ids(ONE.uid) == ("example.com/gpu=uid-1",) * times
        assert kubelet.cdi_ids(TWO.uid) == ("example.com/gpu=uid-2",)
    finally:
        kubelet.close()


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("fault", ["unknown", "skipped", "error"])
def test_an_answer_that_does_not_fit_fails_the_call(
    driver: ScriptedDriver, kubelet: FakeKubelet, verb: str, fault: str
) -> None:
    if verb == "NodeUnprepareResources":
        kubelet.prepare(DRIVER, [ONE])
    driver.extra = ("uid-9",) if fault == "unknown" else ()
    driver.skips = ("uid-1",) if fault == "skipped" else ()
    driver.errors = {"uid-1": "no such device"} if fault == "error" else {}
    expected = {
        "unknown": f"{verb} returned result for unknown claim UID uid-9",
        "skipped": f"{verb} skipped 1 ResourceClaims",
        "error": f"{verb} failed for ResourceClaim one: no such device",
    }[fault]
    attempt = kubelet.prepare if verb == "NodePrepareResources" else kubelet.unprepare
    with pytest.raises(KubeletError) as refusal:
        attempt(DRIVER, [ONE])
    assert str(refusal.value) == expected
    assert kubelet.claims[ONE.uid].prepared is (verb == "NodeUnprepareResources")


def test_a_failed_prepare_is_unprepared_too(driver: ScriptedDriver, kubelet: FakeKubelet) -> None:
    driver.errors = {"uid-1": "no such device"}
    with pytest.raises(KubeletError):
        kubelet.prepare(DRIVER, [ONE])
    driver.errors = {}
    kubelet.unprepare(DRIVER, [ONE])
    assert sent(driver.calls)[-1] == ("NodeUnprepareResources", ["uid-1"])
    assert kubelet.claims == {}


def test_a_claim_is_unprepared_with_its_last_pod(
    driver: ScriptedDriver, kubelet: FakeKubelet
) -> None:
    kubelet.prepare(DRIVER, [ONE], pod="default/a")
    kubelet.prepare(DRIVER, [ONE], pod="default/b")
    kubelet.unprepare(DRIVER, [ONE, TWO], pod="default/a")
    kubelet.unprepare(DRIVER, [ONE], pod="default/a")
    assert [verb for verb, _ in sent(driver.calls)] == ["NodePrepareResources"]
    driver.errors = {"uid-1": "busy"}
    with pytest.raises(KubeletError, match="busy"):
        kubelet.unprepare(DRIVER, [ONE], pod="default/b")
    driver.errors = {}
    kubelet.unprepare(DRIVER, [ONE], pod="default/b")
    assert [verb for verb, _ in sent(driver.calls)] == [
        "NodePrepareResources",
        "NodeUnprepareResources",
        "NodeUnprepareResources",
    ]
    assert kubelet.claims == {}


def test_a_call_that_fails_as_a_whole_is_named(
    driver: ScriptedDriver, kubelet: FakeKubelet
) -> None:
    kubelet.register(DRIVER)
    driver.endpoint.stop(0)
    with pytest.raises(KubeletError, match=r"^NodePrepareResources: rpc error: UNAVAILABLE: "):
        kubelet.prepare(DRIVER, [ONE])


def test_a_claim_made_anew_waits_until_the_old_one_is_released(
    driver: ScriptedDriver, kubelet: FakeKubelet
) -> None:
    kubelet.prepare(DRIVER, [ONE])
    anew = ClaimRef("default", "one", ClaimUid("uid-3"))
    with pytest.raises(KubeletError) as refusal:
        kubelet.prepare(DRIVER, [anew], pod="default/b")
    assert str(refusal.value) == (
        "old ResourceClaim with same name one and different UID uid-1 still exists "
        "(previous pod force-deleted?!)"
    )
    kubelet.unprepare(DRIVER, [ONE])
    kubelet.prepare(DRIVER, [anew], pod="default/b")


@pytest.mark.parametrize("version", ["1.36", "1.37"])
def test_137_gives_no_pod_a_claim_that_is_being_unprepared(
    root: Path, driver: ScriptedDriver, version: str
) -> None:
    kubelet = FakeKubelet(root, version=version)
    kubelet.prepare(DRIVER, [ONE])
    begun, go_on = Event(), Event()

    def hold() -> None:
        begun.set()
        assert go_on.wait(HANG_SECONDS)

    driver.before = hold
    with ThreadPoolExecutor(1) as pool:
        release = pool.submit(kubelet.unprepare, DRIVER, [ONE])
        assert begun.wait(HANG_SECONDS)
        if VERSIONS[version].guards_release:
            with pytest.raises(KubeletError, match="ResourceClaim one is being unprepared"):
                kubelet.prepare(DRIVER, [ONE], pod="default/b")
        else:
            kubelet.prepare(DRIVER, [ONE], pod="default/b")
        go_on.set()
        release.result(HANG_SECONDS)
    kubelet.close()


def test_a_container_gets_the_devices_of_its_request(
    driver: ScriptedDriver, kubelet: FakeKubelet
) -> None:
    kubelet.prepare(DRIVER, [ONE])
    every = v1.Device(device_name="gpu-1", pool_name="node1", cdi_device_ids=["example.com/gpu=b"])
    kubelet.claims[ONE.uid].devices += (every,)
    assert kubelet.cdi_ids(ONE.uid) == ("example.com/gpu=uid-1", "example.com/gpu=b")
    assert kubelet.cdi_ids(ONE.uid, "gpu") == ("example.com/gpu=uid-1", "example.com/gpu=b")
    assert kubelet.cdi_ids(ONE.uid, "other") == ("example.com/gpu=b",)


@pytest.mark.parametrize(("version", "lists"), [("1.33", False), ("1.34", True)])
def test_pod_resources_name_claims_from_134_on(
    root: Path, driver: ScriptedDriver, version: str, lists: bool
) -> None:
    kubelet = FakeKubelet(root, version=version)
    kubelet.prepare(DRIVER, [ONE], pod="default/a")
    claim = pods_pb.DynamicResource(
        claim_name="one",
        claim_namespace="default",
        claim_resources=[
            pods_pb.ClaimResource(
                cdi_devices=[pods_pb.CDIDevice(name="example.com/gpu=uid-1")],
                driver_name=DRIVER,
                pool_name="node1",
                device_name="gpu-0",
            )
        ],
    )
    container = pods_pb.ContainerResources(name="main", dynamic_resources=[claim] if lists else [])
    expected = pods_pb.PodResources(name="a", namespace="default", containers=[container])
    with grpc.insecure_channel(f"unix:{kubelet.pod_resources_socket}") as channel:
        ask = channel.unary_unary(
            pod_resources.METHOD,
            request_serializer=pods_pb.ListPodResourcesRequest.SerializeToString,
            response_deserializer=pods_pb.ListPodResourcesResponse.FromString,
        )
        assert list(ask(pods_pb.ListPodResourcesRequest()).pod_resources) == [expected]
    kubelet.close()


def test_no_stream_is_opened_to_a_driver_that_offers_none(
    driver: ScriptedDriver, kubelet: FakeKubelet
) -> None:
    del driver.info.supported_versions[:]
    driver.info.supported_versions.append("v1.DRAPlugin")
    assert list(kubelet.health(DRIVER)) == []


# Pods, and what is left of them.


def listed(kubelet: FakeKubelet) -> dict[str, list[str]]:
    """The claims of each pod that pod-resources name."""
    with grpc.insecure_channel(f"unix:{kubelet.pod_resources_socket}") as channel:
        ask = channel.unary_unary(
            pod_resources.METHOD,
            request_serializer=pods_pb.ListPodResourcesRequest.SerializeToString,
            response_deserializer=pods_pb.ListPodResourcesResponse.FromString,
        )
        pods = ask(pods_pb.ListPodResourcesRequest()).pod_resources
    return {
        f"{pod.namespace}/{pod.name}": [
            claim.claim_name for claim in pod.containers[0].dynamic_resources
        ]
        for pod in pods
    }


def test_a_pods_cgroup_is_there_before_its_claims_are_prepared_and_goes_after_they_are_released(
    driver: ScriptedDriver, kubelet: FakeKubelet
) -> None:
    pod = kubelet.pod_uid("default/a")
    seen: list[tuple[bool, bool]] = []
    driver.before = lambda: seen.append(
        (pod in kubelet.cgroups.pods(), kubelet.cgroups.is_running(pod))
    )
    kubelet.prepare(DRIVER, [ONE], pod="default/a")
    assert kubelet.cgroups.is_running(pod)
    kubelet.unprepare(DRIVER, [ONE], pod="default/a")
    assert seen == [(True, False), (True, False)]
    assert kubelet.cgroups.pods() == []
    assert kubelet.pod_uid("default/a") != pod


def test_no_container_runs_while_a_claim_is_not_prepared(
    driver: ScriptedDriver, kubelet: FakeKubelet
) -> None:
    driver.errors = {"uid-1": "no such device"}
    with pytest.raises(KubeletError):
        kubelet.prepare(DRIVER, [ONE], pod="default/a")
    assert kubelet.cgroups.pods() == [kubelet.pod_uid("default/a")]
    assert not kubelet.cgroups.is_running(kubelet.pod_uid("default/a"))


def test_a_pod_that_cannot_be_released_stays_and_its_containers_do_not(
    driver: ScriptedDriver, kubelet: FakeKubelet
) -> None:
    pod = kubelet.pod_uid("default/a")
    kubelet.prepare(DRIVER, [ONE], pod="default/a")
    driver.errors = {"uid-1": "busy"}
    with pytest.raises(KubeletError, match="busy"):
        kubelet.unprepare(DRIVER, [ONE], pod="default/a")
    assert kubelet.pod_uid("default/a") == pod
    assert kubelet.cgroups.pods() == [pod]
    assert not kubelet.cgroups.is_running(pod)


def test_a_force_deleted_pod_is_forgotten_at_once_and_runs_on(
    driver: ScriptedDriver, kubelet: FakeKubelet
) -> None:
    kubelet.prepare(DRIVER, [ONE], pod="default/a", uid=PodUid("pod-1"))
    assert listed(kubelet) == {"default/a": ["one"]}
    pod = kubelet.force_delete("default/a")
    assert pod == "pod-1"
    assert listed(kubelet) == {}
    assert kubelet.claims[ONE.uid].pods == {pod}

    kubelet.reconcile(DRIVER)
    assert sent(driver.calls)[-1] == ("NodeUnprepareResources", ["uid-1"])
    assert kubelet.claims == {}
    assert kubelet.cgroups.is_running(pod)
    kubelet.end_containers(pod)
    assert kubelet.cgroups.pods() == []


def test_the_loop_of_each_minute_leaves_active_pods_alone_and_tries_again_after_an_error(
    driver: ScriptedDriver, kubelet: FakeKubelet
) -> None:
    for pod in ("default/a", "default/b"):
        kubelet.prepare(DRIVER, [ONE], pod=pod)
    kubelet.prepare(DRIVER, [TWO], pod="default/b")
    kubelet.reconcile(DRIVER)
    kubelet.force_delete("default/a")
    kubelet.reconcile(DRIVER)
    assert kubelet.claims[ONE.uid].pods == {kubelet.pod_uid("default/b")}
    kubelet.force_delete("default/b")
    driver.errors = {"uid-1": "busy"}
    kubelet.reconcile(DRIVER)
    assert kubelet.claims.keys() == {ONE.uid, TWO.uid}
    driver.errors = {}
    kubelet.reconcile(DRIVER)
    assert kubelet.claims == {}


def test_a_pod_of_the_same_name_is_another_pod(
    driver: ScriptedDriver, kubelet: FakeKubelet
) -> None:
    kubelet.prepare(DRIVER, [ONE], pod="default/a")
    old = kubelet.force_delete("default/a")
    kubelet.prepare(DRIVER, [ONE], pod="default/a")
    assert kubelet.claims[ONE.uid].pods == {old, kubelet.pod_uid("default/a")}
    kubelet.reconcile(DRIVER)
    assert kubelet.claims[ONE.uid].pods == {kubelet.pod_uid("default/a")}
    assert [verb for verb, _ in sent(driver.calls)] == ["NodePrepareResources"]


def test_containers_that_end_by_themselves_leave_the_pods_cgroup(
    driver: ScriptedDriver, kubelet: FakeKubelet
) -> None:
    kubelet.prepare(DRIVER, [ONE], pod="default/a")
    pod = kubelet.pod_uid("default/a")
    kubelet.end_containers(pod)
    assert kubelet.cgroups.pods() == [pod]
    assert not kubelet.cgroups.is_running(pod)


def test_claims_of_ordinary_init_containers_are_not_listed(
    driver: ScriptedDriver, kubelet: FakeKubelet
) -> None:
    kubelet.init_pods.add("default/a")
    kubelet.prepare(DRIVER, [ONE], pod="default/a")
    assert listed(kubelet) == {"default/a": []}


def test_a_lost_checkpoint_forgets_claims_of_pods_that_run(
    driver: ScriptedDriver, kubelet: FakeKubelet
) -> None:
    kubelet.prepare(DRIVER, [ONE], pod="default/a")
    kubelet.lose_checkpoint()
    assert (kubelet.claims, listed(kubelet)) == ({}, {})
    kubelet.reconcile(DRIVER)
    assert [verb for verb, _ in sent(driver.calls)] == ["NodePrepareResources"]
    assert kubelet.cgroups.is_running(kubelet.pod_uid("default/a"))


def test_after_a_reboot_nothing_runs_and_the_claims_are_remembered(
    driver: ScriptedDriver, kubelet: FakeKubelet
) -> None:
    kubelet.prepare(DRIVER, [ONE], pod="default/a")
    kubelet.reboot()
    assert kubelet.cgroups.pods() == []
    assert not kubelet.claims[ONE.uid].prepared
    kubelet.prepare(DRIVER, [ONE], pod="default/a")
    assert kubelet.cgroups.is_running(kubelet.pod_uid("default/a"))


def test_the_driver_can_read_these_cgroups(driver: ScriptedDriver, kubelet: FakeKubelet) -> None:
    kubelet.prepare(DRIVER, [ONE], pod="default/a")
    pod = kubelet.pod_uid("default/a")
    pods = PodCgroups(kubelet.cgroup_root)
    assert isinstance(pods.presence([pod])[pod], Alive)
    kubelet.end_containers(pod)
    assert pods.presence([pod]) == {pod: Gone()}
