# SPDX-License-Identifier: Apache-2.0
"""nvidia-cdi-hook on the host, and what it can do."""

from pathlib import Path

import pytest

from dra_driver.backends.nvidia.hardware.hook import HookFinder
from dra_driver.backends.nvidia.hardware.tree import Tree

NEWER = ("disable-device-node-modification", "enable-cuda-compat")


def program(host: Path, path: str, text: str = "#!/bin/sh\n", mode: int = 0o755) -> Path:
    place = host / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    place.chmod(mode)
    return place


@pytest.mark.parametrize(
    "path",
    [
        "/usr/bin/nvidia-cdi-hook",
        "/usr/local/nvidia/toolkit/nvidia-cdi-hook",
        "/home/kubernetes/bin/nvidia/toolkit/nvidia-cdi-hook",
        "/usr/local/bin/nvidia-cdi-hook",
    ],
)
def test_the_hook_is_found_in_its_usual_places(tmp_path: Path, path: str) -> None:
    program(tmp_path, path)
    assert HookFinder(Tree(tmp_path)).find() == (path, ())


def test_what_is_no_program_is_no_hook(tmp_path: Path) -> None:
    finder = HookFinder(Tree(tmp_path))
    assert finder.find() == ("", ())
    program(tmp_path, "/usr/bin/nvidia-cdi-hook", mode=0o644)
    (tmp_path / "usr/local/bin/nvidia-cdi-hook").mkdir(parents=True)
    assert finder.find() == ("", ())


def test_a_command_is_known_if_the_program_names_it(tmp_path: Path) -> None:
    padding = "x" * (2**20 - 10)
    program(tmp_path, "/usr/bin/nvidia-cdi-hook", f"{padding}enable-cuda-compat{padding}")
    assert HookFinder(Tree(tmp_path)).find()[1] == ("enable-cuda-compat",)


def test_a_wrapper_has_its_program_beside_it(tmp_path: Path) -> None:
    path = "/usr/local/nvidia/toolkit/nvidia-cdi-hook"
    program(tmp_path, path)
    program(tmp_path, f"{path}.real", " ".join(NEWER))
    assert HookFinder(Tree(tmp_path)).find() == (path, NEWER)


def test_a_program_is_read_again_only_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = program(tmp_path, "/usr/bin/nvidia-cdi-hook", " ".join(NEWER))
    finder = HookFinder(Tree(tmp_path))
    assert finder.find()[1] == NEWER
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", None)
        assert finder.find()[1] == NEWER
    place.write_text("an older release")
    assert finder.find()[1] == ()


def test_a_program_that_cannot_be_read_has_only_the_old_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "no")

    program(tmp_path, "/usr/bin/nvidia-cdi-hook", " ".join(NEWER))
    monkeypatch.setattr(Path, "open", refused)
    assert HookFinder(Tree(tmp_path)).find() == ("/usr/bin/nvidia-cdi-hook", ())
