# SPDX-License-Identifier: Apache-2.0
"""Names and amounts of MIG devices, against the tables that nvidia-smi shows on real boards."""

import re

import pytest

from dra_driver.backends.nvidia.facts import MigDevice, MigProfile
from dra_driver.backends.nvidia.mig import (
    MIB,
    consumed,
    counter_set,
    device_name,
    has_graphics,
    parts,
    profile_name,
    sharing,
)

# Profiles by their number in NVML's enum and their ID, with GiB as nvidia-smi shows them.
A100_40 = "0:19:1g.5gb:4.75 7:20:1g.5gb+me:4.75 9:15:1g.10gb:9.62 1:14:2g.10gb:9.62 2:9:3g.20gb:19.50 3:5:4g.20gb:19.50 4:0:7g.40gb:39.25"
A100_80 = "0:19:1g.10gb:9.62 7:20:1g.10gb+me:9.62 9:15:1g.20gb:19.50 1:14:2g.20gb:19.50 2:9:3g.40gb:39.25 3:5:4g.40gb:39.25 4:0:7g.80gb:78.50"
H100 = "0:19:1g.10gb:9.75 7:20:1g.10gb+me:9.75 9:15:1g.20gb:19.62 1:14:2g.20gb:19.62 2:9:3g.40gb:39.50 3:5:4g.40gb:39.50 4:0:7g.80gb:79.25"
H100_NVL = "0:19:1g.12gb:10.75 9:15:1g.24gb:21.62 1:14:2g.24gb:21.62 2:9:3g.47gb:46.38"
H200 = "0:19:1g.18gb:16.00 7:20:1g.18gb+me:16.00 9:15:1g.35gb:32.25 1:14:2g.35gb:32.25 2:9:3g.71gb:69.50 3:5:4g.71gb:69.50 4:0:7g.141gb:139.75"
GH200 = "0:19:1g.18gb:17.50 9:15:1g.36gb:35.25 1:14:2g.36gb:35.25"
B200 = "0:19:1g.23gb:22.00 0:19:1g.23gb:20.50 7:20:1g.23gb+me:22.00 9:15:1g.45gb:44.25 1:14:2g.45gb:44.25 2:9:3g.90gb:89 3:5:4g.90gb:89 4:0:7g.180gb:178"
GB200 = "0:19:1g.23gb:22.00 9:15:1g.47gb:45.50 1:14:2g.47gb:45.50 2:9:3g.93gb:91 3:5:4g.93gb:91 4:0:7g.186gb:184"
RTX_PRO_6000 = "0:14:1g.24gb:23.12 7:21:1g.24gb+me:23.12 10:47:1g.24gb+gfx:23.12 15:65:1g.24gb+me.all:23.12 1:5:2g.48gb:46.5 3:0:4g.96gb:94"
A30 = (
    "0:14:1g.6gb:5.81 7:21:1g.6gb+me:5.81 1:5:2g.12gb:11.69 8:6:2g.12gb+me:11.69 3:0:4g.24gb:23.44"
)
BOARDS = [
    ("A100-40", 40960, A100_40),
    ("A100-80", 81920, A100_80),
    ("H100", 81559, H100),
    ("H100 NVL", 95830, H100_NVL),
    ("H200", 143771, H200),
    ("GH200-144", 146831, GH200),
    ("B200", 183359, B200),
    ("GB200", 189471, GB200),
    ("RTX PRO 6000", 97887, RTX_PRO_6000),
    ("A30", 24576, A30),
]
ROWS = [(board, total, *row.split(":")) for board, total, rows in BOARDS for row in rows.split()]
DNS_LABEL = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@pytest.mark.parametrize(("board", "total", "number", "shown", "name", "gib"), ROWS)
def test_a_profile_has_the_name_that_nvidia_smi_shows(
    board: str, total: int, number: str, shown: str, name: str, gib: str
):
    memory = int(float(gib) * 1024)
    slices = int(name.partition("g")[0])
    profile = MigProfile(
        profile=int(number), id=int(shown), slices=slices, instances=1, memory_mib=memory
    )
    device = MigDevice(
        uuid="MIG-1",
        gpu_instance=1,
        compute_instance=0,
        profile=int(shown),
        memory_mib=memory,
        gpu_slices=slices,
        compute_slices=slices,
    )
    assert profile_name(device, total * MIB, [profile]) == name
    assert has_graphics(device, [profile]) == name.endswith("+gfx")
    assert not has_graphics(device, [])
    named = device_name(0, device, name, alone=True)
    assert DNS_LABEL.fullmatch(named)
    assert re.fullmatch(r"gpu-(\d+)-mig-(.+)-(\d+)-(\d+)", named)


def device(profile: int = 9, start: int = 0, size: int = 4, **more: int) -> MigDevice:
    usual = {
        "gpu_instance": 1,
        "compute_instance": 0,
        "gpu_slices": 3,
        "compute_slices": 3,
        "memory_mib": 40448,
        "multiprocessors": 60,
        "copy_engines": 3,
        "decoders": 3,
        "jpeg_engines": 3,
    }
    uuid = f"MIG-{profile}-{start}-{more.get('compute_instance', 0)}"
    return MigDevice(uuid=uuid, profile=profile, start=start, size=size, **{**usual, **more})


def test_a_compute_instance_that_is_a_part_of_its_gpu_instance_says_so_in_its_profile():
    assert profile_name(device(compute_slices=1), 81559 * MIB, ()) == "1c.3g.40gb"
    assert profile_name(device(compute_slices=0), 81559 * MIB, ()) == "3g.40gb"


def test_a_library_that_tells_no_slices_costs_nothing_if_the_profile_is_known():
    known = MigProfile(profile=2, id=9, slices=3, instances=2, memory_mib=40448)
    assert profile_name(device(gpu_slices=0), 81559 * MIB, [known]) == "3g.40gb"


def test_a_profile_without_media_engines_says_so():
    known = MigProfile(profile=13, id=67, slices=1, instances=4, memory_mib=23674)
    one = device(67, gpu_slices=1, compute_slices=1, memory_mib=23674)
    assert profile_name(one, 97887 * MIB, [known]) == "1g.24gb-me"


def test_the_memory_of_the_device_counts_if_that_of_the_gpu_is_not_known():
    assert profile_name(device(), 0, ()) == "3g.40gb"


@pytest.mark.parametrize(
    ("profile", "name"),
    [
        ("1g.12gb", "gpu-1-mig-1g12gb-19-4"),
        ("1g.5gb+me", "gpu-1-mig-1g5gb-me-19-4"),
        ("1g.24gb+me.all", "gpu-1-mig-1g24gb-meall-19-4"),
    ],
)
def test_devices_have_the_names_of_nvidias_driver(profile: str, name: str):
    assert device_name(1, device(19, start=4), profile, alone=True) == name


def test_compute_instances_that_share_a_gpu_instance_have_different_names_and_parts():
    pair = [device(compute_instance=number, compute_slices=1) for number in (0, 1)]
    assert sharing([*pair, device(gpu_instance=2, start=4)]) == {1}
    names = [device_name(0, one, "1c.3g.40gb", alone=False) for one in pair]
    assert names == ["gpu-0-mig-1c3g40gb-9-0-0", "gpu-0-mig-1c3g40gb-9-0-1"]
    assert [parts(one, alone=False) for one in pair] == [("instance-1-0",), ("instance-1-1",)]


def test_a_part_of_a_gpu_instance_is_one_before_another_part_is_made_beside_it():
    assert sharing([device(compute_slices=1)]) == {1}
    assert sharing([device(compute_slices=0), device(gpu_instance=2)]) == frozenset()
    assert sharing([device(compute_slices=0), device(compute_slices=0)]) == {1}


def test_a_device_after_a_new_partitioning_excludes_the_one_that_had_its_instance():
    before, after = device(19, start=0, size=1), device(9, start=4)
    assert set(parts(before, alone=True)) & set(parts(after, alone=True)) == {"instance-1-0"}
    assert not set(parts(before, alone=True)) & set(parts(device(gpu_instance=2), alone=False))
    assert set(parts(after, alone=True)) & set(parts(device(compute_slices=1), alone=False))


def test_a_device_takes_its_memory_slices():
    slices = tuple(f"memory-slice-{at}" for at in range(4, 8))
    assert parts(device(start=4), alone=True) == (*slices, "instance-1-0")
    assert parts(device(size=0), alone=True) == ("instance-1-0",)
    taken = consumed(2, device(start=4), alone=True)
    assert taken.counter_set == "gpu-2-counter-set"
    assert {name: one.value for name, one in (taken.counters or {}).items()} == {
        "multiprocessors": "60",
        "copy-engines": "3",
        "decoders": "3",
        "encoders": "0",
        "jpeg-engines": "3",
        "ofa-engines": "0",
        "memory": "40448Mi",
        **{f"memory-slice-{at}": "1" for at in range(4, 8)},
    }


def test_a_part_of_an_instance_consumes_multiprocessors_only():
    taken = consumed(0, device(multiprocessors=20), alone=False)
    assert {name: one.value for name, one in (taken.counters or {}).items()} == {
        "multiprocessors": "20"
    }


WHOLE = MigProfile(
    profile=4, id=0, slices=7, instances=1, memory_mib=81152, multiprocessors=132,
    copy_engines=8, decoders=7, jpeg_engines=7, ofa_engines=1, starts=(0,), size=8,
)  # fmt: skip


def test_the_set_of_a_gpu_has_what_its_largest_profile_has():
    found = counter_set(0, [device()], [WHOLE])
    assert found.name == "gpu-0-counter-set"
    assert {name: one.value for name, one in (found.counters or {}).items()} == {
        "multiprocessors": "132",
        "copy-engines": "8",
        "decoders": "7",
        "encoders": "0",
        "jpeg-engines": "7",
        "ofa-engines": "1",
        "memory": "81152Mi",
        **{f"memory-slice-{at}": "1" for at in range(8)},
    }


def test_the_set_is_never_less_than_what_the_devices_have_together():
    halves = [device(), device(start=4, gpu_instance=2)]
    shared = [device(start=8, gpu_instance=3, compute_instance=at, size=1) for at in (0, 1)]
    found = counter_set(0, [*halves, *shared], ())
    sizes = {name: one.value for name, one in (found.counters or {}).items()}
    assert sizes["multiprocessors"] == "240"
    assert (sizes["memory"], sizes["copy-engines"]) == (f"{3 * 40448}Mi", "9")
    assert sum(name.startswith("memory-slice") for name in sizes) == 9
