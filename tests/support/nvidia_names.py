# SPDX-License-Identifier: Apache-2.0
"""What are the devices of a node called, as NVIDIA's driver calls them? Written down here once more, from facts alone."""

from dra_driver.backends.nvidia.facts import Gpu, MigDevice, Node

KINDS = {1: "1g5gb", 2: "2g10gb", 3: "3g20gb"}
"""The profiles of an A100 with 40 GB, by their compute slices."""


def uuids(facts: Node) -> dict[str, str]:
    """The UUIDs of the devices by their names."""
    found: dict[str, str] = {}
    for gpu in facts.gpus:
        if gpu.mig is None or not gpu.mig.enabled:
            found[f"gpu-{gpu.minor}"] = gpu.uuid
        found |= {name: device.uuid for name, device in parts(gpu).items()}
    return found


def parts(gpu: Gpu) -> dict[str, MigDevice]:
    """The MIG devices of a GPU by their names."""
    devices = gpu.mig.devices if gpu.mig else ()
    return {
        f"gpu-{gpu.minor}-mig-{KINDS[one.gpu_slices]}-{one.profile}-{one.start}": one
        for one in devices
    }
