# SPDX-License-Identifier: Apache-2.0
"""Which extended resources does this node offer, and which devices are in them?

A resource is what a DeviceClass selects (`classes`). If there is no class at all, the resources are those of the vendors' own plugins
(`customary`). No hardware is in two resources (`exclusion`), so the kubelet never counts a device twice. In the end the admin's rules
divide devices into shares (`sharing`).

A class that is wrong costs only itself: all others are offered, and a ResourceProblem says what to write.
"""

from collections.abc import Mapping, Sequence
from operator import is_
from types import MappingProxyType

from msgspec import Struct, field

from dra_driver.model.ids import DriverName, ResourceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.plugin import ClassSource, PluginResource
from dra_driver.model.plugin_policy import PluginPolicy
from dra_driver.model.slices import Problem
from dra_driver.planning.plugin.candidates import Group, candidates
from dra_driver.planning.plugin.classes import class_groups, resource_of
from dra_driver.planning.plugin.customary import customary_groups, is_customary
from dra_driver.planning.plugin.exclusion import Listed
from dra_driver.planning.plugin.problems import ResourceProblem, few
from dra_driver.planning.plugin.selectors import SelectorAnswers
from dra_driver.planning.plugin.sharing import shared
from dra_driver.planning.slices import plan_pool


class Resources(Struct, frozen=True):
    """What this node offers, and a problem for everything that it does not offer because something is wrong.

    A resource without a unit is not among `resources`, because the name may be that of another plugin on this node. `empty` says for each
    class without a device why, by its name. `left_out` are the parts of devices that would be left out of slices too. `classes`
    names the DeviceClass of each resource that has one.
    """

    resources: tuple[PluginResource, ...] = ()
    problems: tuple[ResourceProblem, ...] = ()
    left_out: tuple[Problem, ...] = ()
    classes: Mapping[ResourceName, str] = field(default_factory=lambda: MappingProxyType({}))
    empty: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


class ResourcePlans:
    """Plans the resources of a node again and again. What selectors answered is kept from plan to plan; so this is for one thread.

    `domain` is that of the resources of classes without an extendedResourceName.
    """

    def __init__(self, *, driver: DriverName, domain: str) -> None:
        self._answers = SelectorAnswers(driver)
        self._domain = domain
        self._last: tuple[tuple[object, ...], Resources] | None = None

    def plan(
        self,
        inventory: Inventory,
        classes: Sequence[ClassSource],
        *,
        policy: PluginPolicy,
        customary: bool,
    ) -> Resources:
        """Return the resources of the devices that the classes select; the classes are in the order in which they count.

        With `customary` devices are offered without any class too. For the same objects the answer is that of the last time: each pod that
        comes and goes lets the lists be made anew, and what could be in them has not changed.
        """
        asked = (inventory, classes, policy, customary)
        if self._last is None or not all(map(is_, asked, self._last[0])):
            made = self._plan(inventory, classes, policy=policy, customary=customary)
            self._last = asked, made
        return self._last[1]

    def _plan(
        self,
        inventory: Inventory,
        classes: Sequence[ClassSource],
        *,
        policy: PluginPolicy,
        customary: bool,
    ) -> Resources:
        problems: list[ResourceProblem] = []
        driver, domain, answers = self._answers.driver, self._domain, self._answers
        plan = plan_pool(inventory, kept=(), driver=driver)
        found = tuple(candidates(inventory, plan, problems.append))
        listed = Listed(plan.counter_sets)
        report = problems.append
        answers.begin()
        groups = tuple(
            class_groups(classes, found, listed, domain=domain, answers=answers, report=report)
            if classes or not customary
            else customary_groups(found, listed, policy, driver=driver, report=report)
        )
        names = {resource_of(source, domain) for source in classes}

        def known(resource: str) -> bool:
            return resource in names or (not classes and customary and is_customary(resource))

        pairs = tuple(shared(groups, policy, inventory, known=known, report=report))
        return Resources(
            tuple(resource for _, resource in pairs),
            tuple(problems),
            plan.problems,
            {one.name: group.device_class for group, one in pairs if group.device_class},
            {group.device_class: _why_empty(group) for group in groups if not group.devices},
        )


def _why_empty(group: Group) -> str:
    names = [one.found.name for one in group.blocked]
    if not names:
        return "it selects no device of this node that no class before it has"
    return f"it selects {few(names)}, and devices of classes before it are the same hardware"
