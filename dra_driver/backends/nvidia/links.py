# SPDX-License-Identifier: Apache-2.0
"""Which GPUs are joined by NVLink, inside the node and beyond it?

An island are the GPUs of a node that reach each other by NVLink, directly or through switches. Its name is the lowest PCI address in
it, so it stays the same while a GPU of the island is ill. A fabric joins GPUs of several nodes: GPUs of one cluster and one clique
reach each other.
"""

from collections.abc import Container, Iterator, Mapping, Sequence

from dra_driver.backends.nvidia.facts import Fabric, Gpu, NvLink
from dra_driver.backends.nvidia.numbers import FABRIC_COMPLETED, GPU_LINK, SWITCH_LINK
from dra_driver.backends.sysfs import pci_address

_NO_ADDRESS = "0000:00:00.0"
_FABRIC_DIGITS = 32


def islands(gpus: Sequence[Gpu]) -> Mapping[str, str]:
    """Return the island of each GPU that has an active NVLink, by the GPU's PCI address as the kernel writes it."""
    root: dict[str, str] = {}
    present = frozenset(pci_address(gpu.pci_bus_id) for gpu in gpus)

    def found(one: str) -> str:
        while (above := root.setdefault(one, one)) != one:
            one = above
        return one

    linked: list[str] = []
    for gpu in gpus:
        address = pci_address(gpu.pci_bus_id)
        ends = list(_ends(gpu, present)) if address else []
        if ends:
            linked.append(address)
        for end in ends:
            root[found(end)] = found(address)
    members: dict[str, list[str]] = {}
    for address in sorted(linked):
        members.setdefault(found(address), []).append(address)
    return {address: joined[0] for joined in members.values() for address in joined}


def _ends(gpu: Gpu, present: Container[str]) -> Iterator[str]:
    """Yield what a GPU's links lead to: the PCI address of another GPU, or the name of a switch."""
    for link in gpu.nvlinks:
        end = _end(link, gpu, present)
        if end:
            yield end


def _end(link: NvLink, gpu: Gpu, present: Container[str]) -> str:
    address = pci_address(link.remote_pci_bus_id)
    # Older libraries do not tell what is at the other end.
    if link.remote_type == GPU_LINK or (link.remote_type is None and address in present):
        return address
    if link.remote_type != SWITCH_LINK:
        return ""  # the link leads to a CPU, or to something that this release does not know
    # The switches of a board join all of its GPUs. A virtual machine and a rack do not show the addresses of their switches: then the
    # GPUs of one fabric are joined.
    if address and address != _NO_ADDRESS:
        return f"switch {address}"
    return f"switches of fabric {fabric_id(gpu.fabric)}"


def fabric_id(fabric: Fabric | None) -> str:
    """Return `<UUID of the cluster>.<clique>`; empty for a GPU that is in no fabric of several nodes, or not yet.

    A GPU of a single node may have a cluster of zeros. It must not become an attribute: all such nodes would look like one fabric.
    """
    if fabric is None or fabric.state != FABRIC_COMPLETED or fabric.status:
        return ""
    digits = fabric.cluster_uuid.replace("-", "")
    if len(digits) != _FABRIC_DIGITS or not digits.strip("0"):
        return ""
    return f"{fabric.cluster_uuid.lower()}.{fabric.clique_id}"
