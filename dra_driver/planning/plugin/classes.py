# SPDX-License-Identifier: Apache-2.0
"""Which devices does each DeviceClass get? The first class that selects a device gets it, so the order of the classes counts."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from dra_driver.cel.compile import Selector
from dra_driver.cel.device import DeviceValue
from dra_driver.model.claim import OpaqueConfig
from dra_driver.model.ids import DeviceName, DriverName, ResourceName
from dra_driver.model.plugin import ClassSource
from dra_driver.planning.plugin.candidates import Candidate, Group, Report
from dra_driver.planning.plugin.exclusion import Listed
from dra_driver.planning.plugin.problems import ResourceProblem, few, wrong_resource
from dra_driver.planning.plugin.selectors import Failure, SelectorAnswers, compiled, field_of

_LOST = "the class offers nothing, all others do"
_GUARD = (
    "the class does not get it, a later class may; on clusters with DRA pods of this class would be stuck. Ask with has() before an attribute "
    "is read that not every device has"
)

_Ask = Callable[[Sequence[Selector], Candidate], bool | Failure]


class _Good(Struct, frozen=True):
    """A class without mistakes."""

    name: str
    where: str
    resource: ResourceName
    selectors: tuple[Selector, ...]
    configs: tuple[OpaqueConfig, ...]


def class_groups(
    classes: Sequence[ClassSource],
    found: Sequence[Candidate],
    listed: Listed,
    *,
    domain: str,
    answers: SelectorAnswers,
    report: Report,
) -> Iterator[Group]:
    """Yield the devices of each good class, in the order of the classes; the group of a class that gets none is empty."""
    driver = answers.driver
    values = {one.found.name: DeviceValue(driver, one.published) for one in found}

    def ask(selectors: Sequence[Selector], one: Candidate) -> bool | Failure:
        return answers.selects(selectors, values[one.found.name])

    free = list(found)
    for good in _good(classes, driver, domain, report):
        mine: list[Candidate] = []
        blocked: list[Candidate] = []
        for one in list(_selected(good, free, ask, report)):
            (mine if listed.add(one.found, one.published) else blocked).append(one)
        # Their hardware is listed now, so a later class cannot get any of these.
        gone = {one.found.name for one in (*mine, *blocked)}
        free = [one for one in free if one.found.name not in gone]
        yield Group(good.resource, tuple(mine), good.where, good.configs, good.name, tuple(blocked))


def resource_of(source: ClassSource, domain: str) -> ResourceName:
    """The resource that a class names, or that it gets. It need not be a good name."""
    device_class = source.device_class
    given = device_class.spec.extended_resource_name
    return ResourceName(given or f"{domain}/{device_class.metadata.name}")


def _good(
    classes: Sequence[ClassSource], driver: DriverName, domain: str, report: Report
) -> Iterator[_Good]:
    taken: dict[ResourceName, str] = {}
    for source in classes:
        good = _read(source, driver, domain)
        if isinstance(good, ResourceProblem):
            report(good)
        elif good.resource in taken:
            found = f"{good.resource} is the resource of {taken[good.resource]} already"
            action = f"{_LOST}; write another extendedResourceName in one of the two"
            report(ResourceProblem(good.where, "spec.extendedResourceName", found, action))
        else:
            taken[good.resource] = good.where
            yield good


def _read(source: ClassSource, driver: DriverName, domain: str) -> _Good | ResourceProblem:
    spec, name = source.device_class.spec, source.device_class.metadata.name
    # That of a class of the cluster names the class already.
    is_named = source.where.startswith("DeviceClass ")
    where = source.where if is_named else f"DeviceClass {name}, {source.where}"
    given = spec.extended_resource_name
    resource = resource_of(source, domain)
    if wrong := wrong_resource(resource):
        field = "spec.extendedResourceName" if given else "metadata.name"
        more = "" if given else " in spec.extendedResourceName"
        return ResourceProblem(where, field, wrong, f"{_LOST}; write a good name{more}")
    selectors = compiled(source.device_class, where)
    if isinstance(selectors, ResourceProblem):
        return selectors
    configs = _configs(source, where, driver)
    if isinstance(configs, ResourceProblem):
        return configs
    return _Good(name, where, resource, selectors, configs)


def _configs(
    source: ClassSource, where: str, driver: DriverName
) -> tuple[OpaqueConfig, ...] | ResourceProblem:
    """Return the class's configuration for this driver. A class is not offered without it, because it may be what keeps containers apart."""
    configs: list[OpaqueConfig] = []
    for index, one in enumerate(source.device_class.spec.config or ()):
        if one.opaque is None or one.opaque.driver != driver:
            continue
        parameters = one.opaque.parameters
        if not isinstance(parameters, Mapping):
            field = f"spec.config[{index}].opaque.parameters"
            found = f"{parameters!a:.80} is no mapping of fields"
            return ResourceProblem(
                where, field, found, f"{_LOST}; write apiVersion, kind and fields"
            )
        configs.append(OpaqueConfig(index, "FromClass", (), driver, parameters))
    return tuple(configs)


def _selected(
    good: _Good,
    free: Sequence[Candidate],
    ask: _Ask,
    report: Report,
) -> Iterator[Candidate]:
    failed: dict[int, list[DeviceName]] = {}
    reasons: dict[int, str] = {}
    for one in free:
        answer = ask(good.selectors, one)
        if isinstance(answer, Failure):
            failed.setdefault(answer.index, []).append(one.found.name)
            reasons.setdefault(answer.index, answer.reason)
        elif answer:
            yield one
    for index, names in failed.items():
        subject = "device" if len(names) == 1 else "devices"
        text = f"fails on {subject} {few(names)}: {reasons[index]}"
        report(ResourceProblem(good.where, field_of(index), text, _GUARD))
