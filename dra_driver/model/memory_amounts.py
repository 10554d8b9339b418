# SPDX-License-Identifier: Apache-2.0
"""Which amount of a device's memory is meant by a number? A unit says it; without one, only some numbers have one likely meaning."""

import re

from dra_driver.model.quantity import Quantity

MIB = range(1_000, 1_000_001)
"""The numbers that only MiB make an amount of a GPU's memory, as nvidia-smi shows it and the first guides have it. Smaller ones are most often meant
as GiB, larger ones as bytes."""
_LEAST = 2**20
"""Nobody asks a device for fewer bytes."""
_NANO = 10**9
_NUMBER = re.compile(r"[0-9]{1,18}")
_WITH_UNIT = re.compile(r"[0-9.]{1,18}([KMGTPE]i|[kMGTPE])")
_LABEL_IN_MIB = "nvidia.com/gpu.memory"
"""The label of NVIDIA's feature discovery, whose value is in MiB. Who writes it as a resource means the same."""


def likely_amount(text: str) -> str:
    """Return the quantity that is most likely meant by an amount of memory: 40 is 40Gi, 40960 is 40960Mi, and what has a unit is itself."""
    if not _NUMBER.fullmatch(text) or int(text) >= MIB.stop:
        return text
    return f"{text}{'Mi' if int(text) in MIB else 'Gi'}"


def amount_of(name: str, amount: str) -> str:
    """Return the quantity that a resource of memory means; "" if its unit is not clear."""
    if name == _LABEL_IN_MIB and _NUMBER.fullmatch(amount) and int(amount) in MIB:
        return f"{amount}Mi"
    return amount if _WITH_UNIT.fullmatch(amount) and _bytes_in(amount) >= _LEAST else ""


def too_few_bytes(text: str) -> str:
    """Return the question for an amount that is so few bytes that its unit is missing; "" if it is no such amount."""
    if not 0 < _bytes_in(text) < _LEAST:
        return ""
    near = likely_amount(text.removesuffix("m"))
    return f"did you mean {near}?" if near != text else "write it with Mi or Gi, as in 40Gi"


def _bytes_in(text: str) -> float:
    """Return how many bytes a quantity is; 0 if it is none."""
    try:
        return Quantity.parse(text).nanos / _NANO
    except ValueError:
        return 0
