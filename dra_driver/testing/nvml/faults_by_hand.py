# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a fault that somebody typed? A line that the library does not know does nothing, and nobody would see why."""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from dra_driver.testing.nvml.control import ALL, NODE, Control

Word = int | str

OF_GPU = (
    *("temperature", "memory_used", "recovery_action", "compute_mode", "mig_enabled"),
    *("mig_pending", "rows_correctable", "rows_uncorrectable", "rows_pending", "rows_failed"),
    *("retired_pending", "utilization", "memory_utilization", "power_mw", "power_limit_mw"),
    *("sm_clock_mhz", "memory_clock_mhz", "clock_reasons", "ecc_corrected"),
)
OF_NODE = ("cc_feature", "cc_ready", "driver_version")
OF_FABRIC = ("state", "status", "clique", "mask", "summary", "cluster")
WORDS = (
    *("fail", "lost", "fallen_off_bus", "vanished", "ecc_uncorrectable", "event", "set"),
    *("nvlink_down", "fabric", "unloaded", "mismatch", "no_permission", "process"),
    *("no_processes", "mig_hidden", "mig", "count_calls"),
)
"""The second words of lines of the control file."""
_TEXTS = ("function", "gpu", "word", "uuid", "cluster", "driver_version")
_SOURCES = Path(__file__).resolve().parent / "src"
_FUNCTION = re.compile(r"^int (nvml\w+)\(", re.MULTILINE)


def gpu_count(folder: Path) -> int | None:
    """How many GPUs the mock node in a folder has; None if there is no mock node."""
    try:
        return len(list((folder / "host/proc/driver/nvidia/gpus").iterdir()))
    except OSError:
        return None


def mistakes(
    fault: str, words: Sequence[Word], named: Mapping[str, Word], gpus: int
) -> Iterator[str]:
    """Yield what is wrong with the arguments of a method of Control."""
    try:
        bound = inspect.signature(getattr(Control, fault)).bind(None, *words, **named).arguments
    except TypeError as error:
        yield f"{fault} does not take these arguments: {error}; see Control in dra_driver/testing/nvml/control.py"
        return
    values = bound.pop("values", {})
    target = bound.get("gpu", ALL)
    node = target == NODE and fault == "set"
    if not node and target != ALL and target not in range(gpus):
        yield f"there is no GPU {target}: the node has {gpus}, from 0 on; `*` stands for all"
    yield from _unknown("function", bound.get("function", ALL), _functions())
    yield from _unknown("word", bound.get("word", "set"), WORDS)
    if "mig" in bound:
        yield "mig needs Python: Control in dra_driver/testing/nvml/control.py"
    known = OF_NODE if node else OF_FABRIC if fault == "fabric" else OF_GPU
    for name in values:
        yield from _unknown("value", name, known)
    if "values" in inspect.signature(getattr(Control, fault)).parameters and not values:
        yield f"{fault} needs name=value; known are {', '.join(known)}"
    for name, value in {**bound, **values}.items():
        if isinstance(value, str) and name not in {*_TEXTS, "self", "mig"}:
            yield f"{name}={value} must be a number"


def _unknown(what: str, name: Word, known: Sequence[str]) -> Iterator[str]:
    if not any(fnmatchcase(one, str(name)) for one in known):
        yield f"there is no {what} {name}; known are {', '.join(known)}"


def _functions() -> list[str]:
    found = (_FUNCTION.findall(path.read_text()) for path in sorted(_SOURCES.glob("*.c")))
    return [name for names in found for name in names]
