# SPDX-License-Identifier: Apache-2.0
"""What is measured on simulated devices."""

from pathlib import Path

import pytest
from msgspec import structs
from msgspec.structs import replace

from dra_driver.backends.base import BackendContext, usage_of
from dra_driver.backends.simulated import SimulatedBackend, SimulatedOptions
from dra_driver.backends.simulated_usage import PERIOD_SECONDS, usage_of_device
from dra_driver.model.ids import ClaimUid, DeviceName
from dra_driver.model.lease import Lease
from dra_driver.testing.builders import a_device


def a_lease(device: str, *, claim: str = "uid-1", admin: bool = False) -> Lease:
    return Lease(ClaimUid(claim), "main", DeviceName(device), admin_access=admin)


def backend(**options: str) -> SimulatedBackend:
    context = BackendContext("node-1", SimulatedOptions(profile="t4x2", **options))
    return SimulatedBackend(context, clock=lambda: 100.0)


def test_the_same_time_gives_the_same_values_and_each_device_others() -> None:
    device = a_device("gpu-0")
    assert usage_of_device(device, 0, 50.0, loaded=True) == usage_of_device(
        device, 0, 50.0, loaded=True
    )
    assert usage_of_device(device, 0, 50.0, loaded=True) != usage_of_device(
        device, 1, 50.0, loaded=True
    )


@pytest.mark.parametrize("second", range(0, int(PERIOD_SECONDS), 7))
def test_the_values_are_possible(second: int) -> None:
    usage = usage_of_device(a_device("gpu-0", memory="80Gi"), 3, float(second), loaded=True)
    assert 0.5 <= (usage.utilization_ratio or 0.0) <= 1.0
    assert 0 < (usage.memory_used_bytes or 0) < (usage.memory_total_bytes or 0) == 80 << 30
    assert 70.0 < (usage.power_watts or 0.0) <= (usage.power_limit_watts or 0.0)
    assert usage.throttled["sw_power_cap"] == ((usage.utilization_ratio or 0.0) > 0.9)


def test_a_device_without_memory_says_nothing_of_it() -> None:
    device = a_device("net-0")
    bare = replace(device, api=structs.replace(device.api, capacity=None))
    usage = usage_of_device(bare, 0, 0.0, loaded=False)
    assert (usage.memory_used_bytes, usage.memory_total_bytes) == (None, None)


def test_only_a_device_that_was_set_up_has_load() -> None:
    made = backend()
    made.configure(a_lease("gpu-0"))
    made.configure(a_lease("gpu-1", admin=True))
    load = {name: usage.utilization_ratio for name, usage in made.usage().items()}
    assert load["gpu-0"] >= 0.5
    assert load["gpu-1"] == 0.0
    made.reset(a_lease("gpu-0"))
    assert made.usage()["gpu-0"].utilization_ratio == 0.0


def test_a_device_that_hangs_or_has_vanished_gives_nothing(tmp_path: Path) -> None:
    faults = tmp_path / "faults.yaml"
    faults.write_text("devices:\n  gpu-0: {hangs: true}\n")
    made = backend(faults=str(faults))
    assert made.usage().keys() == {"gpu-1"}
    faults.write_text("devices:\n  gpu-1: {vanished: true}\n")
    assert made.usage().keys() == {"gpu-0"}


def test_a_backend_may_measure_nothing() -> None:
    assert usage_of(object()) is None
    found = usage_of(backend())
    assert found is not None
    assert found().keys() == {"gpu-0", "gpu-1"}
