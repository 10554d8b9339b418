# SPDX-License-Identifier: Apache-2.0
"""What a container gets: the layouts of NVIDIA's container toolkit, and the same without its hook."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from dra_driver.backends.nvidia.capabilities import CAPABILITIES
from dra_driver.backends.nvidia.edits import DECLARES, edits_for, gpu_edits, mig_edits
from dra_driver.backends.nvidia.facts import DeviceFile, Gpu, Installation, MigDevice
from dra_driver.backends.nvidia.hardware.installation import read_installation
from dra_driver.errors import Temporary
from dra_driver.model.cdi import CdiDevice, CdiSpec, ContainerEdits
from dra_driver.planning.edits import wrong_edits
from dra_driver.testing.nvml import boards, machine
from dra_driver.testing.nvml import node as layouts
from dra_driver.testing.nvml.elf import stub
from dra_driver.testing.nvml.node import MockNode

FILE_OPTIONS = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
LIB = "/lib/x86_64-linux-gnu"
HOOK = "/usr/bin/nvidia-cdi-hook"
NEWER = ("disable-device-node-modification", "enable-cuda-compat")
SMALL = Installation(
    driver_root="/drivers/one",
    dev_root="/drivers/one",
    kernel_version="999.88.77",
    library_version="999.88.77",
    libraries=(f"{LIB}/libcuda.so.999.88.77", f"{LIB}/vdpau/libvdpau_nvidia.so.999.88.77"),
    device_files=(
        DeviceFile(path="/dev/nvidia0", major=195, minor=0),
        DeviceFile(path="/dev/nvidiactl", major=195, minor=255),
    ),
    hook=HOOK,
    hook_commands=NEWER,
)
GPU = Gpu(index=0, uuid="GPU-1", pci_bus_id="00000000:65:00.0", minor=0)


def changed(**fields: object) -> Installation:
    return msgspec.structs.replace(SMALL, **fields)


def hook(command: str, *arguments: str) -> dict[str, object]:
    return {
        "hookName": "createContainer",
        "path": HOOK,
        "args": ["nvidia-cdi-hook", command, *arguments],
        "env": ["NVIDIA_CTK_DEBUG=false"],
    }


def mount(host: str, container: str = "") -> dict[str, object]:
    return {"hostPath": host, "containerPath": container or host, "options": FILE_OPTIONS}


def device(path: str, major: int, minor: int, root: str = "") -> dict[str, object]:
    numbers = {"path": path, "type": "c", "permissions": "rw", "major": major, "minor": minor}
    return numbers | ({"hostPath": root + path} if root else {})


def targets(edits: ContainerEdits) -> dict[str, str]:
    return {mount.container_path: mount.host_path for mount in edits.mounts}


def nodes(edits: ContainerEdits) -> list[str]:
    return [node.path for node in edits.device_nodes]


def links(edits: ContainerEdits) -> list[str]:
    return [
        word
        for hook in edits.hooks
        if hook.args[1] == "create-symlinks"
        for word in hook.args[3::2]
    ]


def test_a_small_driver_root_has_the_toolkit_s_layout() -> None:
    root = "/drivers/one"
    assert gpu_edits(SMALL, GPU).as_dict() == {
        "env": [f"NVIDIA_CTK_LIBCUDA_DIR={LIB}", "NVIDIA_VISIBLE_DEVICES=void"],
        "deviceNodes": [
            device("/dev/nvidiactl", 195, 255, root),
            device("/dev/nvidia0", 195, 0, root),
        ],
        "hooks": [
            hook("create-symlinks", "--link", f"libcuda.so.1::{LIB}/libcuda.so"),
            hook("enable-cuda-compat", "--host-driver-version=999.88.77"),
            hook("update-ldcache", "--folder", LIB, "--folder", f"{LIB}/vdpau"),
            hook("disable-device-node-modification"),
        ],
        "mounts": [
            mount(f"{root}{LIB}/libcuda.so.999.88.77", f"{LIB}/libcuda.so.999.88.77"),
            mount(
                f"{root}{LIB}/vdpau/libvdpau_nvidia.so.999.88.77",
                f"{LIB}/vdpau/libvdpau_nvidia.so.999.88.77",
            ),
        ],
    }


def test_the_driver_accepts_the_edits() -> None:
    for installation in (SMALL, changed(hook="")):
        assert wrong_edits(gpu_edits(installation, GPU), DECLARES) == ""


def test_an_older_hook_gets_no_command_that_it_does_not_know() -> None:
    edits = gpu_edits(changed(hook_commands=()), GPU)
    assert [hook.args[1] for hook in edits.hooks] == ["create-symlinks", "update-ldcache"]


def test_without_a_hook_libraries_are_where_the_linker_looks() -> None:
    cuda = f"{LIB}/libcuda.so.999.88.77"
    edits = gpu_edits(changed(hook="", links={cuda: ("libcuda.so.1",)}), GPU)
    folders = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")
    names = ("libcuda.so", "libcuda.so.1", "libcuda.so.999.88.77")
    vdpau = "vdpau/libvdpau_nvidia.so.999.88.77"
    assert targets(edits) == {
        **{f"{folder}/{name}": f"/drivers/one{cuda}" for folder in folders for name in names},
        **{f"{folder}/{vdpau}": f"/drivers/one{LIB}/{vdpau}" for folder in folders},
    }
    assert edits.hooks == ()
    assert edits.env == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_another_machine_has_another_folder() -> None:
    edits = gpu_edits(changed(hook="", machine="aarch64"), GPU)
    assert "/usr/lib/aarch64-linux-gnu/libcuda.so.999.88.77" in targets(edits)
    assert not any("x86_64" in target for target in targets(edits))


def test_links_lead_from_the_plain_name_to_the_soname_to_the_file() -> None:
    cuda, encode = f"{LIB}/libcuda.so.9.1", f"{LIB}/libnvidia-encode.so.9.1"
    edits = gpu_edits(
        changed(
            libraries=(cuda, encode),
            links={
                cuda: ("libcuda.so.1", "libcuda.so"),
                encode: ("libnvidia-encode.so.1", "libnvidia-encode.so"),
            },
        ),
        GPU,
    )
    assert links(edits) == [
        f"libcuda.so.9.1::{LIB}/libcuda.so.1",
        f"libcuda.so.1::{LIB}/libcuda.so",
        f"libnvidia-encode.so.9.1::{LIB}/libnvidia-encode.so.1",
        f"libnvidia-encode.so.1::{LIB}/libnvidia-encode.so",
    ]


GRAPHICS_LIBRARIES = (
    f"{LIB}/libGLX_nvidia.so.9.1",
    f"{LIB}/libnvidia-allocator.so.9.1",
    f"{LIB}/libnvidia-opticalflow.so.9.1",
    f"{LIB}/libnvidia-vulkan-producer.so.9.1",
    "/usr/lib/xorg/modules/drivers/nvidia_drv.so",
    "/usr/lib/xorg/modules/extensions/libglxserver_nvidia.so.9.1",
)


def test_graphics_has_its_links_and_no_cache_for_modules_of_an_x_server() -> None:
    edits = gpu_edits(changed(libraries=GRAPHICS_LIBRARIES), GPU)
    assert links(edits) == [
        f"libGLX_nvidia.so.9.1::{LIB}/libGLX_indirect.so.0",
        f"../libnvidia-allocator.so.1::{LIB}/gbm/nvidia-drm_gbm.so",
        f"libnvidia-opticalflow.so.1::{LIB}/libnvidia-opticalflow.so",
        f"libnvidia-vulkan-producer.so.9.1::{LIB}/libnvidia-vulkan-producer.so",
        "libglxserver_nvidia.so.9.1::/usr/lib/xorg/modules/extensions/libglxserver_nvidia.so",
    ]
    (cache,) = (hook for hook in edits.hooks if hook.args[1] == "update-ldcache")
    assert cache.args[2:] == ("--folder", LIB)


def test_without_a_hook_modules_of_an_x_server_stay_in_their_folder() -> None:
    edits = gpu_edits(changed(libraries=GRAPHICS_LIBRARIES, hook=""), GPU)
    modules = {target for target in targets(edits) if "/xorg/" in target}
    assert modules == {
        "/usr/lib/xorg/modules/drivers/nvidia_drv.so",
        "/usr/lib/xorg/modules/extensions/libglxserver_nvidia.so",
        "/usr/lib/xorg/modules/extensions/libglxserver_nvidia.so.9.1",
    }
    assert "/usr/lib64/gbm/nvidia-drm_gbm.so" in targets(edits)
    assert "/usr/lib64/libGLX_indirect.so.0" in targets(edits)


WHOLE = changed(
    driver_root="/run/nvidia/driver",
    dev_root="/",
    binaries=("/usr/bin/nvidia-smi", "/usr/bin/nvidia-cuda-mps-control", "/usr/bin/nvidia-xconfig"),
    firmware=("/lib/firmware/nvidia/9.1/gsp_ga10x.bin",),
    sources={"/usr/bin/nvidia-smi": "/opt/smi"},
    sockets=(
        "/run/nvidia/driver/run/nvidia-persistenced/socket",
        "/run/nvidia-fabricmanager/socket",
    ),
    configs={"/vulkan/icd.d/nvidia_icd.json": "/etc/vulkan/icd.d/nvidia_icd.json"},
    device_files=(
        DeviceFile(path="/dev/dri/card1", major=226, minor=1, mode=0o660, gid=44),
        DeviceFile(path="/dev/dri/card2", major=226, minor=2, mode=0o660, gid=44),
        DeviceFile(path="/dev/dri/renderD129", major=226, minor=129, mode=0o660, gid=109),
        DeviceFile(path="/dev/nvidia-modeset", major=195, minor=254),
        DeviceFile(path="/dev/nvidia-uvm", major=511, minor=0),
        DeviceFile(path="/dev/nvidia-uvm-tools", major=511, minor=1),
        DeviceFile(path="/dev/nvidia0", major=195, minor=0),
        DeviceFile(path="/dev/nvidiactl", major=195, minor=255),
    ),
    drm_links={
        "/dev/dri/by-path/pci-0000:65:00.0-card": "../card1",
        "/dev/dri/by-path/pci-0000:65:00.0-render": "../renderD129",
        "/dev/dri/by-path/pci-0000:66:00.0-card": "../card2",
        "/dev/dri/by-path/pci-0000:65:00.0-other": "../card7",
    },
    gpu_major=195,
    caps_major=236,
    caps={"gpu0/gi1/access": 12, "gpu0/gi1/ci0/access": 13},
)
WITH_DRM = msgspec.structs.replace(GPU, drm=("card1", "renderD129", "card9"))


def test_everything_of_an_installation_reaches_the_container() -> None:
    edits = gpu_edits(WHOLE, WITH_DRM)
    root = "/run/nvidia/driver"
    assert nodes(edits) == [
        "/dev/nvidia-modeset",
        "/dev/nvidia-uvm-tools",
        "/dev/nvidia-uvm",
        "/dev/nvidiactl",
        "/dev/nvidia0",
        "/dev/dri/card1",
        "/dev/dri/renderD129",
    ]
    assert {node.host_path for node in edits.device_nodes} == {""}
    found = targets(edits)
    assert found["/usr/bin/nvidia-smi"] == f"{root}/opt/smi"
    assert found["/lib/firmware/nvidia/9.1/gsp_ga10x.bin"].startswith(root)
    assert found["/etc/vulkan/icd.d/nvidia_icd.json"] == f"{root}/vulkan/icd.d/nvidia_icd.json"
    assert found["/run/nvidia-persistenced/socket"] == f"{root}/run/nvidia-persistenced/socket"
    assert found["/run/nvidia-fabricmanager/socket"] == "/run/nvidia-fabricmanager/socket"
    (socket,) = (each for each in edits.mounts if "persistenced" in each.container_path)
    assert socket.options == ("nosuid", "nodev", "rbind", "rprivate", "noexec")
    assert links(edits)[-2:] == [
        "../card1::/dev/dri/by-path/pci-0000:65:00.0-card",
        "../renderD129::/dev/dri/by-path/pci-0000:65:00.0-render",
    ]


def test_a_group_is_joined_only_if_the_admin_wants_it_and_for_files_that_need_it() -> None:
    assert gpu_edits(WHOLE, WITH_DRM).additional_gids == ()
    assert gpu_edits(WHOLE, WITH_DRM, groups=True).additional_gids == (44, 109)
    assert gpu_edits(WHOLE, GPU, groups=True).additional_gids == ()
    assert mig_edits(WHOLE, GPU, MIG, groups=True).additional_gids == ()
    modes = {0o600: (), 0o660: (7,), 0o664: (7,), 0o666: (), 0o640: ()}
    for mode, groups in modes.items():
        files = (DeviceFile(path="/dev/nvidia0", major=195, minor=0, mode=mode, gid=7),)
        edits = gpu_edits(changed(device_files=files), GPU, groups=True)
        assert edits.additional_gids == groups, oct(mode)
    root_s = (DeviceFile(path="/dev/nvidia0", major=195, minor=0, mode=0o660, gid=0),)
    assert gpu_edits(changed(device_files=root_s), GPU, groups=True).additional_gids == ()


def test_capabilities_leave_out_what_nobody_wants() -> None:
    some = gpu_edits(WHOLE, WITH_DRM, capabilities={"utility"})
    assert not any(path.startswith("/dev/dri") for path in nodes(some))
    assert set(targets(some)) == {
        "/usr/bin/nvidia-smi",
        "/lib/firmware/nvidia/9.1/gsp_ga10x.bin",
        "/run/nvidia-persistenced/socket",
        "/run/nvidia-fabricmanager/socket",
    }
    assert [hook.args[1] for hook in some.hooks] == [
        "update-ldcache",
        "disable-device-node-modification",
    ]
    compute = gpu_edits(WHOLE, WITH_DRM, capabilities={"compute"})
    assert f"{LIB}/libcuda.so.999.88.77" in targets(compute)
    assert "/usr/bin/nvidia-cuda-mps-control" in targets(compute)
    assert "/dev/nvidia0" in nodes(compute)
    display = gpu_edits(WHOLE, WITH_DRM, capabilities={"display"})
    assert "/dev/dri/card1" in nodes(display)
    assert "/etc/vulkan/icd.d/nvidia_icd.json" in targets(display)


MIG = MigDevice(uuid="MIG-1", gpu_instance=1, compute_instance=0, profile=9)


def test_a_mig_device_has_its_gpu_and_its_two_capabilities() -> None:
    edits = mig_edits(WHOLE, WITH_DRM, MIG)
    assert nodes(edits)[4:] == [
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap12",
        "/dev/nvidia-caps/nvidia-cap13",
    ]
    assert [(node.major, node.minor) for node in edits.device_nodes[5:]] == [(236, 12), (236, 13)]
    assert edits.additional_gids == ()
    assert edits.mounts == gpu_edits(WHOLE, WITH_DRM).mounts
    assert mig_edits(WHOLE, WITH_DRM, MIG, capabilities={"utility"}).mounts != edits.mounts


def test_a_mig_device_with_graphics_has_the_drm_files_of_its_gpu() -> None:
    edits = mig_edits(WHOLE, WITH_DRM, MIG, graphics=True)
    assert nodes(edits)[-2:] == ["/dev/dri/card1", "/dev/dri/renderD129"]
    assert nodes(edits)[:-2] == nodes(mig_edits(WHOLE, WITH_DRM, MIG))
    computes = mig_edits(WHOLE, WITH_DRM, MIG, graphics=True, capabilities={"compute"})
    assert not [path for path in nodes(computes) if path.startswith("/dev/dri")]
    groups = mig_edits(WHOLE, WITH_DRM, MIG, graphics=True, groups=True)
    assert groups.additional_gids == (44, 109)


def test_a_capability_file_that_exists_says_its_numbers() -> None:
    file = DeviceFile(path="/dev/nvidia-caps/nvidia-cap12", major=240, minor=12, mode=0o444)
    edits = mig_edits(
        msgspec.structs.replace(WHOLE, device_files=(*WHOLE.device_files, file)), GPU, MIG
    )
    assert edits.device_nodes[-2].major == 240


@pytest.mark.parametrize("missing", [{"caps": {"gpu0/gi1/access": 12}}, {"caps_major": None}])
def test_a_mig_device_without_a_capability_waits(missing: dict[str, object]) -> None:
    with pytest.raises(Temporary, match="MIG device MIG-1 cannot be given to a container: gpu0"):
        mig_edits(msgspec.structs.replace(WHOLE, **missing), GPU, MIG)


def test_a_gpu_without_a_device_file_gets_one_by_its_numbers() -> None:
    second = msgspec.structs.replace(GPU, minor=1)
    node = gpu_edits(WHOLE, second).device_nodes[-1]
    assert (node.path, node.major, node.minor) == ("/dev/nvidia1", 195, 1)
    with pytest.raises(Temporary, match="because /dev/nvidia1 was not found and /proc/devices"):
        gpu_edits(changed(gpu_major=None), second)
    with pytest.raises(Temporary, match="because its minor number was not found"):
        gpu_edits(WHOLE, msgspec.structs.replace(GPU, minor=None))


def test_without_libraries_a_container_waits_for_the_installation() -> None:
    empty = changed(libraries=(), problems=("the libraries are missing: install them",))
    with pytest.raises(Temporary, match="has no libraries; the libraries are missing: install"):
        gpu_edits(empty, GPU)


LAYOUTS = {
    "UBUNTU": ("/", "/usr/lib/x86_64-linux-gnu", "/usr/bin"),
    "FEDORA": ("/", "/usr/lib64", "/usr/bin"),
    "OPERATOR": ("/run/nvidia/driver", "/usr/lib/x86_64-linux-gnu", "/usr/bin"),
    "GKE": ("/home/kubernetes/bin/nvidia", "/lib64", "/bin"),
    "TALOS": ("/", "/usr/local/glibc/usr/lib", "/usr/local/bin"),
    "BOTTLEROCKET": ("/", "/usr/lib/nvidia/tesla", "/usr/bin"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_on_each_platform_the_files_come_from_its_driver_root(tmp_path: Path, name: str) -> None:
    root, folder, binaries = LAYOUTS[name]
    facts = machine.node(boards.H100, 2)
    MockNode(tmp_path, facts, layout=replace(getattr(layouts, name), hook=True))
    found = targets(gpu_edits(read_installation(tmp_path), facts.gpus[1]))
    for path in (
        f"{folder}/libcuda.so.580.126.20",
        f"{folder}/libnvidia-ml.so.580.126.20",
        f"{binaries}/nvidia-smi",
        "/lib/firmware/nvidia/580.126.20/gsp_ga10x.bin",
    ):
        assert found[path] == f"{root.rstrip('/')}{path}"
    for source in found.values():
        assert (tmp_path / source.lstrip("/")).exists(), source


@pytest.mark.parametrize("name", LAYOUTS)
def test_on_each_platform_a_program_finds_its_libraries_without_a_hook(
    tmp_path: Path, name: str
) -> None:
    facts = machine.node(boards.H100, 2)
    node = MockNode(tmp_path, facts, layout=getattr(layouts, name))
    found = targets(gpu_edits(read_installation(tmp_path), facts.gpus[0]))
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64"):
        for soname in ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"):
            source = tmp_path / found[f"{folder}/{soname}"].lstrip("/")
            assert source.read_bytes() == stub(soname)
    assert all(target.startswith("/") for target in found)
    assert node.installation.hook == ""


def test_all_gpus_of_a_claim_share_what_is_common() -> None:
    both = [
        gpu_edits(WHOLE, msgspec.structs.replace(WITH_DRM, minor=minor, drm=())) for minor in (0, 1)
    ]
    spec = CdiSpec("k8s.gpu.example.com/claim", tuple(map(CdiDevice, ("a", "b"), both)))
    own = msgspec.json.decode(spec.to_json())["devices"]
    assert [device["containerEdits"]["deviceNodes"][0]["path"] for device in own] == [
        "/dev/nvidia0",
        "/dev/nvidia1",
    ]
    assert {key for device in own for key in device["containerEdits"]} == {"env", "deviceNodes"}
    common = msgspec.json.decode(spec.to_json())["containerEdits"]
    assert len(common["hooks"]) == 4
    assert len(common["mounts"]) == len(both[0].mounts)
    assert spec.version == "0.3.0"


def test_the_admin_s_wishes_hold_for_gpus_and_mig_devices() -> None:
    wishes = {"capabilities": frozenset({"graphics"}), "groups": True}
    make = edits_for(**wishes)
    assert make(WHOLE, WITH_DRM, None, True) == gpu_edits(WHOLE, WITH_DRM, **wishes)
    for graphics in (True, False):
        expected = mig_edits(WHOLE, WITH_DRM, MIG, graphics=graphics, **wishes)
        assert make(WHOLE, WITH_DRM, MIG, graphics) == expected
    assert edits_for((), groups=False)(WHOLE, WITH_DRM, None, True) == gpu_edits(WHOLE, WITH_DRM)


def test_the_default_is_everything() -> None:
    assert gpu_edits(WHOLE, WITH_DRM) == gpu_edits(WHOLE, WITH_DRM, capabilities=CAPABILITIES)
