# SPDX-License-Identifier: Apache-2.0
"""Does the real kind understand hack/kind-config.yaml, and make of it what we mean?

kind is built from its Go module. Its container engine is a stand-in that writes down how it is
called and what is written into the nodes, plays nodes that have booted, and ends the story when the
control plane is to start. So everything is real up to there: decoding, validation, kubeadm's
configuration, containerd's patch.
"""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.testbed.onenode.products import build_commands, product

pytestmark = pytest.mark.real
ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "hack" / "kind-config.yaml"
MODULE, VERSION = "sigs.k8s.io/kind", "0.33.0"
NODE_VERSION = "v1.37.0"
CONTAINERD = """\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  tolerate_missing_hugepages_controller = true
"""
ENGINE = """#!{python} -I
import json, pathlib, sys
here = pathlib.Path({folder!r})
words = sys.argv[1:]
said = " ".join(words)
with (here / "calls").open("a") as calls:
    calls.write(json.dumps(words) + chr(10))
if "/dev/stdin" in words:
    path = words[-1]
    node = next(word for word in words if word.startswith("dra-driver-"))
    (here / (node + path.replace("/", "_"))).write_bytes(sys.stdin.buffer.read())
elif words[0] == "info":
    print(json.dumps(dict(CgroupVersion="2", MemoryLimit=True, PidsLimit=True, CPUShares=True)))
elif words[0] == "ps":
    runs = [json.loads(line) for line in (here / "calls").read_text().splitlines()]
    for run in runs:
        if run[0] == "run":
            print(run[run.index("--name") + 1])
elif words[0] == "logs":
    print("Reached target Multi-User System.")
elif words[0] == "inspect" and "io.x-k8s.kind.role" in said:
    print("worker" if "worker" in words[-1] else "control-plane")
elif words[0] == "inspect" and "IPAddress" in said:
    print("172.18.0.3," if "worker" in words[-1] else "172.18.0.2,")
elif words[0] == "exec" and words[-2:] == ["cat", "/kind/version"]:
    print({version!r})
elif words[0] == "exec" and words[-2:] == ["cat", "/etc/containerd/config.toml"]:
    print({containerd!r})
elif words[0] == "exec" and "kubeadm" in words:
    sys.exit("the story ends here")
"""
Object = dict[str, Any]


@dataclass
class Created:
    """How `kind create cluster` went: what it said, its calls, and what it wrote into nodes."""

    said: str
    calls: list[list[str]]
    folder: Path

    def written(self, node: str, path: str) -> str:
        """A file that kind wrote into a node, the last time."""
        return (self.folder / f"dra-driver-{node}{path.replace('/', '_')}").read_text()


@pytest.fixture(scope="module")
def kind() -> Path:
    return product("kind", VERSION, build_commands(MODULE, VERSION, (MODULE,))) / "kind"


@pytest.fixture
def create(kind: Path, tmp_path: Path) -> Callable[[str], Created]:
    """Create a cluster of a configuration, with the stand-in for the engine."""

    def created(config: str) -> Created:
        (tmp_path / "docker").write_text(
            ENGINE.format(
                python=sys.executable,
                folder=str(tmp_path),
                version=NODE_VERSION,
                containerd=CONTAINERD,
            )
        )
        (tmp_path / "docker").chmod(0o755)
        (tmp_path / "config.yaml").write_text(config)
        ended = subprocess.run(
            [kind, "create", "cluster", "--config", tmp_path / "config.yaml", "--retain"],
            env={
                "PATH": f"{tmp_path}:{os.environ['PATH']}",
                "HOME": str(tmp_path),
                "KIND_EXPERIMENTAL_PROVIDER": "docker",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert ended.returncode == 1, "the stand-in starts no control plane"
        calls = tmp_path / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        return Created(ended.stderr, [json.loads(line) for line in lines], tmp_path)

    return created


def kubeadm(created: Created) -> dict[str, Object]:
    """kubeadm's configuration of the control plane by kind."""
    text = created.written("control-plane", "/kind/kubeadm.conf")
    return {document["kind"]: document for document in yaml.safe_load_all(text) if document}


def arguments(component: Object) -> dict[str, str]:
    """Flags of a component, in the list form of newer kubeadm versions or the map of older ones."""
    given = component["extraArgs"]
    if isinstance(given, dict):
        return {str(name): str(value) for name, value in given.items()}
    return {entry["name"]: entry["value"] for entry in given}


def test_the_configuration_becomes_the_cluster_that_is_meant(
    create: Callable[[str], Created],
) -> None:
    created = create(CONFIG.read_text())
    assert "the story ends here" in created.said, created.said
    runs = {call[call.index("--name") + 1]: call for call in created.calls if call[0] == "run"}
    assert sorted(runs) == ["dra-driver-control-plane", "dra-driver-worker"]
    shared = [w for call in runs.values() for w in call if "kubelet" in w or "cdi" in w]
    assert shared == [], "nothing of the host's kubelet is shared"

    documents = kubeadm(created)
    gates = {"DynamicResourceAllocation", "KubeletPodResourcesDynamicResources"}
    assert {*documents["KubeletConfiguration"]["featureGates"]} >= gates
    server = arguments(documents["ClusterConfiguration"]["apiServer"])
    assert server["runtime-config"] == "api/beta=true"
    for component in ("apiServer", "controllerManager", "scheduler"):
        flags = arguments(documents["ClusterConfiguration"][component])
        assert {f"{gate}=true" for gate in gates} <= set(flags["feature-gates"].split(","))

    for node in ("control-plane", "worker"):
        merged = tomllib.loads(created.written(node, "/etc/containerd/config.toml"))
        plugin = merged["plugins"]["io.containerd.grpc.v1.cri"]
        assert plugin == {"enable_cdi": True, "tolerate_missing_hugepages_controller": True}


def test_a_mock_of_gpus_is_mounted_in_the_worker_alone(
    create: Callable[[str], Created], tmp_path: Path
) -> None:
    loader = SourceFileLoader("kind_demo", str(ROOT / "hack" / "kind-demo"))
    script = module_from_spec(spec_from_loader("kind_demo", loader) or pytest.fail("no script"))
    sys.modules[script.__name__] = script  # its dataclasses look there
    loader.exec_module(script)
    (tmp_path / "gpus").mkdir()
    made = script.configuration(script.Demo("docker", "dra-driver", tmp_path / "gpus"))
    created = create(made.read_text())
    runs = {call[call.index("--name") + 1]: call for call in created.calls if call[0] == "run"}
    mounts = {
        node: [word for word in call if word.endswith(":/nvidia-mock")]
        for node, call in runs.items()
    }
    assert mounts == {
        "dra-driver-control-plane": [],
        "dra-driver-worker": [f"--volume={tmp_path}/gpus:/nvidia-mock"],
    }


def test_a_field_that_kind_does_not_know_is_refused_at_once(
    create: Callable[[str], Created],
) -> None:
    created = create(CONFIG.read_text().replace("runtimeConfig:", "runtimeConfiguration:"))
    assert "field runtimeConfiguration not found" in created.said
    assert [call for call in created.calls if call[0] == "run"] == []


def test_this_kinds_own_node_image_serves_what_the_examples_need(
    create: Callable[[str], Created],
) -> None:
    created = create(CONFIG.read_text())
    images = {call[-1] for call in created.calls if call[:2] == ["inspect", "--type=image"]}
    (image,) = images
    minor = int(image.partition(":v1.")[2].partition(".")[0])
    assert minor >= 34, "resource.k8s.io/v1"
