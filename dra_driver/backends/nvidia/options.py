# SPDX-License-Identifier: Apache-2.0
"""The options of the NVIDIA backend, in the config document below `backends.nvidia`."""

from typing import Annotated

import msgspec
from msgspec import Meta


class NvidiaOptions(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """The options of the NVIDIA backend."""

    socket: Annotated[
        str,
        Meta(
            description="The socket of the hardware process; empty: the driver starts one itself."
        ),
    ] = ""
    host_root: Annotated[
        str,
        Meta(description="Where the hardware process that the driver starts sees the host's /."),
    ] = "/"
    driver_root: Annotated[
        str,
        Meta(
            description="The folder of the host with the installation of NVIDIA's driver, for the hardware process that the driver "
            "starts; empty: it looks in the usual places."
        ),
    ] = ""
