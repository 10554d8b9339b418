# SPDX-License-Identifier: Apache-2.0
"""Does the driver understand the opaque configuration of a claim or class, and do its capacities and constraints name what devices have?

Of configurations only entries for this driver are looked at. Whether one is refused depends on the device too; here only what is wrong for every device is told.
"""

from collections.abc import Iterator

from dra_driver.cel.reasons.paths import DevicePath
from dra_driver.cel.reasons.similar import meant
from dra_driver.check.finding import Finding
from dra_driver.check.given import NVIDIA_DRIVER, Given, Known, entries, mapping, steps
from dra_driver.check.names import Names
from dra_driver.check.parts import devices_path, is_of_dra, requests
from dra_driver.check.references import KNOWN_CLASSES
from dra_driver.model.config_kind import ConfigKind, NotSupported
from dra_driver.model.decoding import decode
from dra_driver.model.printable import printable
from dra_driver.model.yaml_documents import Path

_OTHER = (
    f"it is right for NVIDIA's own driver, which has the name {NVIDIA_DRIVER} too; if this driver runs by that name, --driver-name {NVIDIA_DRIVER} makes "
    "this an error"
)


def config_findings(one: Given, known: Known) -> Iterator[Finding]:
    """Yield what is wrong with the configuration in an object."""
    path = devices_path(one)
    if is_of_dra(one) and one.kind == "DeviceClass":
        path = ("spec",)
    if path is None:
        return
    for place, entry in entries(one.content, (*path, "config")):
        opaque = mapping(entry.get("opaque"))
        driver = str(opaque.get("driver", ""))
        if driver in known.drivers and isinstance(opaque.get("parameters"), dict):
            yield from _parameters(
                one, (*place, "opaque", "parameters"), opaque["parameters"], driver, known
            )
        elif near := meant(driver, known.drivers):
            message = f"no known driver is called {printable(driver)}"
            yield one.finding("config-kind", (*place, "opaque", "driver"), message, near)


def _parameters(
    one: Given, path: Path, content: dict[str, object], driver: str, known: Known
) -> Iterator[Finding]:
    version, kind = content.get("apiVersion"), content.get("kind")
    same = [each for each in known.kinds if each.kind == kind]
    exact = next((each for each in same if each.api_version == version), None)
    if exact is None:
        shown = printable(f"{version} {kind}")
        named = [str(each) for each in known.kinds]
        near = f"did you mean {same[0]}?" if same else meant(f"{version} {kind}", named)
        yield one.finding(
            "config-kind",
            path,
            f"the driver knows no configuration {shown}",
            near or f"known are {', '.join(named)}",
        )
        return
    yield from _values(one, path, content, exact, is_ours=known.is_ours(driver))


def _values(
    one: Given, path: Path, content: dict[str, object], kind: ConfigKind, *, is_ours: bool
) -> Iterator[Finding]:
    fields = {name: value for name, value in content.items() if name not in ("apiVersion", "kind")}
    value, mistakes = decode(fields, kind.structure)
    for mistake in mistakes:
        yield one.finding(
            "config-value",
            (*path, *steps(mistake.path)),
            f"{kind.kind}: {mistake}",
            "docs/reference/kinds.md has the fields and their values",
        )
    if value is None or kind.judge is None:
        return
    try:
        kind.judge(value)
    except NotSupported as error:
        rule, action = ("config-value", "") if is_ours else ("config-of-nvidia", _OTHER)
        yield one.finding(rule, path, f"{kind.kind}: {error}", action)
    except ValueError as error:
        yield one.finding("config-value", path, f"{kind.kind}: {error}", kind.advice)


def capacity_findings(one: Given, names: Names, known: Known) -> Iterator[Finding]:
    """Yield the capacities that a request asks for and that no device has. Without a domain it is that of the device's driver."""
    there = {name for driver in known.drivers for name in names.of("capacity", driver) or {}}
    for domain, own in names.capacity.items():
        there.update(own if known.state else (), (f"{domain}/{name}" for name in own))
    for request in requests(one):
        if known.state is None and request.body.get("deviceClassName") not in KNOWN_CLASSES:
            continue  # the class may be of another driver, with capacities of its own
        for name in mapping(mapping(request.body.get("capacity")).get("requests")):
            domain = str(name).rpartition("/")[0]
            if name in there or (domain and domain not in names.capacity):
                continue
            near = meant(str(name), sorted(there))
            path = (*request.path, "capacity", "requests", name)
            message = f"no device has the capacity {printable(str(name))}"
            yield one.finding(
                "capacity-name", path, message, near or "no device matches such a request"
            )


def constraint_findings(one: Given, names: Names) -> Iterator[Finding]:
    """Yield the attributes that a constraint compares and that no device has. One that a request derives is there."""
    devices = devices_path(one)
    if devices is None:
        return
    derived = {
        each.get("name")
        for request in requests(one)
        for _, each in entries(request.body, ("derivedAttributes",))
    }
    for place, constraint in entries(one.content, (*devices, "constraints")):
        for field in ("matchAttribute", "distinctAttribute"):
            written = str(constraint.get(field) or "")
            domain, _, name = written.partition("/")
            if not name or written in derived:
                continue
            problem, action = names.problem(DevicePath("attributes", domain, name))
            if problem:
                yield one.finding("cel-name", (*place, field), problem, action)
