# SPDX-License-Identifier: Apache-2.0
"""What is known of upstream's allocator, one small problem for each fact: offers, amounts, choices, constraints, results.

The sentences say what the problem is about; what the answer is, the oracle says when the vectors are recorded. More facts,
those behind feature gates of their own, are in `gated_facts` and `counter_facts`.
"""

from collections.abc import Iterator
from typing import Any

from conformance.allocation.build import (
    ADMIN,
    CONFIG,
    DRIVER,
    EAST,
    IN_WEST,
    LIST,
    OTHER_DRIVER,
    RANK,
    WEST,
    asked,
    cel,
    claim,
    every,
    exactly,
    first_of,
    place,
    problem,
    size,
    sized,
    some,
    with_value,
)

Json = dict[str, Any]


def offers() -> Iterator[tuple[str, Json]]:
    """Where devices come from."""
    one = claim(exactly("a"))
    two = claim(exactly("a", 2))
    yield "one device", problem(some(1), one)
    yield "no claims", problem(some(1))
    yield "no slices", problem([], one, slices=[])
    yield "a claim without requests", problem(some(1), claim())
    yield "a class that is not there", problem(some(1), one, classes=[])
    yield "a request without a class", problem(some(1), claim(exactly("a", deviceClassName="")))
    yield (
        "a class that selects nothing",
        problem(
            some(1),
            one,
            classes=[{"metadata": {"name": "any"}, "spec": {"selectors": [cel("false")]}}],
        ),
    )
    yield "too few devices", problem(some(1), two)
    yield (
        "a device that is held",
        problem(some(2), two, allocatedDevices=[f"{DRIVER}/pool/dev-000"]),
    )
    yield (
        "the device of another node",
        problem([], one, slices=[place("s", some(1), nodeName="node-2")]),
    )
    yield "a device for all nodes", problem([], one, slices=[place("s", some(1), allNodes=True)])
    yield (
        "a slice that says nothing of nodes",
        problem([], one, slices=[place("s", some(1), allNodes=False)]),
    )
    for what, selector in (
        ("matches", WEST),
        ("does not match", EAST),
        ("is empty", {"nodeSelectorTerms": []}),
    ):
        offer = [place("s", some(1), nodeSelector=selector)]
        yield f"a node selector that {what}", problem([], one, slices=offer, node=IN_WEST)
    both = [place("s", some(1), nodeSelector=WEST), place("t", some(1), "other", nodeSelector=RANK)]
    yield "node selectors of two slices are joined", problem([], two, slices=both, node=IN_WEST)
    again = [
        place("s", some(1), nodeSelector=WEST),
        place("t", some(1), "other", nodeSelector=WEST),
    ]
    yield "the same node selector twice stands once", problem([], two, slices=again, node=IN_WEST)
    local = [place("s", some(1), nodeSelector=WEST), place("t", some(1), "other")]
    yield (
        "one local device ties the claim to the node",
        problem([], two, slices=local, node=IN_WEST),
    )
    terms = {"nodeSelectorTerms": [*EAST["nodeSelectorTerms"], *WEST["nodeSelectorTerms"]]}
    yield (
        "a node selector with two terms cannot be given",
        problem([], one, slices=[place("s", some(1), nodeSelector=terms)], node=IN_WEST),
    )
    yield from _pools(one, two)


def _pools(one: Json, two: Json) -> Iterator[tuple[str, Json]]:
    parts = [
        place("t", some(1), resourceSliceCount=2),
        place("s", [{"name": "x"}], resourceSliceCount=2),
    ]
    yield "slices are gone through by name", problem([], one, slices=parts)
    yield "devices from two slices", problem([], two, slices=parts)
    yield "a slice is missing", problem([], one, slices=parts[:1])
    yield (
        "the other slice is for another node",
        problem(
            [], one, slices=[parts[0], place("s", some(1), nodeName="node-2", resourceSliceCount=2)]
        ),
    )
    yield "all devices while a slice is missing", problem([], claim(every("a")), slices=parts[:1])
    old = place("o", [{"name": "old"}])
    new = place("n", [{"name": "new"}], generation=2)
    yield "an older generation counts no more", problem([], one, slices=[old, new])
    yield "an older generation that is listed later", problem([], two, slices=[new, old])
    elsewhere = place("n", [{"name": "new"}], generation=2, nodeName="node-2")
    yield "the newer generation is on another node", problem([], one, slices=[old, elsewhere])
    part = place("o", [{"name": "old"}], resourceSliceCount=2)
    for what, made in (("one", one), ("all", claim(every("a")))):
        sentence = f"{what} of a part whose newer generation is on another node"
        yield sentence, problem([], made, slices=[part, elsewhere])
    twice = [{"name": "x"}, {"name": "x"}]
    yield "the same name twice in a pool", problem(twice, one)
    yield "all devices of an invalid pool", problem(twice, claim(every("a")))
    yield (
        "another pool stands in for an invalid one",
        problem([], one, slices=[place("s", twice), place("t", some(1), "zzz")]),
    )
    named = [place("a", [{"name": "x"}], "z"), place("b", [{"name": "y"}], "a")]
    yield "pools are gone through by name", problem([], one, slices=named)
    drivers = [place("a", [{"name": "x"}]), place("b", [{"name": "y"}], driver="a.example.net")]
    yield "pools are gone through by driver first", problem([], one, slices=drivers)
    yield (
        "a pool whose name has slashes",
        problem(
            [],
            two,
            slices=[place("s", some(3), "west/rack")],
            allocatedDevices=[f"{DRIVER}/west/rack/dev-000"],
        ),
    )


def choices() -> Iterator[tuple[str, Json]]:
    """How devices are found for requests."""
    mixed = size("small", "large")
    narrow = exactly("narrow", selectors=sized("small"))
    yield (
        "each request finds its own",
        problem(mixed, claim(narrow, exactly("l", selectors=sized("large")))),
    )
    yield (
        "a broad request gives back what a narrow one needs",
        problem(mixed, claim(exactly("broad"), narrow)),
    )
    yield (
        "a claim gives back what another one needs",
        problem(mixed, claim(exactly("broad")), claim(narrow, name="other")),
    )
    yield "no order helps", problem(mixed, claim(exactly("broad", 2), narrow))
    yield (
        "a selector that fails stops everything",
        problem(
            some(1),
            claim(exactly("a", selectors=[cel(f'device.attributes["{DRIVER}"].gone == "x"')])),
        ),
    )
    yield (
        "a selector that does not compile",
        problem(some(1), claim(exactly("a", selectors=[cel("device.name")]))),
    )
    yield "a selector that is no bool", problem(some(1), claim(exactly("a", selectors=[cel("1")])))
    yield (
        "a class selector that does not compile",
        problem(
            some(1),
            claim(exactly("a")),
            classes=[{"metadata": {"name": "any"}, "spec": {"selectors": [cel("1 +")]}}],
        ),
    )
    yield "a selector of an unknown kind", problem(some(1), claim(exactly("a", selectors=[{}])))
    yield "an unknown allocation mode", problem(some(1), claim(exactly("a", allocationMode="Half")))
    yield "a constraint of an unknown kind", problem(some(1), claim(exactly("a"), constraints=[{}]))
    offer = [*size("small-1", "small-2", "large-1"), {"name": "bare"}]
    safe = [cel(f'device.attributes["{DRIVER}"].?size.orValue("") == "small"')]
    yield "all that match", problem(offer, claim(every("a", selectors=safe)))
    yield "all, then one more", problem(offer, claim(every("a", selectors=safe), exactly("b")))
    yield "one, then all", problem(offer, claim(exactly("b"), every("a", selectors=safe)))
    yield "all of none", problem(offer, claim(every("a", selectors=[cel("false")])))
    yield (
        "all while one is held",
        problem(
            offer, claim(every("a", selectors=safe)), allocatedDevices=[f"{DRIVER}/pool/small-2"]
        ),
    )
    yield from _alternatives(offer, safe)
    yield from _admin(offer, safe)


def _alternatives(offer: list[Json], safe: list[Json]) -> Iterator[tuple[str, Json]]:
    def listed(name: str, *choices: Json) -> Json:
        parts = [{"name": f"s{at}"} | asked() | choice for at, choice in enumerate(choices)]
        return {"name": name, "firstAvailable": parts}

    every_small = {"allocationMode": "All", "count": 0, "selectors": safe}
    yield "the first alternative", problem(offer, claim(listed("a", {}, {})), features=LIST)
    yield (
        "the second alternative",
        problem(offer, claim(listed("a", {"count": 9}, {"count": 2})), features=LIST),
    )
    yield (
        "no alternative",
        problem(offer, claim(listed("a", {"count": 9}, {"count": 8})), features=LIST),
    )
    yield "alternatives with the feature off", problem(offer, claim(listed("a", {}, {})))
    yield (
        "a later request rules an alternative out",
        problem(offer, claim(listed("a", {"count": 4}, {"count": 3}), exactly("b")), features=LIST),
    )
    yield (
        "two requests with alternatives",
        problem(
            offer,
            claim(listed("a", {"count": 3}, {"count": 1}), listed("b", {"count": 2}, {"count": 1})),
            features=LIST,
        ),
    )
    yield (
        "all as an alternative",
        problem(offer, claim(listed("a", every_small, {})), features=LIST),
    )
    yield (
        "all as an alternative while one is held",
        problem(
            offer,
            claim(listed("a", every_small, {})),
            features=LIST,
            allocatedDevices=[f"{DRIVER}/pool/small-1"],
        ),
    )
    missing = [listed("a", {"deviceClassName": "gone"}, {})]
    yield "an alternative of a missing class", problem(offer, claim(*missing), features=LIST)
    yield (
        "an alternative that is too many",
        problem(offer, claim(first_of("a", 33, 1)), features=LIST),
    )


def _admin(offer: list[Json], safe: list[Json]) -> Iterator[tuple[str, Json]]:
    held = [f"{DRIVER}/pool/small-1"]
    for value in (True, False):
        yield (
            f"admin access {value} with the feature off",
            problem(offer, claim(exactly("a", adminAccess=value))),
        )
    yield (
        "admin access to what is held",
        problem(
            offer, claim(exactly("a", adminAccess=True)), features=ADMIN, allocatedDevices=held
        ),
    )
    yield (
        "admin access to all",
        problem(
            offer,
            claim(every("a", adminAccess=True, selectors=safe)),
            features=ADMIN,
            allocatedDevices=held,
        ),
    )
    twice = [exactly("a", adminAccess=True), exactly("b", adminAccess=True)]
    yield "admin access twice in a claim", problem(offer[:1], claim(*twice), features=ADMIN)
    yield (
        "admin access in two claims",
        problem(offer[:1], claim(twice[0]), claim(twice[1], name="other"), features=ADMIN),
    )
    yield (
        "admin access and use in two claims",
        problem(offer[:1], claim(exactly("a")), claim(twice[1], name="other"), features=ADMIN),
    )
    yield (
        "use and admin access in two claims",
        problem(offer[:1], claim(twice[1]), claim(exactly("a"), name="other"), features=ADMIN),
    )


def constraints() -> Iterator[tuple[str, Json]]:
    """What devices must have in common, and what not."""
    values: dict[str, tuple[Json, Json]] = {
        "string": ({"string": "x"}, {"string": "y"}),
        "int": ({"int": 1}, {"int": 2}),
        "bool": ({"bool": True}, {"bool": False}),
        "version": ({"version": "1.0.0"}, {"version": "1.0.1"}),
        "no": ({}, {}),
        "mixed": ({"string": "1"}, {"int": 1}),
        "strings": ({"strings": ["x", "y"]}, {"strings": ["y", "z"]}),
        "ints": ({"ints": [1, 2]}, {"ints": [3]}),
        "bools": ({"bools": [True]}, {"bools": [False, True]}),
        "versions": ({"versions": ["1.0.0"]}, {"versions": ["1.0.0", "2.0.0"]}),
        "one and several": ({"string": "x"}, {"strings": ["x", "y"]}),
        "empty": ({"strings": []}, {"strings": []}),
    }
    for kind in ("match", "distinct"):
        rule = [{f"{kind}Attribute": f"{DRIVER}/kind"}]
        for what, (one, other) in values.items():
            for features in ([], ["DRAListTypeAttributes"]):
                gate = "lists on" if features else "lists off"
                offer = with_value(one, other, one)
                for count in (1, 2):
                    made = claim(exactly("a", count), constraints=rule)
                    sentence = f"{kind}: {what} values, {count} of them, {gate}"
                    yield sentence, problem(offer, made, features=features)
        chain = with_value({"strings": ["x", "y"]}, {"strings": ["y", "z"]}, {"strings": ["z"]})
        made = claim(exactly("a", 3), constraints=rule)
        yield (
            f"{kind}: each two meet, but not all",
            problem(chain, made, features=["DRAListTypeAttributes"]),
        )
        made = claim(exactly("a", 3), constraints=rule)
        offer = with_value({"int": 1}, {"int": 2}, {"int": 2}, {"int": 3}, {"int": 2})
        yield f"{kind}: the first choice leads nowhere", problem(offer, made)
        yield f"{kind}: all devices", problem(offer, claim(every("a"), constraints=rule))
        named = [{f"{kind}Attribute": f"{DRIVER}/kind", "requests": ["b", "c"]}]
        three = [exactly(name) for name in "abc"]
        yield f"{kind}: only some requests", problem(offer, claim(*three, constraints=named))
        yield (
            f"{kind}: of two claims only one",
            problem(
                offer,
                claim(exactly("a", 2), constraints=rule),
                claim(exactly("a", 2), name="other"),
            ),
        )
        yield from _of_alternatives(kind, offer)
    yield from _names_of_attributes()


def _names_of_attributes() -> Iterator[tuple[str, Json]]:
    """An attribute may be named in full or under the domain of its driver."""
    full = [{"name": f"dev-{at}", "attributes": {f"{DRIVER}/kind": {"int": 1}}} for at in range(2)]
    rule = [{"matchAttribute": f"{DRIVER}/kind"}]
    yield "match: the full name", problem(full, claim(exactly("a", 2), constraints=rule))
    foreign = [{"matchAttribute": f"{OTHER_DRIVER}/kind"}]
    yield (
        "match: the domain of another driver",
        problem(with_value({"int": 1}), claim(exactly("a"), constraints=foreign)),
    )
    yield (
        "match: a name without a domain",
        problem(
            with_value({"int": 1}, {"int": 1}),
            claim(exactly("a", 2), constraints=[{"matchAttribute": "kind"}]),
        ),
    )


def _of_alternatives(kind: str, offer: list[Json]) -> Iterator[tuple[str, Json]]:
    for name in ("b", "b/s0", "b/s1", "s0"):
        rule = [{f"{kind}Attribute": f"{DRIVER}/kind", "requests": ["a", name]}]
        made = claim(exactly("a", 2), first_of("b", 3, 2), constraints=rule)
        yield f"{kind}: alternatives as {name}", problem(offer, made, features=LIST)


def configs() -> Iterator[tuple[str, Json]]:
    """What configuration stands in the result."""
    classes = [
        {"metadata": {"name": "any"}, "spec": {"config": [CONFIG, CONFIG]}},
        {"metadata": {"name": "other"}, "spec": {"config": [CONFIG]}},
    ]
    three = [exactly("a"), exactly("b"), exactly("c", deviceClassName="other")]
    yield "config of one class", problem(some(3), claim(exactly("a")), classes=classes)
    yield "config of two classes", problem(some(3), claim(*three), classes=classes)
    for names in ([], ["a"], ["a", "b", "c"], ["none"]):
        rule = [CONFIG | {"requests": names}]
        yield (
            f"config of a claim for {names}",
            problem(some(3), claim(*three, config=rule), classes=classes),
        )
    for names in (
        ["l"],
        ["l/s0"],
        ["l/s1"],
        ["a", "l/s0"],
        ["a", "l/s1"],
        ["l/s0", "l/s1"],
        ["l/s0", "l/s1", "a"],
    ):
        made = claim(exactly("a"), first_of("l", 9, 1), config=[CONFIG | {"requests": names}])
        yield (
            f"config for {names} when the second is chosen",
            problem(some(3), made, classes=classes, features=LIST),
        )


def facts() -> Iterator[Json]:
    """All of them, each for every implementation that has its features."""
    for group in (offers, choices, constraints, configs):
        for sentence, made in group():
            yield made | {"name": sentence}
