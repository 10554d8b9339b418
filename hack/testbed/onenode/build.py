# SPDX-License-Identifier: Apache-2.0
"""Where do the cluster's binaries come from?

From source, through the Go module system, for no release archive and no container registry is
needed then. Each product is a folder of the cache, named after what it is, its version and a hash
of everything that decides its contents; a folder that exists is complete, because it is filled
elsewhere and renamed into place. Two builds at once are harmless: the second rename finds the
folder there and throws its own copy away.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

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
CONTAINERD_COMMANDS = ("containerd", "containerd-shim-runc-v2", "ctr")
MAIN_GO = Path(__file__).resolve().parents[1] / "kubernetes" / "main.go"
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


class BuildError(Exception):
    """A build step failed; the message holds the end of what it said."""


def cache_folder() -> Path:
    """Where everything that can be built again is kept, outside the clone."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "dra-driver" / "testbed"


def _go(*arguments: str, cwd: Path) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -trimpath"}
    ended = subprocess.run(
        ["go", *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        raise BuildError(f"`go {' '.join(arguments)}` in {cwd} failed:\n{ended.stderr[-3000:]}")
    return ended.stdout


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


def build_kubernetes(version: str, source: Path, target: Path) -> None:
    """One static binary, and a link to it for each component."""
    module = f"k8s.io/kubernetes@v{version}"
    (source / "go.mod").write_text("module empty\n")
    upstream = Path(json.loads(_go("mod", "download", "-json", module, cwd=source))["GoMod"])
    (source / "go.mod").write_text(kubernetes_go_mod(version, upstream.read_text()))
    shutil.copy(MAIN_GO, source)
    major, minor, _ = version.split(".")
    stamp = "k8s.io/component-base/version"
    flags = (
        f"-s -w -X {stamp}.gitVersion=v{version}"
        f" -X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}"
    )
    _go("build", f"-ldflags={flags}", "-o", str(target / "kubernetes"), ".", cwd=source)
    for component in COMPONENTS:
        (target / component).symlink_to("kubernetes")


def build_containerd(version: str, source: Path, target: Path) -> None:
    """containerd, its runc shim and ctr."""
    module = "github.com/containerd/containerd/v2"
    packages = [f"{module}/cmd/{command}" for command in CONTAINERD_COMMANDS]
    upstream = json.loads(
        _go("mod", "download", "-json", f"{module}@v{version}", cwd=_empty(source))
    )
    go = re.search(r"^go (\S+)", Path(upstream["GoMod"]).read_text(), re.MULTILINE)
    if go is None:
        raise BuildError(f"the go.mod of {module} v{version} names no Go version")
    lines = ("module containerd", f"go {go[1]}", f"require {module} v{version}")
    (source / "go.mod").write_text("\n".join(lines) + "\n")
    flags = f"-ldflags=-s -w -X {module}/version.Version=v{version}"
    _go("build", flags, "-o", f"{target}/", *packages, cwd=source)


def _empty(source: Path) -> Path:
    (source / "go.mod").write_text("module empty\n")
    return source


def _product_folder(what: str, version: str) -> Path:
    inputs = hashlib.sha256()
    for part in (_go("version", cwd=Path("/")).encode(), MAIN_GO.read_bytes(), _recipe()):
        inputs.update(part)
    return cache_folder() / f"{what}-{version}-{inputs.hexdigest()[:12]}"


def _recipe() -> bytes:
    return Path(__file__).read_bytes()


def product(what: str, version: str, make: Callable[[str, Path, Path], None]) -> Path:
    """The folder of one product, built now if it is not there."""
    folder = _product_folder(what, version)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as temporary:
        source, target = Path(temporary, "source"), Path(temporary, "target")
        source.mkdir()
        target.mkdir()
        make(version, source, target)
        with suppress(OSError):  # "not empty": somebody else was first, and theirs is as good
            target.rename(folder)
    if not folder.is_dir():
        raise BuildError(f"{folder} could not be put into place; is the cache writable?")
    return folder


def build(kubernetes: str = KUBERNETES, containerd: str = CONTAINERD) -> Binaries:
    """Everything that a cluster of this Kubernetes release runs."""
    return Binaries(
        kubernetes=product("kubernetes", kubernetes, build_kubernetes),
        containerd=product("containerd", containerd, build_containerd),
    )
