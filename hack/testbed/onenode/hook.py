# SPDX-License-Identifier: Apache-2.0
"""Where does nvidia-cdi-hook come from, the program that NVIDIA's CDI files let the runtime call?

From the Go module of NVIDIA's container toolkit, like everything else here. It binds NVIDIA's library, so it needs a C
compiler, and the library's functions may be missing when it is linked and when it starts.
"""

from pathlib import Path

from hack.testbed.onenode.products import WITH_C, build_commands, product

VERSION = "1.20.1"
MODULE = "github.com/NVIDIA/nvidia-container-toolkit"
LAZY = "-extldflags=-Wl,-z,lazy"
MAY_BE_MISSING = "-Wl,--unresolved-symbols=ignore-in-object-files"


def build() -> Path:
    """The program, built now if it is not there."""
    flags = f"-s -w {LAZY}"
    settings = {**WITH_C, "CGO_LDFLAGS_ALLOW": MAY_BE_MISSING}
    command = f"{MODULE}/cmd/nvidia-cdi-hook"
    make = build_commands(MODULE, VERSION, (command,), ldflags=flags, settings=settings)
    return product("nvidia-cdi-hook", VERSION, make, recipe=flags.encode()) / "nvidia-cdi-hook"
