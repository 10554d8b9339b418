# SPDX-License-Identifier: Apache-2.0
"""The real driver and its Node: labels, the condition and the startup taint, at a start, when hardware goes, and after a cleanup."""

from pathlib import Path

from dra_driver.testing.stage import DEADLINE_SECONDS, DRIVER, NODE, Stage, wait_for
from tests.support import starting

COUNT = f"{DRIVER}/count"
TAINT = "startup.example.com/gpu"


def labels(node: Stage) -> dict[str, str]:
    return node.api.object("nodes", NODE)["metadata"].get("labels") or {}


def condition(node: Stage) -> str:
    found = node.api.object("nodes", NODE)["status"].get("conditions") or []
    return next((one["status"] for one in found if one["type"] == "DevicesReady"), "")


def features(node: Stage) -> str:
    file = node.features_dir / DRIVER
    return file.read_text() if file.exists() else ""


def faults(node: Stage, *vanished: str) -> Path:
    file = node.root / "faults.yaml"
    beside = file.with_suffix(".new")
    entries = ", ".join(f"{name}: {{vanished: true}}" for name in vanished)
    beside.write_text(f"devices: {{{entries}}}\n")
    beside.rename(file)
    return file


def cleanup(node: Stage) -> str:
    command = ("cleanup", *node.arguments())
    done = starting.run("dra_driver", *command, timeout=DEADLINE_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_node_is_labelled_and_ready_and_both_go_with_the_driver(node: Stage) -> None:
    status = node.api.object("nodes", NODE)["status"]
    taints = [{"key": TAINT, "effect": "NoSchedule"}, {"key": "other", "effect": "NoSchedule"}]
    metadata = {"name": NODE, "labels": {"theirs": "x"}}
    node.api.put("nodes", {"metadata": metadata, "spec": {"taints": taints}, "status": status})
    file = faults(node)
    node.start_registered(
        *("--node-labels", "patch", "--node-label-aliases", "accelerator=vendor,gpu-count=count"),
        *("--node-condition", "write", "--startup-taint", TAINT),
        *("--simulated-profile", "t4x2", "--simulated-faults", str(file)),
    )
    node.wait_for(lambda: condition(node) == "True", "the devices are ready")
    node.wait_for(lambda: labels(node).get("gpu-count") == "2", "the labels are there")
    assert labels(node)["accelerator"] == "nvidia"
    assert labels(node)["nvidia.com/gpu.product"] == "Tesla-T4"
    node.wait_for(
        lambda: (
            [one["key"] for one in node.api.object("nodes", NODE)["spec"]["taints"]] == ["other"]
        ),
        "the startup taint goes",
    )
    faults(node, "gpu-0")
    node.wait_for(lambda: labels(node)["gpu-count"] == "1", "the lost device is not counted")
    faults(node, "gpu-0", "gpu-1")
    node.wait_for(lambda: labels(node) == {"theirs": "x"}, "the labels go with the hardware")
    faults(node)
    node.wait_for(lambda: labels(node).get("gpu-count") == "2", "they come back")
    assert node.stop() == 0
    assert (labels(node)["gpu-count"], condition(node)) == ("2", "True")
    said = cleanup(node)
    assert "removed labels of Node accelerator, gpu-count, gpu.dra-driver.dev/count" in said
    assert "removed condition of Node DevicesReady" in said
    assert (labels(node), condition(node)) == ({"theirs": "x"}, "")


def test_node_feature_discovery_gets_a_file_and_loses_it(node: Stage) -> None:
    node.features_dir.mkdir()
    (node.features_dir / "gfd").write_text("theirs=1\n")
    file = faults(node)
    node.start_registered("--simulated-profile", "mi300x8", "--simulated-faults", str(file))
    node.wait_for(lambda: features(node), "the feature file is written")
    assert features(node) == (
        "gpu.dra-driver.dev/count=8\n"
        "gpu.dra-driver.dev/generation=gfx942\n"
        "gpu.dra-driver.dev/memory-mib=196592\n"
        "gpu.dra-driver.dev/product=AMD-Instinct-MI300X-OAM\n"
    )
    faults(node, "gpu-0")
    node.wait_for(lambda: f"{COUNT}=7\n" in features(node), "the lost device is not counted")
    assert node.stop() == 0
    assert f"removed feature file {node.features_dir / DRIVER}" in cleanup(node)
    assert [path.name for path in node.features_dir.iterdir()] == ["gfd"]
    assert "labels" not in node.api.object("nodes", NODE)["metadata"]


def test_a_node_without_node_feature_discovery_is_told_of_and_left_alone(node: Stage) -> None:
    node.start_registered()
    wait_for(lambda: "feature_folder_missing" in node.log_file.read_text(), "the driver says so")
    wait_for(node.slices, "the slice")
    assert not node.features_dir.exists()
    assert {request.verb for request in node.api.requests if request.resource == "nodes"} == {"get"}


def test_without_labels_nothing_is_written(node: Stage) -> None:
    node.features_dir.mkdir()
    node.start_registered("--node-labels", "none")
    wait_for(node.slices, "the slice")
    assert node.stop() == 0
    assert list(node.features_dir.iterdir()) == []
