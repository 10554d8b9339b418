# SPDX-License-Identifier: Apache-2.0
"""Models of GPUs for machines that tests put together: with partitions, shares and binding conditions."""

from dra_driver.backends.profiles import Model
from dra_driver.model.device import Version


def _nvidia(product: str, memory_mib: int, architecture: str, capability: str) -> Model:
    return Model(
        vendor="nvidia",
        product=product,
        memory_mib=memory_mib,
        uuid_format="GPU-{}",
        attributes={
            "type": "gpu",
            "brand": "Nvidia",
            "architecture": architecture,
            "cudaComputeCapability": Version(capability),
            "cudaDriverVersion": Version("12.4.0"),
            "driverVersion": Version("550.54.15"),
        },
    )


H100 = _nvidia("NVIDIA H100 80GB HBM3", 81559, "Hopper", "9.0.0")
L40S = _nvidia("NVIDIA L40S", 46068, "Ada Lovelace", "8.9.0")
