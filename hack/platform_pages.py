# SPDX-License-Identifier: Apache-2.0
"""What the pages of docs/platforms have in common: how to install the chart there, what it sets, and what was tested."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "kubeadm": "generic",
    "k3s": "generic",
    **{
        name: name
        for name in ("gke", "eks", "aks", "openshift", "talos", "bottlerocket", "gpu-operator")
    },
}
"""The value `platform` of each page."""
COMMAND = (
    "helm install dra-driver helm/dra-driver --namespace dra-driver"
    " --set image.repository=registry.example.com/dra-driver"
)
RAN = (
    "The chart without `platform` runs in the end-to-end tests on [a real Kubernetes of one node](../testbed.md), with simulated devices and with the mock of"
    " NVIDIA's library ([tested.md](../tested.md)). kubeadm, k3s and RKE2 themselves were not run, and no real GPU."
)
NOT_RUN = (
    "Rendered and checked, not run: helm renders the objects in the tests, a real API server takes them to the last field{but}, and the container `hardware` finds"
    " the mocked GPUs of a node whose driver is installed as there. Nobody has started the driver on such a node."
)


def block(page: str) -> str:
    platform = PAGES[page]
    chosen: dict[str, Any] = yaml.safe_load((ROOT / "helm/dra-driver/platforms.yaml").read_text())[platform]  # fmt: skip
    value = "" if platform == "generic" else f" --set platform={platform}"
    rows = "".join(f"| {what} | {how} |\n" for what, how in _sets(chosen))
    return (
        "\n## Install\n\n```console\n$ kubectl create namespace dra-driver\n"
        "$ kubectl label namespace dra-driver pod-security.kubernetes.io/enforce=privileged\n"
        f"$ {COMMAND}{value} --wait\n"
        "$ kubectl get resourceslices --field-selector spec.driver=gpu.dra-driver.dev\n```\n\n"
        "[install.md](../install.md) says where the image comes from and what the values mean.\n\n"
        f"## What the chart sets\n\n| what | how |\n| --- | --- |\n{rows}\n"
        f"## What was tested\n\n{_tested(platform)}\n\n"
    )


def _sets(chosen: dict[str, Any]) -> list[tuple[str, str]]:
    root = chosen.get("driverRoot")
    labels = [f"`{key}={value}`".replace("=`", "`") for key, value in chosen.get("nodeLabels", {}).items()]  # fmt: skip
    tolerated = [f"`{one['key']}`" for one in chosen.get("tolerations", ())]
    customary = "a [customary label](../platforms.md#which-nodes-get-a-pod)"
    found = [
        ("driver root", f"`{root}`" if root else "found at one of the [known places](../nvidia.md#driver-roots)"),
        ("CDI directory", f"`{chosen.get('cdiDir', '/var/run/cdi')}`"),
        ("nodes", f"those with {' or '.join([*labels, customary])}" if "nodeLabels" in chosen else "all"),
        ("tolerations, beside the usual ones", ", ".join(tolerated) or "none"),
    ]  # fmt: skip
    if "resourceQuota" in chosen:
        found.append(("ResourceQuota", "one for the chart's critical pods"))
    if "securityContextConstraints" in chosen:
        found.append(("SecurityContextConstraints", "an [object of its own](../install.md#openshift)"))  # fmt: skip
    if "seLinuxOptions" in chosen:
        found.append(("SELinux type of the container `driver`", f"`{chosen['seLinuxOptions']['type']}`"))  # fmt: skip
    return found


def _tested(platform: str) -> str:
    if platform == "generic":
        return RAN
    return NOT_RUN.format(
        but=" (except OpenShift's own object, whose schema is in the tests)" if platform == "openshift" else ""
    )  # fmt: skip
