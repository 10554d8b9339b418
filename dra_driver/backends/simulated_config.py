# SPDX-License-Identifier: Apache-2.0
"""Which configuration can a claim have for simulated devices?

All of them read a label, which the container gets. Devices of the profile `example` also read the configuration of the Kubernetes
project's example driver: GPUs the GpuConfig, under both of its apiVersions, and network cards the NetConfig. Its CPUs read none.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dra_driver.model.config_kind import ConfigKind
from dra_driver.model.names import DOMAIN


class LabelConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text for the container."""

    label: Annotated[
        str,
        Meta(
            max_length=63,
            pattern=r"^[ -~]*$(?!\n)",
            description="A text that the container gets in a variable; printable ASCII only.",
        ),
    ] = ""


class TimeSlicingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a process may use the device at a time."""

    interval: Annotated[
        Literal["Default", "Short", "Medium", "Long"],
        Meta(description="The length of a time slice."),
    ] = "Default"


class SpacePartitioningConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """Into how many parts the device is divided."""

    partition_count: Annotated[int, Meta(ge=0, description="The number of parts.")] = 0


class GpuSharing(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """How several containers share the device."""

    strategy: Annotated[
        Literal["TimeSlicing", "SpacePartitioning"], Meta(description="How the device is shared.")
    ]
    time_slicing_config: TimeSlicingConfig | None = None
    space_partitioning_config: SpacePartitioningConfig | None = None

    def __post_init__(self) -> None:
        stray = {
            "timeSlicingConfig": self.time_slicing_config and self.strategy != "TimeSlicing",
            "spacePartitioningConfig": self.space_partitioning_config
            and self.strategy != "SpacePartitioning",
        }
        for name, is_stray in stray.items():
            if is_stray:
                raise ValueError(f"{name} does not belong to strategy {self.strategy}")

    @property
    def variables(self) -> dict[str, str]:
        """What the container learns of the sharing, by the ends of the variables' names."""
        if self.strategy == "TimeSlicing":
            slices = self.time_slicing_config or TimeSlicingConfig()
            detail = {"TIMESLICE_INTERVAL": str(slices.interval)}
        else:
            parts = self.space_partitioning_config or SpacePartitioningConfig()
            detail = {"PARTITION_COUNT": str(parts.partition_count)}
        return {"SHARING_STRATEGY": self.strategy, **detail}


class GpuConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration of the example driver."""

    sharing: GpuSharing = GpuSharing(strategy="TimeSlicing")


class BandwidthBurst(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """How much a network card may send or receive at once, above its rate."""

    ingress_burst: Annotated[int, Meta(ge=0, description="Into the card; 0: no burst.")] = 0
    egress_burst: Annotated[int, Meta(ge=0, description="Out of the card; 0: no burst.")] = 0


class NetConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """The configuration of the example driver for network cards."""

    bandwidth_burst: BandwidthBurst = BandwidthBurst()

    @property
    def variables(self) -> dict[str, str]:
        """What the container learns of the bursts, by the ends of the variables' names."""
        bursts = {
            "INGRESS_BURST": self.bandwidth_burst.ingress_burst,
            "EGRESS_BURST": self.bandwidth_burst.egress_burst,
        }
        return {name: str(amount) for name, amount in bursts.items() if amount}


LABEL = ConfigKind(f"{DOMAIN}/v1alpha1", "DeviceConfig", LabelConfig)
GPU = ConfigKind("gpu.resource.example.com/v1alpha1", "GpuConfig", GpuConfig, default=GpuConfig())
GPU_OF_LATER_RELEASES = ConfigKind(
    "gpu.resource.dra-example-driver.sigs.k8s.io/v1alpha1", "GpuConfig", GpuConfig
)
"""Later releases of the example driver have another group."""
NET = ConfigKind("net.resource.example.com/v1alpha1", "NetConfig", NetConfig, default=NetConfig())
