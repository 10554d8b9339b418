# SPDX-License-Identifier: Apache-2.0
"""Which devices would a scheduler give to a claim? The first ones that match; nothing clever.

A stand-in for the allocator that the driver will have. As in Kubernetes: pools count when complete, by their newest
generation, in the order driver, pool, slice, device; a device that any claim holds is taken, except for admin access;
all selectors of the class and then of the request must be true; a selector that fails ends the attempt, whatever other
devices there are. Unlike Kubernetes it never goes back on a choice, so a claim whose later request needs a device that an
earlier request took stays pending. Constraints, capacity requests, derived attributes and taints are refused.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dra_driver.testing.cel_stand_in import CannotEvaluate, Selector, SelectorError

Object = dict[str, Any]
MOST_RESULTS = 32


@dataclass(frozen=True, slots=True, order=True)
class DeviceId:
    """A device of the cluster."""

    driver: str
    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device of a pool that counts, with its entry of the slice."""

    id: DeviceId
    entry: Mapping[str, Any] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Unsatisfied:
    """Why a claim got nothing: what was asked, the selectors that some device failed, then one line for each device."""

    request: str
    devices: tuple[str, ...] = ()
    selectors: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join((self.request, *(f"  {line}" for line in self.selectors + self.devices)))


def candidates(slices: Iterable[Object], node: str) -> tuple[Candidate, ...]:
    """Devices that a pod on this node may use, in the order in which the scheduler tries them."""
    pools: dict[tuple[str, str], list[Object]] = {}
    for stored in sorted(slices, key=lambda stored: str(stored["metadata"]["name"])):
        spec = stored["spec"]
        pools.setdefault((spec["driver"], spec["pool"]["name"]), []).append(spec)
    return tuple(
        Candidate(DeviceId(driver, pool, entry["name"]), entry)
        for (driver, pool), specs in sorted(pools.items())
        for spec in _newest(specs)
        if spec.get("nodeName") == node or spec.get("allNodes")
        for entry in spec.get("devices") or ()
    )


def _newest(specs: Sequence[Object]) -> list[Object]:
    """The slices of the newest generation, none while some of them are missing."""
    generation = max(spec["pool"].get("generation", 0) for spec in specs)
    newest = [spec for spec in specs if spec["pool"].get("generation", 0) == generation]
    return newest if len(newest) == newest[0]["pool"]["resourceSliceCount"] else []


@dataclass(slots=True)
class FirstFit:
    """Allocates claims one after another; `holders` grows with each.

    `holders` says which claim ("namespace/name") has a device.
    """

    classes: Mapping[str, Object]
    offered: Sequence[Candidate]
    holders: dict[DeviceId, str]

    def allocate(self, claim: Object) -> Object | Unsatisfied:
        """`status.allocation` of the claim but for its node selector, or why there is none."""
        devices = claim["spec"].get("devices", {})
        if devices.get("constraints"):
            return Unsatisfied("constraints are not known to this stand-in for the scheduler")
        picked: list[_Picked] = []
        for request in devices.get("requests") or ():
            answer = self._request(request, picked)
            if isinstance(answer, Unsatisfied):
                return answer
            picked.append(answer)
        results = [result for pick in picked for result in pick.results()]
        if len(results) > MOST_RESULTS:
            return Unsatisfied(
                f"{len(results)} devices in one claim; {MOST_RESULTS} is the API's limit"
            )
        name = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
        self.holders |= {
            found.id: name for pick in picked if not pick.admin for found in pick.devices
        }
        return {"devices": {"results": results, **self._config(devices.get("config"), picked)}}

    def _request(self, request: Object, picked: list["_Picked"]) -> "_Picked | Unsatisfied":
        if "exactly" in request:
            return self._exactly(request["name"], request["exactly"], picked)
        refusals: list[str] = []
        for sub in request.get("firstAvailable") or ():
            answer = self._exactly(f"{request['name']}/{sub['name']}", sub, picked)
            if isinstance(answer, _Picked):
                return answer
            refusals += str(answer).splitlines()
        return Unsatisfied(f"request {request['name']}: no alternative fits", tuple(refusals))

    def _exactly(
        self, name: str, asked: Object, picked: list["_Picked"]
    ) -> "_Picked | Unsatisfied":
        class_name = asked["deviceClassName"]
        if class_name not in self.classes:
            return Unsatisfied(
                f"request {name}: there is no DeviceClass {class_name}; there are"
                f" {', '.join(sorted(self.classes)) or 'none'}"
            )
        if asked.get("capacity") or asked.get("derivedAttributes"):
            return Unsatisfied(
                f"request {name}: capacity requests and derived attributes are not known to this stand-in"
            )
        try:
            return self._search(_Search(name, asked, self.classes[class_name]["spec"]), picked)
        except (SelectorError, CannotEvaluate) as error:
            return Unsatisfied(
                f"request {name}: a selector failed, which ends the attempt", (str(error),)
            )

    def _search(self, search: "_Search", picked: list["_Picked"]) -> "_Picked | Unsatisfied":
        mine = {found.id for pick in picked for found in pick.devices}
        chosen: list[Candidate] = []
        in_the_way: list[str] = []
        for candidate in self.offered:
            if len(chosen) == search.count:
                break
            if not search.selects(candidate):
                continue
            objection = self._objection(candidate, mine, admin=search.admin)
            if objection:
                in_the_way.append(candidate.id.device)
                search.lines.append(f"{candidate.id.device}: {objection}")
            else:
                chosen.append(candidate)
        if search.count is None:
            satisfied = bool(chosen) and not in_the_way
        else:
            satisfied = len(chosen) == search.count
        if not satisfied:
            return search.unsatisfied(len(chosen))
        return _Picked(search.name, search.asked["deviceClassName"], search.admin, tuple(chosen))

    def _objection(self, candidate: Candidate, mine: set[DeviceId], *, admin: bool) -> str:
        """Why a device that is selected cannot be had; empty when it can."""
        if candidate.id in mine:
            return "taken by another request of this claim"
        if candidate.id in self.holders and not admin:
            return f"allocated to claim {self.holders[candidate.id]}"
        return (
            "has taints, which this stand-in cannot weigh" if candidate.entry.get("taints") else ""
        )

    def _config(self, of_claim: Sequence[Object] | None, picked: list["_Picked"]) -> Object:
        """Class entries once each before claim entries, without those of alternatives that were not chosen."""
        names = [pick.name for pick in picked]
        config: list[Object] = []
        for class_name in dict.fromkeys(pick.class_name for pick in picked):
            users = [pick.name for pick in picked if pick.class_name == class_name]
            for entry in self.classes[class_name]["spec"].get("config") or ():
                scope = {} if users == names else {"requests": users}
                config.append({"source": "FromClass", **scope, **entry})
        covered = {*names, *(name.partition("/")[0] for name in names)}
        for entry in of_claim or ():
            requests = entry.get("requests") or ()
            if not requests or covered.intersection(requests):
                config.append({"source": "FromClaim", **entry})
        return {"config": config} if config else {}


@dataclass(frozen=True, slots=True)
class _Picked:
    name: str
    class_name: str
    admin: bool
    devices: tuple[Candidate, ...]

    def results(self) -> Iterator[Object]:
        for found in self.devices:
            access = {"adminAccess": True} if self.admin else {}
            place = found.id
            yield {
                "request": self.name,
                "driver": place.driver,
                "pool": place.pool,
                "device": place.device,
                **access,
            }


class _Search:
    """One request being answered. `count` is None for all devices that match; `lines` grow with each that is not had."""

    def __init__(self, name: str, asked: Object, class_spec: Object) -> None:
        self.name, self.asked = name, asked
        self.count = None if asked.get("allocationMode") == "All" else asked.get("count", 1)
        self.admin = asked.get("adminAccess") is True
        self.lines: list[str] = []
        self._failed: dict[str, None] = {}
        sources = ((f"DeviceClass {asked['deviceClassName']}", class_spec), ("the request", asked))
        self._tests = [
            (f"selector {index} of {owner}", _compiled(selector["cel"]["expression"]))
            for owner, spec in sources
            for index, selector in enumerate(spec.get("selectors") or ())
        ]

    def selects(self, candidate: Candidate) -> bool:
        """Whether all selectors of the class and then of the request are true."""
        for words, selector in self._tests:
            if not selector.matches(candidate.id.driver, candidate.entry):
                self._failed[f"{words}: {' '.join(selector.expression.split())}"] = None
                values = _values(candidate.entry, selector.expression)
                self.lines.append(f"{candidate.id.device}: {words} is false{values}")
                return False
        return True

    def unsatisfied(self, found: int) -> Unsatisfied:
        count = "all" if self.count is None else self.count
        return Unsatisfied(
            f"request {self.name}: {found} of {count} devices of DeviceClass {self.asked['deviceClassName']}",
            tuple(self.lines) or ("no complete pool offers a device on this node",),
            tuple(self._failed),
        )


def _values(entry: Mapping[str, Any], expression: str) -> str:
    """What the device has under the names that stand in the expression."""
    words = set(re.findall(r"\w+", expression))
    shown = [
        f"{name} {next(iter(value.values()))}"
        for name, value in sorted(
            {**(entry.get("attributes") or {}), **(entry.get("capacity") or {})}.items()
        )
        if name in words
    ]
    return f" ({', '.join(shown)})" if shown else ""


@functools.lru_cache(maxsize=256)
def _compiled(expression: str) -> Selector:
    return Selector(expression)


def holders(claims: Iterable[Object]) -> dict[DeviceId, str]:
    """Which claim has which device, by `status.allocation`; admin access has none."""
    found: dict[DeviceId, str] = {}
    for claim in claims:
        name = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
        for result in results(claim):
            if not result.get("adminAccess"):
                found[DeviceId(result["driver"], result["pool"], result["device"])] = name
    return found


def results(claim: Object) -> list[Object]:
    """`status.allocation.devices.results`, empty while the claim is not allocated."""
    allocation = claim.get("status", {}).get("allocation") or {}
    found: list[Object] = allocation.get("devices", {}).get("results", [])
    return found
