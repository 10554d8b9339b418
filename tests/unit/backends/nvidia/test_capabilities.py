# SPDX-License-Identifier: Apache-2.0
"""Which files are for which kind of work."""

import pytest

from dra_driver.backends.nvidia.capabilities import CAPABILITIES, wanted


@pytest.mark.parametrize(
    ("path", "purposes"),
    [
        ("/usr/lib64/libcuda.so.550.54", {"compute"}),
        ("/usr/lib64/libnvidia-ml.so.550.54", {"utility"}),
        ("/usr/lib64/libnvcuvid.so.550.54", {"video"}),
        ("/usr/lib64/libnvidia-ngx.so.550.54", {"ngx"}),
        ("/usr/lib64/libGLX_nvidia.so.550.54", {"graphics", "display"}),
        ("/usr/lib64/libnvidia-allocator.so.550.54", {"compute", "graphics", "display"}),
        ("/usr/lib64/xorg/modules/drivers/nvidia_drv.so", {"graphics", "display"}),
        ("/usr/bin/nvidia-smi", {"utility"}),
        ("/usr/bin/nvidia-cuda-mps-server", {"compute"}),
        ("/usr/lib64/libnvidia-new.so.550.54", CAPABILITIES),
    ],
)
def test_a_file_is_wanted_for_its_purposes(path: str, purposes: frozenset[str]) -> None:
    assert {each for each in CAPABILITIES if wanted(path, {each})} == purposes


def test_an_unknown_library_goes_everywhere_even_with_no_purpose() -> None:
    assert wanted("/usr/lib64/libnvidia-new.so.1", ())
    assert not wanted("/usr/lib64/libcuda.so.1", ())
