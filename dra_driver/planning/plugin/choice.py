# SPDX-License-Identifier: Apache-2.0
"""Which devices of a resource does a sharing rule mean, if it does not mean all?

Configurations of NVIDIA's plugin name devices as its tools do: by UUID, by the index of a GPU ("0"), or by the index of a GPU and of a part in
it ("0:1"). A backend finds the GPUs in the order of their indexes, and the parts of a GPU in theirs.
"""

from collections.abc import Sequence

from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName
from dra_driver.model.plugin_policy import DeviceChoice
from dra_driver.planning.plugin.candidates import Candidate
from dra_driver.planning.plugin.problems import few


def chosen(
    devices: Sequence[Candidate], choice: DeviceChoice | None, every: Sequence[AllocatableDevice]
) -> frozenset[DeviceName] | str:
    """Return the names of the devices that are meant, or what is wrong with the choice. `every` are the devices that indexes count."""
    names = [one.found.name for one in devices]
    if choice is None:
        return frozenset(names)
    if choice.count > len(names):
        return f"it is for {choice.count} devices, and the resource has {len(names)} here"
    known = {one.found.name: (one.found.uuid, _index(one.found, every)) for one in devices}
    wanted = {word: [name for name in names if word in known[name]] for word in choice.named}
    if unknown := [word for word, found in wanted.items() if not found]:
        return f"the resource has no device {few(map(ascii, unknown))} here"
    return frozenset(
        (*names[: choice.count], *(name for found in wanted.values() for name in found))
    )


def _index(device: AllocatableDevice, every: Sequence[AllocatableDevice]) -> str:
    """The index of a device, or of a GPU and of a part in it. Each backend counts the GPUs that it finds."""
    mine = [one for one in every if one.backend == device.backend]
    parents = list(dict.fromkeys(one.resource.parent for one in mine))
    index = parents.index(device.resource.parent)
    if not device.resource.parts:
        return str(index)
    parts = [one.name for one in mine if one.resource.parent == parents[index]]
    return f"{index}:{parts.index(device.name)}"
