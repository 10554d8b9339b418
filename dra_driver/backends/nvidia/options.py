# SPDX-License-Identifier: Apache-2.0
"""The options of the NVIDIA backend, in the config document below `backends.nvidia`."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class HealthOptions(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """When a GPU counts as unhealthy."""

    max_temperature: Annotated[
        int,
        Meta(
            ge=0,
            le=150,
            description="A GPU that is hotter, in degrees Celsius, gets no new claims; 0: no limit.",
        ),
    ] = 90
    temperature_hysteresis: Annotated[
        int,
        Meta(
            ge=0,
            le=50,
            description="How many degrees below the limit it has to be to count as cool again.",
        ),
    ] = 5
    ignored_xids: Annotated[
        tuple[Annotated[int, Meta(ge=0)], ...],
        Meta(description="Numbers of XIDs that are counted and say nothing about health."),
    ] = ()
    recovery_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=1800,
            description="How long a GPU has to prove that it works before its taint is removed; longer each time that it fails again soon.",
        ),
    ] = 60


class DevicePluginOptions(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """The configuration of NVIDIA's device plugin, for nodes on which this driver takes its place."""

    config: Annotated[
        str,
        Meta(
            description="A file of NVIDIA's device plugin, or the folder of a ConfigMap with a file for each key; empty: none. "
            "docs/reference/nvidia-plugin-config.md says what becomes of each key."
        ),
    ] = ""
    default: Annotated[
        str,
        Meta(
            description="The file that counts on nodes without the label nvidia.com/device-plugin.config."
        ),
    ] = ""
    fallback_strategies: Annotated[
        tuple[Literal["named", "single", "empty"], ...],
        Meta(
            description="What counts in a folder without label and default, the first that exists: named: the file `default`. single: the only "
            "file. empty: no configuration. NVIDIA's operator has [empty], the chart of NVIDIA's plugin [named, single]."
        ),
    ] = ("empty",)


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
    idle_memory: Annotated[
        int,
        Meta(
            ge=0,
            description="How much of its memory a GPU uses that nothing uses, in MiB. A GPU that no claim has and that uses more is "
            "tainted as not clean, until it uses no more again.",
        ),
    ] = msgspec.field(name="idleMemoryMiB", default=64)
    health: Annotated[HealthOptions, Meta(description="When a GPU counts as unhealthy.")] = (
        HealthOptions()
    )
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
    capabilities: Annotated[
        tuple[Literal["compute", "display", "graphics", "ngx", "utility", "video"], ...],
        Meta(
            description="Which parts of the driver's files containers get, as NVIDIA's container toolkit names them; empty: all."
        ),
    ] = ()
    additional_gids: Annotated[
        bool,
        Meta(
            description="Whether a container joins the groups of device files that only a group may open. Needs a container runtime that "
            "knows CDI 0.7; runc and crun let the container's user open them anyway."
        ),
    ] = False
    device_plugin: Annotated[
        DevicePluginOptions,
        Meta(description="The configuration of NVIDIA's device plugin, if there is one."),
    ] = DevicePluginOptions()
