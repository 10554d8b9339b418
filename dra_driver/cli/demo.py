# SPDX-License-Identifier: Apache-2.0
"""`dra-driver demo`: show the driver at work on this machine, without cluster, GPU or root.

`demo_story` has the steps of the demo. This module plays them and shows each one as text or as JSON.
"""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from dra_driver.cli import render
from dra_driver.cli.common_arguments import LINES
from dra_driver.cli.demo_story import DemoStep, demo_stage, expect, story
from dra_driver.cli.documents import Demo, PlayedStep
from dra_driver.model.exit_codes import DONE, INTERRUPTED, TERMINATED


def run(chosen: argparse.Namespace) -> int:
    """Play all steps. Returns the exit code: 0, 130 after Ctrl-C, 143 after SIGTERM."""
    begun = time.monotonic()
    played: list[DemoStep] = []
    show = {LINES: _show_json, "text": _show_text}.get(chosen.output, played.append)
    before = signal.signal(signal.SIGTERM, _end)
    try:
        with demo_stage(chosen.profile) as stage:
            for step in story(stage):
                show(step)
            removed = stage.root
    except KeyboardInterrupt:
        render.error("interrupted; the driver is ended and its directory removed")
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    show(_last(removed, time.monotonic() - begun))
    if played:
        render.document(document(chosen.profile, played), chosen.output)
    return DONE


def _last(removed: Path, seconds: float) -> DemoStep:
    expect("the demo's directory is gone", removed.exists(), False)
    return DemoStep(
        "done",
        f"Done in {seconds:.1f} s; {removed} is removed and no process is left.",
        {"seconds": round(seconds, 2), "removed": str(removed)},
    )


def document(profile: str, played: Sequence[DemoStep]) -> Demo:
    """Return all steps as one document, for `-o json` and `-o yaml`."""
    steps = [
        PlayedStep(step=step.name, title=step.title, facts=dict(step.facts)) for step in played
    ]
    return Demo(profile=profile, steps=tuple(steps))


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    """Handle SIGTERM: `sys.exit` raises an exception that leaves the `with` block of the stage. Its end stops the driver and removes its files."""
    sys.exit(TERMINATED)


def _show_text(step: DemoStep) -> None:
    render.heading(step.title)
    for line in step.lines:
        render.line(line)
    if step.rows:
        render.table(step.headers, step.rows)
    render.line()


def _show_json(step: DemoStep) -> None:
    render.json_line({"step": step.name, **step.facts})
