# SPDX-License-Identifier: Apache-2.0
"""What would the API server refuse in the derived attributes of a claim? A gate (DRADerivedAttributes) of Kubernetes 1.37 controls the field.

Whether an expression compiles, and its own cost, is told by `selectors`.
Source: pkg/apis/resource/validation/validation.go of Kubernetes 1.37 (validateDeviceDerivedAttribute).
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice

from dra_driver.cel.compile import compile_attribute
from dra_driver.cel.errors import CompileError
from dra_driver.cel.versions import MAX_COST, Environment
from dra_driver.check.api import MOST_ENTRIES
from dra_driver.check.api_values import REFUSED, is_attribute
from dra_driver.check.finding import Finding
from dra_driver.check.given import Given, Object, entries
from dra_driver.check.parts import Request, devices_path, requests
from dra_driver.model.yaml_documents import Path


def derived_findings(one: Given, environment: Environment) -> Iterator[Finding]:
    """Yield what is wrong with the derived attributes of a claim or template. Of a list that is too long, which `api` tells, the rest is not looked at."""
    devices = devices_path(one)
    if devices is None:
        return
    compared = _compared(one, devices)
    costs = []
    for request in requests(one):
        names: set[str] = set()
        for path, derived in islice(entries(request.body, ("derivedAttributes",)), MOST_ENTRIES):
            yield from _of_one(one, request, (*request.path, *path), derived, names, compared)
            costs.append(_cost(derived.get("expression"), environment))
    if sum(costs) > MAX_COST >= max(costs, default=0):
        message = f"{REFUSED}: the derived attributes of a claim have an estimated cost of {sum(costs):,} together, and at most {MAX_COST:,} is allowed"
        yield one.finding(
            "cel-cost", devices, message, "derive fewer attributes, or write two claims"
        )


def _compared(one: Given, devices: Path) -> Mapping[str, Collection[str | None]]:
    """Return the attributes that constraints compare, each with the requests that it is about; None is every request."""
    compared: dict[str, set[str | None]] = {}
    for _, constraint in entries(one.content, (*devices, "constraints")):
        found = constraint.get("requests")
        about = set(map(str, found)) if isinstance(found, list) and found else {None}
        for field in ("matchAttribute", "distinctAttribute"):
            if isinstance(constraint.get(field), str):
                compared.setdefault(constraint[field], set()).update(about)
    return compared


def _of_one(
    one: Given,
    request: Request,
    path: Path,
    derived: Object,
    names: set[str],
    compared: Mapping[str, Collection[str | None]],
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
    names.add(name)
    # A constraint about a request is about each of its alternatives.
    mine = (None, request.name, request.name.partition("/")[0])
    about = compared.get(name, ())
    if not any(each in about for each in mine):
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
