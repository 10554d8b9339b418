# SPDX-License-Identifier: Apache-2.0
"""What all objects of the Kubernetes API have in common."""

import msgspec

QuantityText = str | int | float
"""A quantity as it stands on the wire; a number is allowed there too. `dra_driver.model.quantity` reads it."""


class ApiValue(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """A part of an API object; equal to another one with the same content.

    The garbage collector passes them over: they are trees, and a fleet has a million of them.
    """


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
