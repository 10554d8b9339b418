# SPDX-License-Identifier: Apache-2.0
"""With which flags does each component run?

As in a real cluster where nothing forces another choice: the authorizers, the admission of the
node's own objects and service account tokens are real, only user names come from a token file.
"""

from collections.abc import Mapping
from pathlib import Path

from hack.testbed.onenode import init, node_files

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
NODE = ("containerd", "kubelet")
GATED = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
ETCD = "http://127.0.0.1:2379"


def _pairs(values: Mapping[str, bool]) -> str:
    return ",".join(f"{name}={str(value).lower()}" for name, value in values.items())


def _etcd(root: Path) -> tuple[str, ...]:
    return (
        f"--data-dir={root}/etcd",
        f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--unsafe-no-fsync",  # the data are thrown away
    )


def _kube_apiserver(root: Path) -> tuple[str, ...]:
    return (
        f"--etcd-servers={ETCD}",
        f"--advertise-address={init.NODE_ADDRESS}",
        "--secure-port=443",
        f"--tls-cert-file={root}/pki/api.crt",
        f"--tls-private-key-file={root}/pki/api.key",
        f"--token-auth-file={root}/tokens.csv",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-cluster-ip-range={node_files.SERVICE_NETWORK}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={root}/pki/sa.pub",
        f"--service-account-signing-key-file={root}/pki/sa.key",
        "--allow-privileged=true",
        "--kubelet-preferred-address-types=InternalIP",  # or logs and exec would ask a DNS
    )


def _kube_controller_manager(root: Path) -> tuple[str, ...]:
    return (
        f"--kubeconfig={root}/controllers.kubeconfig",
        f"--service-account-private-key-file={root}/pki/sa.key",
        f"--root-ca-file={root}/pki/ca.crt",
        "--use-service-account-credentials",
        "--leader-elect=false",
    )


def _kube_scheduler(root: Path) -> tuple[str, ...]:
    return (f"--kubeconfig={root}/scheduler.kubeconfig", "--leader-elect=false")


def _kubelet(root: Path) -> tuple[str, ...]:
    return (
        f"--config={root}/kubelet.yaml",
        f"--kubeconfig={root}/kubelet.kubeconfig",
        f"--root-dir={init.KUBELET_FOLDER}",
        f"--hostname-override={node_files.NODE}",
        f"--node-ip={init.NODE_ADDRESS}",
    )


def _containerd(root: Path) -> tuple[str, ...]:
    return (f"--config={root}/containerd.toml",)


FLAGS = {
    "etcd": _etcd,
    "kube-apiserver": _kube_apiserver,
    "kube-controller-manager": _kube_controller_manager,
    "kube-scheduler": _kube_scheduler,
    "kubelet": _kubelet,
    "containerd": _containerd,
}


def command(
    name: str, root: Path, feature_gates: Mapping[str, bool], runtime_config: Mapping[str, bool]
) -> list[str]:
    """The command line of one component."""
    line = [name, *FLAGS[name](root)]
    if feature_gates and name in GATED:
        line.append(f"--feature-gates={_pairs(feature_gates)}")
    if runtime_config and name == "kube-apiserver":
        line.append(f"--runtime-config={_pairs(runtime_config)}")
    return line
