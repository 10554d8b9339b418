# SPDX-License-Identifier: Apache-2.0
"""Under which names do programs open a library of the driver?"""

from collections.abc import Iterator

from dra_driver.backends.nvidia.facts import Installation

_ALWAYS = {
    "libcuda": ("libcuda.so", "libcuda.so.1"),
    "libnvidia-opticalflow": ("libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1"),
    "libnvidia-allocator": ("gbm/nvidia-drm_gbm.so", "../libnvidia-allocator.so.1"),
    "libGLX_nvidia": ("libGLX_indirect.so.0", ""),
    "libnvidia-vulkan-producer": ("libnvidia-vulkan-producer.so", ""),
    "libglxserver_nvidia": ("libglxserver_nvidia.so", ""),
}
"""Links that programs rely on, whether the installation has them or not; an empty target is the library's file."""


def links_of(installation: Installation, path: str) -> Iterator[tuple[str, str]]:
    """Yield (name, target) of each link to a library, as they have to be in the library's folder."""
    name = path.rpartition("/")[2]
    stem = name.partition(".so")[0]
    links = dict.fromkeys(installation.links.get(path, ()), name)
    soname = next((link for link in links if link != f"{stem}.so"), name)
    if f"{stem}.so" in links:
        links[f"{stem}.so"] = soname
    if stem in _ALWAYS:
        link, target = _ALWAYS[stem]
        links.setdefault(link, target or name)
    yield from links.items()
