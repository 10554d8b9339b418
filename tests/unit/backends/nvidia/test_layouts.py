# SPDX-License-Identifier: Apache-2.0
"""The complete container edits of four kinds of nodes and devices, written out: nothing more and nothing less.

The first one of them, the small driver root with a hook, is in test_edits.py. Expected is what NVIDIA's container toolkit makes, and
without its hook the same files under the names that programs open.
"""

from typing import ClassVar

from dra_driver.backends.nvidia.edits import gpu_edits, mig_edits
from dra_driver.backends.nvidia.facts import DeviceFile, Gpu, Installation, MigDevice

FILE = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
SOCKET = ["nosuid", "nodev", "rbind", "rprivate", "noexec"]
CONTROL = (
    DeviceFile(path="/dev/nvidia-modeset", major=195, minor=254),
    DeviceFile(path="/dev/nvidia-uvm", major=511, minor=0),
    DeviceFile(path="/dev/nvidia-uvm-tools", major=511, minor=1),
    DeviceFile(path="/dev/nvidia0", major=195, minor=0),
    DeviceFile(path="/dev/nvidia1", major=195, minor=1),
    DeviceFile(path="/dev/nvidiactl", major=195, minor=255),
)


class PackageWithoutHook:
    """A package of the driver on Ubuntu, and no container toolkit."""

    lib = "/usr/lib/x86_64-linux-gnu"
    installation = Installation(
        driver_root="/",
        kernel_version="580.126.20",
        library_version="580.126.20",
        libraries=(
            f"{lib}/libcuda.so.580.126.20",
            f"{lib}/libnvidia-ml.so.580.126.20",
            f"{lib}/vdpau/libvdpau_nvidia.so.580.126.20",
        ),
        links={
            f"{lib}/libcuda.so.580.126.20": ("libcuda.so.1", "libcuda.so"),
            f"{lib}/libnvidia-ml.so.580.126.20": ("libnvidia-ml.so.1",),
            f"{lib}/vdpau/libvdpau_nvidia.so.580.126.20": ("libvdpau_nvidia.so.1",),
        },
        binaries=("/usr/bin/nvidia-smi",),
        firmware=("/lib/firmware/nvidia/580.126.20/gsp_ga10x.bin",),
        sockets=("/run/nvidia-persistenced/socket",),
        device_files=CONTROL,
        gpu_major=195,
    )
    gpu = Gpu(index=1, uuid="GPU-1", pci_bus_id="00000000:65:00.0", minor=1)
    cuda, ml = f"{lib}/libcuda.so.580.126.20", f"{lib}/libnvidia-ml.so.580.126.20"
    vdpau = f"{lib}/vdpau/libvdpau_nvidia.so.580.126.20"
    firmware = "/lib/firmware/nvidia/580.126.20/gsp_ga10x.bin"
    socket = "/run/nvidia-persistenced/socket"
    expected: ClassVar = {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "deviceNodes": [
            {"path": "/dev/nvidia-modeset", "type": "c", "permissions": "rw", "major": 195, "minor": 254},
            {"path": "/dev/nvidia-uvm-tools", "type": "c", "permissions": "rw", "major": 511, "minor": 1},
            {"path": "/dev/nvidia-uvm", "type": "c", "permissions": "rw", "major": 511, "minor": 0},
            {"path": "/dev/nvidiactl", "type": "c", "permissions": "rw", "major": 195, "minor": 255},
            {"path": "/dev/nvidia1", "type": "c", "permissions": "rw", "major": 195, "minor": 1},
        ],
        "mounts": [
            {"hostPath": firmware, "containerPath": firmware, "options": FILE},
            {"hostPath": socket, "containerPath": socket, "options": SOCKET},
            {"hostPath": "/usr/bin/nvidia-smi", "containerPath": "/usr/bin/nvidia-smi", "options": FILE},
            {"hostPath": cuda, "containerPath": "/usr/lib/x86_64-linux-gnu/libcuda.so", "options": FILE},
            {"hostPath": cuda, "containerPath": "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "options": FILE},
            {"hostPath": cuda, "containerPath": "/usr/lib/x86_64-linux-gnu/libcuda.so.580.126.20", "options": FILE},
            {"hostPath": ml, "containerPath": "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "options": FILE},
            {"hostPath": ml, "containerPath": "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.126.20", "options": FILE},
            {"hostPath": vdpau, "containerPath": "/usr/lib/x86_64-linux-gnu/vdpau/libvdpau_nvidia.so.1", "options": FILE},
            {"hostPath": vdpau, "containerPath": "/usr/lib/x86_64-linux-gnu/vdpau/libvdpau_nvidia.so.580.126.20", "options": FILE},
            {"hostPath": cuda, "containerPath": "/usr/lib64/libcuda.so", "options": FILE},
            {"hostPath": cuda, "containerPath": "/usr/lib64/libcuda.so.1", "options": FILE},
            {"hostPath": cuda, "containerPath": "/usr/lib64/libcuda.so.580.126.20", "options": FILE},
            {"hostPath": ml, "containerPath": "/usr/lib64/libnvidia-ml.so.1", "options": FILE},
            {"hostPath": ml, "containerPath": "/usr/lib64/libnvidia-ml.so.580.126.20", "options": FILE},
            {"hostPath": vdpau, "containerPath": "/usr/lib64/vdpau/libvdpau_nvidia.so.1", "options": FILE},
            {"hostPath": vdpau, "containerPath": "/usr/lib64/vdpau/libvdpau_nvidia.so.580.126.20", "options": FILE},
        ],
    }  # fmt: skip


class MigOnRhel:
    """On RHEL, with the hook. One file of the two capabilities is on the host, the other is made from its numbers. No DRM files."""

    lib = "/usr/lib64"
    installation = Installation(
        driver_root="/",
        kernel_version="580.126.20",
        library_version="580.126.20",
        libraries=(f"{lib}/libcuda.so.580.126.20", f"{lib}/libnvidia-ml.so.580.126.20"),
        links={
            f"{lib}/libcuda.so.580.126.20": ("libcuda.so.1", "libcuda.so"),
            f"{lib}/libnvidia-ml.so.580.126.20": ("libnvidia-ml.so.1",),
        },
        binaries=("/usr/bin/nvidia-smi",),
        device_files=(
            *CONTROL,
            DeviceFile(path="/dev/dri/card1", major=226, minor=1, mode=0o660, gid=44),
            DeviceFile(path="/dev/nvidia-caps/nvidia-cap12", major=236, minor=12, mode=0o444),
        ),
        drm_links={"/dev/dri/by-path/pci-0000:65:00.0-card": "../card1"},
        hook="/usr/bin/nvidia-cdi-hook",
        hook_commands=("disable-device-node-modification", "enable-cuda-compat"),
        gpu_major=195,
        caps_major=236,
        caps={
            "gpu0/gi1/access": 12,
            "gpu0/gi1/ci0/access": 13,
            "gpu0/gi2/access": 21,
            "gpu0/gi2/ci0/access": 22,
        },
    )
    gpu = Gpu(index=0, uuid="GPU-1", pci_bus_id="00000000:65:00.0", minor=0, drm=("card1",))
    mig = MigDevice(uuid="MIG-1", gpu_instance=1, compute_instance=0, profile=9)
    cuda, ml = f"{lib}/libcuda.so.580.126.20", f"{lib}/libnvidia-ml.so.580.126.20"
    expected: ClassVar = {
        "env": ["NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64", "NVIDIA_VISIBLE_DEVICES=void"],
        "deviceNodes": [
            {"path": "/dev/nvidia-modeset", "type": "c", "permissions": "rw", "major": 195, "minor": 254},
            {"path": "/dev/nvidia-uvm-tools", "type": "c", "permissions": "rw", "major": 511, "minor": 1},
            {"path": "/dev/nvidia-uvm", "type": "c", "permissions": "rw", "major": 511, "minor": 0},
            {"path": "/dev/nvidiactl", "type": "c", "permissions": "rw", "major": 195, "minor": 255},
            {"path": "/dev/nvidia0", "type": "c", "permissions": "rw", "major": 195, "minor": 0},
            {"path": "/dev/nvidia-caps/nvidia-cap12", "type": "c", "permissions": "rw", "major": 236, "minor": 12},
            {"path": "/dev/nvidia-caps/nvidia-cap13", "type": "c", "permissions": "rw", "major": 236, "minor": 13},
        ],
        "hooks": [
            {
                "hookName": "createContainer",
                "path": "/usr/bin/nvidia-cdi-hook",
                "args": [
                    "nvidia-cdi-hook", "create-symlinks",
                    "--link", "libcuda.so.580.126.20::/usr/lib64/libcuda.so.1",
                    "--link", "libcuda.so.1::/usr/lib64/libcuda.so",
                    "--link", "libnvidia-ml.so.580.126.20::/usr/lib64/libnvidia-ml.so.1",
                ],
                "env": ["NVIDIA_CTK_DEBUG=false"],
            },
            {
                "hookName": "createContainer",
                "path": "/usr/bin/nvidia-cdi-hook",
                "args": ["nvidia-cdi-hook", "enable-cuda-compat", "--host-driver-version=580.126.20"],
                "env": ["NVIDIA_CTK_DEBUG=false"],
            },
            {
                "hookName": "createContainer",
                "path": "/usr/bin/nvidia-cdi-hook",
                "args": ["nvidia-cdi-hook", "update-ldcache", "--folder", "/usr/lib64"],
                "env": ["NVIDIA_CTK_DEBUG=false"],
            },
            {
                "hookName": "createContainer",
                "path": "/usr/bin/nvidia-cdi-hook",
                "args": ["nvidia-cdi-hook", "disable-device-node-modification"],
                "env": ["NVIDIA_CTK_DEBUG=false"],
            },
        ],
        "mounts": [
            {"hostPath": "/usr/bin/nvidia-smi", "containerPath": "/usr/bin/nvidia-smi", "options": FILE},
            {"hostPath": cuda, "containerPath": cuda, "options": FILE},
            {"hostPath": ml, "containerPath": ml, "options": FILE},
        ],
    }  # fmt: skip


class Operator:
    """The driver is in a container of its own: its files and device files are below /run/nvidia/driver, the DRM files are the host's."""

    root, lib = "/run/nvidia/driver", "/usr/lib/x86_64-linux-gnu"
    installation = Installation(
        driver_root=root,
        dev_root=root,
        kernel_version="580.126.20",
        library_version="580.126.20",
        libraries=(
            f"{lib}/libGLX_nvidia.so.580.126.20",
            f"{lib}/libcuda.so.580.126.20",
            f"{lib}/libnvidia-allocator.so.580.126.20",
            f"{lib}/libnvidia-egl-gbm.so.1.1.2",
        ),
        links={
            f"{lib}/libGLX_nvidia.so.580.126.20": ("libGLX_nvidia.so.0",),
            f"{lib}/libcuda.so.580.126.20": ("libcuda.so.1", "libcuda.so"),
            f"{lib}/libnvidia-allocator.so.580.126.20": ("libnvidia-allocator.so.1",),
            f"{lib}/libnvidia-egl-gbm.so.1.1.2": ("libnvidia-egl-gbm.so.1",),
        },
        binaries=("/usr/bin/nvidia-smi", "/usr/bin/nvidia-persistenced"),
        firmware=("/lib/firmware/nvidia/580.126.20/gsp_ga10x.bin",),
        sockets=(f"{root}/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket"),
        configs={
            "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json": "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
            "/usr/share/vulkan/icd.d/nvidia_icd.json": "/etc/vulkan/icd.d/nvidia_icd.json",
        },
        device_files=(
            *CONTROL,
            DeviceFile(path="/dev/dri/card1", major=226, minor=1, mode=0o660, gid=44),
            DeviceFile(path="/dev/dri/card2", major=226, minor=2, mode=0o660, gid=44),
            DeviceFile(path="/dev/dri/renderD129", major=226, minor=129, mode=0o660, gid=109),
        ),
        drm_links={
            "/dev/dri/by-path/pci-0000:65:00.0-card": "../card1",
            "/dev/dri/by-path/pci-0000:65:00.0-render": "../renderD129",
            "/dev/dri/by-path/pci-0000:66:00.0-card": "../card2",
        },
        hook="/usr/local/nvidia/toolkit/nvidia-cdi-hook",
        hook_commands=("disable-device-node-modification", "enable-cuda-compat"),
        gpu_major=195,
    )
    gpu = Gpu(
        index=0, uuid="GPU-1", pci_bus_id="00000000:65:00.0", minor=0, drm=("card1", "renderD129")
    )
    hook: ClassVar = {
        "hookName": "createContainer",
        "path": "/usr/local/nvidia/toolkit/nvidia-cdi-hook",
        "env": ["NVIDIA_CTK_DEBUG=false"],
    }
    expected: ClassVar = {
        "env": [
            "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib/x86_64-linux-gnu",
            "NVIDIA_VISIBLE_DEVICES=void",
        ],
        "deviceNodes": [
            {"path": "/dev/nvidia-modeset", "hostPath": "/run/nvidia/driver/dev/nvidia-modeset", "type": "c", "permissions": "rw", "major": 195, "minor": 254},
            {"path": "/dev/nvidia-uvm-tools", "hostPath": "/run/nvidia/driver/dev/nvidia-uvm-tools", "type": "c", "permissions": "rw", "major": 511, "minor": 1},
            {"path": "/dev/nvidia-uvm", "hostPath": "/run/nvidia/driver/dev/nvidia-uvm", "type": "c", "permissions": "rw", "major": 511, "minor": 0},
            {"path": "/dev/nvidiactl", "hostPath": "/run/nvidia/driver/dev/nvidiactl", "type": "c", "permissions": "rw", "major": 195, "minor": 255},
            {"path": "/dev/nvidia0", "hostPath": "/run/nvidia/driver/dev/nvidia0", "type": "c", "permissions": "rw", "major": 195, "minor": 0},
            {"path": "/dev/dri/card1", "type": "c", "permissions": "rw", "major": 226, "minor": 1},
            {"path": "/dev/dri/renderD129", "type": "c", "permissions": "rw", "major": 226, "minor": 129},
        ],
        "additionalGids": [44, 109],
        "hooks": [
            hook | {
                "args": [
                    "nvidia-cdi-hook", "create-symlinks",
                    "--link", "libGLX_nvidia.so.580.126.20::/usr/lib/x86_64-linux-gnu/libGLX_nvidia.so.0",
                    "--link", "libGLX_nvidia.so.580.126.20::/usr/lib/x86_64-linux-gnu/libGLX_indirect.so.0",
                    "--link", "libcuda.so.580.126.20::/usr/lib/x86_64-linux-gnu/libcuda.so.1",
                    "--link", "libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so",
                    "--link", "libnvidia-allocator.so.580.126.20::/usr/lib/x86_64-linux-gnu/libnvidia-allocator.so.1",
                    "--link", "../libnvidia-allocator.so.1::/usr/lib/x86_64-linux-gnu/gbm/nvidia-drm_gbm.so",
                    "--link", "libnvidia-egl-gbm.so.1.1.2::/usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1",
                ],
            },
            hook | {"args": ["nvidia-cdi-hook", "enable-cuda-compat", "--host-driver-version=580.126.20"]},
            hook | {"args": ["nvidia-cdi-hook", "update-ldcache", "--folder", "/usr/lib/x86_64-linux-gnu"]},
            hook | {"args": ["nvidia-cdi-hook", "disable-device-node-modification"]},
            hook | {
                "args": [
                    "nvidia-cdi-hook", "create-symlinks",
                    "--link", "../card1::/dev/dri/by-path/pci-0000:65:00.0-card",
                    "--link", "../renderD129::/dev/dri/by-path/pci-0000:65:00.0-render",
                ],
            },
        ],
        "mounts": [
            {"hostPath": "/run/nvidia/driver/usr/share/vulkan/icd.d/nvidia_icd.json", "containerPath": "/etc/vulkan/icd.d/nvidia_icd.json", "options": FILE},
            {"hostPath": "/run/nvidia/driver/lib/firmware/nvidia/580.126.20/gsp_ga10x.bin", "containerPath": "/lib/firmware/nvidia/580.126.20/gsp_ga10x.bin", "options": FILE},
            {"hostPath": "/run/nvidia-fabricmanager/socket", "containerPath": "/run/nvidia-fabricmanager/socket", "options": SOCKET},
            {"hostPath": "/run/nvidia/driver/run/nvidia-persistenced/socket", "containerPath": "/run/nvidia-persistenced/socket", "options": SOCKET},
            {"hostPath": "/run/nvidia/driver/usr/bin/nvidia-persistenced", "containerPath": "/usr/bin/nvidia-persistenced", "options": FILE},
            {"hostPath": "/run/nvidia/driver/usr/bin/nvidia-smi", "containerPath": "/usr/bin/nvidia-smi", "options": FILE},
            {"hostPath": "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libGLX_nvidia.so.580.126.20", "containerPath": "/usr/lib/x86_64-linux-gnu/libGLX_nvidia.so.580.126.20", "options": FILE},
            {"hostPath": "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libcuda.so.580.126.20", "containerPath": "/usr/lib/x86_64-linux-gnu/libcuda.so.580.126.20", "options": FILE},
            {"hostPath": "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-allocator.so.580.126.20", "containerPath": "/usr/lib/x86_64-linux-gnu/libnvidia-allocator.so.580.126.20", "options": FILE},
            {"hostPath": "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.2", "containerPath": "/usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.2", "options": FILE},
            {"hostPath": "/run/nvidia/driver/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json", "containerPath": "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json", "options": FILE},
        ],
    }  # fmt: skip


def test_a_gpu_without_the_hook_of_the_toolkit() -> None:
    found = gpu_edits(PackageWithoutHook.installation, PackageWithoutHook.gpu).as_dict()
    assert found == PackageWithoutHook.expected


def test_a_mig_device() -> None:
    found = mig_edits(MigOnRhel.installation, MigOnRhel.gpu, MigOnRhel.mig).as_dict()
    assert found == MigOnRhel.expected


def test_a_gpu_with_graphics_of_the_gpu_operator() -> None:
    found = gpu_edits(Operator.installation, Operator.gpu, groups=True).as_dict()
    assert found == Operator.expected
