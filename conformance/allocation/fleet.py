# SPDX-License-Identifier: Apache-2.0
"""Makes the offer of a random allocation problem: one node, and up to a dozen devices in slices of a few pools.

Values are drawn from small sets, so that devices are alike often enough to be interchangeable and differ often enough to
matter. What a problem should contain is wished for by name (allocate_features); a wish raises a likelihood, and the caller
looks whether it came true.
"""

import copy
from dataclasses import dataclass
from random import Random
from typing import Any

Json = dict[str, Any]

NODE = "node-1"
DRIVERS = ("gpu.example.com", "nic.example.org", "a.example.net")
MODELS = ("a", "b", "c")
GIBI = ("1Gi", "2Gi", "4Gi", "8Gi")
ZONE = {"key": "zone", "operator": "In", "values": ["west"]}


@dataclass(slots=True)
class Dice:
    """Chance, what is wished for, and what must not be."""

    random: Random
    wishes: frozenset[str]
    barred: frozenset[str] = frozenset()

    def wants(self, feature: str, *, wished: float = 0.7, otherwise: float = 0.03) -> bool:
        """Whether to use the feature here."""
        if feature in self.barred:
            return False
        return self.random.random() < (wished if feature in self.wishes else otherwise)

    def often(self, share: float) -> bool:
        """True in this share of cases."""
        return self.random.random() < share

    def one(self, *choices: Any) -> Any:
        """One of these."""
        return self.random.choice(choices)


def node(dice: Dice) -> Json:
    """The node that devices are looked for on."""
    declared = {"declaredFeatures": ["DRAOptionalNodeOperations"]}
    return {
        "metadata": {"name": NODE, "labels": {"zone": "west", "rank": "5"}},
        "status": declared if dice.often(0.85) else {},
    }


def node_selector(dice: Dice, *, matching: bool) -> Json:
    """A selector of nodes; some have more parts than one."""
    good = (
        {"matchExpressions": [ZONE]},
        {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["4"]}, ZONE]},
        {"matchExpressions": [{"key": "rank", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "gone", "operator": "NotIn", "values": ["x", "y"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]},
    )
    bad = (
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["east", "north"]}]},
        {"matchExpressions": [{"key": "rank", "operator": "Lt", "values": ["5"]}]},
        {"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]},
        {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [NODE]}]},
        {},
    )
    terms = [dice.one(*good) if matching else dice.one(*bad)]
    if dice.often(0.03):
        terms.append(dice.one(*good))
    return {"nodeSelectorTerms": terms}


def slices(dice: Dice) -> list[Json]:
    """All slices, in the order in which they are listed."""
    broken = dice.wishes & {"incomplete pool", "invalid pool"}
    several = dice.wants("several pools", wished=0.9, otherwise=0.75 if broken else 0.35)
    drivers = 2 if dice.wants("several drivers", wished=0.9, otherwise=0.15) else 1
    pools = dice.random.randint(2, 4) if several or drivers > 1 else 1
    made: list[Json] = []
    left = dice.random.randint(pools, 12)
    for number in range(pools):
        share = max(1, left // (pools - number))
        left -= share
        made += _Pool(dice, DRIVERS[number % drivers], number).slices(share)
    if dice.often(0.3):
        dice.random.shuffle(made)
    return made


class _Pool:
    """One pool in the making."""

    def __init__(self, dice: Dice, driver: str, number: int) -> None:
        self._dice = dice
        self._driver = driver
        self._name = dice.one(f"pool-{9 - number}", f"pool-{number}", f"west/pool-{number}")
        self._generation = dice.random.randint(1, 3)
        self._counters = dice.wants("counters", otherwise=0.1) or dice.wants("groups")
        self._serial = 0
        self._made: list[Json] = []
        self._twins = dice.one(0, 0.4, 0.8)
        self._binding = dice.wants("binding conditions", otherwise=0.02)

    def slices(self, count: int) -> list[Json]:
        """The slices of the pool with `count` devices between them, perhaps also an older generation."""
        dice = self._dice
        parts = 1 if count == 1 else dice.random.randint(2, min(3, count))
        if not dice.wants("several slices", wished=0.8, otherwise=0.2):
            parts = 1
        made = [
            self._slice(number, count // parts + (number < count % parts))
            for number in range(parts)
        ]
        if dice.wants("other nodes", wished=0.5):
            made.append(self._slice(parts, 1, other=True))
        if self._counters:
            made.insert(dice.random.randrange(len(made) + 1), self._counter_slice())
        if dice.wants("invalid pool", wished=0.4, otherwise=0.01):
            self._spoil(made)
        missing = dice.wants("incomplete pool", wished=0.4, otherwise=0.01)
        for found in made:
            found["spec"]["pool"]["resourceSliceCount"] = len(made) + missing
        if dice.wants("old generation", wished=0.6, otherwise=0.02):
            made += self._older()
        return made

    def _slice(self, number: int, count: int, *, other: bool = False) -> Json:
        dice = self._dice
        spec: Json = {"driver": self._driver, "pool": self._pool()}
        spec |= self._selection(other=other)
        if dice.wants("skip node operations", wished=0.5, otherwise=0.01):
            spec["skipNodeOperations"] = dice.one(["NodePrepareResources"], ["*"])
        spec["devices"] = [self._twin() or self._device() for _ in range(count)]
        if spec.get("perDeviceNodeSelection"):
            for device in spec["devices"]:
                device.update(self._device_selection())
        return {"metadata": {"name": self._slice_name(number)}, "spec": spec}

    def _slice_name(self, number: int) -> str:
        letter = self._dice.one("a", "b", "c")
        return f"{letter}-{self._driver}-{self._name.replace('/', '-')}-{number}"

    def _pool(self) -> Json:
        return {"name": self._name, "generation": self._generation, "resourceSliceCount": 1}

    def _selection(self, *, other: bool) -> Json:
        dice = self._dice
        if other:
            return {"nodeName": "node-2"}
        if dice.wants("per-device nodes", wished=0.6, otherwise=0.02):
            return {"perDeviceNodeSelection": True}
        if dice.wants("node selector", wished=0.6, otherwise=0.05):
            return {"nodeSelector": node_selector(dice, matching=dice.often(0.8))}
        if dice.wants("all nodes", wished=0.6, otherwise=0.1):
            return {"allNodes": True}
        return {} if dice.often(0.005) else {"nodeName": NODE}

    def _device_selection(self) -> Json:
        dice = self._dice
        return dice.one(
            {"nodeName": NODE},
            {"nodeName": NODE},
            {"nodeName": "node-2"},
            {"allNodes": True},
            {"nodeSelector": node_selector(dice, matching=True)},
            {"nodeSelector": node_selector(dice, matching=False)},
        )

    def _device(self) -> Json:
        dice = self._dice
        number, self._serial = self._serial, self._serial + 1
        device: Json = {"name": f"dev-{number}", "attributes": self._attributes(number)}
        if dice.wants("taints", wished=0.5):
            device["taints"] = [taint(dice) for _ in range(dice.random.randint(1, 2))]
        if self._counters and dice.often(0.85):
            device["consumesCounters"] = self._consumption()
        self._share(device)
        if self._binding and dice.often(0.6):
            device["bindingConditions"] = ["attached"]
            device["bindingFailureConditions"] = ["broken"]
        if dice.wants("binds to node", wished=0.5, otherwise=0.01):
            device["bindsToNode"] = True
        self._made.append(device)
        return device

    def _twin(self) -> Json | None:
        """Often a copy of an earlier device of the pool, and of these some with one part from another device."""
        dice = self._dice
        if not self._made or not dice.often(self._twins):
            return None
        device = copy.deepcopy(dice.one(*self._made))
        if dice.often(0.6):
            other = self._device()
            part = dice.one(
                *sorted((set(other) | set(device)) - {"name"}), "capacity", "attributes"
            )
            device.pop(part, None)
            if part in other:
                device[part] = other[part]
        device["name"] = f"dev-{self._serial}"
        device["attributes"]["serial"] = {"string": f"{self._name}-{self._serial}"}
        self._serial += 1
        return device

    def _attributes(self, number: int) -> Json:
        dice = self._dice
        made: Json = {
            "model": {"string": dice.one(*MODELS)},
            "numa": {"int": dice.random.randint(0, 2)},
            "serial": {"string": f"{self._name}-{number}"},
        }
        if dice.often(0.4):
            made["healthy"] = {"bool": dice.often(0.7)}
        if dice.often(0.4):
            made["firmware"] = {"version": dice.one("1.0.0", "1.2.0", "2.0.0-rc.1")}
        if dice.often(0.3):
            made[f"{self._driver}/link"] = {"string": dice.one("x", "y")}
        if dice.often(0.9):
            made["resource.kubernetes.io/pcieRoot"] = self._root()
        return made

    def _root(self) -> Json:
        dice = self._dice
        if dice.wants("list attributes", wished=0.6, otherwise=0.02):
            return dice.one(
                {"strings": dice.random.sample(("p0", "p1", "p2"), 2)},
                {"strings": dice.random.sample(("p0", "p1", "p2"), 2)},
                {"ints": dice.random.sample((0, 1, 2), dice.random.randint(1, 3))},
                {"bools": [dice.often(0.5)]},
                {"versions": dice.random.sample(("1.0.0", "2.0.0"), dice.random.randint(1, 2))},
            )
        return {"string": dice.one("p0", "p1")}

    def _share(self, device: Json) -> None:
        dice = self._dice
        shared = dice.wants("shared devices", wished=0.7, otherwise=0.05)
        if shared:
            device["allowMultipleAllocations"] = True
        if shared or dice.often(0.6):
            device["capacity"] = {"memory": self._memory()}
            if dice.often(0.2):
                device["capacity"]["bandwidth"] = {"value": dice.one("10", "2500m", "100")}

    def _memory(self) -> Json:
        dice = self._dice
        if dice.wants("fractional range", wished=0.7, otherwise=0.02):
            bounds = {"min": dice.one("500m", "0.25", "1"), "step": dice.one("250m", "0.5", "0.5m")}
            if dice.often(0.5):
                bounds["max"] = "3500m"
            return {
                "value": dice.one("4", "8", "2500m"),
                "requestPolicy": {"default": dice.one("1", "500m"), "validRange": bounds},
            }
        capacity: Json = {"value": dice.one("8Gi", "16Gi", "8192Mi")}
        if policy := self._policy():
            capacity["requestPolicy"] = policy
        return capacity

    def _policy(self) -> Json:
        dice = self._dice
        if dice.wants("range policy", wished=0.7):
            bounds = {"min": "1Gi"}
            if dice.often(0.7):
                bounds["step"] = dice.one("1Gi", "2Gi", "1536Mi")
            if dice.often(0.7):
                bounds["max"] = dice.one("4Gi", "8Gi", "4096Mi")
            return {"default": dice.one("1Gi", "1024Mi"), "validRange": bounds}
        if dice.wants("values policy", wished=0.7):
            values = ["1Gi", "2048Mi", "4Gi"][: dice.random.randint(1, 3)]
            return {"default": dice.one("1Gi", "1024Mi"), "validValues": values}
        if dice.wants("default policy", wished=0.7):
            return {"default": dice.one("1Gi", "2Gi", "0")}
        return {}

    def _consumption(self) -> list[Json]:
        dice = self._dice
        used = [
            self._part(
                "shared",
                dice.one("10", "20", "20", "40") if dice.often(0.98) else dice.one("-10", "0"),
            )
        ]
        if dice.often(0.15):
            used.append(self._part("second", dice.one("1", "2")))
        return used

    def _part(self, counter_set: str, value: str) -> Json:
        dice = self._dice
        part: Json = {"counterSet": counter_set, "counters": {"slots": {"value": value}}}
        if dice.wants("groups", wished=0.6, otherwise=0.01):
            part["compatibilityGroups"] = dice.random.sample(
                ("red", "blue", "green"), dice.one(1, 2)
            )
        return part

    def _counter_slice(self) -> Json:
        dice = self._dice
        sets = [
            {"name": "shared", "counters": {"slots": {"value": dice.one("40", "60", "80")}}},
            {"name": "second", "counters": {"slots": {"value": "3"}, "idle": {"value": "1"}}},
        ]
        spec: Json = {"driver": self._driver, "pool": self._pool(), "sharedCounters": sets}
        spec |= dice.one(
            {"nodeName": NODE}, {"allNodes": True}, self._selection(other=dice.often(0.2))
        )
        return {"metadata": {"name": self._slice_name(99)}, "spec": spec}

    def _spoil(self, made: list[Json]) -> None:
        """Make the pool invalid in one of the ways there are."""
        dice = self._dice
        holding = [found["spec"] for found in made if found["spec"].get("devices")]
        device = dice.one(*dice.one(*holding)["devices"])
        if self._counters and dice.often(0.5):
            device["consumesCounters"] = [self._part("unknown", "1")]
        else:
            dice.one(*holding)["devices"].append({"name": device["name"]})

    def _older(self) -> list[Json]:
        self._generation -= 1
        return [self._slice(50, self._dice.random.randint(1, 2))]


def taint(dice: Dice) -> Json:
    """A taint; some have an effect that keeps nobody away."""
    effect = dice.one("NoSchedule", "NoSchedule", "NoExecute", "None", "Future")
    return {"key": dice.one("xid", "age"), "value": dice.one("79", "old"), "effect": effect}
