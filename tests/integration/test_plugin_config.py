# SPDX-License-Identifier: Apache-2.0
"""What an admin brings along from NVIDIA's device plugin, in the real driver: classes in files, a ConfigMap, the label of the Node."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.stage import DRIVER, Stage

CLASS = """
apiVersion: resource.k8s.io/v1alpha3
kind: DeviceClass
metadata: {name: any-gpu}
spec:
  selectors: [{cel: {expression: device.driver == "gpu.dra-driver.dev"}}]
  extendedResourceName: %s
"""
DOCUMENT = """
apiVersion: config.dra-driver.dev/v1alpha1
kind: DriverConfig
path: device-plugin
devicePluginsDir: {root}/device-plugins
deviceClassesDir: {root}/classes
backends:
  simulated: {{profile: h100x8}}
  nvidia: {{hostRoot: {root}/host, devicePlugin: {{config: {root}/nvidia, default: any}}}}
"""
SLICED = """
version: v1
flags: {migStrategy: none, gdsEnabled: true}
sharing:
  timeSlicing:
    renameByDefault: false
    failRequestsGreaterThanOne: false
    resources: [{name: nvidia.com/gpu, replicas: 4}]
"""


class BroughtAlong(Stage):
    """A node whose driver has NVIDIA's configuration beside its own."""

    def arguments(self) -> list[str]:
        told = super().arguments()
        place = told.index("--backend")
        return [*told[:place], *told[place + 2 :], "--config", str(self.root / "config.yaml")]

    def capacity(self) -> dict[str, int]:
        return self.kubelet.device_manager.capacity()[0]

    def features(self) -> str:
        file = self.features_dir / DRIVER
        return file.read_text() if file.exists() else ""

    def said(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log_file.read_text().splitlines() if line]
        return [line for line in lines if line.get("event") == event]


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder with a short path, for sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def stage(root: Path) -> Iterator[BroughtAlong]:
    for folder in ("classes", "nvidia", "host/sys/bus"):
        (root / folder).mkdir(parents=True)
    (root / "config.yaml").write_text(DOCUMENT.format(root=root))
    (root / "classes" / "classes.yaml").write_text(CLASS % "nvidia.com/gpu")
    (root / "nvidia" / "any").write_text(SLICED)
    with FakeApi() as api:
        made = BroughtAlong(root, api)
        node = api.object("nodes", made.node)
        node["metadata"]["labels"] = {"nvidia.com/device-plugin.config": "time-slicing"}
        api.put("nodes", node)
        yield made
        made.close()


def test_the_time_slicing_of_the_operator_is_what_the_kubelet_lists(
    stage: BroughtAlong, root: Path
) -> None:
    stage.features_dir.mkdir(exist_ok=True)
    stage.start()
    stage.wait_for(lambda: stage.capacity() == {"nvidia.com/gpu": 32}, "4 shares of 8 GPUs")
    reasons = [line["reason"] for line in stage.said("plugin_config_refused")]
    assert [reason[:58] for reason in reasons] == [
        "the Node's label nvidia.com/device-plugin.config is 'time-",
        "NVIDIA's configuration any: flags.gdsEnabled: true: this d",
    ]
    # The key that the label names is added; and a class gets another name.
    (root / "nvidia" / "time-slicing").write_text(SLICED.replace("4", "2"))
    stage.wait_for(lambda: stage.capacity() == {"nvidia.com/gpu": 16}, "2 shares of 8 GPUs")
    stage.wait_for(lambda: "nvidia.com/gpu.replicas=2\n" in stage.features(), "labels say it")
    (root / "classes" / "classes.yaml").write_text(CLASS % "a.example.com/gpu")
    stage.wait_for(lambda: stage.capacity().get("a.example.com/gpu") == 8, "8 GPUs of another name")
