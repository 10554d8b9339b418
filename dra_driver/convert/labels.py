# SPDX-License-Identifier: Apache-2.0
"""Which selector asks a device for what a label says of its node?

A label is about all devices of a node, a selector about each device. How many devices a node has, and how it is configured, no device
can say: such labels stay where they are.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct

from dra_driver.convert.kinds import meant_by, spelled
from dra_driver.convert.resources import NotConverted
from dra_driver.model.memory_amounts import MIB
from dra_driver.model.names import (
    COUNT_LABEL,
    GENERATION_LABEL,
    MEMORY_MIB_LABEL,
    PRODUCT_LABEL,
)
from dra_driver.model.quantity import Quantity
from dra_driver.planning.label_text import label_value

_COUNTED = "how many devices a node has, no device can say; it stays. A claim for as many devices needs no label"
_NODES = "it is about how the node is set up, and no device can say that; it stays"
_OF_PARTS = f"{_NODES}. A claim for a part of a GPU needs no label"
_PARTS = "it chooses nodes with parts of GPUs; write it as nodeSelector with a profile as 1g.5gb, or write the claim by hand (class mig.nvidia.com)"
_SHARED = "nodes with this label offer shares of a GPU as nvidia.com/gpu; ask for nvidia.com/gpu.shared, or let pods use one ResourceClaim; it stays"
_GKE_PRODUCTS: Mapping[str, str] = {
    "nvidia-h100-mega-80gb": "H100",
    "nvidia-h200-141gb": "H200",
}
"""Names whose last part is not in the name of the product."""
_MODEL = re.compile(
    r"(?:nvidia-)?(?:(?:tesla|geforce|quadro)-)?(?P<model>rtx-(?:pro-)?[a-z]?\d+[a-z]*|[a-z]+\d+[a-z]*)(?:-(?P<memory>\d+gb))?"
)
_NO_MODEL = (
    "no GPU is known by this name: write nvidia.com/gpu.product in its place, with the name that `nvidia-smi -L` shows and hyphens for its blanks, and convert again; it "
    "stays"
)
_VENDORS = ("nvidia", "amd", "intel", "habana")
_NUMBER = re.compile("[0-9]{1,18}")
_OF_PART = re.compile(r"-MIG-(?P<profile>.+)$")
"""The end of a product's label on nodes whose nvidia.com/gpu are MIG devices (strategy single)."""
_OF_SHARES = "-SHARED"
"""The end of a product's label on nodes whose nvidia.com/gpu are shares of GPUs."""
_ANY_MEMORY = "gpu-memory"
"""A label that admins give nodes by hand: no tool defines its unit."""
_NO_SHARES = "it is about shares of a plugin, and the GPU of a claim is nobody else's: leave it out; it stays"
_SOME_SHARES = (
    f"some of these nodes offer whole GPUs as nvidia.com/gpu, and others shares ({_OF_SHARES}), so what the pod means is open: name only the ones or only "
    "the others; it stays"
)


class Condition(Struct, frozen=True):
    """What a node selector or an affinity asks of one label."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.operator == "In" and len(self.values) == 1:
            return f"{self.key}: {self.values[0]}"
        return f"{self.key} {self.operator} {', '.join(self.values)}".strip()


def profile_in(product: str) -> str:
    """Return the profile in the label of a product of MIG devices, as it is in the name of a resource; "" if it is of whole GPUs."""
    found = _OF_PART.search(product)
    return found["profile"] if found else ""


def of_parent(condition: Condition) -> Condition:
    """Return what a condition on MIG devices asks of their GPU: the label of a product has the profile behind the name of the GPU."""
    if condition.operator != "In":
        return condition
    values = tuple(_OF_PART.sub("", value) for value in condition.values)
    return Condition(condition.key, condition.operator, values)


def is_of_shares(condition: Condition) -> bool:
    """Return whether the condition is true only of nodes that offer shares of a GPU as nvidia.com/gpu."""
    return (
        (condition.key, condition.operator) == ("nvidia.com/gpu.product", "In")
        and bool(condition.values)
        and all(one.endswith(_OF_SHARES) and not profile_in(one) for one in condition.values)
    )


def of_whole(condition: Condition) -> Condition:
    """Return what a condition on shares of GPUs asks of the GPUs."""
    if not is_of_shares(condition):
        return condition
    values = tuple(one.removesuffix(_OF_SHARES) for one in condition.values)
    return Condition(condition.key, condition.operator, values)


class Selected(Struct, frozen=True):
    """The selector for a condition; "" if the claim needs none because the label is true of every node with such a device."""

    expression: str
    vendor: str = ""


class _Asked(Struct, frozen=True):
    condition: Condition
    driver: str
    products: Collection[str]

    def attribute(self, name: str) -> str:
        return f'device.attributes["{self.driver}"].{name}'

    @property
    def memory(self) -> str:
        return f'device.capacity["{self.driver}"].memory'


def selector(
    condition: Condition, driver: str, products: Collection[str]
) -> Selected | NotConverted:
    """Return the selector. `products` are the names of known products, which a label has in another spelling."""
    rule = _RULES.get(condition.key)
    if rule is None:
        return NotConverted(str(condition), "this label is not known here; it stays")
    return rule(_Asked(condition, driver, products))


def _compared(
    asked: _Asked,
    read: str,
    one: Callable[[str], str],
    number: Callable[[str, str], str] | None = None,
) -> Selected | NotConverted:
    """Join the values of the condition. `one` is the condition for one value of what is `read`, `number` that for Gt and Lt.

    has(…) comes first: reading what a device does not have would end the scheduling of the whole pod.
    """
    condition = asked.condition
    texts = [one(value) for value in condition.values]
    match condition.operator:
        case "In" if texts:
            return Selected(f"has({read}) && {_any(texts)}")
        case "NotIn" if texts:
            return Selected(f"!has({read}) || !{_any(texts, alone=False)}")
        case "Gt" | "Lt" if number and len(texts) == 1 and _is_number(condition.values[0]):
            sign = ">" if condition.operator == "Gt" else "<"
            return Selected(f"has({read}) && {number(condition.values[0], sign)}")
        case "Exists":
            return Selected(f"has({read})")
        case _:
            return NotConverted(
                str(condition), "this operator is not known for this label; it stays"
            )


def _any(texts: Sequence[str], *, alone: bool = True) -> str:
    joined = " || ".join(texts)
    return joined if alone and len(texts) == 1 else f"({joined})"


def _product(asked: _Asked) -> Selected | NotConverted:
    read = asked.attribute("productName")
    if any(map(profile_in, asked.condition.values)):
        reason = "it means a part of a GPU; ask for nvidia.com/mig-…, or write the claim by hand (class mig.nvidia.com with a profile)"
        return NotConverted(str(asked.condition), reason)
    if any(value.endswith(_OF_SHARES) for value in asked.condition.values):
        is_against = asked.condition.operator == "NotIn"
        return NotConverted(str(asked.condition), _NO_SHARES if is_against else _SOME_SHARES)

    def one(value: str) -> str:
        same = sorted(name for name in asked.products if label_value(name) == value)
        if same:
            return _any([f"{read} == {_text(name)}" for name in same])
        return f"{read}.matches({_text(f'^{spelled(value)}$')})"

    return _compared(asked, read, one)


def _memory(asked: _Asked) -> Selected | NotConverted:
    values = asked.condition.values
    unclear = next((one for one in values if not _is_in_mib(asked.condition.key, one)), None)
    if unclear is not None:
        return NotConverted(str(asked.condition), _with_unit(asked, unclear))

    def number(value: str, sign: str) -> str:
        return f'{asked.memory}.compareTo(quantity("{value}Mi")) {sign} 0'

    return _compared(asked, asked.memory, lambda value: number(value, "=="), number)


def _is_number(value: str) -> bool:
    """Return whether CEL takes the value as a number, and Python reads it without end."""
    return _NUMBER.fullmatch(value) is not None


def _is_in_mib(key: str, value: str) -> bool:
    """Return whether the value is a number of MiB. In a label whose unit nobody defined, 40 most likely is in GiB."""
    return _is_number(value) and (key != _ANY_MEMORY or int(value) in MIB)


def _with_unit(asked: _Asked, value: str) -> str:
    """Return what to write in place of an amount of memory that is no number of MiB."""
    meant = meant_by(value)
    selected = f'{asked.memory}.compareTo(quantity("{meant}")) >= 0'
    number = f" ({mib})" if (mib := _mib(meant)) else ""
    return (
        f"its unit is not clear: write a number of MiB{number} and convert again, or take it out and add the selector {selected} to the request, with the "
        "unit that is meant; it stays"
    )


def _mib(amount: str) -> int:
    """Return how many MiB a quantity is; 0 if it is none."""
    try:
        return Quantity.parse(amount).nanos // (10**9 * 2**20)
    except ValueError:
        return 0


def _generation(asked: _Asked) -> Selected | NotConverted:
    read = asked.attribute("architecture")
    lowered = f'{read}.lowerAscii().replace(" ", "-")'
    return _compared(asked, read, lambda value: f"{lowered} == {_text(value.lower())}")


def _model(asked: _Asked) -> Selected | NotConverted:
    """The names of Google's clusters, with hyphens for blanks: nvidia-tesla-v100, nvidia-a100-80gb; and the bare name of a vendor."""
    read = asked.attribute("productName")
    if asked.condition.values and all(value in _VENDORS for value in asked.condition.values):
        vendor = asked.attribute("vendor")
        return _compared(asked, vendor, lambda value: f"{vendor} == {_text(value)}")

    def is_unknown(value: str) -> bool:
        known = value in _GKE_PRODUCTS or _MODEL.fullmatch(value)
        return value.startswith("nvidia-") and not known

    if any(map(is_unknown, asked.condition.values)):
        return NotConverted(str(asked.condition), _NO_MODEL)

    def one(value: str) -> str:
        found = _MODEL.fullmatch(value)
        model = _GKE_PRODUCTS.get(value) or (found["model"].upper() if found else value)
        memory = (
            f".*{found['memory'].upper()}"
            if found and found["memory"] and value not in _GKE_PRODUCTS
            else ""
        )
        pattern = rf"(^|[ -]){spelled(model)}($|[ -]){memory}"
        return f"{read}.matches({_text(pattern)})"

    return _compared(asked, read, one)


def _version(name: str, part: str) -> Callable[[_Asked], Selected | NotConverted]:
    def rule(asked: _Asked) -> Selected | NotConverted:
        if not all(map(_is_number, asked.condition.values)):
            return NotConverted(str(asked.condition), "the value must be a number; it stays")
        read = asked.attribute(name)
        number = f"{read}.{part}()"
        return _compared(
            asked,
            read,
            lambda value: f"{number} == {value}",
            lambda value, sign: f"{number} {sign} {value}",
        )

    return rule


def _always(asked: _Asked) -> Selected | NotConverted:
    condition = asked.condition
    if (condition.operator, condition.values) == (
        "In",
        ("true",),
    ) or condition.operator == "Exists":
        return Selected("")
    return NotConverted(str(asked.condition), _NODES)


def _stays(reason: str) -> Callable[[_Asked], Selected | NotConverted]:
    return lambda asked: NotConverted(str(asked.condition), reason)


def _text(value: str) -> str:
    """Return the value as a literal of CEL: that of JSON is one, and its escapes are the same."""
    return json.dumps(value)


_RULES: Mapping[str, Callable[[_Asked], Selected | NotConverted]] = {
    "nvidia.com/gpu.product": _product,
    "nvidia.com/gpu.memory": _memory,
    "nvidia.com/gpu.family": _generation,
    "nvidia.com/gpu.compute.major": _version("cudaComputeCapability", "major"),
    "nvidia.com/gpu.compute.minor": _version("cudaComputeCapability", "minor"),
    "nvidia.com/cuda.driver.major": _version("driverVersion", "major"),
    "nvidia.com/cuda.driver.minor": _version("driverVersion", "minor"),
    "nvidia.com/gpu.present": _always,
    "nvidia.com/gpu.count": _stays(_COUNTED),
    "nvidia.com/gpu.replicas": _stays(_NODES),
    "nvidia.com/gpu.machine": _stays(_NODES),
    "nvidia.com/mig.strategy": _stays(_OF_PARTS),
    "nvidia.com/mig.capable": _stays(_OF_PARTS),
    "nvidia.com/mig.config": _stays(_OF_PARTS),
    "nvidia.com/mig.config.state": _stays(_OF_PARTS),
    "accelerator": _model,
    "cloud.google.com/gke-accelerator": _model,
    "cloud.google.com/gke-accelerator-count": _stays(_COUNTED),
    "cloud.google.com/gke-gpu-partition-size": _stays(_PARTS),
    "cloud.google.com/gke-gpu-sharing-strategy": _stays(_SHARED),
    "cloud.google.com/gke-max-shared-clients-per-gpu": _stays(_SHARED),
    "cloud.google.com/gke-gpu-driver-version": _stays(_NODES),
    "gpu-type": _model,
    "gpu-model": _model,
    "gpu-product": _product,
    _ANY_MEMORY: _memory,
    "gpu-generation": _generation,
    "gpu-count": _stays(_COUNTED),
    PRODUCT_LABEL: _product,
    MEMORY_MIB_LABEL: _memory,
    GENERATION_LABEL: _generation,
    COUNT_LABEL: _stays(_COUNTED),
    "amd.com/gpu.product-name": _product,
    "gpu.intel.com/product": _product,
}
