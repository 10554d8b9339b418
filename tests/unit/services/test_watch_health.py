# SPDX-License-Identifier: Apache-2.0
"""The kubelet is told each device's health, also of devices that are not there any more."""

from threading import Thread

from dra_driver.model.health import HEALTHY, UNCHECKED, DeviceHealth, Health, HealthStatus
from dra_driver.model.ids import DeviceName, PoolName
from dra_driver.model.inventory import Inventory
from dra_driver.planning.combine import combine
from dra_driver.services.watch_health import AWAITED, TIMEOUT_SECONDS, VANISHED, HealthFeed
from tests.support.api_values import found_device

POOL = PoolName("node-1")
ILL = Health(HealthStatus.UNHEALTHY, "XID 79")
GPU_0, GPU_1, GPU_2 = (DeviceName(f"gpu-{index}") for index in range(3))
MACHINE = Inventory(
    (found_device(GPU_0, "u0", health=ILL), found_device(GPU_1, "u1", health=HEALTHY))
)


def feed(inventory: Inventory = MACHINE, *, age: float = 0.0) -> HealthFeed:
    return HealthFeed(lambda: inventory, POOL, age=lambda _backend: age, clock=lambda: 1234.9)


def told(device: DeviceName, health: Health) -> DeviceHealth:
    return DeviceHealth(POOL, device, health, 1234)


def test_the_inventorys_word_is_told():
    assert feed().snapshot() == (0, (told(GPU_0, ILL), told(GPU_1, HEALTHY)))


def test_a_device_that_nothing_checks_is_unknown():
    unchecked = feed(Inventory((found_device(GPU_0, "u0"),))).snapshot()
    assert unchecked == (0, (told(GPU_0, UNCHECKED),))


def test_a_vanished_device_that_is_still_in_use_is_unhealthy():
    health = feed()
    health.set_kept([GPU_2])
    assert VANISHED.status is HealthStatus.UNHEALTHY
    assert health.snapshot() == (
        1,
        (told(GPU_0, ILL), told(GPU_1, HEALTHY), told(GPU_2, VANISHED)),
    )


def test_a_kept_device_that_is_back_is_told_once():
    health = feed()
    health.set_kept([GPU_1])
    assert health.snapshot() == (1, (told(GPU_0, ILL), told(GPU_1, HEALTHY)))


def test_a_device_that_a_claim_has_under_a_name_of_other_hardware_is_unhealthy():
    said = {GPU_1: "gpu-1 is another device now", GPU_2: "it is called gpu-1 now"}
    health = HealthFeed(
        lambda: MACHINE, POOL, age=lambda _: 0.0, clock=lambda: 1234.9, moved=lambda _: said
    )
    health.set_kept([GPU_1, GPU_2])
    assert health.snapshot()[1] == (
        told(GPU_0, ILL),
        *(told(name, Health(HealthStatus.UNHEALTHY, said[name])) for name in (GPU_1, GPU_2)),
    )


def test_before_the_first_scan_there_is_nothing_to_tell():
    assert feed(Inventory(scanned=False), age=100.0).snapshot() == (0, ())


def test_a_report_carries_the_time_of_the_look_that_it_comes_from():
    _, entries = feed(age=29.5).snapshot()
    assert [entry.checked_at for entry in entries] == [1205, 1205]
    assert [entry.health for entry in entries] == [ILL, HEALTHY]


def test_what_was_seen_too_long_ago_is_not_known_any_more():
    health = feed(age=TIMEOUT_SECONDS + 0.5)
    health.set_kept([GPU_2])
    _, entries = health.snapshot()
    since = "the driver could not look at the hardware since 1970-01-01T00:20:04Z, see its log"
    assert [(entry.checked_at, entry.health) for entry in entries] == [
        (1204, Health(HealthStatus.UNKNOWN, f"{since}; it was UNHEALTHY: XID 79 then")),
        (1204, Health(HealthStatus.UNKNOWN, f"{since}; it was HEALTHY then")),
        (1204, Health(HealthStatus.UNKNOWN, f"{since}; it was UNHEALTHY: {VANISHED.message} then")),
    ]


def test_only_a_change_wakes_the_streams():
    health = feed()
    health.set_kept([])
    assert not health.wait(0, 0.0)
    health.set_kept([GPU_2])
    assert health.wait(0, 0.0)
    assert not health.wait(1, 0.0)
    health.set_kept([GPU_2])
    assert not health.wait(1, 0.0)
    health.wake()
    assert health.wait(1, 0.0)


def test_a_waiting_stream_is_woken():
    health = feed()
    answers: list[bool] = []
    stream = Thread(target=lambda: answers.append(health.wait(0, 60.0)), daemon=True)
    stream.start()
    health.wake()
    stream.join(60.0)
    assert answers == [True]


def test_a_backend_that_hangs_costs_only_the_health_of_its_own_devices():
    machine = combine(
        {
            "acme": Inventory((found_device(GPU_0, "u0", health=HEALTHY),)),
            "other": Inventory((found_device(GPU_1, "u1", health=HEALTHY),)),
            "silent": Inventory(scanned=False),
        },
        {GPU_2: "silent"},
    )
    ages = {"acme": 40.0, "other": 1.0, "silent": 5.0, "": 40.0}
    health = HealthFeed(lambda: machine, POOL, age=ages.__getitem__, clock=lambda: 1234.9)
    _, entries = health.snapshot()
    assert [(entry.device, entry.health.status, entry.checked_at) for entry in entries] == [
        (GPU_0, HealthStatus.UNKNOWN, 1194),
        (GPU_1, HealthStatus.HEALTHY, 1233),
        (GPU_2, HealthStatus.UNKNOWN, 1229),
    ]
    assert entries[2].health == AWAITED
