# SPDX-License-Identifier: Apache-2.0
"""Which log line does the driver write for each event? A line has an event name and key-value pairs, as JSON or as text.

Services report typed events (`model/events.py`). This module decides the name and the level of the log line for each event.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO, assert_never, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from dra_driver.model.claim import ClaimRef
from dra_driver.model.events import (
    ApiAnswered,
    CgroupsNotFound,
    ClaimPrepared,
    ClaimUnprepared,
    DeviceErrors,
    DeviceEvent,
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
    Observer,
    OwnershipEvent,
    OwnNodeEvent,
    PathChosen,
    PluginEvent,
    ProcessEvent,
    PublicationProblem,
    Published,
    PublishFailed,
    Recovered,
    ResourceProblem,
    SecondOwnerRefused,
    SliceEvent,
    SliceLost,
    SliceWritten,
    StartupTaintRemoved,
    StillHeld,
    ThreadFailed,
    UnitsAllocated,
    UnitsIdentified,
    WorkEnded,
)
from dra_driver.model.printable import printable


class LineFile(Protocol):
    """Where a logger writes: standard error, or the `LogQueue` before it. Each call of `write` gets one whole line."""

    def write(self, line: str, /) -> object:
        """Write a line with its newline."""

    def flush(self) -> None:
        """Called after each line."""


def make_logger(*, level: str, form: str, file: LineFile | None = None) -> FilteringBoundLogger:
    """Make a logger that writes to `file`; None is standard error. `form` is "json" or "console". The global state of `logging` does not change."""
    processors, wrapper = _line_by_line(level, form)
    lazy = structlog.wrap_logger(_line_logger(file), processors=processors, wrapper_class=wrapper)
    logger: FilteringBoundLogger = lazy.bind()  # otherwise each line would do that
    return logger


def share_form(*, level: str, form: str, file: LineFile) -> None:
    """Let `structlog.get_logger()` of a backend write as the daemon's own logger does: it would write to standard output otherwise."""
    processors, wrapper = _line_by_line(level, form)
    structlog.configure(
        processors=processors, wrapper_class=wrapper, logger_factory=lambda *_: _line_logger(file)
    )


@contextmanager
def library_lines(log: FilteringBoundLogger) -> Iterator[None]:
    """Write what libraries tell `logging` (gRPC, urllib3, a backend) as lines of `log`, from WARNING on, inside the block."""
    handler = _LibraryLines(log)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class _LibraryLines(logging.Handler):
    def __init__(self, log: FilteringBoundLogger) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001  the arguments of other people's code may not fit their text
            text = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
        level = logging.ERROR if record.levelno >= logging.ERROR else logging.WARNING
        self._log.log(
            level, "library_said", library=record.name, said=text, exc_info=record.exc_info
        )


def _line_logger(file: LineFile | None) -> structlog.WriteLogger:
    # One write call per line, so that lines of two threads do not mix.
    return structlog.WriteLogger(sys.stderr if file is None else cast("TextIO", file))


def _line_by_line(level: str, form: str) -> tuple[list[Processor], type[FilteringBoundLogger]]:
    last: list[Processor] = (
        [_spell_out, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
        if form == "console"
        else [structlog.processors.JSONRenderer(sort_keys=True)]
    )
    processors: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        *last,
    ]
    return processors, structlog.make_filtering_bound_logger(getattr(logging, level.upper()))


def _spell_out(_log: object, _method: str, pairs: EventDict) -> EventDict:
    """Replace control characters in values.

    Other people may have written the objects from which the values come, and must not control the reader's terminal. JSON output
    does not need this, because JSON escapes control characters.
    """
    for key, value in pairs.items():
        text = value if isinstance(value, str) else repr(value)
        if key == "exception":
            pairs[key] = "\n".join(map(printable, text.split("\n")))
        elif not text.isprintable():
            pairs[key] = printable(text)
    return pairs


def log_events(log: FilteringBoundLogger) -> Observer:
    """Return an observer that writes one log line for each event."""

    def observe(event: DriverEvent) -> None:
        level, name = _line(event)
        if log.is_enabled_for(level):
            log.log(level, name, **_pairs(event))

    return observe


def _line(event: DriverEvent) -> tuple[int, str]:
    if isinstance(event, OwnershipEvent):
        return _of_ownership(event)
    if isinstance(event, PluginEvent):
        return _of_plugin(event)
    if isinstance(event, OwnNodeEvent):
        return _of_own_node(event)
    if isinstance(event, SliceEvent):
        return _of_slices(event)
    if isinstance(event, DeviceEvent):
        return _of_devices(event)
    return _of_process(event)


def _of_ownership(event: OwnershipEvent) -> tuple[int, str]:  # noqa: C901, PLR0911  a table: one short case for each event
    match event:
        case ClaimPrepared(error=error):
            return _worse(error, "claim_not_prepared", "claim_prepared")
        case ClaimUnprepared(error=error):
            return _worse(error, "claim_not_unprepared", "claim_unprepared")
        case WorkEnded(error=error):
            return logging.WARNING if error else logging.INFO, "late_work_ended"
        case DevicesHeld():
            return logging.INFO, "devices_held"
        case StillHeld():
            return logging.WARNING, "devices_still_held"
        case DevicesFreed():
            return logging.INFO, "devices_freed"
        case HeldCounted():
            return logging.INFO, "held_claims"
        case SecondOwnerRefused():
            return logging.WARNING, "second_owner_refused"
        case CgroupsNotFound():
            return logging.ERROR, "cgroups_not_found"
        case DeviceStatusForbidden():
            return logging.WARNING, "device_status_forbidden"
        case _:
            assert_never(event)


def _of_plugin(event: PluginEvent) -> tuple[int, str]:
    match event:
        case UnitsAllocated(error=error):
            return _worse(error, "units_not_allocated", "units_allocated")
        case UnitsIdentified():
            return logging.INFO, "units_identified"
        case PathChosen():
            return logging.INFO, "path_chosen"
        case ResourceProblem():
            return logging.WARNING, "resource_refused"
        case _:
            assert_never(event)


def _of_own_node(event: OwnNodeEvent) -> tuple[int, str]:
    match event:
        case NodeLabelsWritten():
            return logging.INFO, "node_labels_written"
        case NodeConditionWritten():
            return logging.INFO, "node_condition_written"
        case StartupTaintRemoved():
            return logging.INFO, "startup_taint_removed"
        case NodeWriteForbidden():
            return logging.WARNING, "node_write_forbidden"
        case _:
            assert_never(event)


def _of_slices(event: SliceEvent) -> tuple[int, str]:  # noqa: PLR0911  a table, too
    match event:
        case SliceWritten():
            return logging.INFO, "slice_written"
        case SliceLost():
            return logging.WARNING, "slice_deleted_by_somebody_else"
        case PublishFailed():
            return logging.WARNING, "publish_failed"
        case Published():
            return logging.INFO, "published"
        case PublicationProblem():
            return logging.WARNING, "left_out_of_slice"
        case FieldsDropped():
            return logging.WARNING, "fields_dropped_by_api_server"
        case NameEvaded():
            return logging.WARNING, "slice_name_taken"
        case _:
            assert_never(event)


def _of_devices(event: DeviceEvent) -> tuple[int, str]:  # noqa: PLR0911  a table, too
    match event:
        case DeviceVanished():
            return logging.WARNING, "device_vanished"
        case DeviceNotClean():
            return logging.WARNING, "device_not_clean"
        case DeviceHealthChanged(status="unhealthy"):
            return logging.WARNING, "device_unhealthy"
        case DeviceHealthChanged(status="gone"):
            return logging.WARNING, "device_gone"
        case DeviceHealthChanged(status="renamed"):
            return logging.WARNING, "device_renamed"
        case DeviceHealthChanged(message=message, before=before):
            told = bool(message) or before in ("unhealthy", "gone")
            return logging.INFO if told else logging.DEBUG, "device_health"
        case DeviceErrors():
            return logging.INFO, "device_reported_error"
        case _:
            assert_never(event)


def _of_process(event: ProcessEvent) -> tuple[int, str]:
    match event:
        case Recovered():
            return logging.INFO, "recovered"
        case Leading(leads=leads):
            return logging.INFO, "leading" if leads else "standing_by"
        case ObjectUnreadable():
            return logging.WARNING, "object_cannot_be_read"
        case ApiAnswered():
            return logging.DEBUG, "api_request"
        case ThreadFailed():
            return logging.ERROR, "thread_failed"
        case _:
            assert_never(event)


def _worse(error: object, failed: str, done: str) -> tuple[int, str]:
    return (logging.WARNING, failed) if error else (logging.INFO, done)


def _pairs(event: DriverEvent) -> dict[str, object]:
    pairs: dict[str, object] = {}
    for field in event.__struct_fields__:
        value = getattr(event, field)
        if isinstance(value, ClaimRef):
            pairs |= {
                f"{field}_namespace": value.namespace,
                f"{field}_name": value.name,
                f"{field}_uid": value.uid,
            }
        elif isinstance(value, float):
            pairs[field] = round(value, 4)
        elif isinstance(value, tuple):
            pairs |= {field: ", ".join(value)} if value else {}
        elif value != "":
            pairs[field] = value if isinstance(value, int | str) else str(value)
    return pairs
