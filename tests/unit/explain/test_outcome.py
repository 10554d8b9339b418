# SPDX-License-Identifier: Apache-2.0
"""The document that `explain -o json` prints: names of its fields, exit codes, and what to do about a reason."""

from typing import get_args

import msgspec

from dra_driver.explain import remedy, verdict
from dra_driver.explain.outcome import (
    EXIT_CODES,
    ClaimReport,
    DeviceGroup,
    NearestMiss,
    NodeGroup,
    Outcome,
    Report,
    RequestReport,
)


def test_every_outcome_has_an_exit_code_of_its_own() -> None:
    assert tuple(EXIT_CODES) == get_args(Outcome)
    assert sorted(EXIT_CODES.values()) == [0, 1, 2, 3]


def test_the_fields_of_the_document_are_in_camel_case() -> None:
    reason = verdict.Fits()
    request = RequestReport(
        name="r",
        asks="1 device",
        devices=(DeviceGroup(verdict=reason, count=1),),
        nearest=NearestMiss(device="d", node="n", reasons=(reason,)),
    )
    report = Report(
        subject="pod ns/p",
        outcome="devices fit",
        exit_code=0,
        summary="s",
        claims=(ClaimReport(name="c", requests=(request,)),),
        nodes=(NodeGroup(count=1, nodes=("n",)),),
    )
    document = msgspec.to_builtins(report)
    assert list(document) == [
        *("apiVersion", "kind"),
        *("subject", "outcome", "exitCode", "summary", "cluster", "verdicts", "claims"),
        *("nodes", "changes", "notRead", "pods", "passedOver", "noHelp", "alike"),
    ]
    assert list(document["claims"][0]["requests"][0]) == [
        *("name", "asks", "verdicts", "devices", "nearest")
    ]


def test_what_to_do_depends_on_more_than_the_kind_of_a_reason() -> None:
    assert remedy.fix(remedy.NO_NODES) == "add a node"
    other = verdict.OtherCondition("c", "m")
    assert remedy.fix(other) == remedy.ROWS[verdict.OtherCondition].fix
    late = verdict.CouldNotTell("timeout", "the search")
    assert remedy.fix(late) == "give the search more time (`--timeout`)"


def test_a_request_may_name_no_class_at_all() -> None:
    assert str(verdict.ClassMissing("")) == "the request names no device class"
