# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA backend keeps what a backend promises, also when the driver is killed at any line."""

from dra_driver.backends.nvidia.config import (
    GPU,
    MIG,
    GpuConfig,
    GpuSharing,
    MigDeviceConfig,
    MigDeviceSharing,
    TimeSlicingConfig,
)
from dra_driver.testing.contract import backend_contract
from tests.support.nvidia_hardware import a_backend, a_node, modes_of, pull_out

LONG = GpuSharing(strategy="TimeSlicing", time_slicing_config=TimeSlicingConfig(interval="Long"))

test_nvidia = backend_contract(
    a_backend,
    hardware=a_node,
    settings=modes_of,
    vanish=pull_out,
    configs=(
        GPU.config(GpuConfig(sharing=LONG)),
        GPU.config(GpuConfig()),
        MIG.config(MigDeviceConfig(sharing=MigDeviceSharing(strategy="TimeSlicing"))),
    ),
    # Each line that sets something, and not a choice among the many that make devices of facts.
    code=("dra_driver.backends.nvidia.leases", "dra_driver.backends.nvidia.modes"),
)
