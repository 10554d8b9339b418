# SPDX-License-Identifier: Apache-2.0
"""The metadata and other parts that all objects of the Kubernetes API have in common."""

from typing import Annotated

import msgspec

QUANTITY = "quantity"
"""The mark of a quantity's type. `dra_driver.model.api.compare` finds quantities by it."""

QuantityText = Annotated[str | int | float, QUANTITY]
"""A quantity as it is in JSON, where a number is allowed too. `dra_driver.model.quantity` parses it."""


class ApiValue(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """A part of an API object. Two parts with the same content are equal.

    Python's garbage collector does not track them: they are trees without cycles, and a large cluster has a million of them.
    """


def learn(*kinds: type[msgspec.Struct]) -> None:
    """Let msgspec prepare to read these types and their fields. Each module calls it at its end for its own types.

    msgspec 0.22 prepares a type when it is first read, and another thread can see the unfinished result: if two threads read their
    first objects at the same time, the process ends with a segmentation fault. An import runs in one thread, so it is safe there.
    """
    for kind in kinds:
        msgspec.convert({}, type=kind)


class OwnerReference(ApiValue, frozen=True):
    """metadata.ownerReferences[]."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(ApiValue, frozen=True):
    """The fields of metadata that the driver or `explain` uses."""

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
    finalizers: list[str] | None = None


class Condition(ApiValue, frozen=True):
    """One entry of status.conditions, of pods and of allocated devices."""

    type: str = ""
    status: str = ""
    observed_generation: int = 0
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""
