# SPDX-License-Identifier: Apache-2.0
"""Which names of an answer may stand in an Event?"""

import pytest

from dra_driver.cli.names_of_others import without_others
from dra_driver.cli.pending_decisions import message_of
from dra_driver.explain.outcome import ClaimReport, DeviceGroup, NearestMiss, Report, RequestReport
from dra_driver.explain.verdict import (
    AllUnsatisfied,
    CapacityConsumed,
    CountersUsedUp,
    Ending,
    HeldByClaim,
    SelectorFalse,
    Verdict,
)


def report(*reasons: Verdict, about: tuple[Verdict, ...] = ()) -> Report:
    """A report about one request, with devices that cannot be had for these reasons."""
    groups = tuple(DeviceGroup(verdict=one, count=2) for one in reasons)
    nearest = NearestMiss(device="d", node="", reasons=reasons[:1])
    request = RequestReport(name="r", asks="", verdicts=about, devices=groups, nearest=nearest)
    claims = (ClaimReport(name="a/c", requests=(request,)),)
    outcome = "devices do not fit"
    return Report(subject="pod a/p", outcome=outcome, exit_code=1, summary="no", claims=claims)


def said(*reasons: Verdict, about: tuple[Verdict, ...] = ()) -> str:
    """What an Event on a pod of namespace a says, after the words that are the same for all."""
    message = message_of(without_others(report(*reasons, about=about), "a"))
    return message.removeprefix("no; ").removeprefix("2 devices match: ")


def ends(name: str, *finalizers: str) -> Ending:
    return Ending(name, "T", finalizers)


def holder(number: int, namespace: str = "b") -> HeldByClaim:
    return HeldByClaim(f"{namespace}/x{number}", (f"{namespace}/p{number}",), f"T{number}")


KEPT = "(claim another namespace is being deleted since T, kept by"
MORE = ("e/f", "e/g", "e/h", "… (1,000 finalizers)")


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        (HeldByClaim("a/x", ("a/p",)), "held by a/x, used by a/p"),
        (HeldByClaim("b/x"), "held by another namespace, used by no pod"),
        (
            HeldByClaim("b/x", ("b/p", "b/q"), "T"),
            "held by another namespace, used by another namespace, since T",
        ),
        (
            HeldByClaim("b/x", ("pod group b/g",)),
            "held by another namespace, used by pod group another namespace",
        ),
        (
            CapacityConsumed("memory", "2Gi", "1Gi", ("b/x", "c/z", "a/y", "b/w")),
            "memory: 1Gi left < 2Gi, consumed by another namespace, a/y, another namespace",
        ),
        (
            CountersUsedUp("s", "c", "2", "1", ("b/x",), (ends("pod b/p", "orphan"),)),
            "counter s/c: 1 left < 2, used by another namespace (pod another namespace is being deleted since T, kept by finalizer orphan)",
        ),
    ],
)
def test_an_object_of_another_namespace_is_not_named(reason: Verdict, shown: str) -> None:
    assert said(reason) == shown


@pytest.mark.parametrize(
    ("ending", "shown"),
    [
        (ends("claim b/x"), "(claim another namespace is being deleted since T)"),
        (ends("claim b/x", "ask/team-b"), f"{KEPT} 1 finalizer)"),
        (ends("claim b/x", "e/f", "e/g"), f"{KEPT} 2 finalizers)"),
        (ends("claim b/x", "orphan", *MORE), f"{KEPT} finalizers orphan and 999 more)"),
        (
            ends("claim a/x", "ask/team-b"),
            "(claim a/x is being deleted since T, kept by finalizer ask/team-b)",
        ),
    ],
)
def test_its_finalizers_are_counted(ending: Ending, shown: str) -> None:
    assert said(HeldByClaim("b/x", ending=(ending,))).endswith(shown)


def test_several_of_them_have_the_words_once_and_their_number() -> None:
    group = HeldByClaim("b/g", ("pod group b/h",))
    assert said(*map(holder, range(9))) == (
        "18 devices match: held by another namespace, … (9 claims)"
    )
    mixed = said(holder(1), HeldByClaim("b/x"), group, holder(2, "a"))
    assert mixed == "8 devices match: held by another namespace, a/x2 (pod p2, since T2)"


HELD = "held by another namespace, used by another namespace, since T1"
ALL = "all 2 matching devices are asked for, 2 cannot be had"
OF_NODE = "all matching devices of a node are asked for; of 2 in the cluster 2 cannot be had"


@pytest.mark.parametrize(
    ("detail", "shown"),
    [
        (f"{ALL}: {holder(1)}", f"{ALL}: {HELD}"),
        (f"{OF_NODE}, for example: {holder(1)}", f"{OF_NODE}, for example: {HELD}"),
        (f"{ALL}: {holder(2)}", ALL),
        ("all at once", "all at once"),
    ],
)
def test_nor_as_the_example_of_a_detail(detail: str, shown: str) -> None:
    """An example that no group of devices has is left out."""
    assert said(holder(1), about=(AllUnsatisfied(detail),)) == shown


@pytest.mark.parametrize("own", ["b/x bank-merger/x nosuch/x", "held by b/x1, used by b/p1"])
def test_what_an_author_wrote_is_no_name(own: str) -> None:
    """Else who writes names into a selector sees which namespaces there are."""
    false = SelectorFalse("request", 0, f'model == "{own}"', f'model "A" is not "{own}"')
    assert own in said(false, holder(1), about=(false,))
