# SPDX-License-Identifier: Apache-2.0
"""The simulated backend plays machines with real names and sizes, and falls ill on demand."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from dra_driver.backends import recording
from dra_driver.backends.base import Backend, BackendContext
from dra_driver.backends.example import ExampleOptions
from dra_driver.backends.partitions import MIG_80GB
from dra_driver.backends.profiles import MIB, PROFILES, Group, Profile, Slot
from dra_driver.backends.recorded import RecordedBackend, RecordedOptions
from dra_driver.backends.simulated import (
    POLL_SECONDS,
    WITHOUT_FAULT_FILE,
    SimulatedBackend,
    SimulatedOptions,
)
from dra_driver.backends.simulated_config import (
    GPU,
    GPU_OF_LATER_RELEASES,
    LABEL,
    LabelConfig,
)
from dra_driver.errors import DriverError, Fatal, Permanent, Temporary
from dra_driver.model.cdi import ContainerEdits, DeviceNode
from dra_driver.model.decoding import Mistake, Text, decode
from dra_driver.model.device import AllocatableDevice, Version, attributes, plain
from dra_driver.model.health import HEALTHY, Health, HealthStatus
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware, InUse, Lease
from dra_driver.model.quantity import Quantity
from dra_driver.model.vocabulary import ALL, ATTRIBUTES, CAPACITIES
from dra_driver.planning.slices import plan_pool
from dra_driver.testing.builders import a_uid
from tests.support.api_values import found_device
from tests.support.boards import H100
from tests.support.hardware import Seen, Use, seen

GPU_5 = "GPU-3b95f30e-dcd7-5d7f-9b63-3ff40295a942"  # changes never: pods find their device by it

WIRE_NAMES = {"list of strings": "strings"}  # of the types in the API


def backend(**options: str) -> SimulatedBackend:
    return SimulatedBackend(BackendContext("node-1", options_from(options)))


def options_from(texts: dict[str, str]) -> SimulatedOptions:
    """The options as a command line gives them."""
    given = {name: Text(text) for name, text in texts.items()}
    options, mistakes = decode(given, SimulatedOptions)
    assert options is not None, mistakes
    return options


def scan(**options: str) -> Inventory:
    made: Backend = backend(**options)
    return made.scan()


def played(name: str) -> Inventory:
    options = RecordedOptions(file=name)
    return RecordedBackend(BackendContext("node-1", options)).scan()


def a_lease(device: str, name: str = "claim", **more: Any) -> Lease:
    return Lease(a_uid(name), "gpu", DeviceName(device), **more)


def said(device: AllocatableDevice) -> dict[str, object]:
    return {name: plain(value) for name, value in (device.api.attributes or {}).items()}


def sizes(device: AllocatableDevice) -> dict[str, object]:
    return {name: size.value for name, size in (device.api.capacity or {}).items()}


def test_the_default_is_a_machine_with_eight_h100():
    assert scan() == scan(profile="h100x8")
    assert scan().devices[5] == found_device(
        name="gpu-5",
        uuid=GPU_5,
        attributes={
            "index": 5,
            "minor": 5,
            "uuid": GPU_5,
            "type": "gpu",
            "vendor": "nvidia",
            "productName": "NVIDIA H100 80GB HBM3",
            "brand": "Nvidia",
            "architecture": "Hopper",
            "cudaComputeCapability": Version("9.0.0"),
            "cudaDriverVersion": Version("12.4.0"),
            "driverVersion": Version("550.54.15"),
            "memoryMiB": 81559,
            "usableMemoryMiB": 81008,
            "unifiedMemory": False,
            "serial": "0000000000006",
            "gpuModuleID": 6,
            "driverStackID": "nvidia-550.54.15",
            "ccMode": "off",
            "linkIsland": "0000:1a:00.0",
            "pcieBusID": "0000:8b:00.0",
            "resource.kubernetes.io/pciBusID": "0000:8b:00.0",
            "resource.kubernetes.io/pcieRoot": "pci0000:85",
            "resource.kubernetes.io/numaNode": 1,
        },
        capacity={"memory": Quantity.parse("81559Mi")},
        health=WITHOUT_FAULT_FILE,
        hardware=Hardware(GPU_5),
    )
    assert WITHOUT_FAULT_FILE.status is HealthStatus.UNKNOWN


@pytest.mark.parametrize(
    ("profile", "count", "product", "memory"),
    [
        ("h100x8", 8, "NVIDIA H100 80GB HBM3", "81559Mi"),
        ("a100x8", 8, "NVIDIA A100-SXM4-80GB", "80Gi"),
        ("l40sx4", 4, "NVIDIA L40S", "46068Mi"),
        ("mi300x8", 8, "AMD Instinct MI300X OAM", "196592Mi"),
        ("b580x2", 2, "Intel Arc B580", "12216Mi"),
        ("gaudi3x8", 8, "Gaudi3 HL-325", "128Gi"),
    ],
)
def test_each_profile_plays_real_products(profile: str, count: int, product: str, memory: str):
    devices = scan(profile=profile).devices
    assert [device.name for device in devices] == [f"gpu-{index}" for index in range(count)]
    assert {said(device)["productName"] for device in devices} == {product}
    assert {size for device in devices for size in sizes(device).values()} == {memory}
    assert {said(device)["memoryMiB"] for device in devices} == {
        Quantity.parse(memory).nanos // 10**9 // MIB
    }


def test_the_mixed_machine_has_four_products_of_three_makers():
    devices = scan(profile="mixed").devices
    assert [(said(device)["vendor"], said(device)["index"]) for device in devices] == [
        ("nvidia", 0),
        ("nvidia", 1),
        ("nvidia", 2),
        ("nvidia", 3),
        ("amd", 4),
        ("intel", 5),
    ]


def of_node(node: str, profile: str) -> Inventory:
    return SimulatedBackend(BackendContext(node, SimulatedOptions(profile=profile))).scan()


def test_nodes_have_uuids_of_their_own_and_a_fabric_in_common():
    one, other = of_node("node-1", "gb200x4").devices, of_node("node-2", "gb200x4").devices
    assert {device.uuid for device in one}.isdisjoint(device.uuid for device in other)
    fabrics = {said(device)["fabricID"] for device in (*one, *other)}
    assert len(fabrics) == 1


def test_a_machine_with_mig_devices_has_those_of_its_recording():
    found, recorded = of_node("node-1", "a100-mig"), played("a100-mig")
    assert [one.name for one in found.devices] == [one.name for one in recorded.devices]
    assert list(map(sizes, found.devices)) == list(map(sizes, recorded.devices))
    assert found.counter_sets == recorded.counter_sets
    assert found.partition_type_attribute == "profile"
    parents = {said(one)["parentUUID"] for one in found.devices}
    assert parents == {one.resource.parent for one in found.devices}
    assert len(parents) == 2
    assert {one.health for one in found.devices} == {WITHOUT_FAULT_FILE}
    assert not any(one.declares for one in found.devices)


def test_the_example_profile_has_the_example_drivers_devices():
    found = scan(profile="example")
    assert backend(profile="example").config_kinds == (LABEL, GPU, GPU_OF_LATER_RELEASES)
    assert backend().config_kinds == (LABEL,)
    assert len(found.devices) == 8
    first = found.devices[0]
    assert first.api.attributes == attributes(
        {
            "index": 0,
            "uuid": first.uuid,
            "model": "LATEST-GPU-MODEL",
            "driverVersion": Version("1.0.0"),
        }
    )
    assert first.uuid.startswith("gpu-")
    assert sizes(first) == {"memory": "80Gi", "compute": "100"}


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_every_profile_is_within_the_apis_limits(profile: str):
    found = scan(profile=profile)
    assert plan_pool(found, kept=()).problems == ()
    buses = [said(device).get("resource.kubernetes.io/pciBusID") for device in found.devices]
    assert len(set(buses)) == {"example": 1, "a100-mig": 2}.get(profile, len(buses))
    assert all(
        said(device).get("resource.kubernetes.io/numaNode") in (None, 0, 1)
        for device in found.devices
    )


def test_devices_of_a_new_profile_have_the_names_of_their_pci_addresses():
    names = [device.name for device in scan(profile="h200x8").devices]
    assert names[:2] == ["gpu-0000-1a-00-0", "gpu-0000-1b-00-0"]


@pytest.mark.parametrize("profile", sorted(PROFILES.keys() - {"h200x8", "a100-mig"}))
def test_devices_of_released_profiles_keep_their_numbers(profile: str):
    """Rows of prepared claims have these names: with other names an update would offer devices of running pods again."""
    names = [device.name for device in scan(profile=profile).devices]
    assert names == [f"gpu-{index}" for index in range(len(names))]


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_every_profile_publishes_only_names_of_the_vocabulary_with_its_types(profile: str):
    kinds = {term.name: term.kind for term in ATTRIBUTES if not term.reserved}
    sizes = {term.name for term in CAPACITIES if not term.reserved}
    for device in scan(profile=profile).devices:
        for name, value in (device.api.attributes or {}).items():
            assert msgspec.to_builtins(value).keys() == {WIRE_NAMES.get(kinds[name], kinds[name])}
        assert (device.api.capacity or {}).keys() <= sizes


def test_every_name_of_the_vocabulary_that_is_not_reserved_is_published_by_its_vendors():
    published: dict[str, set[str]] = {}
    machines = [scan(profile=profile) for profile in PROFILES]
    for options in (
        {"partitions": 2},
        {"profile": "net"},
        {"profile": "cpu"},
    ):
        example = msgspec.convert(options, ExampleOptions)
        options_of = SimulatedOptions(profile="example", example=example)
        machines.append(SimulatedBackend(BackendContext("node-1", options_of)).scan())
    machines += [played(name) for name in recording.shipped()]
    for machine in machines:
        for device in machine.devices:
            vendor = str(said(device).get("vendor", "example"))
            for name in (*said(device), *sizes(device)):
                published.setdefault(name, set()).add(vendor)
    for term in (*ATTRIBUTES, *CAPACITIES):
        if not term.reserved:
            vendors = published.pop(term.name)
            assert term.vendors == ALL or vendors - {"example"} == set(term.vendors) - {"example"}
    assert published == {}


@pytest.mark.parametrize("profile", ["h100x8", "a100x8", "mi300x8", "gaudi3x8", "l40sx4"])
def test_half_of_the_devices_sit_on_each_numa_node(profile: str):
    nodes = [
        said(device)["resource.kubernetes.io/numaNode"] for device in scan(profile=profile).devices
    ]
    assert nodes == sorted(nodes)
    assert nodes.count(0) == nodes.count(1) == len(nodes) // 2


def test_uuids_are_the_same_after_a_restart_and_others_on_another_node():
    uuids = [device.uuid for device in scan().devices]
    other = SimulatedBackend(BackendContext("node-2", SimulatedOptions())).scan()
    assert [device.uuid for device in scan().devices] == uuids
    assert len({*uuids, *(device.uuid for device in other.devices)}) == 16


def test_the_major_number_can_be_chosen_among_those_for_local_use():
    edits = backend(major="61").configure(a_lease("gpu-3"))
    assert edits.device_nodes == (DeviceNode("/dev/dra-simulated/gpu-3", major=61, minor=3),)


@pytest.mark.parametrize(
    ("options", "mistakes"),
    [
        (
            {"profile": "h100", "major": 195},
            (
                Mistake(
                    "profile",
                    f"'h100' must be one of {', '.join(PROFILES)} "
                    "(The machine that it simulates; docs/reference/profiles.md has all)",
                ),
                Mistake(
                    "major",
                    "195 must be one of 60, 61, 62, 63, 120, 121, 122, 123, 124, 125, 126, 127 "
                    "(The major number of its device files, one that Linux reserves for local use)",
                ),
            ),
        ),
        (
            {"profil": "h100x8"},
            (
                Mistake(
                    "profil", "unknown field; known are profile, faults, major, journal, example"
                ),
            ),
        ),
    ],
)
def test_wrong_options_are_all_refused_with_what_there_is(
    options: dict[str, object], mistakes: tuple[Mistake, ...]
):
    assert decode(options, SimulatedOptions) == (None, mistakes)


# The fault file.


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    path = tmp_path / "faults.yaml"
    path.write_text("devices: {}\n")
    return path


def test_with_a_fault_file_devices_are_healthy_unless_it_says_otherwise(faults: Path):
    made = backend(profile="b580x2", faults=str(faults))
    assert [device.health for device in made.scan().devices] == [HEALTHY, HEALTHY]
    faults.write_text("devices: {gpu-1: {unhealthy: 'XID 79'}}")
    assert [device.health for device in made.scan().devices] == [
        HEALTHY,
        Health(HealthStatus.UNHEALTHY, "XID 79"),
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "does not exist"),
        ("- 1", "must be a mapping"),
        ("devices: {gpu-2: {}}", "devices.gpu-2: this machine has no such device"),
    ],
)
def test_a_fault_file_has_to_be_right_at_start(faults: Path, content: str | None, said: str):
    faults.unlink()
    if content is not None:
        faults.write_text(content)
    with pytest.raises(Fatal, match=said):
        backend(profile="b580x2", faults=str(faults))


def test_a_device_that_the_file_names_wrongly_later_leaves_the_last_good_one_in_force(faults: Path):
    with capture_logs() as logs:
        made = backend(profile="b580x2", faults=str(faults))
        faults.write_text("devices: {gpu-0: {vanished: true}}")
        good = made.scan()
        faults.write_text("devices: {gpu-99: {vanished: true}}")
        assert made.scan() == good
    assert [line["event"] for line in logs] == ["fault_file_ignored"]


def test_a_device_vanishes_and_comes_back_as_the_same(faults: Path):
    made = backend(profile="b580x2", faults=str(faults))
    before = made.scan()
    faults.write_text("devices: {gpu-0: {vanished: true}}")
    assert made.scan().devices == before.devices[1:]
    faults.unlink()
    assert made.scan() == before


def test_a_device_refuses_to_be_set_up_for_now_or_for_good(faults: Path):
    faults.write_text(
        "devices: {gpu-0: {configure: broken}, gpu-1: {configure: {error: busy, temporary: true}}}"
    )
    made = backend(faults=str(faults))
    first, second, third, *_ = made.scan().devices

    def error(device: AllocatableDevice) -> DriverError:
        with pytest.raises(DriverError) as caught:
            made.configure(a_lease(device.name))
        return caught.value

    assert (type(error(first)), str(error(first))) == (
        Permanent,
        f"simulated device gpu-0 cannot be set up: broken (from the fault file {faults})",
    )
    assert type(error(second)) is Temporary
    made.configure(a_lease(third.name))
    made.reset(a_lease(third.name))


def test_a_broken_file_leaves_the_last_good_one_in_force_and_is_told_once(faults: Path):
    faults.write_text("devices: {gpu-0: {vanished: true}}")
    with capture_logs() as logs:
        made = backend(profile="b580x2", faults=str(faults))
        good = made.scan()
        faults.write_text("devices: {gpu-0: {vanished: perhaps}}")
        assert [made.scan() for _ in range(3)] == [good] * 3
    assert [line["event"] for line in logs] == ["fault_file_ignored"]
    assert logs[0]["error"] == f"fault file {faults}: devices.gpu-0.vanished must be true or false"


def test_an_unreadable_file_is_told_once_and_again_after_it_was_readable(faults: Path):
    with capture_logs() as logs:
        made = backend(profile="b580x2", faults=str(faults))
        faults.unlink()
        faults.mkdir()
        made.scan()
        made.scan()
        faults.rmdir()
        made.scan()
        faults.mkdir()
        made.scan()
    assert [line["event"] for line in logs] == ["fault_file_ignored"] * 2


class Steps:
    """A `wait` that does the next thing instead of waiting, and says "stop" when nothing is left."""

    def __init__(self, *steps: object) -> None:
        self.steps = list(steps)
        self.seconds: list[float] = []

    def __call__(self, _stop: Event, seconds: float) -> bool:
        self.seconds.append(seconds)
        if not self.steps:
            return True
        step = self.steps.pop(0)
        if callable(step):
            step()
        return False


def watched(faults: Path, *steps: object) -> tuple[SimulatedBackend, Iterator[None], Steps]:
    wait = Steps(*steps)
    made = SimulatedBackend(
        BackendContext("node-1", SimulatedOptions(faults=str(faults))), wait=wait
    )
    return made, made.watch(Event()), wait


def test_watch_tells_each_change_of_the_file_once(faults: Path):
    made, changes, wait = watched(
        faults,
        None,
        lambda: faults.write_text("devices: {gpu-0: {vanished: true}}"),
        None,
        faults.unlink,
    )
    made.scan()
    assert list(changes) == [None, None]
    assert wait.seconds == [POLL_SECONDS] * 5


def test_a_file_that_was_there_at_the_scan_is_no_change(faults: Path):
    faults.write_text("devices: {gpu-0: {vanished: true}}")
    made, changes, _ = watched(faults, None, None)
    made.scan()
    assert list(changes) == []


def test_a_change_between_the_scan_and_the_watch_is_not_missed(faults: Path):
    made, changes, _ = watched(faults, None, None)
    made.scan()
    faults.write_text("devices: {gpu-0: {vanished: true}}")
    assert list(changes) == [None]


def test_setting_up_a_device_does_not_hide_a_change_from_the_watch(faults: Path):
    made, changes, _ = watched(faults, None)
    device = made.scan().devices[0]
    faults.write_text("devices: {gpu-1: {vanished: true}}")
    made.configure(a_lease(device.name))
    assert list(changes) == [None]


def test_without_a_fault_file_nothing_ever_changes():
    assert list(backend().watch(Event())) == []


def test_what_is_done_to_a_device_stands_in_the_journal(tmp_path: Path):
    journal = tmp_path / "hardware.jsonl"
    made = backend(journal=str(journal))
    (device, *_) = made.scan().devices
    one, two = a_uid("one"), a_uid("two")
    made.configure(a_lease(device.name, "one"))
    assert seen(journal) == Seen(configured={Use(device.name, one)})
    made.reset(a_lease(device.name, "one"))
    made.configure(a_lease(device.name, "two"))
    assert seen(journal) == Seen(configured={Use(device.name, two)})


def test_a_device_that_hangs_is_set_up_once_the_fault_is_gone(tmp_path: Path):
    faults, journal = tmp_path / "faults.yaml", tmp_path / "hardware.jsonl"
    faults.write_text("devices: {gpu-0: {hangs: true}}")
    waits: list[float] = []

    def wait(_event: Event, seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 3:
            assert seen(journal) == Seen()
            faults.write_text("devices: {}")
        return False

    options = SimulatedOptions(faults=str(faults), journal=str(journal))
    made = SimulatedBackend(BackendContext("node-1", options), wait=wait)
    (device, *_) = made.scan().devices
    made.configure(a_lease(device.name))
    assert waits == [POLL_SECONDS] * 3
    assert seen(journal).configured == {Use(device.name, a_uid("claim"))}


def test_a_container_gets_the_device_file_and_what_its_configuration_asks_for():
    made = backend()
    plain_lease = a_lease("gpu-5")
    node = DeviceNode("/dev/dra-simulated/gpu-5", major=120, minor=5)
    assert made.configure(plain_lease) == ContainerEdits({"GPU_DEVICE_0": GPU_5}, (node,))
    labelled = made.configure(a_lease("gpu-5", config=LABEL.config(LabelConfig(label="my label"))))
    assert labelled.env == {"GPU_DEVICE_0": GPU_5, "GPU_LABEL_0": "my label"}
    assert made.configure(a_lease("gpu-5", index=3)).env == {"GPU_DEVICE_3": GPU_5}
    assert made.configure(a_lease("gpu-5", config=LABEL.config(LabelConfig()))) == ContainerEdits(
        {"GPU_DEVICE_0": GPU_5}, (node,)
    )


@pytest.mark.parametrize("told", [{"admin_access": True}, {"may_run": True}])
def test_a_device_that_may_be_in_use_is_described_and_not_touched(
    tmp_path: Path, told: dict[str, Any]
):
    faults, journal = tmp_path / "faults.yaml", tmp_path / "hardware.jsonl"
    faults.write_text("devices: {gpu-0: {configure: broken}}")
    made = backend(faults=str(faults), journal=str(journal))
    lease = a_lease("gpu-0", **told)
    assert made.configure(lease) == backend().configure(a_lease("gpu-0"))
    assert seen(journal) == Seen()


def test_a_device_of_another_profile_can_be_reset_and_not_set_up(tmp_path: Path):
    made = backend(profile="b580x2", journal=str(tmp_path / "hardware.jsonl"))
    made.reset(a_lease("gpu-7"))
    with pytest.raises(Permanent) as caught:
        made.configure(a_lease("gpu-7"))
    assert str(caught.value) == "simulated device gpu-7 is not in profile b580x2 of this node"


def test_whether_a_process_uses_a_device_only_the_fault_file_says(faults: Path):
    assert backend().in_use(DeviceName("gpu-0")) is InUse.CANNOT_TELL
    faults.write_text("devices: {gpu-0: {in_use: true}}")
    made = backend(faults=str(faults))
    assert made.in_use(DeviceName("gpu-0")) is InUse.YES
    assert made.in_use(DeviceName("gpu-1")) is InUse.NO


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> SimulatedOptions:
    """A machine with one GPU and its partitions."""
    machine = Profile((Group(H100, (Slot("1a", "15"),), MIG_80GB, {"binds_to_node": True}),))
    monkeypatch.setitem(PROFILES, "divided", machine)
    return SimulatedOptions(profile="divided")


def test_a_machine_can_have_gpus_with_partitions_and_fields_of_the_api(divided: SimulatedOptions):
    found = SimulatedBackend(BackendContext("node-1", divided)).scan()
    assert [len(found.devices), len(found.counter_sets)] == [19, 1]
    assert found.partition_type_attribute == "profile"
    assert all(device.api.binds_to_node for device in found.devices)
    assert plan_pool(found, kept=()).problems == ()


def test_the_first_lease_of_a_gpu_switches_its_mode_on_and_the_last_one_off(
    divided: SimulatedOptions, tmp_path: Path
):
    journal = tmp_path / "hardware.jsonl"
    options = msgspec.structs.replace(divided, journal=str(journal))
    made = SimulatedBackend(BackendContext("node-1", options))
    names = ("gpu-0-mig-1g-10gb-0", "gpu-0-mig-1g-10gb-1")
    for name, alone in zip(names, (True, False), strict=True):
        made.configure(dataclasses.replace(a_lease(name), is_alone=alone))
    made.reset(dataclasses.replace(a_lease(names[0]), is_alone=False))
    assert seen(journal).modes == {"gpu-0"}
    made.reset(a_lease(names[1]))
    assert seen(journal) == Seen()
    made.configure(a_lease("gpu-0"))
    assert seen(journal).modes == set()
