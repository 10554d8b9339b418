# SPDX-License-Identifier: Apache-2.0
"""What a row says about an Allocate call: its units, its owners, and what its containers got."""

from dra_driver.model.cdi import CdiDevice, CdiSpec, ContainerEdits, DeviceNode, Hook, Mount
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, DeviceName, PodUid, ResourceName, ShareId, UnitId
from dra_driver.model.plugin import Path, UnitsOfContainer
from dra_driver.model.state import Phase, PreparedClaim, PreparedDevice
from dra_driver.planning.plugin.rows import edits_of, owner_paths, sharing, units_of
from dra_driver.testing.builders import A_BOOT, A_POOL, a_ref

GPU = ResourceName("nvidia.com/gpu")
REF = ClaimRef("device-plugin", GPU, ClaimUid("plugin-1"))
KIND = "k8s.gpu.example.com/claim"
FULL = ContainerEdits(
    {"GPU": "a=b", "ONE": "1"},
    (
        DeviceNode("/dev/gpu0", major=1, minor=0, permissions="rwm", file_mode=0o660),
        DeviceNode("/dev/gpu1", "b", host_path="/dev/other"),
    ),
    (Mount("/opt/lib", "/lib/gpu"), Mount("/var/a", "/a", ("rw", "bind"))),
    (
        Hook("createContainer", "/bin/hook", ("hook", "-x"), ("A=1",), 5),
        Hook("poststop", "/bin/end"),
    ),
    (44, 45),
)
CONTROL = DeviceNode("/dev/ctl")


def a_device(device: str, *units: str, share: str = "", admin: bool = False) -> PreparedDevice:
    name = f"{KIND}=x-{device}"
    return PreparedDevice(
        units, A_POOL, DeviceName(device), (name,), "", ShareId(share), admin_access=admin
    )


def a_row(*devices: PreparedDevice, ref: ClaimRef = REF) -> PreparedClaim:
    return PreparedClaim(ref, Phase.PREPARED, A_BOOT, devices, "")


def a_container(*units: str, resource: str = GPU) -> UnitsOfContainer:
    ids = frozenset(map(UnitId, units))
    return UnitsOfContainer(PodUid("pod"), "main", ResourceName(resource), ids)


ROW = a_row(a_device("gpu-0", "GPU-0"), a_device("gpu-1", "GPU-1"))


def test_each_device_of_a_row_is_a_unit() -> None:
    assert units_of(ROW) == {"GPU-0", "GPU-1"}
    assert units_of(a_row(a_device("gpu-0"))) == frozenset()


def test_a_container_sharing_with_a_row_of_its_resource_only() -> None:
    mine = a_container("GPU-1", "GPU-2")
    others = a_container("GPU-2"), a_container("GPU-1", resource="nvidia.com/other")
    assert sharing([mine, *others], ROW) == (mine,)


def test_owners_are_told_by_the_api_through_which_they_came() -> None:
    rows = (
        a_row(a_device("gpu-0", "a", share="replica-0"), a_device("gpu-1", "b")),
        a_row(a_device("gpu-0", share="s"), a_device("gpu-2"), ref=a_ref()),
        a_row(a_device("gpu-3", admin=True), ref=a_ref("watcher")),
    )
    assert owner_paths(rows) == {
        "gpu-0": {Path.DRA, Path.DEVICE_PLUGIN},
        "gpu-1": {Path.DEVICE_PLUGIN},
        "gpu-2": {Path.DRA},
    }


def test_edits_come_back_from_the_document_as_they_were_written() -> None:
    text = CdiSpec(KIND, (CdiDevice("x-gpu-0", FULL),)).to_json()
    assert edits_of(text, [a_device("gpu-0")]) == [FULL]


def test_what_all_devices_have_comes_once_and_first() -> None:
    own = [ContainerEdits({"GPU": name}, (CONTROL,)) for name in "ab"]
    text = CdiSpec(
        KIND, tuple(CdiDevice(f"x-gpu-{n}", edits) for n, edits in enumerate(own))
    ).to_json()
    common = ContainerEdits(device_nodes=(CONTROL,))
    assert edits_of(text, [a_device("gpu-1"), a_device("gpu-0")]) == [
        common,
        ContainerEdits({"GPU": "b"}),
        ContainerEdits({"GPU": "a"}),
    ]
    # A device that the document does not have gets nothing, also not what the others have.
    assert edits_of(text, [a_device("gpu-9")]) == []
