# SPDX-License-Identifier: Apache-2.0
"""Ill devices, binding conditions that are set late, and two driver processes, as actions of the random walk (`tests.faults.walk`)."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from dra_driver.testing.stage import wait_for
from tests.faults.machines import FAILED, READY, device_of
from tests.support.invariants import Rule, violations

if TYPE_CHECKING:
    from tests.faults.walk import Pod, Walk


def fall_ill(walk: Walk) -> None:
    """The hardware reports other devices as ill than before; the slices say so if nothing is in the way."""
    count = walk.chance.choice((0, 1, 1, 2))
    chosen = sorted(walk.chance.sample(walk.machine.devices, count))
    walk.note(",".join(chosen))
    walk.ill = walk.bed.fall_ill(*chosen)
    if walk.unsettled or walk.vanished or walk.bed.troubled:
        return

    def wrong() -> list[str]:
        walk.bed.alive()
        picture = walk.bed.picture(ill=walk.ill)
        return [str(one) for one in violations(picture) if one.rule is Rule.TAINTED]

    wait_for(lambda: not wrong(), "the taints of ill devices")


def bind(walk: Walk) -> None:
    """Somebody makes a device ready for a pod, late; or never: then the scheduler takes the device back."""
    waiting = [pod for pod in walk.pods.values() if not pod.bound]
    if not waiting or "down" in walk.unsettled:
        return
    pod = walk.chance.choice(waiting)
    if walk.chance.random() < 0.8:
        _ready(walk, pod)
        walk.try_to_start(pod)
        return
    walk.note(f"{pod.name} fails")
    walk.bed.set_condition(pod.claim, FAILED, _bound_devices(walk, pod))
    walk.end(pod)


def bind_all(walk: Walk) -> None:
    """All devices are ready."""
    for pod in walk.pods.values():
        if not pod.bound:
            _ready(walk, pod)


def _ready(walk: Walk, pod: Pod) -> None:
    walk.note(f"+{pod.name}")
    walk.bed.set_condition(pod.claim, READY, _bound_devices(walk, pod))
    for other in walk.pods.values():
        if other.claim == pod.claim:
            other.bound = True


def _bound_devices(walk: Walk, pod: Pod) -> list[str]:
    return [device_of(one) for one in pod.devices if device_of(one) in walk.machine.bound]


def start_second(walk: Walk) -> None:
    """A rolling update begins: a second process serves beside the first one."""
    if walk.bed.beside is not None or walk.unsettled & {"down", "sockets", "armed"}:
        return
    walk.bed.beside = walk.bed.update()


def end_either(walk: Walk) -> None:
    """One of two processes ends, in order or killed: the older one, as planned, or the newer one."""
    if walk.bed.beside is None:
        return
    older = walk.chance.random() < 0.6
    gently = walk.chance.random() < 0.5 and "down" not in walk.unsettled
    walk.note(f"{'older' if older else 'newer'} {'ends' if gently else 'killed'}")
    process = walk.bed.beside[0] if older else walk.bed.process
    process.send_signal(signal.SIGTERM if gently else signal.SIGKILL)
    process.wait(60)
    walk.bed.go_on()
    if not gently:
        walk.unsettled.add("half")  # the killed process leaves its socket until the next start
    walk.bed.register()


# How often each happens, beside the walk's own actions.
NEWER: dict[str, tuple[Any, float]] = {
    "fall_ill": (fall_ill, 2),
    "bind": (bind, 4),
    "start_second": (start_second, 1.5),
    "end_either": (end_either, 2),
}
