# SPDX-License-Identifier: Apache-2.0
"""What would help: the cheapest for the user first, and of two kinds."""

import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dra_driver.explain.costs import COSTS, EDIT_CLASS, NEVER, cost_of, costliest
from dra_driver.explain.outcome import Report
from dra_driver.explain.report import ManifestSubject, NewNode, explain
from dra_driver.explain.verdict import (
    CapacityConsumed,
    CapacityTooSmall,
    CountersUsedUp,
    Ending,
    HeldByClaim,
    PoolInvalid,
    Tainted,
    Verdict,
)
from dra_driver.model.api.core import Node, Pod
from dra_driver.model.api.meta import ObjectMeta
from dra_driver.model.api.policy import PodDisruptionBudget
from dra_driver.model.api.resource_claim import DeviceClass
from dra_driver.model.api.resource_slice import ResourceSlice
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words
from tests.e2e.fleet import GPU, HOME, device, device_class, devices, request, resource_slice
from tests.unit.explain.clusters import holder, state

A = f'device.attributes["{GPU}"]'
TIME = "2026-11-20T10:00:00Z"
LOST = [{"key": f"{GPU}/xid", "value": "79", "effect": "NoExecute"}]


def asking(cluster: ClusterState, *requests: dict[str, Any], **more: Any) -> Report:
    return explain(cluster, ManifestSubject((words.claim(*requests, **more),), "ns", "f.yaml"))


def helps(report: Report) -> list[tuple[str, str]]:
    return [(one.kind, one.what) for one in report.changes]


def used(claim: dict[str, Any], *pods: str) -> dict[str, Any]:
    claim["status"]["reservedFor"] = [{"resource": "pods", "name": p, "uid": p} for p in pods]
    return claim


def several(name: str, *names: str, **more: Any) -> dict[str, Any]:
    """A claim that has several devices."""
    claim = holder(names[0], name, **more)
    results = claim["status"]["allocation"]["devices"]["results"]
    results += [{**results[0], "device": other} for other in names[1:]]
    return claim


def modelled(name: str, model: str, **more: Any) -> dict[str, Any]:
    made = device(name, **more)
    made["attributes"]["model"] = {"string": model}
    return made


@pytest.mark.parametrize(
    ("reason", "cost"),
    [
        (HeldByClaim("c"), COSTS["wait"] + 1),
        (HeldByClaim("c", ("ns/p",)), COSTS["end"]),
        (HeldByClaim("c", ending=(Ending("claim c", TIME),)), COSTS["wait"]),
        (HeldByClaim("c", ("ns/p",), ending=(Ending("claim c", TIME),)), COSTS["end"]),
        (HeldByClaim("c", ("ns/p",), ending=(Ending("pod ns/p", TIME),)), COSTS["wait"]),
        (CountersUsedUp("s", "c", "2", "1", ("a", "b")), 2 * COSTS["end"]),
        (CountersUsedUp("s", "c", "2", "1"), NEVER),
        (CapacityConsumed("m", "2", "1", ("a",)), COSTS["end"]),
        (CapacityConsumed("m", "2", "1", tuple("abcde")), COSTS["ask for less"]),
        (CapacityConsumed("m", "2", "1"), COSTS["ask for less"]),
        (CapacityTooSmall("m", "2", "1"), COSTS["ask for less"]),
        (CapacityTooSmall("m", "2", near="n"), COSTS["correct"]),
        (Tainted("k=v:NoSchedule"), COSTS["tolerate"]),
        (Tainted("k=v:NoExecute"), NEVER),
        (Tainted("gpu.example.com/ecc-errors:NoSchedule"), NEVER),
        (Tainted("gpuUnhealthy:NoSchedule"), NEVER),
        (Tainted("gpu.example.com/default=health:NoSchedule"), COSTS["tolerate"]),
        (PoolInvalid("p", "d"), NEVER),
    ],
)
def test_each_reason_has_its_cost(reason: Verdict, cost: int) -> None:
    assert cost_of(reason) == cost


def test_what_the_user_asks_for_is_changed_last() -> None:
    assert list(COSTS) == sorted(COSTS, key=COSTS.__getitem__)
    assert COSTS["edit"] < EDIT_CLASS < NEVER
    assert costliest(("edit", "correct")) == "edit"


def profile(name: str, value: str, **more: Any) -> dict[str, Any]:
    return device(name, attributes={"profile": {"string": value}}, **more)


def test_the_notebook_that_has_the_partition_is_ended_before_a_smaller_one_is_asked_for() -> None:
    parts = resource_slice([profile("big", "7g"), *(profile(f"small-{n}", "1g") for n in range(7))])
    report = asking(
        state(parts, used(holder("big"), "notebook")), request(cel=f'{A}.profile == "7g"')
    )
    assert helps(report) == [
        ("end", "end claim ns/holder, used by ns/notebook"),
        (
            "edit",
            f'request gpu of claim ns/mine: write {A}.profile == "1g" instead of {A}.profile == "7g"',
        ),
    ]
    assert report.claims[0].requests[0].nearest.device == f"{GPU}/{HOME}/big"


def test_one_claim_that_has_many_devices_is_ended_and_no_lost_device_is_tolerated() -> None:
    names = [f"gpu-{number}" for number in range(5)]
    listed = [*map(device, names), *devices(8)[5:7], device("gpu-7", taints=LOST)]
    one = used(several("train", *names), "trainer-0")
    report = asking(state(resource_slice(listed), one), request(count=3))
    assert helps(report) == [
        ("end", "end claim ns/train, used by ns/trainer-0"),
        ("ask for less", "request gpu of claim ns/mine: ask for 2 instead of 3"),
    ]


def test_of_claims_on_one_node_the_one_with_most_devices_is_ended() -> None:
    listed = resource_slice(devices(5))
    claims = [used(holder("gpu-0", "single"), "p"), used(several("train", "gpu-1", "gpu-2"), "q")]
    report = asking(state(listed, *claims), request(count=4))
    assert helps(report)[0] == ("end", "end claim ns/single, used by ns/p") or helps(report)[0] == (
        "end",
        "end claim ns/train, used by ns/q",
    )
    assert len(report.changes[0].ends) == 1


def counted(**parts: str) -> dict[str, Any]:
    listed = [
        profile(
            name,
            name,
            consumesCounters=[{"counterSet": "card", "counters": {"slices": {"value": n}}}],
        )
        for name, n in parts.items()
    ]
    return resource_slice(listed, slices=2)


def card(value: str) -> dict[str, Any]:
    counters = resource_slice(name="counters", slices=2)
    counters["spec"]["sharedCounters"] = [
        {"name": "card", "counters": {"slices": {"value": value}}}
    ]
    return counters


def test_only_as_many_claims_on_a_counter_are_ended_as_needed() -> None:
    cluster = state(
        card("8"),
        counted(big="5", a="1", b="1", c="4"),
        *(used(holder(name, f"h-{name}"), f"p-{name}") for name in "ab"),
        used(holder("c", "h-c"), "p-c"),
    )
    report = asking(cluster, request(cel=f'{A}.profile == "big"'))
    assert helps(report) == [("end", "end claim ns/h-c, used by ns/p-c")]
    assert report.changes[0].ends == ("ns/h-c",)


def gone(claim: dict[str, Any], *finalizers: str) -> dict[str, Any]:
    claim["metadata"] |= {"deletionTimestamp": TIME, "finalizers": list(finalizers)}
    return claim


def test_a_claim_that_is_being_deleted_is_waited_for_and_its_finalizer_named() -> None:
    report = asking(state(resource_slice(devices(1)), gone(holder("gpu-0"), "example.com/audit")))
    told = f"claim ns/holder is being deleted since {TIME}, kept by finalizer example.com/audit"
    awaited = "claim ns/holder (kept by example.com/audit)"
    assert helps(report) == [("wait", f"wait until {awaited} is gone")]
    (group,) = report.claims[0].requests[0].devices
    assert str(group.verdict) == f"held by ns/holder, used by no pod ({told})"


def test_what_ends_by_itself_is_waited_for_and_the_rest_ended() -> None:
    pod = {"metadata": {"name": "p", "namespace": "ns", "deletionTimestamp": TIME}}
    cluster = state(
        resource_slice(devices(2)),
        used(holder("gpu-0", "h0"), "p"),
        used(holder("gpu-1", "h1"), "q"),
    )
    cluster = msgspec.structs.replace(cluster, pods=(msgspec.convert(pod, Pod),))
    assert helps(asking(cluster)) == [
        ("wait", "wait until pod ns/p is gone"),
    ]
    assert helps(asking(cluster, request(count=2))) == [
        ("end", "wait until pod ns/p is gone; end claim ns/h1, used by ns/q")
    ]


def test_the_name_of_a_capacity_is_corrected() -> None:
    wanted = request(capacity={"requests": {f"{GPU}/memory": "1Gi"}})
    report = asking(state(resource_slice(devices(1))), wanted)
    assert helps(report) == [
        (
            "correct",
            f"request gpu of claim ns/mine: ask for capacity memory instead of {GPU}/memory",
        )
    ]


def version(text: str) -> dict[str, Any]:
    return resource_slice([device("gpu-0", attributes={"driverVersion": {"string": text}})])


@pytest.mark.parametrize(
    ("text", "call"),
    [("570.1.0", "semver(…)"), ("570.01.05", "semver(…, true)"), ("570", "semver(…, true)")],
)
def test_a_version_that_is_a_string_is_parsed(text: str, call: str) -> None:
    path = f"{A}.driverVersion"
    report = asking(state(version(text)), request(cel=f'{path}.isGreaterThan(semver("560.0.0"))'))
    written = call.replace("…", path)
    assert helps(report)[0] == (
        "correct",
        f"request gpu of claim ns/mine: write {written} instead of {path}",
    )
    (told,) = report.claims[0].requests[0].verdicts
    assert told.hint == (
        f"{GPU}/{HOME}/gpu-0 has driverVersion as the string {text}: wrap it, "
        f"{call.replace('…', 'driverVersion')}"
    )


@pytest.mark.parametrize(
    ("condition", "text", "call"),
    [
        ("@ == '570.1.0'", "570.1.0", "semver(…)"),
        ("@ == '570.01.0'", "570.01.0", "semver(…, true)"),
        ("@ in ['570.1.0']", "570.1.0", "semver(…)"),
    ],
)
def test_a_text_that_is_compared_with_a_version_is_parsed(
    condition: str, text: str, call: str
) -> None:
    path = f"{A}.driverVersion"
    published = device("gpu-0", attributes={"driverVersion": {"version": "570.1.0"}})
    report = asking(state(resource_slice([published])), request(cel=condition.replace("@", path)))
    right = call.replace("…", f'"{text}"')
    assert helps(report)[0] == (
        "correct",
        f'request gpu of claim ns/mine: write {right} instead of "{text}", because {path} is a version',
    )
    (told,) = report.claims[0].requests[0].verdicts
    assert told.hint == (
        f"{GPU}/{HOME}/gpu-0 has driverVersion as the version 570.1.0: "
        f'write {right} instead of "{text}"'
    )


def test_a_change_that_the_api_server_refuses_as_too_long_is_not_tried_out() -> None:
    published = device("gpu-0", attributes={"driverVersion": {"version": "570.1.0"}})
    for count, what in ((2, "correct"), (400, "edit")):
        listed = [f"570.{number}" for number in range(1, count)] + ["580"]
        asked = request(cel=f"{A}.driverVersion in {listed}")
        report = asking(state(resource_slice([published])), asked)
        assert [kind for kind, _ in helps(report)][:1] == [what]


MEMORY = f'device.capacity["{GPU}"].memory'


@pytest.mark.parametrize(
    ("wrong", "right", "hint"),
    [
        (
            f"{A}.memory >= 8",
            f'{MEMORY}.compareTo(quantity("8Gi")) >= 0',
            "is a capacity: write @",
        ),
        (
            f'{A}.driverVersion >= "550.0.0"',
            f'{A}.driverVersion.compareTo(semver("550.0.0")) >= 0',
            "has driverVersion as the version 570.1.0: write @",
        ),
        (
            f'device.attributes["{GPU}m"].driverVersion == semver("570.1.0")',
            f'{A}.driverVersion == semver("570.1.0")',
            f"did you mean {GPU}?",
        ),
        (
            'device.capacity["other.org"].memory.compareTo(quantity("8Gi")) >= 0',
            f'{MEMORY}.compareTo(quantity("8Gi")) >= 0',
            f"did you mean {GPU}?",
        ),
        (
            f'{MEMORY}.compareTo(quantity("8GB")) >= 0',
            f'{MEMORY}.compareTo(quantity("8G")) >= 0',
            "'8GB' is no quantity: write 8G (8 x 1000^3 bytes) or 8Gi (8 x 1024^3 bytes)",
        ),
        (
            f'{A}.driverVersion.isGreaterThan(semver("550.90.07"))',
            f'{A}.driverVersion.isGreaterThan(semver("550.90.07", true))',
            "'550.90.07' is no version: write semver(\"550.90.07\", true)",
        ),
        (
            f'{A}.driverVersion == "570"',
            f"{A}.driverVersion.major() == 570",
            "has driverVersion as the version 570.1.0: write @",
        ),
        (
            f"double({A}.driverVersion) >= 550.0",
            f'{A}.driverVersion.compareTo(semver("550.0", true)) >= 0',
            "has driverVersion as the version 570.1.0: write @",
        ),
        (
            f'{A}.driverVersion.startsWith("570")',
            f"{A}.driverVersion.major() == 570",
            "has driverVersion as the version 570.1.0, and startsWith is for strings: write @",
        ),
    ],
)
def test_what_was_most_likely_meant_comes_before_leaving_it_out(
    wrong: str, right: str, hint: str
) -> None:
    published = device("gpu-0", attributes={"driverVersion": {"version": "570.1.0"}}, memory="40Gi")
    report = asking(state(resource_slice([published])), request(cel=wrong))
    (kind, what), (second, left_out) = helps(report)
    assert (kind, second, left_out.endswith(f"leave out {wrong}")) == ("correct", "edit", True)
    instead = what.removeprefix("request gpu of claim ns/mine: write ").partition(" instead of ")
    assert wrong.replace(instead[2], instead[0]) == right
    (told,) = report.claims[0].requests[0].verdicts
    assert hint.replace("@", right) in told.hint


@pytest.mark.parametrize(
    ("condition", "right"),
    [
        ('@.compareTo(quantity("80GB")) >= 0', "80G"),
        ('@.compareTo(quantity("81559Mi")) >= 0 && @ == quantity("80.0GB")', ""),
        ('@.compareTo(quantity("40GB")) == 0', "40Gi"),
        ('[1, 1].exists(n, @.compareTo(quantity("40GB")) == 0)', "40Gi"),
    ],
)
def test_of_two_readings_of_an_amount_the_one_that_fits_is_told(condition: str, right: str) -> None:
    """A card that is sold as 80 GB has less than 80Gi; another one has exactly 40Gi."""
    published = [device("gpu-0", memory="81559Mi"), device("gpu-1", memory="40Gi")]
    report = asking(state(resource_slice(published)), request(cel=condition.replace("@", MEMORY)))
    told = [
        what.partition("write ")[2].partition(" ")[0]
        for kind, what in helps(report)
        if kind == "correct"
    ]
    assert told == ([f'quantity("{right}")'] if right else [])


def test_what_is_in_the_way_after_a_correction_is_removed_with_it() -> None:
    """The device that the corrected selectors match is another one than the nearest of the wrong ones."""
    published = [device("gpu-0", memory="40Gi"), device("gpu-1", memory="80Gi")]
    held = state(resource_slice(published), used(holder("gpu-1", "h"), "p"))
    wrong = 'device.capacity["other.org"].memory'
    instead = f"request gpu of claim ns/mine: write {MEMORY} instead of {wrong}"
    report = asking(held, request(cel=f'{wrong}.compareTo(quantity("64Gi")) >= 0'))
    assert helps(report)[0] == ("correct", f"{instead}; end claim ns/h, used by ns/p")


def test_what_a_device_of_another_driver_has_is_read_where_it_is_meant() -> None:
    mine, other = device("gpu-0", memory="40Gi"), device("gpu-1", memory="80Gi")
    listed = [resource_slice([mine]), resource_slice([other], pool="p", driver="other.org")]
    read = 'device.capacity["other.org"].memory'
    report = asking(state(*listed), request(cel=f'{read}.compareTo(quantity("30Gi")) >= 0'))
    assert not any(MEMORY in what for _, what in helps(report))


def test_of_many_corrections_the_first_are_told_and_the_others_counted() -> None:
    published = device("gpu-0", attributes={"driverVersion": {"version": "570.1.0"}})
    wrong = [f'{A}.driverVersion >= "550.0.{number}"' for number in range(40)]
    report = asking(state(resource_slice([published])), request(cel=" || ".join(wrong)))
    (_, what), (_, left_out) = helps(report)
    assert what.count(" instead of ") == 8
    assert what.endswith("; … (32 more)")
    assert len(left_out) < 400


def test_values_beside_a_long_condition_are_cut_in_the_middle() -> None:
    published = [device(f"gpu-{n}", attributes={"model": {"string": f"A{n}"}}) for n in range(2)]
    listed = ", ".join(f'"B{number}"' for number in range(1000))
    report = asking(state(resource_slice(published)), request(cel=f"{A}.model in [{listed}]"))
    found = [one.verdict.found for one in report.claims[0].requests[0].devices]
    assert [one.partition(" is not in")[0] for one in found] == ['model "A0"', 'model "A1"']
    assert max(map(len, found)) < 1100


def test_a_text_that_is_no_quantity_is_one_reason_for_all_devices() -> None:
    report = asking(
        state(resource_slice([device("gpu-0", memory="40Gi"), device("gpu-1", memory="80Gi")])),
        request(cel=f'{MEMORY}.compareTo(quantity("8 Gi")) >= 0'),
    )
    (group,) = report.claims[0].requests[0].devices
    assert group.count == 2


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (f'{A}.numa > "2"', 'numa is an int, and "2" is a string: write 2'),
        (
            f'{MEMORY}.compareTo(quantity("lots")) >= 0',
            "'lots' is no quantity: write a number, as in 8 or 40Gi",
        ),
    ],
)
def test_what_is_wrong_for_all_devices_is_one_reason(wrong: str, told: str) -> None:
    published = [device(f"gpu-{n}", numa=n) for n in range(4)]
    report = asking(state(resource_slice(published)), request(cel=wrong))
    (group,) = report.claims[0].requests[0].devices
    assert (group.count, group.verdict.hint) == (4, told)


@pytest.mark.parametrize(("wrong", "right"), [('== "2"', "== 2"), ('in ["2"]', "in [2]")])
def test_a_text_of_a_number_is_written_as_that_number_first(wrong: str, right: str) -> None:
    published = [device(f"gpu-{n}", numa=n) for n in range(4)]
    report = asking(state(resource_slice(published)), request(cel=f"{A}.numa {wrong}"))
    what = f"write {A}.numa {right} instead of {A}.numa {wrong}"
    assert helps(report)[0] == ("correct", f"request gpu of claim ns/mine: {what}")


def test_a_text_that_is_another_version_or_none_is_not_said_to_help() -> None:
    published = device("gpu-0", attributes={"driverVersion": {"version": "570.1.0"}})
    for text in ("560.1.0", "newest"):
        wanted = request(cel=f"{A}.driverVersion == '{text}'")
        report = asking(state(resource_slice([published])), wanted)
        assert [kind for kind, _ in helps(report)] == ["edit"]


def test_a_text_that_is_no_version_is_not_parsed() -> None:
    path = f"{A}.driverVersion"
    report = asking(
        state(version("newest")), request(cel=f'{path}.isGreaterThan(semver("560.0.0"))')
    )
    assert [kind for kind, _ in helps(report)] == ["edit"]


def test_the_selector_of_a_class_is_corrected_in_the_class() -> None:
    made = device_class("fast")
    made["spec"]["selectors"] += [{"cel": {"expression": f'{A}.model == "H10O"'}}]
    report = asking(state(resource_slice(devices(1)), made), request(deviceClassName="fast"))
    assert helps(report) == [
        ("correct", f'class fast: write {A}.model == "H100" instead of {A}.model == "H10O"'),
        ("edit", "request gpu of claim ns/mine: ask for class gpu instead of fast"),
    ]
    other = device_class("fast", expression=f'{A}.model == "A100"')
    report = asking(state(resource_slice(devices(1)), other), request(deviceClassName="fast"))
    assert helps(report) == [
        ("edit", "request gpu of claim ns/mine: ask for class gpu instead of fast")
    ]
    broken = device_class("fast", expression=f'{A}.modle == "H100"')
    report = asking(state(resource_slice(devices(1)), broken), request(deviceClassName="fast"))
    assert helps(report) == [
        ("correct", f"class fast: write {A}.model instead of {A}.modle"),
        ("edit", f'class fast: leave out {A}.modle == "H100"'),
    ]


def test_a_mistyped_value_is_corrected_to_what_a_device_has_that_is_not_the_nearest() -> None:
    def of(model: str, name: str, **more: Any) -> dict[str, Any]:
        return device(name, attributes={"model": {"string": model}, "numa": {"int": 0}}, **more)

    listed = [of("A100", "gpu-0"), of("H100", "gpu-1")]
    held = used(holder("gpu-1", "h"), "p")
    wrong, right = f'{A}.model == "h1O0"', f'{A}.model == "H100"'
    correct = f"request gpu of claim ns/mine: write {right} instead of {wrong}"
    free = asking(state(resource_slice(listed)), request(cel=wrong))
    assert helps(free)[0] == ("correct", correct)
    taken = asking(state(resource_slice(listed), held), request(cel=wrong))
    assert helps(taken)[0] == ("correct", f"{correct}; end claim ns/h, used by ns/p")
    also = asking(state(resource_slice(listed)), request(cel=f"{wrong} && {A}.numa == 7"))
    assert "correct" not in dict(helps(also))


def test_a_listed_value_that_is_mistyped_gives_way_to_the_one_that_was_meant() -> None:
    """Although another device is nearer, because nobody has it."""
    names = ["Ampere", "Hopper", "Turing"]
    listed = [
        device(f"gpu-{n}", attributes={"model": {"string": name}}) for n, name in enumerate(names)
    ]
    wrong = f'{A}.model in ["Hoper"]'
    change = f'request gpu of claim ns/mine: write {A}.model in ["Hopper"] instead of {wrong}'
    free = asking(state(resource_slice(listed)), request(cel=wrong))
    assert helps(free)[0] == ("correct", change)
    assert free.claims[0].requests[0].verdicts[0].hint == 'did you mean "Hopper"?'
    held = state(resource_slice(listed), used(holder("gpu-1", "h"), "p"))
    taken = asking(held, request(cel=wrong))
    assert helps(taken)[0] == ("correct", f"{change}; end claim ns/h, used by ns/p")
    # What a device has is not mistyped.
    two = asking(held, request(cel=f'{A}.model in ["Hopper", "Hoppers"]'))
    assert not any(kind == "correct" for kind, _ in helps(two))


def test_to_change_a_request_and_to_end_a_claim_is_no_second_way() -> None:
    listed = [device("gpu-0"), device("gpu-1", taints=[{"key": "k", "effect": "NoSchedule"}])]
    claims = [used(holder(name, f"h-{name}"), "p") for name in ("gpu-0", "gpu-1")]
    report = asking(state(resource_slice(listed), *claims))
    assert [kind for kind, _ in helps(report)] == ["end"]


def adding(
    cluster: ClusterState,
    *requests: dict[str, Any],
    count: int = 2,
    pod: dict[str, Any] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Report:
    """The answer, if a node with so many devices is to be added."""
    published = msgspec.convert(resource_slice(devices(count), pool="new"), ResourceSlice)
    added = NewNode("big", Node(metadata=ObjectMeta(name="new")), (published,))
    documents = (words.claim(*requests), *([pod] if pod else ()))
    subject = ManifestSubject(documents, "ns", "f.yaml")
    return explain(cluster, subject, added=added, cancelled=cancelled)


def test_a_node_that_would_help_is_told_in_its_place_whatever_else_helps() -> None:
    cluster = state(resource_slice(devices(2)), used(several("h", "gpu-0", "gpu-1"), "p"))
    report = adding(cluster, request(count=2))
    assert helps(report) == [
        ("end", "end claim ns/h, used by ns/p"),
        ("add node", "add a node like big"),
    ]
    assert report.no_help == ""
    three = adding(cluster, request(cel=f'{A}.model == "H100"', count=3), count=4)
    assert helps(three) == [("add node", "add a node like big")]


def test_a_node_that_would_not_help_is_told_so() -> None:
    report = adding(state(resource_slice(devices(1)), holder("gpu-0")), request(count=3))
    assert report.no_help == "a node like big would not help"
    assert adding(state(resource_slice(devices(1))), request()).no_help == ""
    lacking = adding(state(resource_slice(devices(1))), request(cel=f'{A}.modle == "H100"'))
    assert lacking.no_help == "a node like big would not help"


def test_a_node_that_could_not_be_tried_in_time_is_not_called_useless() -> None:
    """Whenever the time ends: before, during or after the look at that node."""
    cluster = state(resource_slice(devices(1)), holder("gpu-0"))

    def no_help(most: int) -> tuple[str, int]:
        asked = 0

        def cancelled() -> bool:
            nonlocal asked
            asked += 1
            return asked > most

        return adding(cluster, request(count=2), cancelled=cancelled).no_help, asked

    found, whole = no_help(sys.maxsize)
    assert found == ""
    late = "whether a node like big would help was not found out in time: give more with --timeout"
    assert {no_help(most)[0] for most in range(whole + 1)} == {"", late}


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"zone": "a"}},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": None}}},
    ],
)
def test_a_node_for_a_pod_that_chooses_nodes_needs_the_labels(spec: dict[str, Any]) -> None:
    cluster = state(resource_slice(devices(1)), holder("gpu-0"))
    for more, said in ((spec, ", with the labels that the pod asks for"), ({}, "")):
        pod = words.pod(**more)
        report = adding(cluster, request(), pod=pod)
        assert ("add node", f"add a node like big{said}") in helps(report)


def test_the_budget_that_forbids_an_eviction_is_named() -> None:
    cluster = state(resource_slice(devices(1)), used(holder("gpu-0"), "p"))
    pod = {"metadata": {"name": "p", "namespace": "ns", "labels": {"app": "train"}}}
    budgets = [
        {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": {"matchLabels": {"app": app}}} if app else {},
            "status": {"disruptionsAllowed": allowed},
        }
        for name, namespace, app, allowed in (
            ("forbids", "ns", "train", 0),
            ("allows", "ns", "train", 1),
            ("other-pods", "ns", "other", 0),
            ("elsewhere", "other", "train", 0),
            ("of-nothing", "ns", "", 0),
        )
    ]
    cluster = msgspec.structs.replace(
        cluster,
        pods=(msgspec.convert(pod, Pod),),
        pod_disruption_budgets=tuple(msgspec.convert(budgets, list[PodDisruptionBudget])),
    )
    told = (
        "end claim ns/holder, used by ns/p (PodDisruptionBudget ns/forbids allows no eviction now)"
    )
    assert helps(asking(cluster)) == [("end", told)]


def test_a_version_behind_a_guard_is_parsed_and_the_guard_kept() -> None:
    path = f"{A}.driverVersion"
    cel = f'has({path}) && {path}.isGreaterThan(semver("560.0.0"))'
    report = asking(state(version("570.1.0")), request(cel=cel))
    assert helps(report)[0][0] == "correct"


@pytest.mark.parametrize("text", [f'{A}.modle == "H100"', f"has({A}.modle)"])
def test_a_mistyped_name_is_corrected_although_the_devices_are_also_held(text: str) -> None:
    cluster = state(resource_slice(devices(1)), holder("gpu-0"))
    assert helps(asking(cluster, request(cel=text)))[0] == (
        "correct",
        f"request gpu of claim ns/mine: write {A}.model instead of {A}.modle; end claim ns/holder",
    )


def of_type(name: str, kind: str) -> dict[str, Any]:
    made = device(name)
    made["attributes"]["type"] = {"string": kind}
    return made


def test_another_class_that_has_the_device_is_asked_for_before_a_class_is_changed() -> None:
    gpus, migs = (device_class(f"{n}s", expression=f'{A}.type == "{n}"') for n in ("gpu", "mig"))
    fails, bad = device_class("a", expression="1 / 0 == 1"), device_class("b", expression="no")
    everything = {**device_class("c"), "spec": {}}
    cluster = state(resource_slice([of_type("mig-0", "mig")]), deviceClasses=[])
    names = (gpus, fails, bad, everything)
    listed = [msgspec.convert(one, DeviceClass) for one in (*names, migs)]
    report = asking(
        msgspec.structs.replace(cluster, device_classes=listed),
        request(deviceClassName="gpus"),
    )
    asked = "request gpu of claim ns/mine: ask for class migs instead of gpus"
    assert helps(report) == [("edit", asked)]
    alone = msgspec.structs.replace(cluster, device_classes=listed[:1])
    (change,) = helps(asking(alone, request(deviceClassName="gpus")))
    assert change[1].startswith("class gpus: write ")


ALL_OF_IT = {"memory": "80Gi"}
IS_B = f'{A}.model == "b"'


@pytest.mark.parametrize("names", [("any", "b"), ("b", "any")])
def test_a_request_that_all_devices_suit_leaves_the_only_one_to_another(names):
    """Whatever the order in which they are written."""
    slices = resource_slice([modelled("gpu-0", "b"), modelled("gpu-1", "a")])
    held = [used(holder(one, f"of-{one}"), one) for one in ("gpu-0", "gpu-1")]
    requests = {"any": request("any"), "b": request("b", cel=IS_B)}
    report = asking(state(slices, *held), *(requests[one] for one in names))
    assert helps(report) == [
        ("end", "end claims ns/of-gpu-0, ns/of-gpu-1, used by ns/gpu-0, ns/gpu-1")
    ]


def test_it_leaves_that_device_also_where_several_changes_are_needed():
    taint = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    slices = resource_slice(
        [modelled("gpu-0", "b"), modelled("gpu-1", "a", taints=taint), modelled("gpu-2", "a")]
    )
    report = asking(
        state(slices, holder("gpu-1", "other"), gates=["DRADeviceTaints"]),
        request("any"),
        request("b", cel=IS_B),
        request("c", cel=f'{A}.model == "c"'),
    )
    assert report.changes
    assert not any("request b " in what for _, what in helps(report))


def test_more_requests_than_can_be_put_in_each_order_are_served_as_written():
    slices = resource_slice([modelled(f"gpu-{one}", "b") for one in range(5)])
    held = [used(holder(f"gpu-{one}", f"c{one}"), f"p{one}") for one in range(2)]
    report = asking(state(slices, *held), *(request(f"r{one}") for one in range(5)))
    assert helps(report) == [("end", "end claims ns/c0, ns/c1, used by ns/p0, ns/p1")]


def test_claims_end_also_where_no_estimate_sees_that_they_must():
    """One of these devices can be shared, but not by requests that each take all of it."""
    names = ("gpu-0", "gpu-1")
    slices = resource_slice([device(one, allowMultipleAllocations=True) for one in names])
    held = [used(holder(one, f"of-{one}"), one) for one in names]
    for one in held:
        (result,) = one["status"]["allocation"]["devices"]["results"]
        result |= {"shareID": f"00000000-{one['metadata']['name']}", "consumedCapacity": ALL_OF_IT}
    cluster = state(slices, *held, gates=["DRAConsumableCapacity"])
    assert helps(asking(cluster, request("a"), request("b"))) == [
        ("end", "end claims ns/of-gpu-0, ns/of-gpu-1, used by ns/gpu-0, ns/gpu-1")
    ]
