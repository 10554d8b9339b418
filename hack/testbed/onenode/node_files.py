# SPDX-License-Identifier: Apache-2.0
"""Which files does the node read at its start?

Everything here is text from values. What differs from a real node, and why, stands beside the line
that makes the difference; nothing else may.
"""

import subprocess
from pathlib import Path

from hack.testbed.onenode import init
from hack.testbed.onenode.features import minor_of

NODE = "node1"
RUNTIME_SOCKET = "/run/containerd/containerd.sock"
IMAGE = "localhost/busybox:1"
EXAMPLE_IMAGE = "docker.io/library/busybox:1.36.1@sha256:73aaf090f3d85aa34ee199857f03fa3a95c8ede2ffd4cc2cdb5b94e566b11662"
"""What the examples' pods run on other clusters; no registry is reached from this one."""
POD_NETWORK = "10.244.0.0/24"
SERVICE_NETWORK = "10.96.0.0/16"
FAIL_CGROUP_V1_SINCE = 35  # the minor release whose kubelet first refuses cgroup v1
CDI_FOLDER = "/var/run/cdi"
# Who may say what to the API server: file name of the kubeconfig -> (token, user, groups).
USERS = {
    "admin": ("admin-token", "admin", "system:masters"),
    "kubelet": ("kubelet-token", f"system:node:{NODE}", "system:nodes"),
    "controllers": ("controllers-token", "system:kube-controller-manager", ""),
    "scheduler": ("scheduler-token", "system:kube-scheduler", ""),
}


def containerd_toml(root: Path) -> str:
    """containerd: everything below ROOT or /run, the sandbox from our own image."""
    return f"""
version = 3
root = "{root}/containerd"
state = "/run/containerd/state"
[grpc]
  address = "{RUNTIME_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{root}/containerd-opt"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{IMAGE}"
[plugins."io.containerd.cri.v1.runtime"]
  # where root lacks CAP_SYS_RESOURCE no sandbox could start otherwise
  restrict_oom_score_adj = true
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "{CDI_FOLDER}"]
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{root}/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "/usr/sbin/runc"
      SystemdCgroup = false
"""


def cni_conflist() -> str:
    """Each pod has a network of its own, with the node as its router."""
    return f"""{{
  "cniVersion": "1.0.0", "name": "testbed",
  "plugins": [{{"type": "ptp", "ipam": {{
    "type": "host-local", "subnet": "{POD_NETWORK}",
    "routes": [{{"dst": "0.0.0.0/0"}}]}}}}]
}}
"""


def kubelet_yaml(root: Path, extra: str) -> str:
    """The kubelet: its pods below a cgroup of the cluster's own, no disk pressure."""
    return f"""
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
containerRuntimeEndpoint: unix://{RUNTIME_SOCKET}
cgroupDriver: cgroupfs
cgroupsPerQOS: true
cgroupRoot: /{root.name}
enforceNodeAllocatable: []
failSwapOn: false
imageGCHighThresholdPercent: 100
evictionHard: {{memory.available: 50Mi}}
localStorageCapacityIsolation: false
resolvConf: ""
# A failed prepare is tried again at the pod's next sync. A real kubelet's is a minute.
syncFrequency: 10s
{extra}
"""


def kubeconfig(root: Path, token: str) -> str:
    """A kubeconfig with a token, for programs inside the namespaces."""
    server = f"https://{init.API_SERVER_ADDRESS}:443"
    return f"""
apiVersion: v1
kind: Config
current-context: testbed
contexts: [{{name: testbed, context: {{cluster: testbed, user: testbed}}}}]
clusters:
- name: testbed
  cluster: {{server: "{server}", certificate-authority: "{root}/pki/ca.crt"}}
users: [{{name: testbed, user: {{token: "{token}"}}}}]
"""


def _openssl(*arguments: str, cwd: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=cwd, check=True, capture_output=True)


def write_certificates(pki: Path) -> None:
    """A certificate authority, the API server's certificate, the key of service account tokens."""
    pki.mkdir()
    names = ("DNS:localhost", "DNS:kubernetes.default.svc", "IP:127.0.0.1")
    addresses = (f"IP:{init.API_SERVER_ADDRESS}", f"IP:{init.NODE_ADDRESS}")
    (pki / "names").write_text(f"subjectAltName={','.join((*names, *addresses))}\n")
    new = ("req", "-newkey", "rsa:2048", "-nodes")
    ca = ("-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=testbed-ca", "-days", "30")
    _openssl(*new, "-x509", *ca, cwd=pki)
    api = ("-keyout", "api.key", "-out", "api.csr", "-subj", "/CN=kube-apiserver")
    _openssl(*new, *api, cwd=pki)
    signed_by = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial")
    signed = ("x509", "-req", "-in", "api.csr", *signed_by, "-out", "api.crt", "-days", "30")
    _openssl(*signed, "-extfile", "names", cwd=pki)
    _openssl("genrsa", "-out", "sa.key", "2048", cwd=pki)
    _openssl("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub", cwd=pki)


def write_node_files(root: Path, *, version: str) -> None:
    """All of them, once, before anything starts."""
    write_certificates(root / "pki")
    lines = [
        f'{token},{user},{number},"{groups}"'
        for number, (token, user, groups) in enumerate(USERS.values())
    ]
    (root / "tokens.csv").write_text("\n".join(lines) + "\n")
    for name, (token, _, _) in USERS.items():
        (root / f"{name}.kubeconfig").write_text(kubeconfig(root, token))
    for folder in ("cni", "log", "etcd"):
        (root / folder).mkdir()
    (root / "cni" / "10-testbed.conflist").write_text(cni_conflist())
    (root / "containerd.toml").write_text(containerd_toml(root))
    write_kubelet_yaml(root, version=version)


def write_kubelet_yaml(root: Path, *, version: str) -> None:
    """The one file that depends on the release."""
    # Older kubelets do not know the field.
    extra = "failCgroupV1: false" if minor_of(version) >= FAIL_CGROUP_V1_SINCE else ""
    (root / "kubelet.yaml").write_text(kubelet_yaml(root, extra))
