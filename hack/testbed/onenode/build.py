# SPDX-License-Identifier: Apache-2.0
"""Where do the cluster's binaries come from?

From source, through the Go module system, for no release archive and no container registry is
needed then.
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from hack.testbed.onenode.products import (
    BuildError,
    build_commands,
    cache_folder,
    go,
    product,
    upstream_go_mod,
)

__all__ = ["Binaries", "build", "cache_folder"]

KUBERNETES = "1.37.1"
CONTAINERD = "2.2.9"
COMPONENTS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)
CONTAINERD_MODULE = "github.com/containerd/containerd/v2"
CONTAINERD_COMMANDS = ("containerd", "containerd-shim-runc-v2", "ctr")
MAIN_GO = Path(__file__).resolve().parents[1] / "kubernetes" / "main.go"
COMMENT = re.compile(r"\s*//")
# A go.mod of k8s.io/kubernetes in small: what our rules make of it stands for the rules themselves.
SPECIMEN = "go 1.0\ngo.etcd.io/etcd/api/v3 v3.0.0\nk8s.io/staging v0.0.0\n"
# k8s.io/kubernetes requires its staging modules at v0.0.0: no such release exists of most of them.
STAGING = re.compile(r"^\s*(k8s\.io/[a-z0-9-]+) v0\.0\.0$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Binaries:
    """Folders that go on the PATH of a cluster: one for Kubernetes, one for containerd."""

    kubernetes: Path
    containerd: Path

    @property
    def path(self) -> str:
        """The two folders as a PATH of the shell."""
        return f"{self.kubernetes}:{self.containerd}"


def kubernetes_go_mod(version: str, upstream: str) -> str:
    """A module that requires one Kubernetes release, with each staging module at the same patch."""
    go = re.search(r"^go (\S+)", upstream, re.MULTILINE)
    etcd = re.search(r"go\.etcd\.io/etcd/api/v3 (v\S+)", upstream)
    if go is None or etcd is None:
        raise BuildError(f"the go.mod of k8s.io/kubernetes v{version} names no Go or etcd version")
    staged = f"v0.{version.split('.', 1)[1]}"
    replacements = [
        f"\t{name} => {name} {staged}" for name in sorted(set(STAGING.findall(upstream)))
    ]
    lines = (
        "module kubernetes-in-one-binary",
        f"go {go[1]}",
        f"require k8s.io/kubernetes v{version}",
        f"require go.etcd.io/etcd/server/v3 {etcd[1]}",
        "replace (",
        *replacements,
        ")",
    )
    return "\n".join(lines) + "\n"


def kubernetes_ldflags(version: str) -> str:
    """No debugging symbols, and the release's name, which the components tell each other."""
    major, minor, _ = version.split(".")
    stamp = "k8s.io/component-base/version"
    return (
        f"-s -w -X {stamp}.gitVersion=v{version}"
        f" -X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}"
    )


def kubernetes_recipe(version: str) -> bytes:
    """What decides the binary of a release, beside the Go compiler.

    Neither comments of main.go nor this file are part of it: another comment must not cost a build.
    """
    code = [line for line in MAIN_GO.read_text().splitlines() if not COMMENT.match(line)]
    rules = (kubernetes_go_mod(version, SPECIMEN), kubernetes_ldflags(version), *COMPONENTS)
    return "\n".join((*code, *rules)).encode()


def build_kubernetes(version: str, source: Path, target: Path) -> None:
    """One static binary, and a link to it for each component."""
    upstream = upstream_go_mod("k8s.io/kubernetes", version, source)
    (source / "go.mod").write_text(kubernetes_go_mod(version, upstream))
    shutil.copy(MAIN_GO, source)
    flags = f"-ldflags={kubernetes_ldflags(version)}"
    go("build", flags, "-o", str(target / "kubernetes"), ".", cwd=source)
    for component in COMPONENTS:
        (target / component).symlink_to("kubernetes")


def build(kubernetes: str = KUBERNETES, containerd: str = CONTAINERD) -> Binaries:
    """Everything that a cluster of this Kubernetes release runs."""
    commands = tuple(f"{CONTAINERD_MODULE}/cmd/{command}" for command in CONTAINERD_COMMANDS)
    stamp = f"-s -w -X {CONTAINERD_MODULE}/version.Version=v{containerd}"
    make_containerd = build_commands(CONTAINERD_MODULE, containerd, commands, ldflags=stamp)

    def make_kubernetes(source: Path, target: Path) -> None:
        build_kubernetes(kubernetes, source, target)

    return Binaries(
        kubernetes=product(
            "kubernetes", kubernetes, make_kubernetes, recipe=kubernetes_recipe(kubernetes)
        ),
        containerd=product("containerd", containerd, make_containerd, recipe=stamp.encode()),
    )
