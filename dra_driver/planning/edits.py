# SPDX-License-Identifier: Apache-2.0
"""Which device nodes, mounts and environment variables does a container get for one allocated device?

The names of variables contain the driver's own device names and share IDs, which the scheduler makes. Device names are DNS labels,
so two of them stay different in upper case and with `_` for `-`. Text that the claim's author wrote is used only in values.
"""

from dra_driver.model.api.resource_claim import DeviceRequestAllocationResult
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.claim import DeviceConfig, share_of
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName, ShareId

DEVICE_VARIABLE = "GPU_DEVICE_"
LABEL_VARIABLE = "GPU_LABEL_"
ADMIN_VARIABLE = "DRA_ADMIN_ACCESS"


def container_edits(
    device: AllocatableDevice, result: DeviceRequestAllocationResult, config: DeviceConfig
) -> ContainerEdits:
    """Return the vendor's edits with the driver's variables: UUID of the device, label, sharing, and whether it is admin access."""
    suffix = _suffix(device.name, share_of(result))
    env = {DEVICE_VARIABLE + suffix: device.uuid}
    if config.label:
        env[LABEL_VARIABLE + suffix] = config.label
    if result.admin_access:
        env[ADMIN_VARIABLE] = "true"
    # The example driver numbers its variables: GPU_DEVICE_0_SHARING_STRATEGY belongs to gpu-0.
    number = _variable(device.name.removeprefix("gpu-"))
    env |= {f"{DEVICE_VARIABLE}{number}_{name}": value for name, value in config.sharing.items()}
    return device.edits.merged(ContainerEdits(env=env))


def device_variable(device: DeviceName, share: ShareId) -> str:
    """Return the name of the variable that has the device's UUID."""
    return DEVICE_VARIABLE + _suffix(device, share)


def _suffix(device: DeviceName, share: ShareId) -> str:
    return _variable(device) + (f"_{_variable(share)}" if share else "")


def _variable(text: str) -> str:
    return text.upper().replace("-", "_")
