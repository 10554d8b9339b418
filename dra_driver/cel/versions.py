# SPDX-License-Identifier: Apache-2.0
"""Which CEL does a cluster speak?

Kubernetes grows its CEL environment release by release, and decides in two ways what an expression may use. A *new*
expression (an object is created or changed) may use what the release before already knew, so that a rollback leaves no
object that cannot be read; what a feature gate brings follows the gate alone. A *stored* expression (the scheduler's
view of objects that exist) may use everything that the release knows, whatever the gates say.
Which names and functions that gives, the tables know (tables/declarations.py); here is what else depends on it.
Source: k8s.io/apiserver pkg/cel/environment, k8s.io/dynamic-resource-allocation/cel/compile.go.
"""

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["NewExpressions", "StoredExpressions"]

OLDEST, NEWEST = 32, 37
MAX_COST = 1_000_000  # CELSelectorExpressionMaxCost: statically when an object is written, counted when it runs
MAX_LENGTH = 10 * 1024  # CELSelectorExpressionMaxLength, in bytes

_LIST_ATTRIBUTES = 36


@dataclass(frozen=True, slots=True)
class Features:
    """The gates DRAConsumableCapacity and DRAListTypeAttributes."""

    consumable_capacity: bool = True
    list_type_attributes: bool = True


@dataclass(frozen=True, slots=True)
class Environment:
    """The CEL of Kubernetes 1.`minor` for one kind of expression; by default what the newest scheduler runs."""

    minor: int = NEWEST
    kind: Kind = "StoredExpressions"
    features: Features = field(default_factory=Features)

    @property
    def stored(self) -> bool:
        """Whether everything is on that the release knows."""
        return self.kind == "StoredExpressions"

    @property
    def list_attributes(self) -> bool:
        """Whether attributes have the type dyn, as they may be lists; else any. 1.36 heeds the gate always."""
        everything = self.stored and self.minor > _LIST_ATTRIBUTES
        return self.minor >= _LIST_ATTRIBUTES and (everything or self.features.list_type_attributes)

    @property
    def list_values(self) -> bool:
        """Whether attributes that are lists can be evaluated; else they stop every expression."""
        return self.minor > _LIST_ATTRIBUTES or self.list_attributes
