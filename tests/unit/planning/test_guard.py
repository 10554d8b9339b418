# SPDX-License-Identifier: Apache-2.0
"""Which devices a plugin of somebody else has, or could give out, from what the kubelet says."""

from collections.abc import Iterable, Mapping

import pytest

from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName, PodUid, ResourceName, UnitId
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware
from dra_driver.model.plugin import KubeletCheckpoint, UnitsOfContainer
from dra_driver.model.plugin_policy import DeviceChoice
from dra_driver.model.vocabulary import PCI_BUS_ID
from dra_driver.planning.guard import (
    ForeignPod,
    ForeignResource,
    Kept,
    OwnUnits,
    beyond,
    chosen,
    devices_of,
    few,
    foreign_pods,
    foreign_resources,
    kept_devices,
    taint_value,
)
from tests.support.api_values import found_device

GPU = ResourceName("nvidia.com/gpu")
MIG = ResourceName("nvidia.com/mig-1g.5gb")
UUIDS = [f"GPU-0000000{n}-0000-0000-0000-000000000000" for n in range(3)]
STRANGER = "GPU-99999999-0000-0000-0000-000000000000"


def a_gpu(number: int, vendor: str = "nvidia", **more: str) -> AllocatableDevice:
    said: dict[str, str | int] = {
        "index": number,
        "minor": number + 4,
        PCI_BUS_ID: f"0000:0{number}:00.0",
        **more,
    }
    if vendor:
        said["vendor"] = vendor
    return found_device(f"gpu-{number}", UUIDS[number], said, hardware=Hardware(UUIDS[number]))


def a_mig(number: int) -> AllocatableDevice:
    said = {"vendor": "nvidia", "parentUUID": UUIDS[0]}
    hardware = Hardware(UUIDS[0], (f"slice-{number}",))
    return found_device(f"mig-{number}", f"MIG-{number}", said, hardware=hardware)


GPUS = Inventory(tuple(map(a_gpu, range(3))))
MIGS = Inventory((a_mig(0), a_mig(1), a_gpu(1)))
ALL = {"gpu-0", "gpu-1", "gpu-2"}


def meant(
    *units: str, resource: str = GPU, inventory: Inventory = GPUS
) -> tuple[Iterable[str], bool]:
    return devices_of(ResourceName(resource), map(UnitId, units), inventory)


def entry(pod: str, *units: str, resource: str = GPU) -> UnitsOfContainer:
    return UnitsOfContainer(
        PodUid(pod), "main", ResourceName(resource), frozenset(map(UnitId, units))
    )


def registered(**units: Iterable[str]) -> KubeletCheckpoint:
    names = {"gpu": GPU, "mig": MIG, "own": ResourceName("a.b/gpu")}
    return KubeletCheckpoint(
        registered={names[name]: frozenset(map(UnitId, ids)) for name, ids in units.items()}
    )


@pytest.mark.parametrize(
    ("unit", "device"),
    [
        (UUIDS[1], "gpu-1"),
        (f"{UUIDS[1]}::3", "gpu-1"),
        ("1", "gpu-1"),
        ("1:0", "gpu-1"),
        ("nvidia5", "gpu-1"),
        ("nvidia5/gi3", "gpu-1"),
        ("0000:01:00.0", "gpu-1"),
        ("gpu-1", "gpu-1"),
    ],
)
def test_an_id_says_which_device_it_is(unit: str, device: str) -> None:
    assert meant(unit) == ({device}, True)


@pytest.mark.parametrize("unit", ["card0-0", f"{UUIDS[0]}-4", "7", "nvidia1", "MIG-not-seen-yet"])
def test_an_id_that_nobody_knows_may_be_each_device(unit: str) -> None:
    assert meant(unit) == (ALL, False)
    assert meant(unit, UUIDS[1]) == (ALL, False)


@pytest.mark.parametrize("resource", ["aliyun.com/gpu-mem", "nvidia.com/gpumem"])
def test_where_another_scheduler_chooses_the_id_says_nothing(resource: str) -> None:
    assert meant(UUIDS[0], resource=resource) == (ALL, False)


def test_a_gpu_of_another_machine_is_none_of_ours() -> None:
    assert meant(STRANGER) == (frozenset(), True)
    nameless = Inventory((*GPUS.devices[:2], found_device("gpu-x", "", {"vendor": "nvidia"})))
    assert meant(STRANGER, inventory=nameless) == ({"gpu-0", "gpu-1", "gpu-x"}, False)


def test_a_gpu_and_its_parts_exclude_each_other() -> None:
    assert meant("MIG-1", resource=MIG, inventory=MIGS) == ({"mig-1"}, True)
    assert meant(UUIDS[0], inventory=MIGS) == ({"mig-0", "mig-1"}, True)
    both = Inventory((*MIGS.devices, a_gpu(0)))
    assert meant("MIG-1", resource=MIG, inventory=both) == ({"mig-1", "gpu-0"}, True)


def test_an_index_means_nothing_for_other_vendors() -> None:
    amd = Inventory((a_gpu(0, "amd"), a_gpu(1, "amd")))
    assert meant("0", resource="amd.com/gpu", inventory=amd) == ({"gpu-0", "gpu-1"}, False)
    assert meant("0000:01:00.0", resource="amd.com/gpu", inventory=amd) == ({"gpu-1"}, True)


def test_a_device_of_another_vendor_is_never_meant() -> None:
    both = Inventory((a_gpu(0), a_gpu(1, "amd"), a_gpu(2, "")))
    assert meant("what", inventory=both) == ({"gpu-0", "gpu-2"}, False)


def test_resources_of_others_are_found_in_both_sources() -> None:
    found = foreign_resources(registered(gpu=UUIDS), {GPU: 3, "rdma/hca": 1}, GPUS)
    assert found == (ForeignResource(GPU, "nvidia", True, frozenset(map(UnitId, UUIDS)), 3),)
    assert found[0].gives
    (late,) = foreign_resources(KubeletCheckpoint(), {GPU: 3}, GPUS)
    assert (late.registered, late.gives) == (False, True)
    (silent,) = foreign_resources(registered(gpu=()), None, GPUS)
    assert (silent.allocatable, silent.gives) == (None, True)


def test_a_plugin_that_the_kubelet_has_forgotten_gives_nothing() -> None:
    (gone,) = foreign_resources(KubeletCheckpoint(), {GPU: 0}, GPUS)
    assert not gone.gives


def test_our_own_resources_are_not_foreign() -> None:
    own = OwnUnits(offered=frozenset({GPU}))
    assert foreign_resources(registered(gpu=UUIDS), {GPU: 3}, GPUS, own) == ()


def test_what_we_offered_before_is_foreign_when_somebody_serves_it() -> None:
    left = OwnUnits(left=frozenset({GPU}))
    assert foreign_resources(registered(gpu=UUIDS), {GPU: 0}, GPUS, left) == ()
    assert foreign_resources(registered(gpu=UUIDS), None, GPUS, left) == ()
    assert foreign_resources(registered(gpu=UUIDS), {GPU: 3}, GPUS, left) != ()


def test_a_renamed_resource_is_known_by_our_devices() -> None:
    (found,) = foreign_resources(registered(own=[f"{UUIDS[2]}::1"]), {}, GPUS)
    assert (found.name, found.vendor) == ("a.b/gpu", "")
    assert foreign_resources(registered(own=["0", STRANGER]), {}, GPUS) == ()
    amd = Inventory((a_gpu(0, "amd"),))
    assert foreign_resources(registered(gpu=[STRANGER]), {}, amd) == ()


def test_pods_with_units_of_others() -> None:
    checkpoint = KubeletCheckpoint(
        (
            entry("a", UUIDS[0]),
            entry("b", "odd"),
            entry("c", "0", resource="rdma/hca"),
            entry("d", UUIDS[2], resource="a.b/gpu"),
            entry("e", STRANGER),
        )
    )
    found = {one.pod: (set(one.devices), one.told) for one in foreign_pods(checkpoint, GPUS)}
    assert found == {"a": ({"gpu-0"}, True), "b": (ALL, False), "d": ({"gpu-2"}, True)}


def test_pods_with_our_units_are_ours() -> None:
    given: Mapping[PodUid | None, frozenset[tuple[ResourceName, UnitId]]] = {
        PodUid("a"): frozenset({(GPU, UnitId(UUIDS[0]))}),
        None: frozenset({(GPU, UnitId(UUIDS[1]))}),
    }
    own = OwnUnits(frozenset({GPU}), given=given)
    checkpoint = KubeletCheckpoint(
        (entry("a", UUIDS[0]), entry("b", UUIDS[1]), entry("c", UUIDS[0]))
    )
    assert [one.pod for one in foreign_pods(checkpoint, GPUS, own)] == ["c"]


def kept(
    *resources: ForeignResource, pods: Iterable[ForeignPod] = (), **divided: DeviceChoice
) -> Mapping[DeviceName, Kept]:
    shares = {{"gpu": GPU, "mig": MIG}[name]: choice for name, choice in divided.items()}
    return kept_devices(resources, pods, shares, GPUS)


def a_resource(*units: str, allocatable: int | None = None) -> ForeignResource:
    count = len(units) if allocatable is None else allocatable
    return ForeignResource(GPU, "nvidia", True, frozenset(map(UnitId, units)), count)


def test_what_a_plugin_lists_is_kept() -> None:
    assert set(kept(a_resource(*UUIDS[:2]))) == {"gpu-0", "gpu-1"}


def test_of_a_plugin_without_a_list_all_of_its_vendor_is_kept() -> None:
    assert set(kept(a_resource())) == ALL
    assert set(kept(a_resource(UUIDS[0], allocatable=2))) == ALL


def test_a_plugin_that_is_gone_keeps_nothing() -> None:
    assert kept(ForeignResource(GPU, "nvidia", False, allocatable=0)) == {}


def test_on_a_divided_node_the_rest_is_ours_whatever_the_plugin_lists() -> None:
    found = kept(a_resource(*UUIDS), gpu=DeviceChoice(named=(UUIDS[2],)))
    assert set(found) == {"gpu-2"}
    assert found[DeviceName("gpu-2")] == Kept(
        GPU,
        "devicePlugin.foreign in the driver's configuration leaves it to the plugin of nvidia.com/gpu",
    )
    assert set(kept(gpu=DeviceChoice(count=1))) == {"gpu-0"}


def test_what_a_pod_has_is_kept_everywhere() -> None:
    pod = ForeignPod(PodUid("p"), GPU, frozenset(), frozenset({DeviceName("gpu-1")}))
    found = kept(a_resource(*UUIDS), pods=[pod], gpu=DeviceChoice(count=1))
    assert set(found) == {"gpu-0", "gpu-1"}
    assert found[DeviceName("gpu-1")] == Kept(
        GPU, "pod p has it as nvidia.com/gpu, and has not been proven to have ended", held=True
    )
    unsure = ForeignPod(PodUid("p"), GPU, frozenset(), frozenset({DeviceName("gpu-1")}), told=False)
    assert "as far as the IDs" in kept(pods=[unsure])[DeviceName("gpu-1")].reason


def test_an_admin_names_devices_as_units_are_named() -> None:
    for name in (UUIDS[1], "gpu-1", "1", "0000:01:00.0"):
        assert chosen(GPU, DeviceChoice(named=(name,)), GPUS) == {"gpu-1"}
    assert chosen(GPU, DeviceChoice(2), GPUS) == {"gpu-0", "gpu-1"}
    assert chosen(GPU, DeviceChoice(), GPUS) == frozenset()


def test_a_plugin_that_lists_more_than_its_share_is_found() -> None:
    share = {GPU: DeviceChoice(2)}
    assert beyond([a_resource(*UUIDS)], share, GPUS) == {GPU: {"gpu-2"}}
    assert beyond([a_resource(*UUIDS[:2])], share, GPUS) == {}
    assert beyond([a_resource(*UUIDS)], {}, GPUS) == {}
    gone = ForeignResource(GPU, "nvidia", False, frozenset(map(UnitId, UUIDS)), 0)
    assert beyond([gone], share, GPUS) == {}


@pytest.mark.parametrize(
    ("resource", "value"),
    [
        (GPU, "nvidia.com_gpu"),
        (ResourceName(f"a.b/{'x' * 63}"), f"a.b_{'x' * 59}"),
        (ResourceName(f"a.b/{'x' * 58}-y"), f"a.b_{'x' * 58}"),
    ],
)
def test_the_value_of_a_taint_is_a_label_value(resource: ResourceName, value: str) -> None:
    assert taint_value(resource) == value


def test_few_names_are_named() -> None:
    assert few({"b", "a"}) == "a, b"
    assert few(set("abcdef")) == "a, b, c, d and 2 more"
