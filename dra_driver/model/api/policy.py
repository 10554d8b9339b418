# SPDX-License-Identifier: Apache-2.0
"""The parts of policy/v1 that matter for ending pods: PodDisruptionBudgets."""

from collections.abc import Mapping

import msgspec

from dra_driver.model.api.meta import ApiValue, ObjectMeta, learn


class LabelSelectorRequirement(ApiValue, frozen=True):
    """`operator` is In, NotIn, Exists or DoesNotExist."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels meets the requirement; one with an unknown operator is met by none."""
        value = labels.get(self.key)
        wanted = value in (self.values or ())
        match self.operator:
            case "In":
                return value is not None and wanted
            case "NotIn":
                return value is None or not wanted
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case _:
                return False


class LabelSelector(ApiValue, frozen=True):
    """All parts must match; a selector without parts matches every object."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelSelectorRequirement] | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the selector matches an object with these labels."""
        equal = all(labels.get(key) == value for key, value in (self.match_labels or {}).items())
        return equal and all(one.matches(labels) for one in self.match_expressions or ())


class PodDisruptionBudgetSpec(ApiValue, frozen=True):
    """spec of a PodDisruptionBudget. Without a selector it is about no pod."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(ApiValue, frozen=True):
    """status of a PodDisruptionBudget."""

    disruptions_allowed: int = 0


class PodDisruptionBudget(ApiValue, frozen=True):
    """How many of some pods of a namespace may be evicted at the same time."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodDisruptionBudgetSpec = msgspec.field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = msgspec.field(default_factory=PodDisruptionBudgetStatus)


learn(PodDisruptionBudget)
