# SPDX-License-Identifier: Apache-2.0
"""A registry on this machine, in memory, for tests of what is pushed; and crane, which pushes images.

Both are one program of the module go-containerregistry.
"""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hack.testbed.onenode.products import build_commands, product

MODULE, VERSION = "github.com/google/go-containerregistry", "0.22.1"


def crane() -> Path:
    """The program, built now if it is not there."""
    flags = "-s -w"
    make = build_commands(MODULE, VERSION, (f"{MODULE}/cmd/crane",), ldflags=flags)
    return product("crane", VERSION, make, recipe=flags.encode()) / "crane"


@contextmanager
def serving() -> Iterator[str]:
    """A registry on the loopback interface; the value is its host and port."""
    command = (str(crane()), "registry", "serve", "--address", "127.0.0.1:0")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stderr or ():
                if found := re.search(r"serving on port (\d+)", line):
                    yield f"127.0.0.1:{found[1]}"
                    break
            else:
                raise RuntimeError("the registry ended before it listened")
        finally:
            process.terminate()
