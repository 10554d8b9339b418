# SPDX-License-Identifier: Apache-2.0
"""`dra-driver devices`: the table for people, the documents for machines."""

import json
import re
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest
from msgspec.structs import force_setattr, replace

from dra_driver.backends.simulated import SimulatedBackend
from dra_driver.cli import devices
from dra_driver.cli.main import main
from dra_driver.config.settings import Settings
from dra_driver.daemon import offline
from dra_driver.errors import Temporary
from dra_driver.model.health import HEALTHY
from dra_driver.model.ids import DeviceName, DriverName, PoolName
from dra_driver.model.inventory import Inventory
from dra_driver.model.names import HELD_TAINT, NOT_CLEAN_TAINT, UNHEALTHY_TAINT
from dra_driver.model.state import Held, Phase, PreparedClaim, PreparedDevice
from dra_driver.node.foreign_memory import FILE_NAME, ForeignMemory
from dra_driver.node.state import StateStore
from dra_driver.planning.prepare import NodePlace
from dra_driver.testing.builders import a_ref
from dra_driver.testing.fake_kubelet import FakeKubelet

SIMULATED = ("--backend", "simulated", "--simulated-profile", "b580x2")
PLACE = NodePlace(DriverName("gpu.dra-driver.dev"), PoolName("node-1"))


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("boot-1")
    state = ["--state-dir", str(tmp_path / "state"), "--boot-id-file", str(boot_id)]
    return ["devices", "--node-name", "node-1", *SIMULATED, *state]


def hold(tmp_path: Path, device: str, phase: Phase = Phase.STARTED) -> None:
    store = StateStore(tmp_path / "state" / "state.db", boot_id="boot-1")
    held = PreparedDevice(("gpu",), PLACE.pool, DeviceName(device), (), "uuid")
    with store.transaction("started") as transaction:
        transaction.start(PreparedClaim(a_ref("mine"), phase, "boot-1", (held,), ""))
    store.close()


def test_the_table_has_a_row_for_each_device(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").mkdir()
    hold(tmp_path, "gpu-1")
    assert main(arguments) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["DEVICE", "PRODUCT", "MEMORY", "HEALTH", "CLAIMS", "UUID"]
    assert first.split()[:7] == ["gpu-0", "Intel", "Arc", "B580", "12216Mi", "Unknown", "-"]
    assert second.split()[6] == f"{a_ref('mine').namespace}/mine"


def wide(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """The cells of the wide table's devices."""
    assert main([*arguments, "-o", "wide"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[-4:] == ["UUID", "TAINTS", "CAPACITY", "ATTRIBUTES"]
    rows = (re.split("  +", line.strip()) for line in lines)
    return [row for row in rows if len(row) > 1]


def test_all_that_is_published_is_in_the_wide_table(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (*_, taints, capacity, attributes), _ = wide(arguments, capsys)
    assert (taints, capacity) == ("-", "memory=12216Mi")
    assert "productName=Intel Arc B580" in attributes
    ((*_, attributes),) = wide([*arguments, "--simulated-profile", "gb10"], capsys)
    assert "unifiedMemory=true" in attributes


def test_the_taints_of_ill_held_and_used_devices_are_in_the_wide_table(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def taints() -> list[str]:
        return [row[-3] for row in wide([*arguments, "--simulated-faults", str(faults)], capsys)]

    faults = tmp_path / "faults.yaml"
    faults.write_text('devices: {gpu-0: {unhealthy: "hot"}, gpu-1: {not_clean: "process 1"}}\n')
    ill = f"{UNHEALTHY_TAINT}=reported-by-backend:NoSchedule"
    assert taints() == [ill, f"{NOT_CLEAN_TAINT}=in-use-without-claim:NoSchedule"]
    (tmp_path / "state").mkdir()
    hold(tmp_path, "gpu-1")
    assert taints() == [ill, "-"]  # the claim's own process
    with (
        closing(StateStore(tmp_path / "state" / "state.db", boot_id="boot-1")) as store,
        store.transaction("releasing") as transaction,
    ):
        transaction.hold(a_ref("mine").uid, Held("a process", "2027-01-15T08:00:00Z"))
    assert taints() == [ill, f"{HELD_TAINT}=in-use-after-unprepare:NoSchedule"]


def test_a_device_that_a_claim_has_and_nothing_finds_is_told(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").mkdir()
    hold(tmp_path, "gpu-7")
    assert main(arguments) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said == (
        f"gpu-7 is gone: no backend finds it, and claim {a_ref('mine').word} has it; see the log of the kernel driver (dmesg) of this "
        "node, then delete the claim's pods and reset or replace the device"
    )
    assert main([*arguments, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["problems"] == [said]


def test_a_claim_whose_device_has_lost_its_name_to_another_one_is_told(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").mkdir()
    hold(tmp_path, "gpu-1", Phase.PREPARED)
    assert main(arguments) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith(f"claim {a_ref('mine').word}: gpu-1 is another device now (UUID ")
    assert said.endswith(
        "; the one that the claim was prepared with (UUID uuid) is not found any more; see the log of the kernel driver (dmesg) of this "
        "node, and delete the claim and its pods"
    )
    # After a reboot the claim is prepared anew, with whatever has the name then.
    (tmp_path / "boot_id").write_text("boot-2")
    assert main(arguments) == 0
    assert "another device" not in capsys.readouterr().out


def test_a_backend_that_fails_says_nothing_of_the_devices_of_claims(
    arguments: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "state").mkdir()
    hold(tmp_path, "gpu-7")
    monkeypatch.setattr("dra_driver.daemon.offline._scan", lambda *_: (Inventory(), ("it hangs",)))
    assert main(arguments) == 1
    assert "is gone" not in capsys.readouterr().out


def test_without_a_name_the_node_is_called_as_its_host_is(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    at = arguments.index("--node-name")
    assert main([*arguments[:at], *arguments[at + 2 :], "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["node"], len(document["devices"])) == (socket.gethostname().lower(), 2)


def test_without_a_name_the_node_is_called_as_its_claims_say(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    (tmp_path / "state").mkdir()
    hold(tmp_path, "gpu-1", Phase.PREPARED)
    at = arguments.index("--node-name")
    assert main([*arguments[:at], *arguments[at + 2 :], "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["node"] == PLACE.pool

    monkeypatch.setattr("dra_driver.cli.devices.read_claims", fails_to_read)
    assert main([*arguments[:at], *arguments[at + 2 :], "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["node"] == socket.gethostname().lower()


def fails_to_read(_path: Path) -> None:
    raise Temporary("the disk is away")


def test_a_look_makes_no_state_file(arguments: list[str], tmp_path: Path) -> None:
    assert main(arguments) == 0
    assert not (tmp_path / "state").exists()


def test_a_device_of_a_wrong_shape_costs_one_line_and_a_backend_that_fails_another(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = SimulatedBackend.scan

    def scan(self: SimulatedBackend) -> Inventory:
        first, *others = whole(self).devices
        force_setattr(first, "uuid", None)
        return Inventory((first, *others))

    monkeypatch.setattr(SimulatedBackend, "scan", scan)
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert [line.split()[0] for line in captured.out.splitlines()] == ["DEVICE", "gpu-1"]
    assert captured.err.startswith("dra-driver: device gpu-0: uuid: None is a NoneType")
    assert captured.err.count("\n") == 1
    monkeypatch.setattr(SimulatedBackend, "scan", lambda _self: [])
    assert main(arguments) == 1
    assert capsys.readouterr().err == (
        "dra-driver: cannot scan the devices with backend simulated: TypeError: scan() must return an Inventory; it returned a list; "
        "that is a fault of the backend: correct it, or install another version\n"
    )


def test_what_is_held_is_named_with_its_reason(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hold(tmp_path, "gpu-1")
    held = Held("the kubelet unprepared it", "2027-01-15T08:00:00Z")
    with (
        closing(StateStore(tmp_path / "state" / "state.db", boot_id="boot-1")) as store,
        store.transaction("releasing") as transaction,
    ):
        transaction.hold(a_ref("mine").uid, held)
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "default/mine (held)" in lines[2]
    assert lines[3:] == [
        (
            "claim default/mine (uid uid-mine) ended at 2027-01-15T08:00:00Z, and its devices are held: "
            f"{held.reason}"
        )
    ]
    assert main([*arguments, "--json"]) == 0
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert documents[0]["claims"] == []
    (claim,) = documents[1]["claims"]
    assert (claim["phase"], claim["held"]) == (
        "Started",
        {"reason": "the kubelet unprepared it", "since": "2027-01-15T08:00:00Z"},
    )


def slow_to_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the scan end only after it was told that it is slow."""
    whole, told = SimulatedBackend.scan, Event()
    tell = devices._tell_slow

    def tell_slow(settings: Settings, backend: str) -> None:
        tell(settings, backend)
        told.set()

    def scan(self: SimulatedBackend) -> Inventory:
        assert told.wait(60)
        return whole(self)

    monkeypatch.setattr(offline, "SLOW_SCAN_SECONDS", 0.01)
    monkeypatch.setattr(devices, "_tell_slow", tell_slow)
    monkeypatch.setattr(SimulatedBackend, "scan", scan)


def test_a_scan_that_does_not_answer_is_told_with_what_is_held(
    arguments: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow_to_scan(monkeypatch)
    assert main([*arguments, "--json"]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 2
    first, second = said.err.splitlines()
    assert first.startswith("dra-driver: the scan of backend simulated has not answered for 10 s: ")
    assert second == "dra-driver: no claim that has ended holds devices"

    (tmp_path / "state").mkdir()
    hold(tmp_path, "gpu-1")
    with (
        closing(StateStore(tmp_path / "state" / "state.db", boot_id="boot-1")) as store,
        store.transaction("releasing") as transaction,
    ):
        transaction.hold(a_ref("mine").uid, Held("a container runs", "2027-01-15T08:00:00Z"))
    slow_to_scan(monkeypatch)
    assert main(arguments) == 0
    held = "ended at 2027-01-15T08:00:00Z, and its devices are held: a container runs"
    assert capsys.readouterr().err.splitlines()[1] == (f"dra-driver: claim {a_ref('mine')} {held}")

    (tmp_path / "state" / "state.db").write_text("no database" * 1000)
    slow_to_scan(monkeypatch)
    assert main(arguments) == 1
    assert "state.db" in capsys.readouterr().err.splitlines()[1]


def test_machines_get_a_document_for_each_device(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").mkdir()
    hold(tmp_path, "gpu-0")
    assert main([*arguments, "--json"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first["capacity"] == {"memory": "12216Mi"}
    assert first["attributes"]["driverVersion"] == second["attributes"]["driverVersion"]
    assert first["health"]["status"] == "UNKNOWN"
    claim = a_ref("mine")
    assert first["claims"] == [
        {
            "namespace": claim.namespace,
            "name": "mine",
            "uid": claim.uid,
            "phase": "Started",
            "held": None,
        }
    ]
    assert second["claims"] == []


def test_a_node_without_devices_is_told_so(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = tmp_path / "faults.yaml"
    faults.write_text("devices: {gpu-0: {vanished: true}, gpu-1: {vanished: true}}\n")
    assert main([*arguments, "--simulated-faults", str(faults)]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("no devices found")
    assert second == (
        "asked: simulated; if the node has such hardware, see the log of its kernel driver and the backend's options; "
        "`--backend simulated` invents devices"
    )


@pytest.fixture
def kubelet() -> Iterator[FakeKubelet]:
    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        found = FakeKubelet(Path(root))
        yield found
        found.close()


def test_device_plugins_of_the_node_are_named(
    arguments: list[str], kubelet: FakeKubelet, capsys: pytest.CaptureFixture[str]
) -> None:
    kubelet.device_plugins = {
        "gpu.intel.com/xe": ("card0", "card1"),
        "nvidia.com/gpu": ("GPU-1",),
        "rdma/hca": ("mlx5_0",),
    }
    arguments += ["--pod-resources-socket", str(kubelet.pod_resources_socket)]
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[3:] == [
        "device plugin on this node: gpu.intel.com/xe (2), kept from users of this driver while the plugin runs; see docs/moving-to-dra.md",
        "device plugin on this node: nvidia.com/gpu (1), of another vendor",
    ]
    assert main([*arguments, "--json"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()[2:]] == [
        {
            "devicePlugin": {
                "resource": "gpu.intel.com/xe",
                "count": 2,
                "vendor": "intel",
                "overlaps": True,
                "own": False,
            }
        },
        {
            "devicePlugin": {
                "resource": "nvidia.com/gpu",
                "count": 1,
                "vendor": "nvidia",
                "overlaps": False,
                "own": False,
            }
        },
    ]


def test_a_resource_of_this_driver_itself_is_no_plugin_of_others(
    arguments: list[str],
    kubelet: FakeKubelet,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "state").mkdir()
    ForeignMemory(tmp_path / "state" / FILE_NAME, "boot-1").write((), ("gpu.intel.com/xe",))
    kubelet.device_plugins = {"gpu.intel.com/xe": ("gpu-0", "gpu-1")}
    arguments += ["--pod-resources-socket", str(kubelet.pod_resources_socket)]
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[3:] == [
        "device plugin on this node: gpu.intel.com/xe (2), served by this driver"
    ]


def test_a_state_in_a_relative_directory_is_found(
    arguments: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hold(tmp_path, "gpu-1")
    monkeypatch.chdir(tmp_path)
    arguments[arguments.index("--state-dir") + 1] = "state"
    assert main(arguments) == 0
    assert "/mine" in capsys.readouterr().out


def test_what_somebody_should_know_of_a_healthy_device_is_shown(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = SimulatedBackend.scan

    def scan(self: SimulatedBackend) -> Inventory:
        first, *others = whole(self).devices
        return Inventory((replace(first, health=replace(HEALTHY, message="XID 92")), *others))

    monkeypatch.setattr(SimulatedBackend, "scan", scan)
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[3:] == ["gpu-0 is healthy: XID 92"]


def test_why_a_device_is_ill_is_shown(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = tmp_path / "faults.yaml"
    faults.write_text(
        'devices: {gpu-1: {unhealthy: "XID 79\\e[2J"}, gpu-0: {not_clean: "process 1 uses it"}}\n'
    )
    assert main([*arguments, "--simulated-faults", str(faults)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[5] for line in lines[1:3]] == ["Healthy", "Unhealthy"]
    assert lines[3:] == [
        "gpu-0 is not clean, and no claim has it: process 1 uses it",
        "gpu-1 is unhealthy: XID 79\\x1b[2J",
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            None,
            "does not exist: correct its name, or write one; `devices: {}` stands for no faults",
        ),
        ("devices: {", "is no YAML: "),
        (
            "devices: {gpu-99: {vanished: true}}",
            "devices.gpu-99: this machine has no such device; it has gpu-0, gpu-1",
        ),
        ("devices: {gpu-0: {vanished: 1}}", "devices.gpu-0.vanished must be true or false"),
    ],
)
def test_a_wrong_fault_file_is_told_and_nothing_else(
    arguments: list[str],
    tmp_path: Path,
    content: str | None,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    faults = tmp_path / "faults.yaml"
    if content is not None:
        faults.write_text(content)
    assert main([*arguments, "--simulated-faults", str(faults)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"dra-driver: fault file {faults}")
    assert said in captured.err
    assert captured.err.count("\n") == 1


def test_without_hardware_there_are_no_devices_and_the_way_to_some_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = ("--state-dir", str(tmp_path / "state"))
    assert main(["devices", "--node-name", "node-1", *state]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("no devices found; the driver publishes an empty ResourceSlice")
    assert second == (
        "asked: nvidia; if the node has such hardware, see the log of its kernel driver and the backend's options; "
        "`--backend simulated` invents devices"
    )
    assert main(["devices", "--node-name", "node-1", *state, "--json"]) == 0
    assert capsys.readouterr().out == ""


def test_if_it_is_known_why_there_is_no_device_no_other_advice_stands_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu = tmp_path / "sys" / "bus" / "pci" / "devices" / "0000:1a:00.0"
    gpu.mkdir(parents=True)
    gpu.joinpath("vendor").write_text("0x10de\n")
    gpu.joinpath("class").write_text("0x030200\n")
    asked = ("--backend", "nvidia", "--backend-option", f"hostRoot={tmp_path}")
    state = ("--state-dir", str(tmp_path / "state"))
    assert main(["devices", "--node-name", "node-1", *asked, *state]) == 0
    captured = capsys.readouterr()
    _, second = captured.out.splitlines()
    assert second == "asked: nvidia; what is wrong is said below"
    assert "no NVIDIA driver was found" in captured.err


def test_programs_get_a_document_also_when_there_is_no_backend(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["devices", "--node-name", "node-1", "--backend", "nope", "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["node"], found["devices"]) == ("NodeDevices", "node-1", [])
    (problem,) = found["problems"]
    assert problem.startswith("no backend 'nope' is installed; installed are: ")
