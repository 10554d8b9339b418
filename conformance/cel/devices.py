# SPDX-License-Identifier: Apache-2.0
"""Which devices do random expressions look at? Ones that have most of the attributes that expressions name."""

import random
from typing import Any

from conformance.cel.vocabulary import SEMVERS

DRIVER = "dra.example.com"
Attribute = dict[str, Any]
STRINGS = (
    "fish",
    "",
    "abc",
    "NVIDIA A100-SXM4-80GB",
    "héllo",
    "a,b,c",
    "1",
    "1.2.3",
    "x" * 64,
    "10.0.0.1",
    "true",
    "1Gi",
)
INTS = (0, 1, 2, 3, 4, 7, 42, -1, 9223372036854775807, -9223372036854775808, 1000)
VERSIONS = tuple(text[1:-1] for text in SEMVERS[:9])
QUANTITIES = (
    "80Gi",
    "1Gi",
    "0",
    "1",
    "500m",
    "90G",
    "1024",
    "12E",
    "-1Ki",
    "0.5",
    "100n",
    "1e3",
    "9223372036854775807",
)


def scalar(chance: random.Random, kind: str) -> Attribute:
    """One attribute of that kind."""
    match kind:
        case "bool":
            return {"bool": chance.random() < 0.5}
        case "int":
            return {"int": chance.choice(INTS)}
        case "string":
            return {"string": chance.choice(STRINGS)}
    return {"version": chance.choice(VERSIONS)}


def several(chance: random.Random, kind: str) -> Attribute:
    """One attribute that is a list of that kind; an empty list cannot be told from none."""
    values = [
        next(iter(scalar(chance, kind).values())) for _ in range(chance.choice((1, 1, 2, 3, 3, 8)))
    ]
    return {f"{kind}s": values}


def typical() -> dict[str, Any]:
    """A device that has all that careful expressions name."""
    attributes: dict[str, Attribute] = {
        "flag": {"bool": True},
        "off": {"bool": False},
        "index": {"int": 3},
        "big": {"int": 9223372036854775807},
        "name": {"string": "NVIDIA A100-SXM4-80GB"},
        "model": {"string": "fish"},
        "version": {"version": "12.4.1"},
        "flags": {"bools": [True, False]},
        "numbers": {"ints": [1, 2, 3]},
        "names": {"strings": ["fish", "bird", "fish"]},
        "versions": {"versions": ["1.0.0", "2.0.0-rc.1", "2.0.0"]},
        "other.example.com/name": {"string": "abc"},
        "other.example.com/index": {"int": 7},
        "other.example.com/flag": {"bool": True},
    }
    capacity = {
        "memory": {"value": "80Gi"},
        "cores": {"value": "108"},
        "other.example.com/memory": {"value": "1Gi"},
    }
    return {"driver": DRIVER, "attributes": attributes, "capacity": capacity}


def varied(chance: random.Random) -> dict[str, Any]:
    """A device with other values, with some missing and some of an unexpected kind."""
    device = typical()
    attributes, capacity = device["attributes"], device["capacity"]
    if chance.random() < 0.05:
        attributes.clear()
        capacity.clear()
    for name in list(attributes):
        _vary(chance, attributes, name)
    for name in list(capacity):
        capacity[name] = {"value": chance.choice(QUANTITIES)}
    if capacity and chance.random() < 0.2:
        del capacity[chance.choice(list(capacity))]
    if chance.random() < 0.1:
        device["driver"] = chance.choice(("", "sub.example.com", "x.y"))
    if chance.random() < 0.3:
        device["allowMultipleAllocations"] = chance.random() < 0.5
    attributes.update(_malformed(chance))
    return device


def _vary(chance: random.Random, attributes: dict[str, Attribute], name: str) -> None:
    at = chance.random()
    (kind,) = attributes[name]
    if at < 0.1:
        del attributes[name]
    elif at < 0.2:
        attributes[name] = scalar(chance, chance.choice(("bool", "int", "string", "version")))
    elif at < 0.7:
        single = kind.removesuffix("s")
        attributes[name] = several(chance, single) if kind.endswith("s") else scalar(chance, kind)


def _malformed(chance: random.Random) -> dict[str, Attribute]:
    """Seldom: what no device can be asked with."""
    at = chance.random()
    if at < 0.02:
        return {"version": {"version": chance.choice(("1.0", "x", "v1.0.0", ""))}}
    return {"empty": {}} if at < 0.04 else {}
