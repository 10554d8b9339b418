# SPDX-License-Identifier: Apache-2.0
"""What all objects of the Kubernetes API have in common."""

from typing import Annotated

import msgspec

QUANTITY = "quantity"
"""Marks the type of a quantity, by which `dra_driver.model.api.compare` knows it."""

QuantityText = Annotated[str | int | float, QUANTITY]
"""A quantity as it stands on the wire; a number is allowed there too. `dra_driver.model.quantity` reads it."""


class ApiValue(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """A part of an API object; equal to another one with the same content.

    The garbage collector passes them over: they are trees, and a fleet has a million of them.
    """


def learn(*kinds: type[msgspec.Struct]) -> None:
    """Let msgspec learn how these kinds, and all that they consist of, are read. Each module calls it for its own, at its end.

    msgspec 0.22 learns a kind when it is first read, and shows other threads what it has half learned: two threads that read
    their first objects at the same moment end the process with a segmentation fault. While a module is imported there is one.
    """
    for kind in kinds:
        msgspec.convert({}, type=kind)


class OwnerReference(ApiValue, frozen=True):
    """metadata.ownerReferences[]."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(ApiValue, frozen=True):
    """metadata, as far as anybody here looks at it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Condition(ApiValue, frozen=True):
    """One entry of status.conditions, of pods and of allocated devices."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
