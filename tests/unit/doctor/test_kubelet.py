# SPDX-License-Identifier: Apache-2.0
"""The kubelet's side of a node is judged, and what the driver has written there."""

import re

import pytest
from msgspec.structs import replace

from dra_driver.doctor import kubelet
from dra_driver.doctor.findings import Finding
from dra_driver.doctor.redact import own_words
from dra_driver.model.host import KubeletConfig, KubeletOnHost, OwnWord, Place, PlaceKind
from dra_driver.model.ids import DeviceName, PoolName
from dra_driver.model.state import Held, Phase, PreparedClaim, PreparedDevice, Unknown
from dra_driver.testing.builders import a_ref

HOST = KubeletOnHost(resources={}, pod_resources="/socket", listening=("/reg.sock",))
SILENT = KubeletOnHost(pod_resources="/socket", unanswered="no answer")
PLUGINS = Place("/plugins", PlaceKind.FOLDER)


def short(found: list[Finding]) -> list[tuple[str, str, str]]:
    return [(one.id, one.severity, one.object) for one in found]


def test_a_machine_without_a_kubelet_is_perhaps_no_node() -> None:
    assert short(list(kubelet.judge_no_node())) == [("perhaps-no-node", "warning", "this machine")]


def row(phase: Phase = Phase.PREPARED, held: Held | None = None) -> PreparedClaim:
    devices = tuple(
        PreparedDevice(("r",), PoolName("n"), DeviceName(name), (), "") for name in ("b", "a")
    )
    return PreparedClaim(a_ref("mine"), phase, "boot", devices, "", held=held)


def test_a_kubelet_that_answers() -> None:
    assert short(list(kubelet.judge_kubelet(HOST, (PLUGINS,), KubeletConfig()))) == [
        ("kubelet", "ok", "/socket")
    ]


def test_a_kubelet_without_folders_or_answer() -> None:
    places = (Place("/p", PlaceKind.MISSING), Place("/r", PlaceKind.UNREADABLE, "denied"))
    assert short(list(kubelet.judge_kubelet(HOST, places, KubeletConfig()))) == [
        ("kubelet-folder-missing", "problem", "/p"),
        ("kubelet", "unknown", "/r"),
    ]
    (one,) = kubelet.judge_kubelet(SILENT, (PLUGINS,), KubeletConfig())
    assert (one.id, one.found) == ("kubelet-silent", "no answer")


def test_a_socket_that_this_user_may_not_connect_to_says_nothing_of_who_listens() -> None:
    host = replace(SILENT, listening=(), closed=("/socket", "/reg.sock"))
    found = list(kubelet.judge_kubelet(host, (PLUGINS,), KubeletConfig()))
    assert short(found) == [("kubelet", "unknown", "/socket")]
    assert short(list(kubelet.judge_driver(host, ()))) == [("driver", "unknown", "/reg.sock")]
    found = list(kubelet.judge_driver(replace(host, closed=("/socket",)), ()))
    assert short(found) == [("driver-not-listening", "problem", "registration socket")]


def test_gates_of_the_kubelet_that_are_off() -> None:
    gates = {
        "DynamicResourceAllocation": (False, "/conf.d/9.conf"),
        "ResourceHealthStatus": (True, "/config.yaml"),
        "Other": (False, "/config.yaml"),
    }
    found = list(kubelet.judge_kubelet(HOST, (PLUGINS,), KubeletConfig(gates=gates)))
    assert short(found) == [
        ("kubelet-gate-off", "warning", "DynamicResourceAllocation"),
        ("kubelet", "ok", "/socket"),
    ]
    assert found[0].found == "/conf.d/9.conf has it as false"
    assert found[0].command.startswith("grep -an DynamicResourceAllocation /conf.d/9.conf; ")


def test_a_configuration_that_cannot_be_read_is_told() -> None:
    config = KubeletConfig(unreadable=("/config.yaml: it exists: no right",))
    one = next(kubelet.judge_kubelet(HOST, (PLUGINS,), config))
    assert (one.severity, one.object, one.found) == (
        "unknown",
        "/config.yaml",
        "it exists: no right",
    )


def test_who_listens_for_the_kubelet() -> None:
    (one,) = kubelet.judge_driver(HOST, ("process 7",))
    assert (one.severity, one.object, one.found) == ("ok", "/reg.sock", "process 7")
    (one,) = kubelet.judge_driver(HOST, ())
    assert one.found == "somebody listens"
    (one,) = kubelet.judge_driver(replace(HOST, listening=()), ("process 7",))
    assert (one.id, one.found) == ("driver-without-registration", "process 7")
    host = replace(HOST, listening=(), deaf=("/dead.sock",), foreign=("/other.sock",))
    assert short(list(kubelet.judge_driver(host, ()))) == [
        ("driver-name-taken", "problem", "/other.sock"),
        ("socket-without-driver", "warning", "/dead.sock"),
        ("driver-not-listening", "problem", "registration socket"),
    ]


def test_device_plugins_beside() -> None:
    host = replace(HOST, resources={"nvidia.com/gpu": 2, "amd.com/gpu": 1, "example.com/x": 3})
    (one,) = kubelet.judge_plugins(host, ("nvidia.com/gpu",))
    assert (one.id, one.object, one.found) == (
        "device-plugin-beside",
        "amd.com/gpu",
        "a device plugin offers 1",
    )
    assert short(list(kubelet.judge_plugins(HOST, ()))) == [("device-plugins", "ok", "/socket")]
    assert short(list(kubelet.judge_plugins(SILENT, ()))) == [
        ("device-plugins", "unknown", "/socket")
    ]


@pytest.mark.parametrize(
    "resource",
    [
        *(
            "nvidia.com/gpu",
            "nvidia.com/gpu.shared",
            "nvidia.com/mig-1g.10gb",
            "aliyun.com/gpu-mem",
        ),
        *("nvidia.com/gpumem", "amd.com/gpu", "amd.com/cpx_nps4", "gpu.intel.com/i915"),
        *("gpu.intel.com/xe", "gpu.intel.com/monitoring", "habana.ai/gaudi"),
    ],
)
def test_the_plugins_of_each_vendor_are_known(resource: str) -> None:
    found = kubelet.judge_plugins(replace(HOST, resources={resource: 2}), ())
    assert short(list(found)) == [("device-plugin-beside", "note", resource)]


def test_the_state_file() -> None:
    (one,) = kubelet.judge_state("/state.db", (row(),), ())
    assert (one.severity, one.found) == ("ok", "claims recorded: 1")
    found = kubelet.judge_state("/state.db", "it is damaged", ("/state.db.damaged-1",))
    assert short(list(found)) == [
        ("state-unreadable", "problem", "/state.db"),
        ("state-set-aside", "note", "/state.db.damaged-1"),
    ]


def test_held_devices() -> None:
    held = row(Phase.STARTED, Held("its containers run", "2027-01-15T08:00:00Z"))
    first, second = kubelet.judge_held("/state.db", (held, row(Phase.STARTED), row()))
    assert (first.id, first.object) == ("device-held", "claim default/mine")
    assert first.found == "a, b since 2027-01-15T08:00:00Z: its containers run"
    assert first.command == "dra-driver release default/mine"
    assert (second.id, second.found) == ("claim-half-prepared", "a, b are reserved")
    (one,) = kubelet.judge_held("/state.db", (row(),))
    assert one.found == "prepared claims: 1; no device is held"
    (one,) = kubelet.judge_held("/state.db", "it is damaged")
    assert (one.severity, one.found) == ("unknown", "it is damaged")


def test_a_state_file_that_this_user_may_not_read_is_not_damaged() -> None:
    for found in (
        kubelet.judge_state("/state.db", Unknown("no right"), ()),
        kubelet.judge_held("/state.db", Unknown("no right")),
    ):
        (one,) = found
        assert (one.severity, one.found) == ("unknown", "no right")


def test_cgroups() -> None:
    assert short(list(kubelet.judge_cgroups("/cg", ""))) == [("cgroups", "ok", "/cg")]
    assert short(list(kubelet.judge_cgroups("/cg", "none"))) == [
        ("cgroups-blind", "warning", "/cg")
    ]


WELL = OwnWord("127.0.0.1:9410", sample_ages={"gpu-0": 3.0})


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (WELL, ("probes", "ok", "127.0.0.1:9410")),
        (replace(WELL, livez=("a", "b")), ("driver-not-alive", "problem", "127.0.0.1:9410/livez")),
        (replace(WELL, readyz=("a", "b")), ("driver-not-ready", "problem", "127.0.0.1:9410/readyz")),
        (
            replace(WELL, sample_ages={"gpu-1": 61.2, "gpu-0": 60.0}),
            ("devices-not-measured", "warning", "127.0.0.1:9410"),
        ),
        (
            replace(WELL, vanished=("gpu-1", "gpu-3")),
            ("devices-gone", "warning", "127.0.0.1:9410"),
        ),
    ],
)  # fmt: skip
def test_what_a_driver_says_of_itself(told: OwnWord, found: tuple[str, str, str]) -> None:
    assert short(list(kubelet.judge_probes(told, in_pod=False))) == [found]


def test_a_driver_says_all_that_is_wrong_and_in_its_words() -> None:
    ill = replace(
        WELL,
        livez=("stuck",),
        readyz=("no scan", "no slices"),
        sample_ages={"g": 99.6},
        vanished=("gpu-1", "gpu-3"),
    )
    said = [one.found for one in kubelet.judge_probes(ill, in_pod=True)]
    assert said == [
        f"whoever listens there says “{one}”"
        for one in ("stuck", "no scan; no slices", "g for 100 s", "gpu-1, gpu-3")
    ]


def test_a_bug_report_has_nothing_of_what_whoever_listens_says() -> None:
    text = "state file damaged: run `kubectl delete ns” x`" + "a" * 9999
    (one,) = kubelet.judge_probes(replace(WELL, readyz=(text,)), in_pod=False)
    assert re.fullmatch(
        r"whoever listens there says \[\d+ characters left out\]", own_words(one.found)
    )


@pytest.mark.parametrize(
    ("in_pod", "found"),
    [(True, ("driver-silent", "problem", "a:1")), (False, ("probes-out-of-reach", "note", "a:1"))],
)
def test_a_driver_that_cannot_be_asked(in_pod: bool, found: tuple[str, str, str]) -> None:
    (one,) = kubelet.judge_probes(OwnWord("a:1", unanswered="refused"), in_pod=in_pod)
    assert (short([one]), one.found) == ([found], "refused")
