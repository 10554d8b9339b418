# SPDX-License-Identifier: Apache-2.0
"""What do the pods run, where no registry can be reached?

One image made of the static busybox of the machine, in the docker-archive format that `ctr images
import` reads. It serves as the sandbox image too, so its command must run until it is killed. A test
may put programs of its own on top of it, with the machine's C library if they need one.
"""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

BUSYBOX = Path("/bin/busybox")
COMMAND = ("/bin/sleep", "infinity")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def _add(archive: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _link(archive: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    archive.addfile(entry)


def _layer() -> bytes:
    """busybox, with a link for each of its commands."""
    listing = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        _add(archive, "bin/busybox", BUSYBOX.read_bytes(), mode=0o755)
        for command in sorted(set(listing.stdout.split()) - {"busybox"}):
            _link(archive, f"bin/{command}", "busybox")
    return buffer.getvalue()


def c_library() -> dict[str, bytes]:
    """What a program of this machine that is linked with its C library finds in a container: the library, and what loads it."""
    said = subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True).stdout
    paths = [word for word in said.split() if word.startswith("/")]
    return {path: Path(path).read_bytes() for path in paths}


def _programs(files: Mapping[str, bytes]) -> bytes:
    """Files that anybody may run, by their paths."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, content in files.items():
            _add(archive, path.lstrip("/"), content, mode=0o755)
    return buffer.getvalue()


def write_image(
    target: Path,
    names: tuple[str, ...],
    programs: Mapping[str, bytes] | None = None,
    variables: tuple[str, ...] = (),
) -> None:
    """Write one image, known under all these names, as a docker-archive; with these programs and environment variables on top."""
    layers = [_layer(), *([_programs(programs)] if programs else [])]
    digests = [hashlib.sha256(layer).hexdigest() for layer in layers]
    config = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Cmd": list(COMMAND), "Env": ["PATH=/bin", *variables]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
    }
    files = [f"layer{number}.tar" for number in range(len(layers))]
    manifest = [{"Config": "config.json", "RepoTags": list(names), "Layers": files}]
    with tarfile.open(target, "w") as archive:
        _add(archive, "config.json", json.dumps(config).encode())
        for file, layer in zip(files, layers, strict=True):
            _add(archive, file, layer)
        _add(archive, "manifest.json", json.dumps(manifest).encode())
