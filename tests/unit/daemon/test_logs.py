# SPDX-License-Identifier: Apache-2.0
"""One line for each event, for machines and for people."""

import json
import logging
import sys
import typing

import pytest
import structlog

from dra_driver.daemon.logs import library_lines, log_events, make_logger, share_form
from dra_driver.model.events import (
    ApiAnswered,
    CgroupsNotFound,
    ClaimPrepared,
    ClaimUnprepared,
    DeviceErrors,
    DeviceHealthChanged,
    DeviceNotClean,
    DevicesFreed,
    DevicesHeld,
    DeviceStatusForbidden,
    DeviceVanished,
    DriverEvent,
    FieldsDropped,
    HeldCounted,
    Leading,
    NameEvaded,
    NodeConditionWritten,
    NodeLabelsWritten,
    NodeWriteForbidden,
    ObjectUnreadable,
    PathChosen,
    PublicationProblem,
    Published,
    PublishFailed,
    Recovered,
    ResourceProblem,
    SecondOwnerRefused,
    SliceLost,
    SliceWritten,
    StartupTaintRemoved,
    StillHeld,
    ThreadFailed,
    UnitsAllocated,
    UnitsIdentified,
    WorkEnded,
)
from dra_driver.model.slices import Problem
from dra_driver.testing.builders import a_ref

CLAIM = {"claim_namespace": "default", "claim_name": "claim", "claim_uid": "uid-claim"}
ROW = {"row_namespace": "default", "row_name": "claim", "row_uid": "uid-claim"}
LINES: list[tuple[DriverEvent, str, str, dict[str, object]]] = [
    (ClaimPrepared(a_ref(), 0.123456), "info", "claim_prepared", CLAIM | {"seconds": 0.1235}),
    (
        ClaimPrepared(a_ref(), 0.0, "no"),
        "warning",
        "claim_not_prepared",
        CLAIM | {"seconds": 0.0, "error": "no"},
    ),
    (ClaimUnprepared(a_ref(), 1.0), "info", "claim_unprepared", CLAIM | {"seconds": 1.0}),
    (
        ClaimUnprepared(a_ref(), 1.0, "no"),
        "warning",
        "claim_not_unprepared",
        CLAIM | {"seconds": 1.0, "error": "no"},
    ),
    (WorkEnded(a_ref()), "info", "late_work_ended", CLAIM),
    (WorkEnded(a_ref(), "no"), "warning", "late_work_ended", CLAIM | {"error": "no"}),
    (
        DevicesHeld(a_ref(), "node-1/gpu-0", "pod one still runs"),
        "info",
        "devices_held",
        CLAIM | {"devices": "node-1/gpu-0", "reason": "pod one still runs"},
    ),
    (
        StillHeld(a_ref(), "node-1/gpu-0", "then", "pod one still runs"),
        "warning",
        "devices_still_held",
        CLAIM | {"devices": "node-1/gpu-0", "since": "then", "reason": "pod one still runs"},
    ),
    (
        DevicesFreed(a_ref(), "node-1/gpu-0"),
        "info",
        "devices_freed",
        CLAIM | {"devices": "node-1/gpu-0"},
    ),
    (HeldCounted(2), "info", "held_claims", {"claims": 2}),
    (
        SecondOwnerRefused(a_ref(), a_ref("first"), "gpu-0", "it still exists"),
        "warning",
        "second_owner_refused",
        CLAIM
        | {
            "owner_namespace": "default",
            "owner_name": "first",
            "owner_uid": "uid-first",
            "device": "gpu-0",
            "reason": "it still exists",
        },
    ),
    (
        CgroupsNotFound("no kubepods below /sys/fs/cgroup"),
        "error",
        "cgroups_not_found",
        {"reason": "no kubepods below /sys/fs/cgroup"},
    ),
    (
        DeviceStatusForbidden(a_ref(), "no right"),
        "warning",
        "device_status_forbidden",
        {
            **CLAIM,
            "reason": "no right",
        },
    ),
    (
        NodeLabelsWritten(2, ("a",), ()),
        "info",
        "node_labels_written",
        {"labels": 2, "changed": "a"},
    ),
    (
        NodeConditionWritten(False, "NoDevices", "none"),
        "info",
        "node_condition_written",
        {"ready": False, "reason": "NoDevices", "message": "none"},
    ),
    (StartupTaintRemoved("a/b"), "info", "startup_taint_removed", {"taint": "a/b"}),
    (
        NodeWriteForbidden("labels", "no right"),
        "warning",
        "node_write_forbidden",
        {"what": "labels", "reason": "no right"},
    ),
    (SliceWritten("s", "create"), "info", "slice_written", {"name": "s", "action": "create"}),
    (
        SliceLost("s", 1.0),
        "warning",
        "slice_deleted_by_somebody_else",
        {"name": "s", "delay_seconds": 1.0},
    ),
    (
        PublishFailed("503", 2.0),
        "warning",
        "publish_failed",
        {"reason": "503", "delay_seconds": 2.0},
    ),
    (Published(8, 1), "info", "published", {"devices": 8, "slices": 1}),
    (
        PublicationProblem(Problem("gpu-0", "a", "b", "c")),
        "warning",
        "left_out_of_slice",
        {"problem": "device gpu-0: a: b; c"},
    ),
    (
        FieldsDropped("s", ("a", "b")),
        "warning",
        "fields_dropped_by_api_server",
        {"name": "s", "fields": "a, b"},
    ),
    (
        ObjectUnreadable("resourceclaims", "team/bad (uid u-1)", "it is nested too deep"),
        "warning",
        "object_cannot_be_read",
        {
            "resource": "resourceclaims",
            "name": "team/bad (uid u-1)",
            "found": "it is nested too deep",
        },
    ),
    (FieldsDropped("s", ()), "warning", "fields_dropped_by_api_server", {"name": "s"}),
    (
        NameEvaded("a", "somebody's", "b"),
        "warning",
        "slice_name_taken",
        {"name": "a", "found": "somebody's", "instead": "b"},
    ),
    (
        DeviceVanished("gpu-0", kept=False),
        "warning",
        "device_vanished",
        {"device": "gpu-0", "kept": False},
    ),
    (
        DeviceNotClean("gpu-0", "process 4711 uses it"),
        "warning",
        "device_not_clean",
        {"device": "gpu-0", "found": "process 4711 uses it"},
    ),
    (
        DeviceHealthChanged("gpu-0", "unhealthy", "XID 79", before="healthy"),
        "warning",
        "device_unhealthy",
        {"device": "gpu-0", "status": "unhealthy", "message": "XID 79", "before": "healthy"},
    ),
    (
        DeviceHealthChanged("gpu-0", "healthy", before="unhealthy"),
        "info",
        "device_health",
        {"device": "gpu-0", "status": "healthy", "before": "unhealthy"},
    ),
    (
        DeviceHealthChanged("gpu-0", "healthy", "XID 92", before="healthy"),
        "info",
        "device_health",
        {"device": "gpu-0", "status": "healthy", "message": "XID 92", "before": "healthy"},
    ),
    (
        DeviceHealthChanged("gpu-0", "gone", "no scan finds it", before="healthy"),
        "warning",
        "device_gone",
        {"device": "gpu-0", "status": "gone", "message": "no scan finds it", "before": "healthy"},
    ),
    (
        DeviceHealthChanged("gpu-1", "renamed", "it is called gpu-0", before="healthy"),
        "warning",
        "device_renamed",
        {
            "device": "gpu-1",
            "status": "renamed",
            "message": "it is called gpu-0",
            "before": "healthy",
        },
    ),
    (
        DeviceHealthChanged("gpu-0", "healthy", lost="GPU-x"),
        "debug",
        "device_health",
        {"device": "gpu-0", "status": "healthy", "lost": "GPU-x"},
    ),
    (
        DeviceHealthChanged("gpu-0", "healthy", before="gone"),
        "info",
        "device_health",
        {"device": "gpu-0", "status": "healthy", "before": "gone"},
    ),
    (
        DeviceErrors("gpu-0", "xid-31", 2),
        "info",
        "device_reported_error",
        {"device": "gpu-0", "error": "xid-31", "count": 2},
    ),
    (Recovered(0, 1, 2), "info", "recovered", {"rewritten": 0, "released": 1, "removed_files": 2}),
    (
        UnitsAllocated(a_ref(), ("gpu-0", "gpu-1"), 0.5),
        "info",
        "units_allocated",
        ROW | {"units": "gpu-0, gpu-1", "seconds": 0.5},
    ),
    (
        UnitsAllocated(a_ref(), ("gpu-0",), 0.5, "no"),
        "warning",
        "units_not_allocated",
        ROW | {"units": "gpu-0", "seconds": 0.5, "error": "no"},
    ),
    (
        UnitsIdentified(a_ref(), "pod-a", "main"),
        "info",
        "units_identified",
        ROW | {"pod": "pod-a", "container": "main"},
    ),
    (PathChosen("dra", "x"), "info", "path_chosen", {"path": "dra", "reason": "x"}),
    (
        ResourceProblem("classes.yaml", "x", "write y"),
        "warning",
        "resource_refused",
        {"where": "classes.yaml", "reason": "x", "next_step": "write y"},
    ),
    (Leading(leads=True), "info", "leading", {"leads": True}),
    (
        Leading(leads=False, leader="process 7"),
        "info",
        "standing_by",
        {"leads": False, "leader": "process 7"},
    ),
    (
        ApiAnswered("get", "nodes", "200"),
        "debug",
        "api_request",
        {"verb": "get", "resource": "nodes", "code": "200"},
    ),
    (
        ThreadFailed("publish", "x", 1.0),
        "error",
        "thread_failed",
        {"thread": "publish", "error": "x", "delay_seconds": 1.0},
    ),
]


def test_the_table_below_knows_every_event() -> None:
    assert {type(event) for event, *_ in LINES} == set(typing.get_args(DriverEvent))


@pytest.mark.parametrize(("event", "level", "name", "pairs"), LINES)
def test_each_event_is_one_line_of_json(capsys, event, level: str, name: str, pairs) -> None:
    log_events(make_logger(level="debug", form="json"))(event)
    captured = capsys.readouterr()
    line = json.loads(captured.err)
    assert captured.out == ""
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": name, "level": level} | pairs


def test_lines_below_the_level_are_not_written(capsys) -> None:
    log = make_logger(level="warning", form="json")
    log_events(log)(Published(1, 1))
    log_events(make_logger(level="info", form="json"))(DeviceHealthChanged("gpu-0", "healthy"))
    log.debug("x")
    assert capsys.readouterr().err == ""


def test_a_backend_that_asks_structlog_for_a_logger_writes_as_the_driver_does(capsys) -> None:
    log = structlog.get_logger(backend="a")
    try:
        share_form(level="warning", form="json", file=sys.stderr)
        log.warning("usage_not_measured", device="gpu-0")
        log.info("below the level")
    finally:
        structlog.reset_defaults()
    captured = capsys.readouterr()
    assert captured.out == ""
    line = json.loads(captured.err)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "usage_not_measured",
        "level": "warning",
        "backend": "a",
        "device": "gpu-0",
    }


class Unspeakable:
    """A message whose text cannot be made."""

    def __str__(self) -> str:
        raise ValueError("no text")


def test_what_a_library_tells_python_s_logging_is_a_line_of_this_log(capsys) -> None:
    log = make_logger(level="info", form="json")
    with library_lines(log):
        try:
            {}["lost"]
        except KeyError:
            logging.getLogger("grpc._server").exception("Exception calling %s", "application")
        # Not by way of its logger, because pytest has a handler that such a record ends.
        record = logging.LogRecord("a", 35, "", 0, "%d", ("of another kind",), None)
        logging.getLogger().handlers[-1].handle(record)
        unspeakable = logging.LogRecord("a", 35, "", 0, Unspeakable(), (), None)
        logging.getLogger().handlers[-1].handle(unspeakable)
        logging.getLogger("a").info("below")
    logging.getLogger("a").debug("after")
    first, second, third = map(json.loads, capsys.readouterr().err.splitlines())
    assert "KeyError: 'lost'" in first.pop("exception")
    del first["timestamp"], second["timestamp"]
    pairs = {"event": "library_said", "level": "error", "library": "grpc._server"}
    assert first == pairs | {"said": "Exception calling application"}
    assert second == pairs | {"level": "warning", "library": "a", "said": "%d"}
    assert third["said"] == "Unspeakable"


def test_an_error_line_carries_the_traceback(capsys) -> None:
    log = make_logger(level="info", form="json")
    try:
        {}["lost"]
    except KeyError:
        log.exception("thread_error", thread="x")
    line = json.loads(capsys.readouterr().err)
    assert line["event"] == "thread_error"
    assert "KeyError: 'lost'" in line["exception"]


def test_people_read_words(capsys) -> None:
    log_events(make_logger(level="info", form="console"))(ClaimPrepared(a_ref(), 0.5))
    line = capsys.readouterr().err
    assert "claim_prepared" in line
    assert "claim_name=claim" in line
    assert "\x1b" not in line  # no colours where nobody looks


HOSTILE = "\x1b]0;owned\x07\x1b[2Jgone\x9b31m\u202e"


def unprintable(text: str) -> set[str]:
    return {one for one in text if not one.isprintable() and one != "\n"}


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_text_of_others_acts_on_the_terminal(capsys, form: str) -> None:
    log_events(make_logger(level="info", form=form))(
        ClaimPrepared(a_ref(HOSTILE), 0.5, f"it said {HOSTILE}")
    )
    line = capsys.readouterr().err
    assert unprintable(line) == set()
    assert "claim_name=" in line or json.loads(line)["claim_name"] == HOSTILE


def fail() -> None:
    raise ValueError(HOSTILE)


class Vendors:
    def __str__(self) -> str:
        return HOSTILE

    __repr__ = __str__


@pytest.mark.parametrize("form", ["json", "console"])
def test_neither_do_values_of_other_kinds_and_tracebacks(capsys, form: str) -> None:
    log = make_logger(level="info", form=form)
    try:
        fail()
    except ValueError:
        log.exception(HOSTILE, value=Vendors(), several=[HOSTILE], number=7)
    text = capsys.readouterr().err
    assert unprintable(text) == set()
    if form == "console":
        lines = text.splitlines()
        assert len(lines) > 3  # the traceback has its lines
        assert "number=7" in lines[0]
        assert lines[-1].startswith("ValueError: \\x1b]0;owned")


def test_colours_are_the_loggers_own(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda _stream: True, raising=False)
    make_logger(level="info", form="console").info("name", value=HOSTILE)
    line = capsys.readouterr().err
    assert "\x1b[" in line
    assert "\x1b[2J" not in line
    assert "\\x1b[2J" in line


def test_a_hostile_text_stays_on_its_line(capsys) -> None:
    for form in ("json", "console"):
        log_events(make_logger(level="info", form=form))(
            ClaimPrepared(a_ref(), 0.5, "a\nlevel=info forged")
        )
        assert len(capsys.readouterr().err.splitlines()) == 1, form
