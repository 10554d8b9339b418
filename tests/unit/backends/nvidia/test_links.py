# SPDX-License-Identifier: Apache-2.0
"""GPUs that NVLink joins are of one island, and GPUs of one clique of one cluster are of one fabric."""

import pytest

from dra_driver.backends.nvidia.facts import Fabric, Gpu, NvLink
from dra_driver.backends.nvidia.links import fabric_id, islands

CLUSTER = "5C8A1F0E-7E1B-4B7A-9A5B-0F3A1D2C4E6F"
ZEROS = "00000000-0000-0000-0000-000000000000"
GPU, NPU, SWITCH, UNKNOWN = 0, 1, 2, 255


def at(bus: str) -> str:
    """As the library writes it."""
    return f"00000000:{bus.upper()}:00.0"


def gpu(bus: str, *links: tuple[int | None, str], fabric: Fabric | None = None) -> Gpu:
    ends = tuple(
        NvLink(link=number, remote_type=kind, remote_pci_bus_id=end)
        for number, (kind, end) in enumerate(links)
    )
    return Gpu(index=0, pci_bus_id=at(bus), nvlinks=ends, fabric=fabric)


def test_gpus_that_are_joined_directly_are_an_island_also_over_a_third_one():
    found = islands(
        [
            gpu("1a", (GPU, at("1b"))),
            gpu("1b", (GPU, at("1a")), (GPU, at("1c"))),
            gpu("1c", (GPU, at("1b"))),
            gpu("1d", (GPU, at("1e"))),
            gpu("1e", (GPU, at("1d"))),
            gpu("1f"),
        ]
    )
    first, second = "0000:1a:00.0", "0000:1d:00.0"
    assert found == {
        first: first,
        "0000:1b:00.0": first,
        "0000:1c:00.0": first,
        second: second,
        "0000:1e:00.0": second,
    }


def test_gpus_that_have_a_switch_in_common_are_an_island():
    found = islands(
        [
            gpu("8a", (SWITCH, at("c1")), (SWITCH, at("c2"))),
            gpu("1a", (SWITCH, at("c2"))),
            gpu("1b", (SWITCH, at("c3"))),
        ]
    )
    assert found == {
        "0000:8a:00.0": "0000:1a:00.0",
        "0000:1a:00.0": "0000:1a:00.0",
        "0000:1b:00.0": "0000:1b:00.0",
    }


def test_gpus_whose_switches_have_no_address_are_an_island_if_they_are_of_one_fabric():
    one = Fabric(state=3, cluster_uuid=CLUSTER, clique_id=1)
    two = Fabric(state=3, cluster_uuid=CLUSTER, clique_id=2)
    found = islands(
        [
            gpu("1a", (SWITCH, "00000000:00:00.0"), fabric=one),
            gpu("1b", (SWITCH, ""), fabric=one),
            gpu("1c", (SWITCH, ""), fabric=two),
            gpu("1d", (SWITCH, "")),
            gpu("1e", (SWITCH, "?")),
        ]
    )
    assert [found[f"0000:{bus}:00.0"][5:7] for bus in ("1a", "1b", "1c", "1d", "1e")] == [
        "1a", "1a", "1c", "1d", "1d",
    ]  # fmt: skip


def test_links_to_cpus_and_unknown_things_join_no_gpus():
    ends = ((NPU, at("05")), (UNKNOWN, at("06")), (None, at("07")), (GPU, ""))
    assert islands([gpu("1a", *ends), gpu("1b", *ends)]) == {}


def test_an_older_library_tells_the_address_of_a_joined_gpu_only():
    found = islands([gpu("1a", (None, at("1b"))), gpu("1b", (None, at("1a")), (None, at("c1")))])
    assert found == dict.fromkeys(("0000:1a:00.0", "0000:1b:00.0"), "0000:1a:00.0")


def test_a_gpu_without_an_address_is_in_no_island():
    assert islands([gpu("??", (SWITCH, at("c1")))]) == {}


def test_a_link_to_a_gpu_that_the_node_does_not_show_makes_an_island_of_its_own():
    assert islands([gpu("1b", (GPU, at("1a")))]) == {"0000:1b:00.0": "0000:1b:00.0"}


@pytest.mark.parametrize(
    ("fabric", "name"),
    [
        (Fabric(state=3, cluster_uuid=CLUSTER, clique_id=7), f"{CLUSTER.lower()}.7"),
        (Fabric(state=2, cluster_uuid=CLUSTER), ""),
        (Fabric(state=3, status=1, cluster_uuid=CLUSTER), ""),
        (Fabric(state=3, cluster_uuid=ZEROS), ""),
        (Fabric(state=3, cluster_uuid=""), ""),
        (Fabric(state=3, cluster_uuid="rack 7"), ""),
        (None, ""),
    ],
)
def test_a_fabric_has_a_name_when_it_is_complete_and_not_made_of_zeros(
    fabric: Fabric | None, name: str
):
    assert fabric_id(fabric) == name
