# SPDX-License-Identifier: Apache-2.0
"""`dra-driver doctor` beside the real driver process: nothing is wrong while it runs, and what is wrong after it was killed."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.cli.main import main
from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.stage import Stage
from tests.support.stages import a_stage

LOOKED_AT = {
    *("kubelet", "driver", "device-plugins", "state-file", "held-devices", "cgroups", "cdi-files"),
    *("api", "versions", "kept-fields", "slices", "other-drivers", "stale-capacity"),
    *("disk", "privileged-pods"),
}


@pytest.fixture
def stage() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(dir="/tmp") as root, FakeApi() as api:
        made = a_stage(Path(root), api, "--simulated-profile", "b580x2")
        yield made
        made.close()


def looked(stage: Stage, capsys: pytest.CaptureFixture[str]) -> dict[str, list[dict[str, Any]]]:
    """What is found, by the name of the check."""
    main(["doctor", *stage.arguments(), "--json"])
    found: dict[str, list[dict[str, Any]]] = {}
    for line in capsys.readouterr().out.splitlines():
        one = json.loads(line)
        found.setdefault(one["check"], []).append(one)
    return found


def test_beside_a_driver(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.start_registered()
    stage.wait_for(stage.published, "the slices are published")
    claim = stage.claim("one", ["gpu-0"])
    stage.kubelet.prepare("gpu.dra-driver.dev", [claim])
    found = looked(stage, capsys)
    bad = {name for name in LOOKED_AT if any(one["severity"] != "ok" for one in found[name])}
    assert bad == set()
    (driver,) = found["driver"]
    assert f"driver process {stage.process and stage.process.pid}" in driver["found"]
    assert found["held-devices"][0]["found"] == "prepared claims: 1; no device is held"
    assert found["slices"][0]["found"] == "devices published: 2"

    stage.kill()
    found = looked(stage, capsys)
    assert [one["id"] for one in found["driver"]] == [
        "driver-not-listening",
        "socket-without-driver",
    ]
    assert [one["severity"] for one in found["slices"]] == ["ok"]
    # Looking changes nothing: the driver starts as if nobody had looked.
    stage.start_registered()
    assert looked(stage, capsys)["driver"][0]["severity"] == "ok"
