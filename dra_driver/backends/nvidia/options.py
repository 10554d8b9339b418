# SPDX-License-Identifier: Apache-2.0
"""The options of the NVIDIA backend, in the config document below `backends.nvidia`."""

from typing import Annotated

import msgspec
from msgspec import Meta


class NvidiaOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of the NVIDIA backend."""

    socket: Annotated[
        str,
        Meta(
            description="The socket of the hardware process; empty: the driver starts one itself."
        ),
    ] = ""
    idle_memory: Annotated[
        int,
        Meta(
            ge=0,
            description="How much of its memory a GPU uses that nothing uses, in MiB. A GPU that no claim has and that uses more is "
            "tainted as not clean, until it uses no more again.",
        ),
    ] = msgspec.field(name="idleMemoryMiB", default=64)
