# SPDX-License-Identifier: Apache-2.0
"""The files of NVIDIA's driver installation as data. `{v}` is the version of the driver."""

from collections.abc import Mapping

# Library → the names that link to it; the first one is its SONAME, unless it ends in .so alone.
LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "libcuda.so.{v}": ("libcuda.so.1", "libcuda.so"),
    "libcudadebugger.so.{v}": ("libcudadebugger.so.1",),
    "libnvidia-ml.so.{v}": ("libnvidia-ml.so.1", "libnvidia-ml.so"),
    "libnvidia-ptxjitcompiler.so.{v}": ("libnvidia-ptxjitcompiler.so.1",),
    "libnvidia-nvvm.so.{v}": ("libnvidia-nvvm.so.4",),
    "libnvidia-nvvm70.so.4": (),
    "libnvidia-gpucomp.so.{v}": (),
    "libnvidia-cfg.so.{v}": ("libnvidia-cfg.so.1",),
    "libnvidia-opencl.so.{v}": ("libnvidia-opencl.so.1",),
    "libnvidia-allocator.so.{v}": ("libnvidia-allocator.so.1", "libnvidia-allocator.so"),
    "libnvidia-encode.so.{v}": ("libnvidia-encode.so.1", "libnvidia-encode.so"),
    "libnvcuvid.so.{v}": ("libnvcuvid.so.1", "libnvcuvid.so"),
    "libnvidia-opticalflow.so.{v}": ("libnvidia-opticalflow.so.1",),
    "libnvidia-fbc.so.{v}": ("libnvidia-fbc.so.1", "libnvidia-fbc.so"),
    "libnvidia-ngx.so.{v}": ("libnvidia-ngx.so.1",),
    "libnvidia-pkcs11-openssl3.so.{v}": (),
    "libnvidia-sandboxutils.so.{v}": ("libnvidia-sandboxutils.so.1",),
    "libnvidia-eglcore.so.{v}": (),
    "libnvidia-glcore.so.{v}": (),
    "libnvidia-glsi.so.{v}": (),
    "libnvidia-glvkspirv.so.{v}": (),
    "libnvidia-rtcore.so.{v}": (),
    "libnvidia-tls.so.{v}": (),
    "libnvoptix.so.{v}": ("libnvoptix.so.1",),
    "libGLX_nvidia.so.{v}": ("libGLX_nvidia.so.0", "libGLX_indirect.so.0"),
    "libEGL_nvidia.so.{v}": ("libEGL_nvidia.so.0",),
    "libGLESv1_CM_nvidia.so.{v}": ("libGLESv1_CM_nvidia.so.1",),
    "libGLESv2_nvidia.so.{v}": ("libGLESv2_nvidia.so.2",),
    "libnvidia-egl-gbm.so.1.1.2": ("libnvidia-egl-gbm.so.1",),
    "libnvidia-egl-wayland.so.1.1.19": ("libnvidia-egl-wayland.so.1",),
    "vdpau/libvdpau_nvidia.so.{v}": ("libvdpau_nvidia.so.1", "libvdpau_nvidia.so"),
}

# Libraries of the distribution beside them, which are not NVIDIA's. No libc: programs may search here, and these are stubs.
NEIGHBOURS: Mapping[str, tuple[str, ...]] = {
    "libjansson.so.4.14.0": ("libjansson.so.4",),
    "libOpenCL.so.1.0.0": ("libOpenCL.so.1",),
    "libEGL.so.1.1.0": ("libEGL.so.1",),
    "libGL.so.1.7.0": ("libGL.so.1",),
}

BINARIES = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
    "nvidia-xconfig",
)
HOST_BINARIES = ("nvidia-modprobe", "nvidia-installer")
"""Programs that no container needs."""

FIRMWARE = ("gsp_ga10x.bin", "gsp_tu10x.bin")

CONFIGS = (
    "usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
    "usr/share/nvidia/nvoptix.bin",
    "usr/share/X11/xorg.conf.d/nvidia-drm-outputclass.conf",
    "etc/OpenCL/vendors/nvidia.icd",
    "etc/vulkan/icd.d/nvidia_icd.json",
)


HOOK_COMMANDS = ("disable-device-node-modification", "enable-cuda-compat")
"""Commands of nvidia-cdi-hook that older releases lack."""


def soname(library: str, links: tuple[str, ...]) -> str:
    """The SONAME of a library: the first link with a number, or the library's own name."""
    return next((name for name in links if not name.endswith(".so")), library.rpartition("/")[2])
