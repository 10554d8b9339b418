# SPDX-License-Identifier: Apache-2.0
"""Which CEL environment does a Kubernetes release have?

Each release adds functions to its CEL environment. Kubernetes has two modes. A *new* expression, in an object that a client
creates or changes, can use only functions that the previous release already knew. So after a rollback the API server still understands
all objects. A feature gate also adds fields, without this delay. A *stored* expression, in an object that the scheduler
reads, can use all functions and fields of the release, regardless of feature gates.
The tables (tables/declarations.py) have the names and functions of each environment. This module has the other differences.
Source: k8s.io/apiserver pkg/cel/environment, k8s.io/dynamic-resource-allocation/cel/compile.go.
"""

from typing import Literal

from msgspec import Struct, field

EnvironmentType = Literal["NewExpressions", "StoredExpressions"]

OLDEST, NEWEST = 32, 37
# CELSelectorExpressionMaxCost: limits the estimated cost and also the actual cost.
MAX_COST = 1_000_000
# CELSelectorExpressionMaxLength, in bytes.
LONGEST_EXPRESSION = 10 * 1024

_LIST_ATTRIBUTES = 36


class Features(Struct, frozen=True):
    """The feature gates DRAConsumableCapacity and DRAListTypeAttributes."""

    consumable_capacity: bool = True
    list_type_attributes: bool = True


class Environment(Struct, frozen=True):
    """The CEL environment of Kubernetes 1.`minor`.

    `kind` says whether it compiles new or stored expressions. The defaults are those of the newest scheduler.
    """

    minor: int = NEWEST
    kind: EnvironmentType = "StoredExpressions"
    features: Features = field(default_factory=Features)

    @property
    def stored(self) -> bool:
        """Whether this environment compiles stored expressions."""
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
