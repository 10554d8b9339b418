# SPDX-License-Identifier: Apache-2.0
"""What does a container get for a simulated device? Its device file, and variables.

The names of variables count the devices of a claim, so that equal claims give equal containers: GPU_DEVICE_0 is the UUID of the first
device. If a container uses two claims, the runtime keeps the variables of one of them; it gets the device files of both. Text that the
claim's author wrote is used only in values. The variables of the profile `example` are in `example_edits`.
"""

from dra_driver.backends.base import DEVICE_VARIABLE
from dra_driver.backends.simulated_config import LabelConfig
from dra_driver.model.cdi import ContainerEdits, DeviceNode
from dra_driver.model.lease import Lease

LABEL_VARIABLE = "GPU_LABEL_"


def container_edits(lease: Lease, uuid: str, *, major: int, minor: int) -> ContainerEdits:
    """Return the device file with these numbers, the UUID of the device, and what the configuration asks for."""
    env = {f"{DEVICE_VARIABLE}{lease.index}": uuid}
    if isinstance(lease.config.value, LabelConfig) and lease.config.value.label:
        env[f"{LABEL_VARIABLE}{lease.index}"] = lease.config.value.label
    return ContainerEdits(env=env, device_nodes=(device_file(lease, major, minor),))


def device_file(lease: Lease, major: int, minor: int) -> DeviceNode:
    """The device file of a lease, with these numbers."""
    return DeviceNode(f"/dev/dra-simulated/{lease.device}", major=major, minor=minor)
