# SPDX-License-Identifier: Apache-2.0
"""Does the demo tell its story, whole, quickly enough to be watched, and leave nothing behind?"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.backends.profiles import DEMO_PROFILES
from dra_driver.cli.demo import _show_json
from dra_driver.cli.demo_story import DemoStep, demo_stage, story
from dra_driver.errors import Permanent
from tests.support.stages import Starter

COMMAND = (sys.executable, "-m", "dra_driver", "demo")
HANGING_SECONDS = 300
# Their demos are played by the program; the others' stories on stages of this process.
PLAYED = ("b580x2", "h100x8")

STEPS = [
    "opening",
    "published",
    "created",
    "scheduled",
    "explained",
    "prepared",
    "container",
    "released",
    "killed",
    "ended",
    "done",
]


def play(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (*COMMAND, *arguments), capture_output=True, text=True, timeout=HANGING_SECONDS, check=False
    )


def steps_of(text: str) -> dict[str, dict[str, Any]]:
    return {step["step"]: step for step in map(json.loads, text.splitlines())}


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("profile", PLAYED)
def test_every_profile_has_a_demo(profile: str) -> None:
    ended = play("--json", "--profile", profile)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert list(steps_of(ended.stdout)) == STEPS


@pytest.mark.parametrize("profile", sorted(set(DEMO_PROFILES) - set(PLAYED)))
def test_every_other_profile_has_a_story_to_the_end(
    keeps_signals: None, capsys: pytest.CaptureFixture[str], profile: str
) -> None:
    with demo_stage(profile, Starter()) as stage:
        told = [show(step) for step in story(stage)]
    assert [*told, "done"] == STEPS
    assert list(steps_of(capsys.readouterr().out)) == told
    assert not stage.root.exists()


def show(step: DemoStep) -> str:
    """As `demo --json` shows it; answers its name."""
    _show_json(step)
    return step.name


def test_what_the_demo_shows_agrees_with_itself_and_nothing_is_left() -> None:
    steps = steps_of(play("--json").stdout)
    devices = {device["name"]: device for device in steps["published"]["devices"]}
    pods = {pod["pod"]: pod for pod in steps["scheduled"]["pods"]}
    (given,) = pods["wants-much"]["devices"]
    uuid = devices[given]["attributes"]["uuid"]["string"]
    variable = f"GPU_DEVICE_0={uuid}"

    assert steps["container"]["config"]["process"]["env"] == [variable]
    assert pods["wants-less"]["devices"] != [given]
    pending = pods["wants-too-much"]["pending"]
    assert pending == "0/1 nodes are available: 1 cannot allocate all claims."
    explained = json.dumps(steps["explained"]["report"])
    assert f"{len(devices)} devices" in explained or "SelectorFalse" in explained
    assert "81559Mi" in explained
    (written,) = steps["prepared"]["spec"]["devices"]
    assert steps["prepared"]["cdiDevices"] == [
        f"{steps['prepared']['spec']['kind']}={written['name']}"
    ]
    assert steps["killed"]["driver_pid"] != steps["opening"]["driver_pid"]
    assert steps["ended"] == {"step": "ended", "exit_code": 0, "cdiFiles": [], "slices": 1}
    assert not Path(steps["done"]["removed"]).exists()
    assert not is_running(steps["killed"]["driver_pid"])


def test_the_text_says_first_what_is_embedded_and_last_how_long_it_took() -> None:
    ended = play()
    lines = ended.stdout.splitlines()
    assert lines[0] == "dra-driver demo: no cluster, no GPU, no root"
    assert lines[1] == "Stand-ins inside this process (dra_driver/testing):"
    assert lines[-2].startswith("Done in ")
    assert [line for line in lines if len(line) > 100] == []
    assert "\033" not in ended.stdout


@pytest.fixture
def keeps_signals() -> Iterator[None]:
    """A stage that ends ignores the signals that would hurry it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def heeds_interrupts() -> Iterator[None]:
    """A shell starts what it runs in the background with SIGINT ignored, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"]
)
def test_a_signal_ends_the_driver_and_removes_the_directory(
    heeds_interrupts: None, number: int, code: int
) -> None:
    with subprocess.Popen((*COMMAND, "--json"), stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        opening = json.loads(demo.stdout.readline())
        demo.send_signal(number)
        demo.communicate(timeout=HANGING_SECONDS)
    assert demo.returncode == code
    assert not Path(opening["directory"]).exists()
    assert not is_running(opening["driver_pid"])


def test_a_driver_that_does_not_start_is_shown_with_the_end_of_its_log(
    keeps_signals: None,
) -> None:
    with demo_stage("none-such") as stage:
        stage.start()
        with pytest.raises(Permanent) as raised:
            stage.wait_for(stage.published, "it is there")
    assert "the driver ended with 1" in str(raised.value)
    assert "'none-such' must be one of h100x8" in str(raised.value)


def test_a_profile_that_there_is_none_of_is_refused_before_anything_starts() -> None:
    ended = play("--profile", "none-such")
    assert (ended.returncode, ended.stdout) == (64, "")
    assert "argument --profile: invalid choice: 'none-such' (choose from " in ended.stderr
    assert "b580x2" in ended.stderr
