# SPDX-License-Identifier: Apache-2.0
"""What is known of upstream's allocator behind feature gates: shares, taints, binding conditions, derived attributes, node operations."""

from collections.abc import Iterator
from typing import Any

from conformance.allocation.build import (
    ADMIN,
    DRIVER,
    LIST,
    NODE,
    amount,
    asked,
    cel,
    claim,
    every,
    exactly,
    place,
    problem,
    shared,
    some,
)
from conformance.allocation.counter_facts import HELD_SHARE, PARTS, counters, groups, parts
from conformance.allocation.features import BINDING

Json = dict[str, Any]

SHARES = ["DRAConsumableCapacity"]


POLICIES: dict[str, Json] = {
    "a default beside the values": {"default": "8Gi", "validValues": ["1Gi", "4Gi"]},
    "no policy": {},
    "a default": {"default": "2Gi"},
    "a default in other units": {"default": "1024Mi", "validValues": ["1Gi", "4Gi"]},
    "values": {"default": "1Gi", "validValues": ["1Gi", "2Gi", "4Gi"]},
    "a range": {"default": "1Gi", "validRange": {"min": "1Gi", "max": "4Gi"}},
    "a range with steps": {
        "default": "1Gi",
        "validRange": {"min": "1Gi", "max": "4Gi", "step": "2Gi"},
    },
    "a range without an end": {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1536Mi"}},
    "a default of nothing": {"default": "0", "validValues": ["0", "1Gi"]},
    "a default beside the range": {"default": "512Mi", "validRange": {"min": "1Gi", "step": "1Gi"}},
}
AMOUNTS = (
    None,
    "0",
    "1Gi",
    "1025Mi",
    "3Gi",
    "4096Mi",
    "5Gi",
    "9Gi",
    "-1",
    "1e20",
    "8Gi",
    "8192Mi",
    "8589934592",
)


def shares() -> Iterator[tuple[str, Json]]:
    """Devices that are given in shares."""
    for what, policy in POLICIES.items():
        for quantity in AMOUNTS:
            request = exactly("a") if quantity is None else amount("a", quantity)
            offer = [shared(policy=policy)]
            yield f"{quantity} of {what}", problem(offer, claim(request), features=SHARES)
    fractions = {"default": "1", "validRange": {"min": "500m", "max": "3", "step": "250m"}}
    for quantity in ("100m", "0.75", "600m", "1", "1001m", "2.9", "3", "3.1", "1n"):
        for features in (SHARES, [*SHARES, "DRAFractionalCapacityRange"]):
            offer = [shared(value="4", policy=fractions)]
            state = "on" if len(features) > 1 else "off"
            yield (
                f"{quantity} of a range with fractions, feature {state}",
                problem(offer, claim(amount("a", quantity)), features=features),
            )
    yield from _amounts()
    yield from _amounts_left()
    yield from _shared_parts()


def _amounts() -> Iterator[tuple[str, Json]]:
    """How shares are divided among requests."""
    offer = [shared(), shared("next")]
    several = claim(amount("a", "6Gi"), amount("b", "6Gi"))
    yield "shares of two devices", problem(offer, several, features=SHARES)
    yield (
        "shares of one device",
        problem(offer, claim(amount("a", "4Gi"), amount("b", "4Gi")), features=SHARES),
    )
    yield (
        "several shares for one request",
        problem(offer, claim(amount("a", "2Gi", 2)), features=SHARES),
    )
    yield "an amount with the feature off", problem(offer, several)
    lists = claim({"name": "l", "firstAvailable": [{"name": "s", **asked(), "capacity": {}}]})
    yield "an amount of an alternative with the feature off", problem(offer, lists, features=LIST)
    yield (
        "an amount that nobody offers",
        problem(offer, claim(exactly("a", capacity={"requests": {"disk": "1"}})), features=SHARES),
    )


def _amounts_left() -> Iterator[tuple[str, Json]]:
    """Devices of which some is held, and those that are not shared."""
    offer = [shared(), shared("next")]
    used = {f"{DRIVER}/pool/dev": {"memory": "4Gi"}}
    yield (
        "what is left of a device",
        problem(offer, claim(amount("a", "4Gi")), features=SHARES, allocatedCapacity=used),
    )
    yield (
        "more than is left",
        problem(offer, claim(amount("a", "5Gi")), features=SHARES, allocatedCapacity=used),
    )
    yield "all, and one has not enough left", problem(
        offer, claim({"name": "a", "exactly": every("a")["exactly"] | {"capacity": {"requests": {"memory": "5Gi"}}}}),
        features=SHARES, allocatedCapacity=used,
    )  # fmt: skip
    small = [shared(), shared("small", "1Gi"), {"name": "bare"}]
    yield "all that are large enough", problem(
        small, claim({"name": "a", "exactly": every("a")["exactly"] | {"capacity": {"requests": {"memory": "2Gi"}}}}),
        features=SHARES,
    )  # fmt: skip
    yield "a whole device that is large enough", problem(
        [{"name": "x", "capacity": {"memory": {"value": "1Gi"}}}, {"name": "y", "capacity": {"memory": {"value": "4Gi"}}}],
        claim(amount("a", "2Gi")), features=SHARES,
    )  # fmt: skip
    yield (
        "a shared device that is held as a whole",
        problem(
            offer, claim(exactly("a", 2)), features=SHARES, allocatedDevices=[f"{DRIVER}/pool/dev"]
        ),
    )
    yield (
        "a back step returns a share",
        problem(
            offer,
            claim(amount("a", "6Gi"), amount("b", "8Gi", selectors=[cel("true")])),
            features=SHARES,
        ),
    )
    yield (
        "a selector of shared devices",
        problem(
            [{"name": "whole"}, shared()],
            claim(exactly("a", selectors=[cel("device.allowMultipleAllocations")])),
            features=SHARES,
        ),
    )
    yield (
        "shared devices without capacity",
        problem(
            [{"name": "x", "allowMultipleAllocations": True}],
            claim(exactly("a"), exactly("b")),
            features=SHARES,
        ),
    )
    yield "distinct shares", problem(
        [shared(attributes={"id": {"int": 1}}), shared("next", attributes={"id": {"int": 2}})],
        claim(amount("a", "1Gi"), amount("b", "1Gi"), constraints=[{"distinctAttribute": f"{DRIVER}/id"}]),
        features=SHARES,
    )  # fmt: skip


def _shared_parts() -> Iterator[tuple[str, Json]]:
    """A share pays for the counters once."""
    offer = parts("4", "1")
    offer[0]["spec"]["devices"][0] |= shared("dev-0")
    on = SHARES + PARTS
    pair = claim(amount("a", "1Gi"), amount("b", "1Gi"))
    yield "counters are taken once for two shares", problem([], pair, slices=offer, features=on)
    for what, held in (
        ("a share", {"allocatedSharedDeviceIDs": [f"{DRIVER}/pool/dev-0/{HELD_SHARE}"]}),
        ("an amount", {"allocatedCapacity": {f"{DRIVER}/pool/dev-0": {"memory": "1Gi"}}}),
        ("an amount of nothing", {"allocatedCapacity": {f"{DRIVER}/pool/dev-0": {"memory": "0"}}}),
    ):
        yield (
            f"counters are taken while {what} is held",
            problem([], pair, slices=offer, features=on, **held),
        )
    wanted = every("a")["exactly"] | {"capacity": {"requests": {"memory": "1e20"}}}
    steps = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
    yield (
        "an amount for all that cannot be said in 64 bits",
        problem(
            [shared(policy=steps)],
            claim({"name": "a", "exactly": wanted}),
            features=SHARES,
        ),
    )
    asks = exactly("a", selectors=[cel("device.allowMultipleAllocations")])
    yield "a selector of shared devices with the feature off", problem([shared()], claim(asks))
    empty = parts("4", "4")
    for device in empty[0]["spec"]["devices"]:
        device |= {"allowMultipleAllocations": True}
    yield (
        "two shares that take nothing",
        problem([], claim(exactly("a"), exactly("b")), slices=empty, features=on),
    )


def taints() -> Iterator[tuple[str, Json]]:
    """Devices that want to be tolerated."""
    on = ["DRADeviceTaints"]
    for effect in ("NoSchedule", "NoExecute", "None", "Strange", ""):
        device = [{"name": "x", "taints": [{"key": "k", "value": "v", "effect": effect}]}]
        yield f"a taint with effect {effect!r}", problem(device, claim(exactly("a")), features=on)
        yield (
            f"a taint with effect {effect!r} with the feature off",
            problem(device, claim(exactly("a"))),
        )
    device = [{"name": "x", "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}]
    for toleration in (
        {"operator": "Exists"},
        {"key": "k", "operator": "Exists"},
        {"key": "k", "operator": "Equal", "value": "v"},
        {"key": "k", "value": "v", "effect": "NoSchedule"},
        {"key": "k", "operator": "Equal", "value": "w"},
        {"key": "k", "operator": "Exists", "effect": "NoExecute"},
        {"key": "other", "operator": "Exists"},
        {"key": "k", "operator": "Maybe", "value": "v"},
        {},
        {"key": "k", "operator": "Exists", "tolerationSeconds": 5},
    ):
        request = exactly("a", tolerations=[toleration])
        yield f"tolerated by {toleration}", problem(device, claim(request), features=on)
    yield (
        "all devices, one of them tainted",
        problem([*device, *some(1)], claim(every("a")), features=on),
    )
    yield (
        "a tainted device is passed over",
        problem([*device, *some(1)], claim(exactly("a")), features=on),
    )
    yield (
        "admin access does not tolerate",
        problem(device, claim(exactly("a", adminAccess=True)), features=on + ADMIN),
    )
    two = parts("4", "4")
    two[0]["spec"]["devices"][0]["taints"] = device[0]["taints"]
    yield (
        "a tainted part gives its counters back",
        problem([], claim(exactly("a")), slices=two, features=on + PARTS),
    )


def binding() -> Iterator[tuple[str, Json]]:
    """Devices that have to be attached first."""
    device = {"name": "x", "bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
    for features in ([BINDING], []):
        state = "on" if features else "off"
        yield (
            f"binding conditions {state}",
            problem([device], claim(exactly("a")), features=features),
        )
        offer = [place("s", [device], "a"), place("t", some(1), "z")]
        yield (
            f"pools with binding conditions come last, {state}",
            problem([], claim(exactly("a")), slices=offer, features=features),
        )
        tied = [place("s", [device | {"bindsToNode": True}], allNodes=True)]
        yield (
            f"a device that binds to the node, {state}",
            problem([], claim(exactly("a")), slices=tied, features=features),
        )
        free = [place("s", [{"name": "y", "bindsToNode": True}], allNodes=True)]
        yield (
            f"a device without conditions that binds to the node, {state}",
            problem([], claim(exactly("a")), slices=free, features=features),
        )
    twice = [{"name": "x", "bindingConditions": ["ready"]}, {"name": "x"}]
    invalid = [place("s", twice, "a"), place("t", [{"name": "y"}, {"name": "y"}], "b")]
    yield (
        "an invalid pool with binding conditions does not come last",
        problem([], claim(every("a")), slices=invalid, features=[BINDING]),
    )
    yield "empty binding conditions put the pool last", problem(
        [], claim(exactly("a")), features=[BINDING],
        slices=[place("s", [{"name": "x", "bindingConditions": []}], "a"), place("t", some(1), "z")],
    )  # fmt: skip


def derived() -> Iterator[tuple[str, Json]]:
    """Attributes that a request computes."""
    offer = [{"name": f"dev-{at}", "attributes": {"n": {"int": at}}} for at in range(4)]
    own = f'device.attributes["{DRIVER}"]'
    name = "computed.example.com/half"
    for what, expression in {
        "a string": f'{own}.n < 2 ? "low" : "high"',
        "an int": f"{own}.n / 2",
        "a bool": f"{own}.n > 1",
        "a missing attribute": f"{own}.gone",
        "a wrong type": "1.5",
        "a list": "[1, 2]",
        "an empty text": '""',
        "no expression": "1 +",
        "a version": 'semver("1.0.0")',
    }.items():
        for kind in ("match", "distinct"):
            request = exactly("a", 2, derivedAttributes=[{"name": name, "expression": expression}])
            made = claim(request, constraints=[{f"{kind}Attribute": name}])
            for features in (
                ["DRADerivedAttributes"],
                ["DRADerivedAttributes", "DRAListTypeAttributes"],
            ):
                state = "lists on" if len(features) > 1 else "lists off"
                yield f"derived {what}: {kind}, {state}", problem(offer, made, features=features)
    unused = exactly("a", derivedAttributes=[{"name": name, "expression": f"{own}.gone"}])
    yield (
        "derived attributes that nobody looks at",
        problem(offer, claim(unused), features=["DRADerivedAttributes"]),
    )
    yield "derived attributes with the feature off", problem(offer, claim(unused))
    over = exactly("a", 2, derivedAttributes=[{"name": f"{DRIVER}/n", "expression": "7"}])
    yield (
        "a derived attribute hides the device's own",
        problem(
            offer,
            claim(over, constraints=[{"matchAttribute": f"{DRIVER}/n"}]),
            features=["DRADerivedAttributes"],
        ),
    )
    both = [over, exactly("b")]
    yield (
        "derived for one request, the device's own for another",
        problem(
            offer,
            claim(*both, constraints=[{"matchAttribute": f"{DRIVER}/n"}]),
            features=["DRADerivedAttributes"],
        ),
    )


def node_operations() -> Iterator[tuple[str, Json]]:
    """Slices of which the kubelet has nothing to prepare."""
    able = {
        "metadata": {"name": NODE},
        "status": {"declaredFeatures": ["DRAOptionalNodeOperations"]},
    }
    offer = [place("s", some(1), skipNodeOperations=["NodePrepareResources"])]
    for features in (["DRAOptionalNodeOperations"], []):
        for what, node in (("able", able), ("not able", {"metadata": {"name": NODE}})):
            state = "on" if features else "off"
            yield (
                f"node operations left out, {state}, the node is {what}",
                problem([], claim(exactly("a")), slices=offer, features=features, node=node),
            )


def facts() -> Iterator[Json]:
    """All of them."""
    for group in (counters, shares, taints, binding, groups, derived, node_operations):
        for sentence, made in group():
            yield made | {"name": sentence}
