# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from dra_driver.backends.nvidia.facts import Installation
from dra_driver.backends.nvidia.hardware.nvml import Failed, Found, Library, Replaced, failed
from dra_driver.testing.nvml import boards, machine
from tests.support.nvml_standin import StandIn

LOADED = Installation(driver_root="/run/nvidia/driver", kernel_version="580.126.20")


class Node:
    """What is installed, which a test changes."""

    def __init__(self, root: Path) -> None:
        self.library = root / "libnvidia-ml.so.1"
        self.library.write_text("one")
        self.found = Found(LOADED, str(self.library))
        self.loaded: list[str] = []
        self.nvml = StandIn(machine.node(boards.T4))

    def opened(self) -> Library:
        return Library(self.nvml, lambda: self.found, load=self.loaded.append)


def test_the_library_is_loaded_by_its_path_and_opened_once(tmp_path: Path) -> None:
    node = Node(tmp_path)
    library = node.opened()
    assert library.open(library.look()) is library.open(library.look())
    assert node.loaded == [str(node.library)]
    assert node.nvml.calls["nvmlInitWithFlags"] == 1


def test_without_a_kernel_module_the_library_is_not_opened(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.found = Found(Installation(driver_root="/"), str(node.library))
    library = node.opened()
    with pytest.raises(Failed, match="kernel module nvidia is not loaded; load it") as caught:
        library.open(library.look())
    assert caught.value.failure.retry
    assert not node.loaded
    node.found = Found(LOADED, str(node.library))
    library.open(library.look())


def test_a_missing_library_names_the_driver_root(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.found = Found(LOADED)
    with pytest.raises(
        Failed, match=r"root /run/nvidia/driver has .* but no libnvidia-ml"
    ) as caught:
        node.opened().open(node.found)
    assert caught.value.failure.retry
    assert "nvmlInit" not in str(caught.value)


def test_a_file_that_is_no_library_is_said(tmp_path: Path) -> None:
    node = Node(tmp_path)
    library = Library(node.nvml, lambda: node.found)
    with pytest.raises(Failed, match=r"cannot be loaded: .*reinstall NVIDIA's driver"):
        library.open(library.look())


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (4, "privileged"),
        (9, "modprobe"),
        (18, "finish the upgrade"),
        (999, "dmesg"),
        (77, "nvml.h"),
    ],
)
def test_a_library_that_does_not_open_is_tried_again_without_loading_it_again(
    code: int, said: str, tmp_path: Path
) -> None:
    node = Node(tmp_path)
    library = node.opened()
    node.nvml.fail["nvmlInitWithFlags"] = code
    for _ in range(2):
        with pytest.raises(Failed, match=f"NVML error {code}: .*; .*{said}"):
            library.open(library.look())
    node.nvml.fail.clear()
    library.open(library.look())
    assert len(node.loaded) == 1


def test_another_file_or_another_kernel_module_needs_another_process(tmp_path: Path) -> None:
    node = Node(tmp_path)
    library = node.opened()
    library.open(library.look())
    node.found = Found(Installation(driver_root="/", kernel_version="590.1"), str(node.library))
    with pytest.raises(Replaced):
        library.look()
    node.found = Found(LOADED, str(node.library))
    library.look()
    node.library.rename(tmp_path / "old")
    node.library.write_text("two")
    with pytest.raises(Replaced):
        library.look()
    node.library.unlink()
    with pytest.raises(Replaced):
        library.look()


@pytest.mark.parametrize(
    ("code", "again"), [(3, False), (4, False), (13, False), (15, True), (999, True)]
)
def test_only_what_can_change_is_tried_again(code: int, again: bool) -> None:
    assert failed("nvmlDeviceGetName", code, "GPU 1").failure.retry is again
