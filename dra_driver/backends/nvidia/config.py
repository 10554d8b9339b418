# SPDX-License-Identifier: Apache-2.0
"""Which configuration can a claim have for NVIDIA devices? The kinds of NVIDIA's driver, read as that driver reads them.

Two steps, as there. Decoding is strict, and every entry of the claim has to pass it. What the values mean is judged only for the
entry that counts for a device (`time_slice`): a class may choose what its claim replaces. The sentences for wrong values are those of
NVIDIA's driver. Without a configuration nothing is asked for.

Source: api/nvidia.com/resource/v1beta1 of dra-driver-nvidia-gpu.
"""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from dra_driver.model.config_kind import ConfigKind, NotSupported
from dra_driver.model.decoding import shown
from dra_driver.model.quantity import Quantity

API_VERSION = "resource.nvidia.com/v1beta1"
TIME_SLICING = "TimeSlicing"
MPS = "MPS"
INTERVALS = {"Default": 0, "Short": 1, "Medium": 2, "Long": 3}
"""The intervals by name, each with the number that `nvidia-smi compute-policy --set-timeslice` takes."""
_POLICIES = ("LegacyOnly", "PreferIommuFD")
_MIB = 2**20
_NANO = 10**9
_PERCENT = 100

Amount = Annotated[str | int | float, Meta(description="A quantity, such as 10Gi.")]


class TimeSlicingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a process runs before another one does. Without an interval it is Default; older releases of NVIDIA's driver crash there."""

    interval: Annotated[
        str | None, Meta(description="The length of a time slice: Default, Short, Medium or Long.")
    ] = None


class MpsConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """The settings of an MPS daemon. They are checked, and then refused."""

    default_active_thread_percentage: Annotated[
        int | None, Meta(description="How much of the GPU's threads one process gets.")
    ] = None
    default_pinned_device_memory_limit: Amount | None = None
    default_per_device_pinned_memory_limit: Annotated[
        Mapping[str, Amount | None] | None, Meta(description="Limits by UUID or index of a device.")
    ] = None
    multi_user: Annotated[bool | None, Meta(description="Processes of several users.")] = None

    def __post_init__(self) -> None:
        limits = self.default_per_device_pinned_memory_limit or {}
        for amount in (self.default_pinned_device_memory_limit, *limits.values()):
            _bytes(amount)  # raises ValueError


class GpuSharing(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """How several containers share a GPU."""

    strategy: Annotated[str, Meta(description="TimeSlicing or MPS.")] = ""
    time_slicing_config: TimeSlicingConfig | None = None
    mps_config: MpsConfig | None = None


class MigDeviceSharing(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """How several containers share a MIG device. It has no intervals: TimeSlicing changes nothing."""

    strategy: Annotated[str, Meta(description="TimeSlicing or MPS.")] = ""
    mps_config: MpsConfig | None = None


class IommuConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """Which interface of the kernel a virtual machine gets."""

    backend_policy: Annotated[str, Meta(description="LegacyOnly or PreferIommuFD.")] = ""
    enable_api_device: bool | None = msgspec.field(name="enableAPIDevice", default=None)


class GpuConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For whole GPUs."""

    sharing: GpuSharing | None = None


class MigDeviceConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For MIG devices."""

    sharing: MigDeviceSharing | None = None


class VfioDeviceConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For GPUs that a virtual machine gets as a whole; this driver has no such device."""

    iommu: IommuConfig | None = None


NO_MPS = (
    "this driver runs no MPS daemon. For processes that only take turns on a GPU choose strategy TimeSlicing; on nodes whose pods need "
    "MPS (limits of threads or memory for each process) use NVIDIA's DRA driver, with its feature gate MPSSupport"
)
NO_VFIO = (
    "this driver passes no GPU through to a virtual machine; on nodes for KubeVirt or Kata use NVIDIA's DRA driver, with its feature "
    "gate PassthroughSupport"
)


def time_slice(value: object) -> int | None:
    """Return the time slice that a configuration asks for, as a number of INTERVALS; None if it asks for nothing.

    Raises ValueError: the configuration is wrong. Raises NotSupported: it is right, and this driver cannot do what it asks for.
    """
    match value:
        case GpuConfig(sharing=GpuSharing() as sharing):
            return _of_gpu(sharing)
        case MigDeviceConfig(sharing=MigDeviceSharing() as sharing):
            _check_strategy(sharing.strategy, sharing.mps_config)
            if sharing.strategy == MPS:
                raise NotSupported(f"strategy MPS: {NO_MPS}")
            return None
        case VfioDeviceConfig(iommu=iommu):
            _check_policy(iommu)
            raise NotSupported(NO_VFIO)
        case _:
            return None


def _of_gpu(sharing: GpuSharing) -> int:
    _check_strategy(sharing.strategy, sharing.mps_config)
    if sharing.strategy == MPS:
        if sharing.time_slicing_config is not None:
            raise ValueError("cannot use TimeSlicingConfig with the 'MPS' strategy")
        raise NotSupported(f"strategy MPS: {NO_MPS}")
    interval = _interval(sharing.time_slicing_config)
    if sharing.mps_config is not None:
        raise ValueError("cannot use MpsConfig with the 'TimeSlicing' strategy")
    return interval


def _check_strategy(strategy: str, mps: MpsConfig | None) -> None:
    if strategy not in (TIME_SLICING, MPS):
        raise ValueError(
            f"unknown GPU sharing strategy: {_text(strategy)}, supported GPU sharing strategies: {TIME_SLICING}, {MPS}"
        )
    if strategy == MPS and mps is not None:
        _check_mps(mps)


def _interval(config: TimeSlicingConfig | None) -> int:
    name = "Default" if config is None or config.interval is None else config.interval
    if name not in INTERVALS:
        raise ValueError(
            f"unknown time-slice interval: {_text(name)}, supported time-slice intervals: {', '.join(INTERVALS)}"
        )
    return INTERVALS[name]


def _check_mps(config: MpsConfig) -> None:
    percentage = config.default_active_thread_percentage or 0
    if percentage < 0:
        raise ValueError("active thread percentage must not be negative")
    if percentage > _PERCENT:
        raise ValueError("active thread percentage must not be greater than 100")
    default = config.default_pinned_device_memory_limit
    if default is not None and _bytes(default) < _MIB:
        raise ValueError(f"invalid limit: default value set too low: {_text(str(default))}")
    for device, limit in (config.default_per_device_pinned_memory_limit or {}).items():
        if not (device.isdecimal() or device.startswith(("GPU-", "MIG-"))):
            raise ValueError(
                f"invalid device: unable to parse key as an integer: {_text(device)}; it must be the UUID of a device, or its index"
            )
        if _bytes(limit) < _MIB:
            raise ValueError(
                f"invalid limit: value set too low: {_text(device)}: {_text(str(limit))}"
            )


def _check_policy(iommu: IommuConfig | None) -> None:
    # Without a policy it is LegacyOnly.
    if iommu is not None and iommu.backend_policy not in ("", *_POLICIES):
        raise ValueError(
            f"unknown IOMMU backend policy: {_text(iommu.backend_policy)}, supported IOMMU backend policies: {', '.join(_POLICIES)}"
        )


def _bytes(amount: Amount | None) -> int:
    """The bytes of a quantity. A quantity that is null is zero, as the API library reads it. Raises ValueError."""
    if amount is None:
        return 0
    return Quantity.parse(str(amount).strip()).nanos // _NANO


def _text(value: str) -> str:
    """A text that somebody else wrote, escaped and shortened, without quotes."""
    return shown(value).strip("'\"")


GPU = ConfigKind(API_VERSION, "GpuConfig", GpuConfig, device_type="gpu", judge=time_slice)
MIG = ConfigKind(
    API_VERSION, "MigDeviceConfig", MigDeviceConfig, device_type="mig", judge=time_slice
)
VFIO = ConfigKind(
    API_VERSION,
    "VfioDeviceConfig",
    VfioDeviceConfig,
    device_type="vfio",
    advice=NO_VFIO,
    judge=time_slice,
)
KINDS = (GPU, MIG, VFIO)
