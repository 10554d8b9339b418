# SPDX-License-Identifier: Apache-2.0
"""What a container gets for a GPU or a MIG device: from facts to container edits."""

from collections.abc import Collection

from dra_driver.backends.nvidia.facts import Gpu, Installation, MigDevice
from dra_driver.model.cdi import ContainerEdits
from dra_driver.planning.edits import HOOKS

DECLARES = frozenset({HOOKS})
"""What the devices must declare, so that the driver accepts their edits."""

CAPABILITIES = frozenset({"compute", "display", "graphics", "ngx", "utility", "video"})


def gpu_edits(
    installation: Installation, gpu: Gpu, *, capabilities: Collection[str] = CAPABILITIES
) -> ContainerEdits:
    """Return the edits for a whole GPU. Raises Temporary if its device file is not known yet."""
    raise NotImplementedError


def mig_edits(
    installation: Installation,
    gpu: Gpu,
    mig: MigDevice,
    *,
    capabilities: Collection[str] = CAPABILITIES,
) -> ContainerEdits:
    """Return the edits for a MIG device of a GPU. Raises Temporary if its device files are not known yet."""
    raise NotImplementedError
