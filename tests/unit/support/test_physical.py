# SPDX-License-Identifier: Apache-2.0
import pytest

from dra_driver.backends.partitions import MIG_80GB, places
from tests.support.physical import SIZES, gpu_of, is_partition, overlap, slices_of


def test_every_kind_of_partition_has_its_size() -> None:
    kinds = {kind.name.replace(".", "-"): kind.slices for kind in MIG_80GB.kinds}
    nvidia = {"1g5gb": 1, "2g10gb": 2, "3g20gb": 4}  # of an A100, as NVIDIA's driver writes them
    assert kinds | nvidia == SIZES


def test_nvidias_names_say_where_a_partition_is() -> None:
    name = "gpu-4-mig-2g10gb-14-4"
    assert (gpu_of(name), is_partition(name), slices_of(name)) == ("gpu-4", True, range(4, 6))
    assert overlap(name, "gpu-4-mig-3g20gb-9-4")
    assert not overlap(name, "gpu-4-mig-1g5gb-19-2")


@pytest.mark.parametrize(("kind", "start"), list(places(MIG_80GB)))
def test_a_partition_is_where_its_name_says(kind, start: int) -> None:
    name = f"gpu-1-mig-{kind.name.replace('.', '-')}-{start}"
    assert is_partition(name)
    assert (gpu_of(name), slices_of(name)) == ("gpu-1", range(start, start + kind.slices))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("gpu-0", "gpu-0", True),
        ("gpu-0", "gpu-1", False),
        ("gpu-0", "gpu-0-mig-1g-10gb-6", True),
        ("gpu-0-mig-2g-20gb-2", "gpu-0-mig-1g-10gb-3", True),
        ("gpu-0-mig-2g-20gb-2", "gpu-0-mig-1g-10gb-4", False),
        ("gpu-0-mig-2g-20gb-2", "gpu-1-mig-2g-20gb-2", False),
    ],
)
def test_devices_overlap_where_they_have_a_slice_in_common(
    *, one: str, other: str, expected: bool
) -> None:
    assert overlap(one, other) is expected
    assert overlap(other, one) is expected
