# SPDX-License-Identifier: Apache-2.0
"""What does `dra-driver doctor` say in the driver's pod, and on the node itself, of a real cluster in which nothing is wrong?"""

import json
import sys
from typing import Any

import pytest

from hack.testbed.onenode.driver import Driver
from hack.testbed.onenode.release import NAMESPACE

pytestmark = pytest.mark.real

OF_THE_HOST = {"gpu-driver", "device-files", "other-accelerators", "container-runtime", "imex"}
"""What is not mounted into the pod."""


def by_check(text: str) -> dict[str, list[dict[str, Any]]]:
    document = json.loads(text)
    assert document["kind"] == "NodeDiagnosis"
    found: dict[str, list[dict[str, Any]]] = {}
    for one in document["findings"]:
        found.setdefault(one["check"], []).append(one)
    return found


def bad(found: dict[str, list[dict[str, Any]]]) -> list[tuple[str, str, str]]:
    return [
        (one["severity"], one["id"], one["found"])
        for each in found.values()
        for one in each
        if one["severity"] in ("problem", "warning")
    ]


def test_in_the_drivers_pod_it_sees_all_that_is_mounted_and_says_what_is_not(
    driver: Driver,
) -> None:
    [pod] = driver.release.pods()
    command = (
        "--container",
        "driver",
        pod["metadata"]["name"],
        "--",
        "dra-driver",
        "doctor",
        "-o",
        "json",
    )
    # The exit code is 3: something could not be looked at.
    said = driver.cluster.kubectl("exec", "--namespace", NAMESPACE, *command, check=False)
    found = by_check(said)
    # Which fields the API server drops depends on the release and on its gates.
    assert {name for _severity, name, _found in bad(found)} <= {"field-dropped"}
    unknown = {name for name, each in found.items() if each[0]["severity"] == "unknown"}
    # The driver's own account may not list pods.
    assert unknown == {*OF_THE_HOST, "privileged-pods"}
    for name in ("kubelet", "driver", "state-file", "cgroups", "disk", "cdi-files"):
        assert {one["severity"] for one in found[name]} == {"ok"}, name
    for name in ("api", "slices", "versions", "rights"):
        assert found[name][0]["severity"] in ("ok", "note"), name
    assert found["kept-fields"]


def test_on_the_node_it_asks_the_container_runtime(driver: Driver) -> None:
    command = [sys.executable, "-m", "dra_driver", "doctor", "-o", "json"]
    ended = driver.cluster.namespaces.run(command, env=driver.cluster.environment)
    found = by_check(ended.stdout)
    (runtime,) = found["container-runtime"]
    assert runtime["severity"] == "ok", runtime
