# SPDX-License-Identifier: Apache-2.0
"""How does the driver get onto the node as it does on a real one: from its image, by its chart?

One helm release. One value is the test bed's own: the boot ID comes from a file, since a reboot of
this node changes nothing in the kernel.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hack.testbed.onenode import helm, node_files
from hack.testbed.onenode.cluster import Cluster
from hack.testbed.onenode.namespaces import TestBedError, wait_until

NAME = "dra-driver"
NAMESPACE = "dra-driver"
CHART = helm.CHART  # `helm` is a method below
IMAGE_BUILDER = CHART.parents[1] / "hack" / "image" / "build.py"
BOOT_ID_INSIDE = "/etc/testbed-boot-id"
ROLLOUT_SECONDS = 100  # less than a program on the node may take
EXTRAS = ("extraEnv", "extraVolumes", "extraVolumeMounts")


def build_image(target: Path, *, version: str, source: Path | None = None) -> Path:
    """Write the driver's image as an archive; `source` is another checkout of the driver."""
    command = [sys.executable, str(IMAGE_BUILDER), "--output", str(target), "--version", version]
    command += ["--source", str(source)] if source else []
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise TestBedError(f"`{' '.join(command)}` said: {ended.stderr.strip()}")
    return target


def _values(cluster: Cluster) -> dict[str, Any]:
    return {
        "log": {"level": "debug"},
        "extraEnv": [{"name": "DRA_DRIVER_BOOT_ID_FILE", "value": BOOT_ID_INSIDE}],
        "extraVolumes": [
            {"name": "boot-id", "hostPath": {"path": str(cluster.boot_id_file), "type": "File"}}
        ],
        "extraVolumeMounts": [
            {"name": "boot-id", "mountPath": BOOT_ID_INSIDE, "readOnly": True},
        ],
    }


class Release:
    """The chart in one cluster, under a name of its own. Values of `install` and `upgrade` come on top of the test bed's own."""

    def __init__(self, cluster: Cluster, name: str = NAME) -> None:
        self.cluster = cluster
        self.name = name
        self._home = cluster.root / "helm"

    def helm(self, *arguments: str, check: bool = True) -> str:
        """Run helm on the cluster, in the release's namespace."""
        self._home.mkdir(exist_ok=True)
        variables = [f"{name}={value}" for name, value in helm.environment(self._home).items()]
        command = ["env", *variables, str(helm.build()), "--namespace", NAMESPACE, *arguments]
        return self.cluster.output_of(command, check=check)

    def install(self, values: Mapping[str, Any], *, chart: Path = CHART) -> None:
        """Install the release in a namespace of its own, and wait until the driver's pod is ready."""
        self._apply("install", values, "--create-namespace", chart=chart)

    def upgrade(self, values: Mapping[str, Any]) -> None:
        """Change the release, and wait until the node runs what it says."""
        self._apply("upgrade", values)

    def rollback(self) -> None:
        """Back to the revision before, and wait."""
        self.helm("rollback", self.name, "--wait", f"--timeout={ROLLOUT_SECONDS}s")

    def uninstall(self) -> None:
        """Remove the release, and wait until its pods are gone."""
        self.helm("uninstall", self.name, "--wait", f"--timeout={ROLLOUT_SECONDS}s")
        wait_until(lambda: not self.pods(component=""), "the end of the release's pods")

    def _apply(self, verb: str, values: Mapping[str, Any], *more: str, chart: Path = CHART) -> None:
        file = self._home / f"{self.name}.json"
        self._home.mkdir(exist_ok=True)
        own = _values(self.cluster)
        lists = {name: [*own[name], *values.get(name, ())] for name in EXTRAS}
        file.write_text(json.dumps({**own, **values, **lists}))
        waiting = ("--wait", f"--timeout={ROLLOUT_SECONDS}s")
        self.helm(verb, self.name, str(chart), "--values", str(file), *waiting, *more)

    def pods(self, *, component: str = "driver") -> list[dict[str, Any]]:
        """The release's pods of this component or of all, the newest last."""
        selector = f"app.kubernetes.io/instance={self.name}"
        selector += f",app.kubernetes.io/component={component}" if component else ""
        # A DaemonSet wants pods on Node objects that some test made up, too.
        here = ("--selector", selector, "--field-selector", f"spec.nodeName={node_files.NODE}")
        found = self.cluster.get("pods", "--namespace", NAMESPACE, *here)["items"]
        return sorted(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def log_of(self, pod: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What a pod's driver logged so far."""
        name = pod["metadata"]["name"]
        text = self.cluster.kubectl("logs", "--namespace", NAMESPACE, name, check=False)
        lines = (line for line in text.splitlines() if line.startswith("{"))
        return [json.loads(line) for line in lines]
