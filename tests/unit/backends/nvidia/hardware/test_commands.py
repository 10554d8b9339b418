# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from dra_driver.backends.nvidia.facts import Installation
from dra_driver.backends.nvidia.hardware import commands
from dra_driver.backends.nvidia.hardware.nvml import Failed, Found

UUID = "GPU-2fa81118-5a5f-aa66-7660-471eed407181"


def installed(root: Path, script: str) -> Found:
    """A driver root of a host whose / is `root`, with this program."""
    program = root / "run/nvidia/driver/usr/bin/nvidia-smi"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    installation = Installation(
        driver_root="/run/nvidia/driver",
        binaries=("/usr/bin/nvidia-persistenced", "/usr/bin/nvidia-smi"),
    )
    return Found(installation)


def test_the_program_of_the_driver_root_runs_with_arguments_of_ours_only(tmp_path: Path) -> None:
    found = installed(tmp_path, f'echo "$@" > {tmp_path}/said; env > {tmp_path}/environment')
    commands.set_time_slice(found, str(tmp_path), UUID, 2)
    assert (tmp_path / "said").read_text() == f"compute-policy -i {UUID} --set-timeslice 2\n"
    names = {line.partition("=")[0] for line in (tmp_path / "environment").read_text().splitlines()}
    assert names <= {"PATH", "LD_PRELOAD", "PWD", "OLDPWD", "SHLVL", "_"}


def test_its_failure_is_told_with_its_output(tmp_path: Path) -> None:
    found = installed(tmp_path, "echo Failed to set timeslice: Not Supported; exit 3")
    said = "exit code 3: Failed to set timeslice: Not Supported; try"
    with pytest.raises(Failed, match=said) as caught:
        commands.set_time_slice(found, str(tmp_path), UUID, 2)
    assert not caught.value.failure.retry


@pytest.mark.parametrize("code", [9, 15, 255])
def test_a_failure_that_does_not_say_never_is_tried_again(code: int, tmp_path: Path) -> None:
    found = installed(tmp_path, f"echo Unable to determine the device handle; exit {code}")
    with pytest.raises(Failed, match=f"exit code {code}: Unable") as caught:
        commands.set_time_slice(found, str(tmp_path), UUID, 0)
    assert caught.value.failure.retry


@pytest.mark.parametrize(
    ("script", "retry"),
    [
        ("exit 2", False),
        ("exit 3", False),
        ("echo Setting timeslice is not supported; exit 1", False),
        ("echo Unable to determine the device handle; exit 255", True),
        ("exit 9", True),
        ("kill -9 $$", True),
    ],
)
def test_only_what_it_refuses_for_good_is_not_tried_again(
    script: str, retry: bool, tmp_path: Path
) -> None:
    with pytest.raises(Failed) as caught:
        commands.set_time_slice(installed(tmp_path, script), str(tmp_path), UUID, 0)
    assert caught.value.failure.retry is retry


def test_a_program_that_hangs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "SECONDS", 0.2)
    found = installed(tmp_path, "exec sleep 60")
    with pytest.raises(Failed, match="did not end within 0 s, and was stopped") as caught:
        commands.set_time_slice(found, str(tmp_path), UUID, 2)
    assert caught.value.failure.retry


def test_a_program_that_was_killed_is_run_again_later(tmp_path: Path) -> None:
    found = installed(tmp_path, "kill -9 $$")
    with pytest.raises(Failed, match="was ended by signal 9; see `dmesg`") as caught:
        commands.set_time_slice(found, str(tmp_path), UUID, 2)
    assert caught.value.failure.retry


def test_a_file_that_cannot_be_executed_is_said(tmp_path: Path) -> None:
    found = installed(tmp_path, "true")
    (tmp_path / "run/nvidia/driver/usr/bin/nvidia-smi").chmod(0o644)
    with pytest.raises(Failed, match=r"cannot be run: .*Permission denied"):
        commands.set_time_slice(found, str(tmp_path), UUID, 2)


def test_a_driver_root_without_the_program_is_one_clear_refusal(tmp_path: Path) -> None:
    found = Found(Installation(driver_root="/run/nvidia/driver"))
    with pytest.raises(Failed, match=r"/run/nvidia/driver has no nvidia-smi.*timeSlicingConfig"):
        commands.set_time_slice(found, str(tmp_path), UUID, 2)
