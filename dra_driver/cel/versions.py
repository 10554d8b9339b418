# SPDX-License-Identifier: Apache-2.0
"""Which CEL environment does a Kubernetes release have?

Each release adds functions to its CEL environment. Kubernetes has two modes. A *new* expression, in an object that somebody
creates or changes, can only use what the release before already knew. So after a rollback the API server still understands
all objects. A feature gate also adds fields, without this delay. A *stored* expression, in an object that the scheduler
reads, can use everything that the release knows, regardless of feature gates.
The tables (tables/declarations.py) have the names and functions of each environment. This module has the other differences.
Source: k8s.io/apiserver pkg/cel/environment, k8s.io/dynamic-resource-allocation/cel/compile.go.
"""

from dataclasses import dataclass, field
from typing import Literal

EnvironmentType = Literal["NewExpressions", "StoredExpressions"]

OLDEST, NEWEST = 32, 37
# CELSelectorExpressionMaxCost: limits the estimated cost and also the actual cost.
MAX_COST = 1_000_000
MAX_LENGTH = 10 * 1024  # CELSelectorExpressionMaxLength, in bytes.

_LIST_ATTRIBUTES = 36


@dataclass(frozen=True, slots=True)
class Features:
    """The feature gates DRAConsumableCapacity and DRAListTypeAttributes."""

    consumable_capacity: bool = True
    list_type_attributes: bool = True


@dataclass(frozen=True, slots=True)
class Environment:
    """The CEL environment of Kubernetes 1.`minor` for one mode. The default is that of the newest scheduler."""

    minor: int = NEWEST
    kind: EnvironmentType = "StoredExpressions"
    features: Features = field(default_factory=Features)

    @property
    def stored(self) -> bool:
        """Whether the mode is that for stored expressions."""
        return self.kind == "StoredExpressions"

    @property
    def list_attributes(self) -> bool:
        """Whether attributes have the type dyn, because they can be lists; else any. 1.36 obeys the gate in both modes."""
        everything = self.stored and self.minor > _LIST_ATTRIBUTES
        return self.minor >= _LIST_ATTRIBUTES and (everything or self.features.list_type_attributes)

    @property
    def list_values(self) -> bool:
        """Whether list attributes can be evaluated. Otherwise a device with one fails every expression."""
        return self.minor > _LIST_ATTRIBUTES or self.list_attributes
