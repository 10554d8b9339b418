# SPDX-License-Identifier: Apache-2.0
"""What does a container get for a simulated device? Its device file, and variables.

The names of variables count the devices of a claim, so that equal claims give equal containers: GPU_DEVICE_0 is the UUID of the first
device. If a container uses two claims, the runtime keeps the variables of one of them; it gets the device files of both. In the profile
`example` the names contain the device's name and share ID, as the example driver's do. Text that the claim's author wrote is used only
in values.
"""

from dra_driver.backends.simulated_config import GpuConfig, LabelConfig
from dra_driver.model.cdi import ContainerEdits, DeviceNode
from dra_driver.model.lease import Lease

DEVICE_VARIABLE = "GPU_DEVICE_"
LABEL_VARIABLE = "GPU_LABEL_"


def container_edits(
    lease: Lease, uuid: str, *, major: int, minor: int, named: bool = False
) -> ContainerEdits:
    """Return the device file with these numbers, the UUID of the device, and what the configuration asks for. If `named`, the names of
    variables contain the device's name.
    """
    suffix = _named(lease) if named else str(lease.index)
    env = {DEVICE_VARIABLE + suffix: uuid}
    match lease.config.value:
        case LabelConfig(label=label) if label:
            env[LABEL_VARIABLE + suffix] = label
        case GpuConfig(sharing=sharing):
            # The example driver numbers its variables: GPU_DEVICE_0_SHARING_STRATEGY belongs to gpu-0.
            number = _variable(lease.device.removeprefix("gpu-"))
            env |= {
                f"{DEVICE_VARIABLE}{number}_{name}": value
                for name, value in sharing.variables.items()
            }
        case _:
            pass
    node = DeviceNode(f"/dev/dra-simulated/{lease.device}", major=major, minor=minor)
    return ContainerEdits(env=env, device_nodes=(node,))


def _named(lease: Lease) -> str:
    # Device names are DNS labels, so two of them stay different in upper case and with `_` for `-`.
    return _variable(lease.device) + (f"_{_variable(lease.share_id)}" if lease.share_id else "")


def _variable(text: str) -> str:
    return text.upper().replace("-", "_")
