# SPDX-License-Identifier: Apache-2.0
"""Makes the demand of a random allocation problem: device classes, claims, and what is allocated already.

Requests are made for devices of the offer: a request is drawn with a device in mind and often so narrow that few others
satisfy it, while its neighbours are broad. First fit then gives a device away that somebody later needs.
"""

from typing import Any

from conformance.allocation.fleet import DRIVERS, MODELS, NODE, Dice

Json = dict[str, Any]

CONFIG = {"driver": DRIVERS[0], "parameters": {"kind": "a"}}
TRAPS, TRAPS_FOR_ALL = 0.5, 0.1
GREEDY = "greedy"  # the class that takes everything
HEALTHY = "healthy"
# The second stops on devices that say nothing about it, the third everywhere.
HEALTH = (
    f'device.attributes["{DRIVERS[0]}"].?healthy.orValue(true)',
    f'device.attributes["{DRIVERS[0]}"].healthy',
    f'device.attributes["{DRIVERS[0]}"].healthy ==',
)
ROOT = "resource.kubernetes.io/pcieRoot"


def _exactly(name: str) -> Json:
    return {"deviceClassName": name, "allocationMode": "ExactCount", "count": 1}


def selector(expression: str) -> Json:
    """A selector of devices."""
    return {"cel": {"expression": expression}}


def classes(dice: Dice) -> list[Json]:
    """One class for everything, one for each driver; some have configuration."""
    made = [{"metadata": {"name": GREEDY}, "spec": {}}]
    made += [
        {
            "metadata": {"name": driver},
            "spec": {"selectors": [selector(f'device.driver == "{driver}"')]},
        }
        for driver in DRIVERS
    ]
    made.append(
        {"metadata": {"name": HEALTHY}, "spec": {"selectors": [selector(dice.one(*HEALTH))]}}
    )
    for one in made:
        if dice.wants("class config", wished=0.7, otherwise=0.03):
            one["spec"]["config"] = [{"opaque": CONFIG}] * dice.one(1, 1, 2)
    return made


class Demand:
    """Claims in the making, with the offered devices to think of."""

    def __init__(self, dice: Dice, offer: list[tuple[Json, Json]]) -> None:
        self._dice = dice
        self._offer = offer

    def claims(self) -> list[Json]:
        """All claims, in the order in which they are allocated."""
        several = self._dice.wants("several claims", wished=0.95, otherwise=0.25)
        count = self._dice.random.randint(2, 3) if several else 1
        made = [self._claim(f"claim-{number}", alone=count == 1) for number in range(count)]
        if self._dice.often(TRAPS_FOR_ALL if "all" in self._dice.wishes else TRAPS):
            self._set_trap(made)
        return made

    def _set_trap(self, claims: list[Json]) -> None:
        """Let the last request need what the first one takes, or the first alternative take too much."""
        dice = self._dice
        first = claims[0]["spec"]["devices"]["requests"]
        last = claims[-1]["spec"]["devices"]["requests"]
        if first[0] is last[-1] or dice.often(0.3):
            last.append(self._request(f"r{len(last)}"))
        last[-1].pop("firstAvailable", None)
        last[-1]["exactly"] = _exactly(GREEDY) | {"selectors": [self._needs_first()]}
        if dice.often(0.8):
            last[-1]["exactly"] |= self._tolerant()
        broad = first[0].get("exactly") or first[0]["firstAvailable"][0]
        for part in ("selectors", "adminAccess"):
            broad.pop(part, None)
        broad["deviceClassName"] = GREEDY

    def _tolerant(self) -> Json:
        return {"tolerations": [{"operator": "Exists"}]} if self._dice.often(0.5) else {}

    def _needs_first(self) -> Json:
        """A selector of the device that is looked at first."""
        here = [
            (
                holder["spec"]["driver"],
                holder["spec"]["pool"]["name"],
                holder["metadata"]["name"],
                at,
            )
            for at, (holder, _) in enumerate(self._offer)
            if holder["spec"].get("nodeName", NODE) == NODE
        ]
        driver, _, _, at = min(here, default=(DRIVERS[0], "", "", 0))
        serial = (self._offer[at][1].get("attributes") or {}).get("serial", {}).get("string", "")
        return selector(f'device.attributes["{driver}"].?serial.orValue("") == "{serial}"')

    def _claim(self, name: str, *, alone: bool) -> Json:
        dice = self._dice
        several = dice.wants("several requests", wished=0.9, otherwise=0.5 if alone else 0.2)
        count = dice.random.randint(2, 3) if several else 1
        made: Json = {"requests": [self._request(f"r{number}") for number in range(count)]}
        if parts := self._constraints(made["requests"]):
            made["constraints"] = parts
        if dice.wants("claim config", wished=0.8, otherwise=0.05):
            made["config"] = [self._config(made["requests"]) for _ in range(dice.one(1, 1, 2))]
        metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
        return {"metadata": metadata, "spec": {"devices": made}}

    def _request(self, name: str) -> Json:
        dice = self._dice
        if dice.wants("first available", wished=0.6, otherwise=0.05):
            count = dice.random.randint(1, 3)
            alternatives = [{"name": f"s{each}", **self._asked()} for each in range(count)]
            return {"name": name, "firstAvailable": alternatives}
        asked = self._asked()
        if dice.wants("admin access", wished=0.4, otherwise=0.01):
            asked["adminAccess"] = dice.often(0.9)
        return {"name": name, "exactly": asked}

    def _asked(self) -> Json:
        dice = self._dice
        holder, device = dice.one(*self._offer)
        made: Json = {"deviceClassName": dice.one(GREEDY, GREEDY, holder["spec"]["driver"])}
        if dice.often(0.02):
            made["deviceClassName"] = dice.one("missing", HEALTHY, HEALTHY, HEALTHY, HEALTHY)
        made |= self._amount()
        few = 0.85 if made["allocationMode"] == "All" else 0.4
        if dice.wants("request selector", wished=0.7, otherwise=few):
            made["selectors"] = self._selectors(holder["spec"]["driver"], device)
        if dice.wants("tolerations", wished=0.7):
            made["tolerations"] = [toleration(dice) for _ in range(dice.one(1, 1, 2))]
        if dice.wants("capacity request", wished=0.6, otherwise=0.02):
            made["capacity"] = {"requests": self._capacity(device)}
        if dice.wants("derived attributes", wished=0.7, otherwise=0.01):
            made["derivedAttributes"] = self._derived()
        return made

    def _amount(self) -> Json:
        dice = self._dice
        if dice.wants("all", wished=0.3, otherwise=0.03):
            return {"allocationMode": "All"}  # often together with a selector of few
        count = dice.random.randint(2, 3) if dice.wants("count above one", otherwise=0.3) else 1
        return {"allocationMode": "ExactCount", "count": count}

    def _selectors(self, driver: str, device: Json) -> list[Json]:
        dice = self._dice
        own = f'device.attributes["{driver}"]'
        attributes = device.get("attributes") or {}
        model = attributes.get("model", {}).get("string", "a")
        numa = attributes.get("numa", {}).get("int", 0)
        serial = attributes.get("serial", {}).get("string", "s-0")
        narrow = f'device.driver == "{driver}" && {own}.model == "{model}"'
        choices = (
            (6, narrow),
            (5, f'has({own}.serial) && {own}.serial == "{serial}"'),
            (5, f"has({own}.numa) && {own}.numa <= {numa}"),
            (3, f'"{driver}" in device.attributes'),
            (3, f'device.driver != "{driver}" || {own}.model != "{dice.one(*MODELS)}"'),
            (1, f'has({own}.firmware) && {own}.firmware.isGreaterThan(semver("1.1.0"))'),
            (1, f'has(device.capacity["{driver}"].memory)'),
            (1, "device.?allowMultipleAllocations.orValue(false)"),
            (0.4, f"{own}.healthy"),
            (0.2, f"{own}.model =="),
            (0.4, f'{own}.absent == "x" || true'),
        )
        weights = [weight for weight, _ in choices]
        expressions = [expression for _, expression in choices]
        picked = dice.random.choices(expressions, weights, k=dice.one(1, 1, 1, 2))
        return [selector(expression) for expression in picked] if dice.often(0.996) else [{}]

    def _capacity(self, device: Json) -> Json:
        dice = self._dice
        memory = (device.get("capacity") or {}).get("memory") or {}
        bounds = (memory.get("requestPolicy") or {}).get("validRange") or {}
        if "i" in str(memory.get("value", "Gi")):
            usual = ("1Gi", "1Gi", "1500Mi", "2Gi", "3Gi", "4Gi", "5Gi", "8Gi")
        else:
            usual = ("500m", "0.75", "1", "1200m", "2", "3")
        rare = ("0", "20Gi", "-1", "9223372036854775807", "1e20", "1n", bounds.get("max", "16Gi"))
        made = {"memory": dice.one(*usual) if dice.often(0.88) else dice.one(*rare)}
        if dice.often(0.08):
            made["bandwidth"] = dice.one("1", "10", "2.5")
        if dice.often(0.02):
            made["unknown"] = "1"
        return made

    def _derived(self) -> list[Json]:
        dice = self._dice
        own = f'device.attributes["{dice.one(*DRIVERS[:2])}"]'
        expressions = (
            f"has({own}.numa) ? {own}.numa : 7",
            f'has({own}.model) ? {own}.model : "none"',
            "device.driver",
            f'{own}.?model.orValue("z") + "-x"',
            f"has({own}.numa) && {own}.numa > 0",
        )
        rare = (f"{own}.model", f"{own}.numa", '"1.0" +', "device.capacity", "1.5")
        picked = dice.one(*expressions) if dice.often(0.85) else dice.one(*rare)
        names = dice.random.sample(
            ("computed.example.com/side", ROOT, f"{DRIVERS[0]}/numa"), dice.one(1, 1, 2)
        )
        return [{"name": name, "expression": picked} for name in names]

    def _constraints(self, requests: list[Json]) -> list[Json]:
        dice = self._dice
        made = []
        for kind in ("match", "distinct"):
            if dice.wants(kind, wished=0.85, otherwise=0.06):
                made += [self._constraint(kind, requests) for _ in range(dice.one(1, 1, 1, 2))]
        if dice.often(0.004):
            made.append({})
        dice.random.shuffle(made)
        return made

    def _constraint(self, kind: str, requests: list[Json]) -> Json:
        dice = self._dice
        attributes = [f"{DRIVERS[0]}/model", f"{DRIVERS[0]}/numa", ROOT, ROOT, f"{DRIVERS[0]}/link"]
        attributes += [f"{DRIVERS[0]}/healthy", f"{DRIVERS[0]}/firmware"]
        if "derived attributes" in dice.wishes:
            attributes += ["computed.example.com/side"] * 12
        if "list attributes" in dice.wishes:
            attributes += [ROOT] * 6
        made: Json = {f"{kind}Attribute": dice.one(*attributes)}
        if dice.wants("constraint on some", wished=0.8, otherwise=0.15):
            made["requests"] = self._names(requests)
        return made

    def _names(self, requests: list[Json]) -> list[str]:
        """Some names of requests or of their alternatives."""
        dice = self._dice
        chosen = dice.random.sample(requests, dice.random.randint(1, len(requests)))
        names = []
        for request in chosen:
            alternatives = request.get("firstAvailable")
            if alternatives and dice.often(0.6):
                names.append(f"{request['name']}/{dice.one(*alternatives)['name']}")
            else:
                names.append(request["name"])
        return names

    def _config(self, requests: list[Json]) -> Json:
        made: Json = {"opaque": CONFIG | {"parameters": {"kind": self._dice.one("b", "c")}}}
        if self._dice.often(0.7):
            made["requests"] = self._names(requests)
        return made


def toleration(dice: Dice) -> Json:
    """A toleration that fits many of the taints there are."""
    made = dice.one(
        {"operator": "Exists"},
        {"key": "xid", "operator": "Exists"},
        {"key": "xid", "operator": "Equal", "value": "79"},
        {"key": "age", "value": "old"},
        {"key": "age", "operator": "Future", "value": "old"},
    )
    return made | dice.one({}, {}, {"effect": "NoSchedule"}, {"effect": "NoExecute"})


def allocated(dice: Dice, offer: list[tuple[Json, Json]]) -> Json:
    """What others hold of the offer."""
    whole, shares, capacity = [], [], {}
    for holder, device in offer:
        spec = holder["spec"]
        name = f"{spec['driver']}/{spec['pool']['name']}/{device['name']}"
        shared = device.get("allowMultipleAllocations")
        if dice.wants(
            "allocated devices", wished=0.05 if shared else 0.3, otherwise=0.01 if shared else 0.05
        ):
            whole.append(name)
        if not shared:
            continue
        if dice.wants("shares in use", wished=0.5, otherwise=0.02):
            shares.append(f"{name}/11111111-1111-1111-1111-11111111111{len(shares) % 10}")
        if device.get("capacity") and dice.wants("capacity in use", wished=0.5, otherwise=0.02):
            capacity[name] = {"memory": dice.one("1Gi", "2Gi", "4Gi", "500m", "0")}
    return {
        "allocatedDevices": whole,
        "allocatedSharedDeviceIDs": shares,
        "allocatedCapacity": capacity,
    }
