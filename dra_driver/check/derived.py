# SPDX-License-Identifier: Apache-2.0
"""What would the API server refuse in the derived attributes of a claim? A gate (DRADerivedAttributes) of Kubernetes 1.37 controls the field.

Whether an expression compiles, and its own cost, is told by `selectors`.
Source: pkg/apis/resource/validation/validation.go of Kubernetes 1.37 (validateDeviceDerivedAttribute).
"""

from collections.abc import Iterator

from dra_driver.cel.compile import compile_attribute
from dra_driver.cel.errors import CompileError
from dra_driver.cel.versions import MAX_COST, Environment
from dra_driver.check.api_values import REFUSED, is_attribute
from dra_driver.check.finding import Finding
from dra_driver.check.given import Given, Object, entries
from dra_driver.check.parts import Request, devices_path, requests
from dra_driver.model.yaml_documents import Path


def derived_findings(one: Given, environment: Environment) -> Iterator[Finding]:
    """Yield what is wrong with the derived attributes of a claim or template."""
    devices = devices_path(one)
    if devices is None:
        return
    compared = list(_compared(one, devices))
    costs = []
    for request in requests(one):
        names: list[object] = []
        for path, derived in entries(request.body, ("derivedAttributes",)):
            yield from _of_one(one, request, (*request.path, *path), derived, names, compared)
            costs.append(_cost(derived.get("expression"), environment))
    if sum(costs) > MAX_COST >= max(costs, default=0):
        message = f"{REFUSED}: the derived attributes of a claim have an estimated cost of {sum(costs):,} together, and at most {MAX_COST:,} is allowed"
        yield one.finding(
            "cel-cost", devices, message, "derive fewer attributes, or write two claims"
        )


def _compared(one: Given, devices: Path) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the attribute of each constraint with the requests that it is about; none for all."""
    for _, constraint in entries(one.content, (*devices, "constraints")):
        found = constraint.get("requests")
        about = frozenset(map(str, found)) if isinstance(found, list) else frozenset()
        for field in ("matchAttribute", "distinctAttribute"):
            if isinstance(constraint.get(field), str):
                yield constraint[field], about


def _of_one(
    one: Given,
    request: Request,
    path: Path,
    derived: Object,
    names: list[object],
    compared: list[tuple[str, frozenset[str]]],
) -> Iterator[Finding]:
    name = derived.get("name")
    if not derived.get("expression"):
        yield _refused(one, path, "a derived attribute has no expression", "write a CEL expression")
    if not name:
        yield _refused(one, path, "a derived attribute has no name", "write DOMAIN/NAME")
        return
    if not isinstance(name, str):
        return  # told as malformed
    where = (*path, "name")
    if not is_attribute(name):
        action = "write DOMAIN/NAME: a domain, and letters, digits and '_'"
        yield _refused(one, where, f"{name!a:.80} is no name of an attribute", action)
        return
    if name in names:
        yield _refused(one, where, f"{name} is derived twice for one request", "leave one of them")
    names.append(name)
    # A constraint about a request is about each of its alternatives.
    mine = {request.name, request.name.partition("/")[0]}
    if not any(name == each and (not about or about & mine) for each, about in compared):
        what = f"no constraint compares {name} of this request"
        action = "name it as matchAttribute or distinctAttribute of a constraint: nothing else can read it"
        yield _refused(one, where, what, action)


def _refused(one: Given, path: Path, what: str, action: str) -> Finding:
    return one.finding("api-value", path, f"{REFUSED}: {what}", action)


def _cost(expression: object, environment: Environment) -> int:
    try:
        return compile_attribute(str(expression), environment).cost if expression else 0
    except CompileError:
        return 0  # told for itself
