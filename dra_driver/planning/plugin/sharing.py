# SPDX-License-Identifier: Apache-2.0
"""How are the devices of a resource divided into units? By the admin's rules; without a rule each device is one unit.

Replicas are a number of units for each device, and nothing keeps their containers apart. Units of memory are the GiB of a device, so that a
pod can ask for `<resource>-memory: 10`; the driver adds up what the containers of a device have.

A rule that is wrong is not carried out, and is told. The devices stay whole then: a pod may wait longer, but no container gets a device
that others use although nobody wanted this.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from msgspec import Struct

from dra_driver.model.ids import ResourceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.plugin import MOST_REPLICAS, PluginResource, Sharing, Unit
from dra_driver.model.plugin_policy import PluginPolicy, SharingRule
from dra_driver.model.quantity import Quantity
from dra_driver.planning.plugin.candidates import Candidate, Group, Report
from dra_driver.planning.plugin.choice import chosen
from dra_driver.planning.plugin.problems import ResourceProblem, wrong_resource
from dra_driver.planning.plugin.units import UnitIds

MEMORY = "-memory"
_GIB = 2**30 * 10**9  # in the billionths of a Quantity
_MOST_GIB = 4096
_FEWEST_REPLICAS = 2
_WHOLE = "the rule is not carried out, and each device is one unit"


class _Asked(Struct, frozen=True):
    inventory: Inventory
    ids: UnitIds
    packed: bool
    report: Report


def shared(
    groups: Sequence[Group],
    policy: PluginPolicy,
    inventory: Inventory,
    *,
    known: Callable[[str], bool],
    report: Report,
) -> Iterator[tuple[Group, PluginResource]]:
    """Yield the resources of each group with devices: one, or two if the shares have a name of their own and not all devices are shared.

    `known` says whether a name is that of a resource that other nodes may have, so that a rule for it is no mistake.
    """
    asked = _Asked(inventory, UnitIds(inventory), bool(policy.packed), report)
    rules = _rules(policy.sharing, [group.resource for group in groups], known, report)
    own = {group.resource for group in groups}
    taken: set[ResourceName] = set()
    for group in groups:
        if not group.devices:
            continue
        rule = rules.get(group.resource)
        if rule is None:
            yield group, _whole(group, group.devices, asked)
            continue
        target = _target(group.resource, rule)
        twice = target != group.resource and target in own | taken
        if wrong := wrong_resource(target) or (
            f"{target} is another resource already" if twice else ""
        ):
            report(ResourceProblem(_where(rule), "rename", wrong, _WHOLE))
            yield group, _whole(group, group.devices, asked)
            continue
        taken.add(target)
        yield from ((group, one) for one in _divided(group, rule, target, asked))


def _rules(
    rules: Sequence[SharingRule],
    names: Collection[ResourceName],
    known: Callable[[str], bool],
    report: Report,
) -> Mapping[ResourceName, SharingRule]:
    """Return the good rules, by the resource of this node that each is for."""
    good: dict[ResourceName, SharingRule] = {}
    wanted = [rule for rule in rules if rule.sharing is not Sharing.WHOLE]
    meant = [_meant(rule, names) for rule in wanted]
    for name, rule in zip(meant, wanted, strict=True):
        field, wrong = _wrong(rule)
        if meant.count(name) > 1:
            field, wrong = "", f"{name} has {meant.count(name)} rules; write one"
        if name not in names and not known(name):
            some = ", ".join(names) or "none"
            field, wrong = "resource", f"no resource has this name; here are {some}"
        if wrong:
            report(ResourceProblem(_where(rule), field, wrong, _WHOLE))
        else:
            good[name] = rule
    return good


def _wrong(rule: SharingRule) -> tuple[str, str]:
    if rule.sharing is Sharing.REPLICAS and not _FEWEST_REPLICAS <= rule.replicas <= MOST_REPLICAS:
        limits = f"write a number from {_FEWEST_REPLICAS} to {MOST_REPLICAS}"
        return "replicas", f"{rule.replicas} units of a device cannot be; {limits}"
    return "", ""


def _meant(rule: SharingRule, names: Collection[ResourceName]) -> ResourceName:
    """A rule for units of memory may name the resource that is divided, or the one that it becomes."""
    if rule.sharing is Sharing.MEMORY and rule.resource not in names:
        return ResourceName(rule.resource.removesuffix(MEMORY))
    return rule.resource


def _target(name: ResourceName, rule: SharingRule) -> ResourceName:
    """The resource under which the shares are listed."""
    if rule.rename:
        return rule.rename
    if rule.sharing is Sharing.MEMORY and not name.endswith(MEMORY):
        return ResourceName(name + MEMORY)
    return name


def _divided(
    group: Group, rule: SharingRule, target: ResourceName, asked: _Asked
) -> Iterator[PluginResource]:
    names = chosen(group.devices, rule.devices, asked.inventory.devices)
    if isinstance(names, str):
        asked.report(ResourceProblem(_where(rule), "devices", names, _WHOLE))
        names = frozenset()
    members = group.devices
    if target != group.resource or not names:
        members = tuple(one for one in group.devices if one.found.name in names)
        if rest := [one for one in group.devices if one.found.name not in names]:
            yield _whole(group, rest, asked)
    units: list[Unit] = []
    for one in members:
        is_shared = one.found.name in names
        units += _shares(one, rule, asked) if is_shared else (asked.ids.whole(one.found),)
    if units:
        yield PluginResource(
            target,
            tuple(units),
            group.source,
            rule.sharing,
            group.configs,
            refuses_several=rule.refuses_several and rule.sharing is Sharing.REPLICAS,
            packed=asked.packed,
        )


def _whole(group: Group, devices: Sequence[Candidate], asked: _Asked) -> PluginResource:
    units = tuple(asked.ids.whole(one.found) for one in devices)
    return PluginResource(group.resource, units, group.source, configs=group.configs)


def _shares(one: Candidate, rule: SharingRule, asked: _Asked) -> tuple[Unit, ...]:
    if rule.sharing is Sharing.REPLICAS:
        return asked.ids.shares(one.found, Sharing.REPLICAS, rule.replicas)
    size = (one.published.capacity or {}).get("memory")
    count = 0 if size is None else Quantity.parse(str(size.value)).nanos // _GIB
    if 0 < count <= _MOST_GIB:
        return asked.ids.shares(one.found, Sharing.MEMORY, count)
    found = "it has none" if size is None else f"{size.value} is not between 1Gi and {_MOST_GIB}Gi"
    action = f"the device is not offered; remove the rule for {rule.resource}, or select the device with another class"
    asked.report(ResourceProblem(f"device {one.found.name}", "capacity.memory", found, action))
    return ()


def _where(rule: SharingRule) -> str:
    return f"sharing of {rule.resource}"
