# SPDX-License-Identifier: Apache-2.0
"""Every reason, in words and as JSON, and its row of the docs."""

import msgspec
import pytest

from dra_driver.explain import remedy, verdict
from dra_driver.explain.verdict import Verdict, members

WORDS = [
    (verdict.Fits(), "fits"),
    (verdict.SelectorFalse("request", 0, "p", "memory 40Gi < 80Gi"), "memory 40Gi < 80Gi"),
    (verdict.SelectorFalse("request", 0, "p", "found", "hint"), "found (hint)"),
    (verdict.SelectorNeverMatches("request", 0, "p", "f"), "no device can ever match p: f"),
    (
        verdict.SelectorNeverMatches("request", 0, "p", "f", "h"),
        "no device can ever match p: f (h)",
    ),
    (verdict.SelectorError("request", 1, "p", "m"), "request selector #1: CEL runtime error: m"),
    (
        verdict.SelectorError("class c", 1, "p", "m", "h"),
        "class c selector #1: CEL runtime error: m (h)",
    ),
    (
        verdict.SelectorError("request", 1, "p", "m" * 1001, "h" * 1001),
        f"request selector #1: CEL runtime error: {'m' * 500} … {'m' * 500} ({'h' * 500} … {'h' * 500})",
    ),
    (
        verdict.CompileError("request", 0, "m" * 1001),
        f"request selector #0 does not compile: {'m' * 500} … {'m' * 500}",
    ),
    (verdict.CompileError("request", 0, "m\n | x"), "request selector #0 does not compile: m"),
    (verdict.CompileError("request", 0, "m", "h"), "request selector #0 does not compile: m (h)"),
    (
        verdict.ClassMissing("", resource="a/b"),
        "no device class has extendedResourceName a/b, and no device plugin offers it on any node",
    ),
    (
        verdict.ClassMissing("", "did you mean a/c?", "a/b"),
        "no device class has extendedResourceName a/b, and no device plugin offers it on any node (did you mean a/c?)",
    ),
    (verdict.Tainted("k=v:NoSchedule"), "tainted k=v:NoSchedule"),
    (verdict.Tainted("k:NoSchedule", "r"), "tainted k:NoSchedule by DeviceTaintRule r"),
    (verdict.HeldByClaim("ns/c"), "held by ns/c, used by no pod"),
    (verdict.HeldByClaim("ns/c", ("ns/p",)), "held by ns/c, used by ns/p"),
    (
        verdict.HeldByClaim("ns/c", tuple("abcde"), "T", "S"),
        "held by ns/c, used by a, b, c, d, … (5), since T",
    ),
    (
        verdict.HeldByClaim("c", (), "", "S", (verdict.Ending("claim c", "T", ("f", "g")),)),
        "held by c, used by no pod, claim created S (claim c is being deleted since T, kept by finalizers f, g)",
    ),
    (
        verdict.Tainted("k:NoSchedule", hint="the request tolerates it only with effect NoExecute"),
        "tainted k:NoSchedule (the request tolerates it only with effect NoExecute)",
    ),
    (
        verdict.NodeNotSelected("nodes with a=b", "node n has a=B"),
        "only for nodes with a=b (node n has a=B)",
    ),
    (verdict.NotEnoughDevices(2, 0, empty=True), "no driver publishes a device for this node"),
    (
        verdict.CountersUsedUp("s", "c", "2", "1", ("a",), (verdict.Ending("pod p", "T", ("f",)),)),
        "counter s/c: 1 left < 2, used by a (pod p is being deleted since T, kept by finalizer f)",
    ),
    (verdict.CapacityTooSmall("memory", "2Gi", "1Gi"), "memory 1Gi < 2Gi"),
    (verdict.CapacityTooSmall("memory", "2Gi"), "has no capacity memory"),
    (
        verdict.CapacityTooSmall("memory", "2Gi", "8Gi", "1Gi, 4Gi"),
        "memory 2Gi is not allowed, valid: 1Gi, 4Gi",
    ),
    (
        verdict.SelectorNeverMatches("request", 0, "p", "f", "h", ("q",)),
        "no device meets all of p, q: f (h)",
    ),
    (
        verdict.SelectorNeverMatches("request", 0, "p", "f", drivers=("d",), nodes=("n",)),
        "no device of d on node n matches p: f",
    ),
    (
        verdict.SelectorNeverMatches("request", 0, "p", "f", nodes=("n", "m")),
        "no device on nodes n, m matches p: f",
    ),
    (
        verdict.SelectorNeverMatches("request", 0, "p", "f", drivers=("d", "e")),
        "no device of d, e can ever match p: f",
    ),
    (verdict.CapacityConsumed("memory", "2Gi", "1Gi"), "memory: 1Gi left < 2Gi"),
    (
        verdict.CapacityConsumed("memory", "2Gi", "1Gi", ("a", "b")),
        "memory: 1Gi left < 2Gi, consumed by a, b",
    ),
    (verdict.CountersUsedUp("s", "c", "2", "1"), "counter s/c: 1 left < 2"),
    (
        verdict.CountersUsedUp("s", "", "", "", ("a",)),
        "counter set s is in use by another compatibility group, used by a",
    ),
    (verdict.ConstraintConflict(("a", "b")), "cannot be had together: a; b"),
    (verdict.ConstraintConflict(("a",), "d"), "cannot be had together: a (d)"),
    (verdict.NodeNotSelected("node x"), "only for node x"),
    (verdict.PoolIncomplete("p", 1, 2, 3), "pool p is incomplete: 1 of 2 slices of generation 3"),
    (verdict.PoolInvalid("p", "d"), "pool p is invalid: d"),
    (verdict.ClassMissing("c"), "device class c does not exist"),
    (verdict.ClassMissing("c", "h"), "device class c does not exist (h)"),
    (verdict.FeatureOff("G", "w"), "w needs feature gate G, which is off here"),
    (
        verdict.AdminAccessNotAllowed("ns"),
        "namespace ns has no label resource.kubernetes.io/admin-access=true, so admin access is refused",
    ),
    (verdict.TooManyDevices(33), "33 devices are asked for, a claim holds at most 32"),
    (verdict.AllUnsatisfied("d"), "d"),
    (verdict.NotEnoughDevices(2, 1), "2 devices are needed on one node, 1 can be had"),
    (verdict.NotEnoughDevices(1, 0), "1 device is needed on one node, none can be had"),
    (verdict.DriverPublishesNothing("d"), "driver d publishes no ResourceSlice"),
    (verdict.DriverPublishesNothing("d", "h"), "driver d publishes no ResourceSlice (h)"),
    (verdict.NoDevices(), "no driver publishes any device in this cluster"),
    (
        verdict.BindingConditionsPending("c", ("a", "b")),
        "claim c waits for binding conditions a, b (until when is not known, because its allocation has no time)",
    ),
    (
        verdict.BindingConditionsPending("c", ("a",), "T", ("x", "y")),
        (
            "claim c waits for binding conditions a (until T, if the scheduler has the default bindingTimeout (10 minutes))"
            "; x, y of a later device is True, which counts after that"
        ),
    ),
    (
        verdict.BindingTimedOut("c", ("a", "b"), "T"),
        (
            "claim c has waited in vain for binding conditions a, b: they were not True at T, 10 minutes after its allocation "
            "(the scheduler's default bindingTimeout; its configuration may have another, which is not known here)"
        ),
    ),
    (
        verdict.BindingTimedOut("c", ("a",), "T", reserved=True),
        (
            "claim c has waited in vain for binding conditions a: they were not True at T, 10 minutes after its allocation "
            "(the scheduler's default bindingTimeout; its configuration may have another, which is not known here)"
            "; it is still reserved for the pod: perhaps the scheduler has a longer one and waits on, or does not run"
        ),
    ),
    (verdict.BindingFailed("c", "x"), "claim c: binding failed, x is True"),
    (verdict.BindingFailed("c", "x", "m"), "claim c: binding failed, x is True: m"),
    (verdict.ClaimMissing("c", "does not exist"), "claim c does not exist"),
    (verdict.TemplateMissing("t"), "template t does not exist"),
    (
        verdict.ClaimReservedForOthers("c", 256),
        "claim c is reserved for 256 others, at most 256 can share it",
    ),
    (verdict.ClaimAllocatedElsewhere("c", "node x"), "claim c is allocated for node x"),
    (verdict.NodeSelectorMismatch("p"), "the pod's p excludes the node"),
    (verdict.NodeTainted("t"), "the node has taint t"),
    (verdict.NodeUnschedulable(), "the node is cordoned"),
    (verdict.NodeResources("cpu", "2", "1"), "cpu: 2 needed, 1 free"),
    (verdict.NodeResources("cpu", "2", "1", "0"), "cpu: 2 needed, 0 to 1 free"),
    (verdict.SchedulingGated(("a", "b")), "the pod has scheduling gates a, b"),
    (verdict.OtherCondition("Unschedulable", "m"), "Unschedulable: m"),
    (verdict.OtherCondition("no nodes", ""), "no nodes"),
    (verdict.CouldNotTell("forbidden", "w"), "could not tell (forbidden): w"),
]


@pytest.mark.parametrize(("reason", "words"), WORDS)
def test_a_reason_says_itself_in_a_few_words(reason: Verdict, words: str) -> None:
    assert str(reason) == words


@pytest.mark.parametrize("reason", [reason for reason, _ in WORDS])
def test_a_reason_survives_json_and_is_named_there(reason: Verdict) -> None:
    text = msgspec.json.encode(reason)
    assert msgspec.json.decode(text)["reason"] == type(reason).__name__
    assert msgspec.json.decode(text, type=Verdict) == reason
    assert len({reason, msgspec.json.decode(text, type=Verdict)}) == 1


def test_every_member_is_said_here_and_has_a_row() -> None:
    assert {type(reason) for reason, _ in WORDS} == set(members()) == set(remedy.ROWS)


def test_a_chosen_device_is_named_in_full() -> None:
    assert str(verdict.ChosenDevice("c", "r", "driver", "pool", "device")) == "driver/pool/device"


def test_the_table_has_a_row_for_each_member() -> None:
    lines = remedy.markdown_table().splitlines()
    assert len(lines) == 2 + len(members())
    assert all(line.count("|") == 5 for line in lines)
    assert "extendedResourceName: a/b in a" in remedy.fix(verdict.ClassMissing("", resource="a/b"))
    assert remedy.fix(verdict.NoDevices()) == remedy.ROWS[verdict.NoDevices].fix


@pytest.mark.parametrize(
    ("reason", "named"),
    [
        (verdict.ClassMissing("c"), "device class c"),
        (verdict.TemplateMissing("ns/t"), "template ns/t"),
        (verdict.DriverPublishesNothing("d"), "driver d"),
        (verdict.PoolIncomplete("d/p", 1, 2, 1), "pool d/p"),
        (verdict.PoolInvalid("d/p", "x"), "pool d/p"),
        (verdict.AdminAccessNotAllowed("ns"), "namespace ns"),
        (verdict.Tainted("t", "rule"), "DeviceTaintRule rule"),
        (verdict.Tainted("t"), "here"),
        (verdict.HeldByClaim("ns/c"), "claim ns/c"),
        (verdict.ClaimReservedForOthers("ns/c", 256), "claim ns/c"),
        (verdict.CapacityConsumed("m", "2", "1", ("ns/a",)), "claim ns/a"),
        (verdict.CountersUsedUp("s", "m", "2", "1", ("ns/a", "ns/b")), "claims ns/a, ns/b"),
        (verdict.CountersUsedUp("s", "m", "2", "1"), "here"),
        (verdict.SelectorFalse("class gpu", 0, "p", "f"), "device class gpu"),
        (verdict.CompileError("request", 0, "m"), "here"),
        (verdict.NoDevices(), "here"),
    ],
)
def test_a_remedy_names_what_it_is_about(reason: Verdict, named: str) -> None:
    assert remedy.about(reason, "here") == named


def test_nobody_is_told_to_tolerate_a_device_that_does_not_work() -> None:
    broken = remedy.fix(verdict.Tainted("gpu.dra-driver.dev/xid=79:NoExecute"))
    assert broken == "repair what the taint says, or add nodes; a pod on this device would fail"
    by_rule = remedy.fix(verdict.Tainted("gpu.intel.com/memory=Warning:NoSchedule", "rule"))
    assert by_rule == (
        "repair what the taint says, then remove the DeviceTaintRule, or add nodes; a pod on this device would fail"
    )
    for other in (verdict.Tainted("k:NoSchedule"), verdict.Tainted("k:NoSchedule", "rule")):
        assert remedy.fix(other) == remedy.ROWS[verdict.Tainted].fix


def test_a_long_condition_is_cut_in_the_middle() -> None:
    part = "device.driver in [" + "'x', " * 2000 + "'end']"
    false = verdict.SelectorFalse("request", 0, part, f"{part} is false")
    never = verdict.SelectorNeverMatches(
        "request", 0, part, f"{part} is false", others=(part,) * 30
    )
    assert len(str(false)) < 1010
    assert len(str(never)) < 3000
    assert str(false).startswith("device.driver in [")
    assert str(false).endswith("'end'] is false")
    assert "… (31 conditions)" in str(never)
    assert (false.part, never.part) == (part, part)
