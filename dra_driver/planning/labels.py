# SPDX-License-Identifier: Apache-2.0
"""Which labels does the Node get, and which of those that it has are the driver's own?

The labels are of three kinds. NVIDIA's are those of GPU feature discovery (`planning/gfd_labels.py`). The driver's own labels are the
same for all vendors. Aliases are names that a cluster used before, each for one of the facts below; the admin chooses them.

A fact is missing if it is not true of all devices: a pod that selects a node by it could get another device there. Two facts always
are: how many accelerators there are, and the memory of the smallest one, so that `Gt` holds for each of them.
"""

import re
from collections.abc import Collection, Mapping

from msgspec import Struct, field

from dra_driver.model.device import AllocatableDevice
from dra_driver.model.inventory import Inventory
from dra_driver.model.names import (
    COUNT_LABEL,
    GENERATION_LABEL,
    MEMORY_MIB_LABEL,
    PRODUCT_LABEL,
)
from dra_driver.planning.gfd_labels import GfdRules, capacity_of, gfd_labels, value_of
from dra_driver.planning.label_text import label_value

_OWN = {
    PRODUCT_LABEL: "product",
    MEMORY_MIB_LABEL: "memory-mib",
    GENERATION_LABEL: "generation",
    COUNT_LABEL: "count",
}
_MEBI = 2**20
# Where the name in Google's clusters is not the product's name in small letters.
_MODELS = (
    (r"Tesla ([A-Z]\d+)\b.*", r"nvidia-tesla-\1"),
    (r"NVIDIA (A100)-\w+-40GB", r"nvidia-tesla-\1"),
    (r"NVIDIA (A100)-\w+-(80GB)", r"nvidia-\1-\2"),
    (r"NVIDIA (A100|H100) (?:PCIe )?(80GB)\b.*", r"nvidia-\1-\2"),
    (r"NVIDIA H200\b.*", "nvidia-h200-141gb"),
)


class LabelRules(Struct, frozen=True):
    """What decides about labels beside the devices: the fact of each alias, and what GFD reads from its configuration."""

    aliases: Mapping[str, str] = field(default_factory=dict)
    gfd: GfdRules = field(default_factory=GfdRules)


class LabelPlan(Struct, frozen=True):
    """What to do with the Node's labels. `apply` is everything that shall be the driver's own.

    `changed` are the labels of it that the Node lacks or has with another value, and `removed` those that the driver wrote before and
    that go. `foreign` are labels that somebody else wrote, with another value: they stay as they are.
    """

    apply: Mapping[str, str]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    foreign: tuple[str, ...]

    @property
    def is_done(self) -> bool:
        """Whether the Node has all of this already."""
        return not self.changed and not self.removed


def node_labels(inventory: Inventory, rules: LabelRules | None = None) -> dict[str, str]:
    """Return the labels of a node with these devices, sorted by name; none if it has no device."""
    rules = rules or LabelRules()
    facts = facts_of(inventory)
    own = {label: facts[fact] for label, fact in _OWN.items() if fact in facts}
    aliases = {label: facts[fact] for label, fact in rules.aliases.items() if fact in facts}
    # An alias wins: the admin chose it.
    labels = gfd_labels(inventory.devices, rules.gfd) | own | aliases
    return dict(sorted(labels.items()))


def facts_of(inventory: Inventory) -> dict[str, str]:
    """Return what can be said of all accelerators of the node, as values of labels. Numbers are plain decimals."""
    units = _units(inventory)
    if not units:
        return {}
    products = {value_of(device, "productName") for device in units}
    facts = {
        "vendor": _common({value_of(device, "vendor") for device in units}),
        "product": _common(products),
        "model": _common({_model(product) for product in products}),
        "generation": _common({value_of(device, "architecture").lower() for device in units}),
        "count": str(len({device.resource.parent for device in units})),
    }
    sizes = [_memory_mib(device) for device in units]
    if all(sizes):
        facts["memory-mib"] = str(min(sizes))
    return {fact: value for fact, value in facts.items() if value}


def plan_labels(
    wanted: Mapping[str, str], present: Mapping[str, str], owned: Collection[str]
) -> LabelPlan:
    """Compare the wanted labels with those that the Node has. `owned` are those of which the API server says that the driver wrote them."""
    foreign = {
        label
        for label, value in wanted.items()
        if label not in owned and present.get(label, value) != value
    }
    apply = {label: value for label, value in wanted.items() if label not in foreign}
    changed = [
        label for label, value in apply.items() if label not in owned or present.get(label) != value
    ]
    removed = [label for label in owned if label not in apply]
    return LabelPlan(apply, tuple(sorted(changed)), tuple(sorted(removed)), tuple(sorted(foreign)))


def feature_file(labels: Mapping[str, str]) -> str:
    """Return the labels as a feature file of Node Feature Discovery; "" for none. It has no place for those of `without_prefix`."""
    kept = labels.keys() - set(without_prefix(labels))
    return "".join(f"{label}={labels[label]}\n" for label in sorted(kept))


def without_prefix(labels: Collection[str]) -> tuple[str, ...]:
    """Return the labels without a domain. Node Feature Discovery would put its own domain in front of them."""
    return tuple(sorted(label for label in labels if "/" not in label))


def _units(inventory: Inventory) -> tuple[AllocatableDevice, ...]:
    """The whole accelerators, and of one that is offered in partitions only, the partitions."""
    whole = {device.resource.parent for device in inventory.devices if not device.resource.parts}
    return tuple(
        device
        for device in inventory.devices
        if not device.resource.parts or device.resource.parent not in whole
    )


def _common(values: Collection[str]) -> str:
    """The one value as a label; "" if there are several."""
    (first, *others) = values
    return "" if others else label_value(first)


def _model(product: str) -> str:
    for pattern, name in _MODELS:
        if found := re.fullmatch(pattern, product):
            return found.expand(name).lower()
    return product.lower()


def _memory_mib(device: AllocatableDevice) -> int:
    """The memory of a device; 0 if it is not known."""
    if (attribute := value_of(device, "memoryMiB")).isdecimal():
        return int(attribute)
    return (capacity_of(device, "memory") or 0) // _MEBI
