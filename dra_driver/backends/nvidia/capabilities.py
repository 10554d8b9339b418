# SPDX-License-Identifier: Apache-2.0
"""The driver capabilities: which part of the driver's files is for which kind of work.

The words are those of NVIDIA's container toolkit (NVIDIA_DRIVER_CAPABILITIES). An admin can leave out what no container of the node
needs. A library that is in no list goes into each container: a newer driver has libraries that older ones need.
Source: libnvidia-container, src/nvc_info.c.
"""

from collections.abc import Collection

_FILES = {
    "utility": "libnvidia-ml libnvidia-cfg libnvidia-nscq libnvidia-sandboxutils nvidia-smi nvidia-debugdump nvidia-persistenced"
    " nvidia-imex nvidia-imex-ctl",
    "compute": "libcuda libcudadebugger libnvidia-opencl libnvidia-gpucomp libnvidia-ptxjitcompiler libnvidia-fatbinaryloader"
    " libnvidia-allocator libnvidia-compiler libnvidia-pkcs11 libnvidia-pkcs11-openssl3 libnvidia-nvvm libnvidia-nvvm70"
    " libnvidia-tileiras nvidia-cuda-mps-control nvidia-cuda-mps-server",
    "video": "libvdpau_nvidia libnvidia-encode libnvidia-opticalflow libnvcuvid",
    "ngx": "libnvidia-ngx",
    "graphics": "libnvidia-eglcore libnvidia-glcore libnvidia-tls libnvidia-glsi libnvidia-fbc libnvidia-ifr libnvidia-rtcore"
    " libnvoptix libGLX_nvidia libEGL_nvidia libGLESv2_nvidia libGLESv1_CM_nvidia libnvidia-glvkspirv libnvidia-cbl"
    " libnvidia-egl-gbm libnvidia-egl-wayland libnvidia-egl-wayland2 libnvidia-egl-xcb libnvidia-egl-xlib"
    " libnvidia-vulkan-producer libnvidia-allocator libnvidia-gpucomp libnvidia-wayland-client libnvidia-present"
    " libglxserver_nvidia nvidia_drv nvidia-xconfig",
}
_FILES["display"] = _FILES["graphics"]

CAPABILITIES = frozenset(_FILES)
GRAPHICS = frozenset({"display", "graphics"})
"""With one of them a container gets the DRM device files and the configuration files of OpenGL, Vulkan and X."""


def wanted(path: str, capabilities: Collection[str]) -> bool:
    """Whether a library or program is for one of the capabilities."""
    name = path.rpartition("/")[2].partition(".so")[0]
    purposes = _PURPOSES.get(name)
    return purposes is None or not purposes.isdisjoint(capabilities)


def _purposes() -> dict[str, frozenset[str]]:
    names = {name for names in _FILES.values() for name in names.split()}
    return {
        name: frozenset(purpose for purpose, files in _FILES.items() if name in files.split())
        for name in names
    }


_PURPOSES = _purposes()
