# SPDX-License-Identifier: Apache-2.0
"""What does `convert` leave in a pod as it is, and why? `check` promises no more than that, and says the same reasons."""

import copy
from collections.abc import Mapping
from functools import cached_property
from itertools import chain
from typing import Any

from dra_driver.convert.around import around, without_partition
from dra_driver.convert.convert import amounts_of, is_custom, listed
from dra_driver.convert.labels import Condition
from dra_driver.convert.no_pods import unknown_kind
from dra_driver.convert.nodes import choice_of_nodes, why_no_request
from dra_driver.convert.resources import Choice, NotConverted, Wanted, answers

Object = Mapping[str, Any]
_CHOSEN = ("nodeSelector", "affinity")


class Kept:
    """The answers of `convert` about one pod, or template of one. `is_nested`: it is in an object of a kind that is not known."""

    def __init__(self, document: Object, spec: Object, *, is_nested: bool) -> None:
        self._spec = spec
        self._around = around(document, spec)
        stays = is_nested and not is_custom(document)
        self._kind = unknown_kind(str(document.get("kind"))) if stays else ""

    def resources(self, container: Object) -> dict[str, Wanted | NotConverted]:
        """Return the answer for each resource of devices that a container asks for."""
        resources = container.get("resources")
        amounts = amounts_of(resources) if isinstance(resources, Mapping) else {}
        found = answers(amounts, self._around, Choice())
        if self._kind:
            return {name: NotConverted(name, self._kind) for name in found}
        return found

    def label(self, condition: Condition) -> str:
        """Return why a condition about the devices of the node stays; "" if it becomes a selector."""
        if self._kind:
            return self._kind
        if self._left is None:
            return why_no_request(self._spec, condition)
        return self._left.get(str(condition), "")

    @cached_property
    def _left(self) -> dict[str, str] | None:
        """Return the reason for each condition that stays; None if there is no request for a selector."""
        containers = (
            one for field in ("initContainers", "containers") for one in listed(self._spec, field)
        )
        each = chain.from_iterable(self.resources(one).values() for one in containers)
        wanted = [one for one in each if isinstance(one, Wanted)]
        if not wanted:
            return None
        made = copy.deepcopy({key: self._spec[key] for key in _CHOSEN if key in self._spec})
        without_partition(made)
        return {one.what: one.reason for one in choice_of_nodes(made, wanted, ()).left}
