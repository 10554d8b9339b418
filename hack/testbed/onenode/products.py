# SPDX-License-Identifier: Apache-2.0
"""Where do programs that are built from Go modules go?

Each product is a folder of the cache, named after what it is, its version and a hash of everything
that decides its contents; a folder that exists is complete, because it is filled elsewhere and
renamed into place. Two builds at once are harmless: the second rename finds the folder there and
throws its own copy away.
"""

import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path


class BuildError(Exception):
    """A build step failed; the message holds the end of what it said."""


def cache_folder() -> Path:
    """Where everything that can be built again is kept, outside the clone."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "dra-driver" / "testbed"


# Modules are named by version; that a version is what it always was says Go's checksum database, of every module.
GO_SETTINGS = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -trimpath", "GONOSUMDB": "none"}
WITH_C = {"CGO_ENABLED": "1", "CGO_CFLAGS": "-O2 -w"}  # warnings are for who wrote the module


def go(*arguments: str, cwd: Path, settings: Mapping[str, str] = GO_SETTINGS) -> str:
    """Run the go command, without a C compiler unless `settings` say otherwise; answers its output or raises BuildError."""
    environment = {**os.environ, **GO_SETTINGS, **settings}
    ended = subprocess.run(
        ["go", *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        raise BuildError(f"`go {' '.join(arguments)}` in {cwd} failed:\n{ended.stderr[-3000:]}")
    return ended.stdout


def upstream_go_mod(module: str, version: str, source: Path) -> str:
    """The go.mod of a release; `source` gets an empty module of its own to ask from."""
    if go("env", "GOSUMDB", cwd=source).strip() == "off":
        raise BuildError(
            "Go's checksum database is switched off (GOSUMDB=off), and nothing else says that modules are what they were; "
            "unset it, or name a database"
        )
    (source / "go.mod").write_text("module empty\n")
    found = json.loads(go("mod", "download", "-json", f"{module}@v{version}", cwd=source))
    return Path(found["GoMod"]).read_text()


def build_commands(
    module: str,
    version: str,
    commands: tuple[str, ...],
    *,
    ldflags: str = "-s -w",
    settings: Mapping[str, str] = GO_SETTINGS,
) -> Callable[[Path, Path], None]:
    """How to build commands (import paths) of one module as it was released, for `product`."""

    def make(source: Path, target: Path) -> None:
        upstream = upstream_go_mod(module, version, source)
        language = re.search(r"^go (\S+)", upstream, re.MULTILINE)
        if language is None:
            raise BuildError(f"the go.mod of {module} v{version} names no Go version")
        lines = (f"module build-{target.name}", f"go {language[1]}", f"require {module} v{version}")
        (source / "go.mod").write_text("\n".join(lines) + "\n")
        flags = f"-ldflags={ldflags}"
        go("build", flags, "-o", f"{target}/", *commands, cwd=source, settings=settings)

    return make


def product(
    what: str, version: str, make: Callable[[Path, Path], None], *, recipe: bytes = b""
) -> Path:
    """The folder of one product, built now if it is not there.

    `make` is given an empty folder to build in and one to fill. `recipe` is what decides the
    contents beside the version and the Go compiler: own source files, flags.
    """
    inputs = hashlib.sha256(go("version", cwd=Path("/")).encode())
    inputs.update(recipe)
    folder = cache_folder() / f"{what}-{version}-{inputs.hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as temporary:
        source, target = Path(temporary, "source"), Path(temporary, "target")
        source.mkdir()
        target.mkdir()
        make(source, target)
        with suppress(OSError):  # "not empty": somebody else was first, and theirs is as good
            target.rename(folder)
    if not folder.is_dir():
        raise BuildError(f"{folder} could not be put into place; is the cache writable?")
    return folder
