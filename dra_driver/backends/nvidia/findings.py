# SPDX-License-Identifier: Apache-2.0
"""What one look at a GPU shows of its health, before anything is remembered. `health.py` remembers.

A finding that stays in the hardware is found again at each look, and after a restart of the driver: the recovery action, a failed row
remap, a GPU that does not answer. What the library reports once is an event (`of_event`).
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from dra_driver.backends.nvidia.facts import Fabric, Gpu, HardwareEvent
from dra_driver.backends.nvidia.options import HealthOptions
from dra_driver.backends.nvidia.xids import RESET_ADVICE, XIDS, Severity, xid
from dra_driver.model.names import (
    FABRIC_TAINT,
    LOST_TAINT,
    MEMORY_TAINT,
    RECOVERY_TAINT,
    TEMPERATURE_TAINT,
    XID_TAINT,
)

GPU_UUID = "GPU-UUID"
DOUBLE_BIT_ERROR = 2
XID_EVENT = 8

_RECOVERY_CHANGED = 154
"""An XID that says nothing of its own: the recovery action, which only a look finds, is another one now."""

GPU_UNAVAILABLE = 0x4000

NOT_SUPPORTED = frozenset({3, 13, 25})
"""NVML_ERROR_NOT_SUPPORTED, _FUNCTION_NOT_FOUND, _ARGUMENT_VERSION_MISMATCH: the GPU or its driver is too old to say this, which is no fault."""
_RESET_REQUIRED = 16
_GPU_IS_LOST = 15
_MEMORY_CALL = "nvmlDeviceGetMemoryInfo"
_FIELDS_CALL = "nvmlDeviceGetFieldValues"

_FABRIC_COMPLETED = 3
_FABRIC_NOT_COMPLETED = (1, 2)


class Finding(Struct, frozen=True):
    """One thing that is wrong: the key and value of its taint, and a sentence for people, in which GPU-UUID stands for the GPU's.

    `lasting` is the severity once it has lasted for LASTING_SECONDS, if that is another one. `is_unknown`: nobody knows what the fault
    needs, so time alone never ends it.
    """

    key: str
    value: str
    severity: Severity
    text: str
    lasting: Severity = Severity.FINE
    is_unknown: bool = False


RECOVERY_ACTIONS: Mapping[int, tuple[str, Severity, str]] = {
    1: ("gpu-reset", Severity.RESET, RESET_ADVICE),
    2: ("node-reboot", Severity.REBOOT, "drain the node and reboot it"),
    3: ("drain-p2p", Severity.DRAIN, "end the pods that use it together with other GPUs"),
    4: ("drain-and-reset", Severity.DRAIN, f"it has less capacity: {RESET_ADVICE}"),
}
"""Field 230: the taint's value, the severity and the advice. Releases of the library differ about 5 and above."""

_SUMMARIES: Mapping[int, tuple[str, Severity]] = {
    2: ("unhealthy", Severity.DRAIN),
    3: ("limited-capacity", Severity.WATCHED),
}
_MASK: tuple[tuple[int, int, str, Severity], ...] = (
    (0, 1, "degraded-bandwidth", Severity.WATCHED),
    (2, 1, "route-recovery", Severity.WATCHED),
    (4, 1, "route-unhealthy", Severity.DRAIN),
    (6, 1, "access-timeout", Severity.WATCHED),
    (14, 2, "manager-disconnected", Severity.WATCHED),
)
"""Two bits each, from this one on, and their value if it is so; 0 is not applicable."""
_CONFIGURATION_BIT = 8
_CONFIGURATIONS: Mapping[int, str] = {
    2: "system GUID",
    3: "chassis serial number",
    4: "no partition",
    5: "too few NVLinks",
    6: "incompatible firmware",
    7: "wrong place",
    8: "state of the GPU",
}


def of_event(event: HardwareEvent, options: HealthOptions) -> Finding | None:
    """Return what an event says about the device; None if it says nothing about its health."""
    if event.type & XID_EVENT and event.data not in options.ignored_xids:
        known = xid(event.data)
        name = f" ({known.name})" if known.name else ""
        text = f"the kernel driver reported XID {event.data}{name}, {known.meaning}: {known.advice}"
        unknown = event.data not in XIDS
        return Finding(XID_TAINT, str(event.data), known.severity, text, is_unknown=unknown)
    if event.type & DOUBLE_BIT_ERROR:
        return _uncorrected("an event")
    return None


def says_nothing(event: HardwareEvent, options: HealthOptions) -> bool:
    """Whether the event is an XID of an application, or one to be ignored: no reason to look at once.

    A program in any container can cause as many of them as it likes. If each cost a look, the fault of another GPU would wait behind them.
    """
    if event.type != XID_EVENT or event.data == _RECOVERY_CHANGED:
        return False
    found = of_event(event, options)
    return found is None or found.severity == Severity.FINE


def error_of(event: HardwareEvent) -> str:
    """Return the name under which an event is counted; empty for an event that is no error."""
    if event.type & XID_EVENT:
        return f"xid-{event.data}"
    if event.type & DOUBLE_BIT_ERROR:
        return "ecc-uncorrected"
    return "gpu-unavailable" if event.type & GPU_UNAVAILABLE else ""


def answers(gpu: Gpu) -> bool:
    """Whether this look proves that the GPU works: each query succeeded, and no recovery action is asked for.

    A GPU that cannot say its memory or its recovery action because it or its driver is too old is not held responsible for that.
    """
    if gpu.problem or gpu.recovery_action or _memory_error(gpu):
        return False
    if gpu.errors.get(_FIELDS_CALL, 0) not in (0, *NOT_SUPPORTED):
        return False
    return not {_GPU_IS_LOST, _RESET_REQUIRED} & set(gpu.errors.values())


def findings(
    gpu: Gpu, options: HealthOptions, *, hot: bool, ecc_before: int | None
) -> Iterator[Finding]:
    """Yield what is wrong with a GPU at this look. `hot`: it was over the limit before. `ecc_before`: its counter at the look before."""
    if gpu.problem or _GPU_IS_LOST in gpu.errors.values():
        why = gpu.problem or (
            "the library says that it is lost; see the kernel log (dmesg), and drain the node and reboot it if it does not come back"
        )
        text = f"the GPU does not answer: {why}"
        yield Finding(LOST_TAINT, "no-answer", Severity.LOST, text)
        return  # what else is known of it is old
    yield from _recovery(gpu)
    yield from _memory(gpu, ecc_before)
    limit = options.max_temperature - (options.temperature_hysteresis if hot else 0)
    if options.max_temperature and gpu.temperature is not None and gpu.temperature > limit:
        text = (
            f"the GPU became hotter than {options.max_temperature} °C: look at the cooling of the node, "
            f"or set maxTemperature"
        )
        yield Finding(TEMPERATURE_TAINT, "over-limit", Severity.DRAIN, text)
    if gpu.fabric is not None:
        yield from _fabric(gpu.fabric, whole=gpu.mig is None or not gpu.mig.enabled)


def _recovery(gpu: Gpu) -> Iterator[Finding]:
    action = gpu.recovery_action or 0
    if not action and _RESET_REQUIRED in gpu.errors.values():
        action = 1
    if not action:
        return
    value, severity, advice = RECOVERY_ACTIONS.get(
        action,
        (
            str(action),
            Severity.REBOOT,
            "this version of the driver does not know it; see what nvidia-smi -q says, and drain the node",
        ),
    )
    name = f"{action} ({value})" if action in RECOVERY_ACTIONS else value
    yield Finding(
        RECOVERY_TAINT, value, severity, f"the GPU asks for recovery action {name}: {advice}"
    )


def _memory_error(gpu: Gpu) -> int:
    """The error of the memory query; 0 if it succeeded or is not supported. The second version of the call is asked first."""
    if gpu.memory is not None:
        return 0
    code = gpu.errors.get(_MEMORY_CALL, gpu.errors.get(f"{_MEMORY_CALL}_v2", 0))
    return 0 if code in NOT_SUPPORTED else code


def _memory(gpu: Gpu, ecc_before: int | None) -> Iterator[Finding]:
    if code := _memory_error(gpu):
        text = f"the GPU does not say how much memory it has (NVML error {code}): see the kernel log (dmesg), then {RESET_ADVICE}"
        yield Finding(MEMORY_TAINT, "query-failed", Severity.RESET, text)
    if ecc_before is not None and (gpu.ecc_uncorrected or 0) > ecc_before:
        yield _uncorrected(f"the counter grew from {ecc_before} to {gpu.ecc_uncorrected}")
    if gpu.retired_pages_pending:
        text = f"pages of memory wait to be retired: {RESET_ADVICE}"
        yield Finding(MEMORY_TAINT, "retired-pages-pending", Severity.DRAIN, text)
    rows = gpu.remapped_rows
    if rows is not None and rows.failed:
        text = "a row of memory could not be replaced by a spare one: the GPU must be exchanged"
        yield Finding(MEMORY_TAINT, "row-remap-failed", Severity.SERVICE, text)
    elif rows is not None and rows.pending:
        text = "a row of memory is replaced at the next reset; the GPU can be used until then"
        yield Finding(MEMORY_TAINT, "row-remap-pending", Severity.WATCHED, text)


def _uncorrected(how: str) -> Finding:
    text = f"the GPU had a memory error that ECC could not correct ({how}): {RESET_ADVICE}"
    return Finding(MEMORY_TAINT, "ecc-uncorrected", Severity.DRAIN, text)


def _fabric(fabric: Fabric, *, whole: bool) -> Iterator[Finding]:
    if fabric.state in _FABRIC_NOT_COMPLETED:
        # A start of the node takes its time. MIG devices use no NVLink.
        lasting = Severity.DRAIN if whole else Severity.WATCHED
        text = "the GPU has not joined its NVLink fabric, and until then CUDA does not start on a whole GPU: see whether the fabric manager runs"
        yield Finding(FABRIC_TAINT, "not-ready", Severity.WATCHED, text, lasting)
    if fabric.state != _FABRIC_COMPLETED:
        return
    advice = "see the log of the fabric manager, and nvidia-smi -q"
    if fabric.status:
        text = f"the GPU could not join its NVLink fabric (NVML error {fabric.status}), and CUDA does not start on it: {advice}"
        yield Finding(FABRIC_TAINT, "registration-failed", Severity.DRAIN, text)
    if known := _SUMMARIES.get(fabric.health_summary or 0):
        value, severity = known
        yield Finding(FABRIC_TAINT, value, severity, f"the NVLink fabric is {value}: {advice}")
    mask = fabric.health_mask or 0
    for bit, bad, value, severity in _MASK:
        if mask >> bit & 0x3 == bad:
            yield Finding(
                FABRIC_TAINT, value, severity, f"the NVLink fabric reports {value}: {advice}"
            )
    if (wrong := mask >> _CONFIGURATION_BIT & 0xF) > 1:
        what = _CONFIGURATIONS.get(wrong, f"number {wrong}")
        text = f"the NVLink fabric is configured wrongly ({what}): {advice}"
        yield Finding(FABRIC_TAINT, "wrong-configuration", Severity.DRAIN, text)
