# SPDX-License-Identifier: Apache-2.0
"""The IDs of units: the same after a restart, short enough, and never those of two devices."""

import pytest

from dra_driver.model.plugin import LONGEST_UNIT_ID, Sharing, Unit
from dra_driver.planning.plugin.units import UnitIds, UnitName, unit_of
from tests.support.plugin_values import a_gpu, gpus

GPU = "GPU-60a84461-2861-559d-836e-29a9f547db20"


def whole(*uuids: str) -> list[str]:
    devices = [a_gpu(f"gpu-{index}", uuid=uuid) for index, uuid in enumerate(uuids)]
    ids = UnitIds(gpus(*devices))
    return [ids.whole(device).id for device in devices]


def test_a_unit_is_called_by_the_uuid_of_its_device() -> None:
    device = a_gpu("gpu-0", uuid=GPU)
    assert UnitIds(gpus(device)).whole(device) == Unit(GPU, "gpu-0")
    assert whole("0000:1a:00.0", "MIG-GPU-60a84461/1/0") == ["0000:1a:00.0", "MIG-GPU-60a84461/1/0"]


@pytest.mark.parametrize(
    "uuid",
    ["", "a" * 64, "GPU::1", "GPU:", ":GPU", "GPU 1", "GPU,1", "\udfff", "GPÜ"],
)
def test_a_uuid_that_is_no_good_id_is_replaced_by_the_name(uuid: str) -> None:
    assert whole(uuid) == ["gpu-0"]


def test_no_two_devices_have_one_id() -> None:
    assert whole("same", "same", "own") == ["gpu-0", "gpu-1", "own"]
    assert whole("gpu-1", "") == ["gpu-0", "gpu-1"]
    assert whole("gpu-0") == ["gpu-0"]


def test_shares_have_numbers() -> None:
    device = a_gpu("gpu-0", uuid=GPU)
    ids = UnitIds(gpus(device))
    assert ids.shares(device, Sharing.REPLICAS, 2) == (
        Unit(f"{GPU}::0", "gpu-0", "replica-0"),
        Unit(f"{GPU}::1", "gpu-0", "replica-1"),
    )
    assert ids.shares(device, Sharing.MEMORY, 2) == (
        Unit(f"{GPU}::0", "gpu-0", "memory-0", {"memory": "1Gi"}),
        Unit(f"{GPU}::1", "gpu-0", "memory-1", {"memory": "1Gi"}),
    )


def test_the_number_counts_for_the_length_and_all_shares_have_one_base() -> None:
    device = a_gpu("gpu-0", uuid="a" * 59)
    ids = UnitIds(gpus(device))
    assert [one.id for one in ids.shares(device, Sharing.REPLICAS, 100)][:2] == [
        f"{'a' * 59}::0",
        f"{'a' * 59}::1",
    ]
    assert {unit_of(one.id).device for one in ids.shares(device, Sharing.REPLICAS, 101)} == {
        "gpu-0"
    }


def test_a_name_that_is_too_long_is_cut_and_stays_unique() -> None:
    first, second = (a_gpu("g" * 62 + end, uuid="") for end in "01")
    ids = UnitIds(gpus(first, second))
    units = [*ids.shares(first, Sharing.REPLICAS, 10), *ids.shares(second, Sharing.REPLICAS, 10)]
    assert {len(unit.id) for unit in units} == {LONGEST_UNIT_ID}
    assert len({unit.id for unit in units}) == 20
    for unit in units:
        assert ids.device_of(unit.id) is (first if unit.device == first.name else second)


@pytest.mark.parametrize(
    ("unit", "device", "number"),
    [
        (GPU, GPU, None),
        (f"{GPU}::0", GPU, 0),
        (f"{GPU}::12", GPU, 12),
        ("0000:1a:00.0::3", "0000:1a:00.0", 3),
        (f"{GPU}::", f"{GPU}::", None),
        ("::1", "::1", None),
        (f"{GPU}::x", f"{GPU}::x", None),
        (f"{GPU}::\u0663", f"{GPU}::\u0663", None),
        (f"{GPU}::{'1' * 5000}", f"{GPU}::{'1' * 5000}", None),
        ("", "", None),
    ],
)
def test_any_id_can_be_read(unit: str, device: str, number: int | None) -> None:
    assert unit_of(unit) == UnitName(device, number)


def test_the_device_of_an_id_is_found_however_it_is_shared_now() -> None:
    first, second, third = (
        a_gpu("gpu-0", uuid=GPU),
        a_gpu("gpu-1", uuid="x"),
        a_gpu("gpu-2", uuid="x"),
    )
    ids = UnitIds(gpus(first, second, third))
    for unit in (GPU, f"{GPU}::7", "gpu-0"):
        assert ids.device_of(unit) is first
    assert ids.device_of("gpu-2::1") is third
    other = a_gpu("gpu-3", uuid="gpu-2")
    assert UnitIds(gpus(other, third)).device_of("gpu-2") is third
    for unit in ("x", "gpu-3", ""):
        assert ids.device_of(unit) is None
