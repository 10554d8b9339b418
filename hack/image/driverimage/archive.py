# SPDX-License-Identifier: Apache-2.0
"""How do layers become an image that a container runtime imports?

The docker-archive format is a tar with the layers, the image's configuration and a manifest.json
that names both. `ctr images import`, `docker load` and `kind load image-archive` read it.
"""

import hashlib
import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from driverimage.python import ENTRY_POINT
from driverimage.tree import File, Tree, tar

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
ENVIRONMENT = (
    "PATH=/usr/local/bin:/usr/bin",
    "LANG=C.UTF-8",
    # Without a fixed threshold the C library keeps megabytes for each thread that once needed them.
    "MALLOC_MMAP_THRESHOLD_=131072",
    # All threads share one heap: Python lets only one of them work at a time, and a heap of its own keeps what a thread once needed.
    "MALLOC_ARENA_MAX=1",
)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: what it is, as a tar."""

    what: str
    content: bytes

    @property
    def digest(self) -> str:
        """Its identity."""
        return hashlib.sha256(self.content).hexdigest()


def configuration(layers: Sequence[Layer], *, created: int, labels: Mapping[str, str]) -> bytes:
    """What a runtime has to know: the command, its surroundings, the layers."""
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(created))
    machine = platform.machine()
    document = {
        "architecture": ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "created": when,
        "config": {
            "User": "0:0",
            "Entrypoint": [f"/{ENTRY_POINT}"],
            "Cmd": ["run"],
            "WorkingDir": "/",
            "Env": list(ENVIRONMENT),
            "Labels": dict(sorted(labels.items())),
        },
        "history": [{"created": when, "created_by": layer.what} for layer in layers],
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in layers]},
    }
    return json.dumps(document, separators=(",", ":")).encode()


def write(target: Path, name: str, layers: Sequence[Layer], config: bytes) -> str:
    """Write the image; answers its identity, the hash of its configuration."""
    identity = hashlib.sha256(config).hexdigest()
    files: Tree = {f"{layer.digest}.tar": File(layer.content) for layer in layers}
    manifest = {
        "Config": f"{identity}.json",
        "RepoTags": [name],
        "Layers": [f"{layer.digest}.tar" for layer in layers],
    }
    files[f"{identity}.json"] = File(config)
    files["manifest.json"] = File(json.dumps([manifest], separators=(",", ":")).encode())
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    partial.write_bytes(tar(files))
    partial.rename(target)
    return identity
