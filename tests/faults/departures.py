# SPDX-License-Identifier: Apache-2.0
"""Pods that leave, claims that change, and answers that get lost, in ways in which nobody tells a driver the truth.

Each function is one action of the random walk (`tests.faults.walk`). What the walk knows and the driver cannot: which containers run
(`lingering` are those of pods that everybody has forgotten), and, in the journal of the simulated hardware, what they have open.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Thread, Timer
from typing import TYPE_CHECKING, Any

from dra_driver.testing.fake_kubelet import KubeletError
from dra_driver.testing.stage import DRIVER, wait_for
from tests.faults.machines import device_of, devices_of

if TYPE_CHECKING:
    from tests.faults.walk import Pod, Walk

SHORT_CALL_SECONDS = 3.0  # of a call that meets a device which may not become free
LAST_BREATH_SECONDS = 0.3


def force_delete(walk: Walk) -> None:
    """A pod is removed from the API. Its containers run on; the kubelet and the control plane forget it, and its claim."""
    pod = walk.any_pod(runs=True)
    if pod is None or "down" in walk.unsettled:
        return
    _delete_by_force(walk, pod)
    if walk.chance.random() < 0.5:
        reconcile(walk)


def _delete_by_force(walk: Walk, pod: Pod) -> None:
    walk.note(f"!{pod.name}")
    walk.bed.kubelet.force_delete(f"default/{pod.name}")
    del walk.pods[pod.name]
    walk.lingering[pod.name] = pod
    walk.release_in_api(pod)


def forget_others(walk: Walk, pod: Pod) -> None:
    """A kubelet that lost its checkpoint knows only the pods of a claim that came later: with the last of them it unprepares the claim.

    The containers of the others run on with devices that are held. Such pods are deleted by force here.
    """
    known = walk.bed.kubelet.claims.get(pod.claim.uid)
    if known is None or known.pods - {pod.uid}:
        return
    for other in walk.users(pod.claim.uid):
        if other is not pod and other.runs and other.name in walk.pods:
            _delete_by_force(walk, other)


def reconcile(walk: Walk) -> None:
    """The kubelet's loop of each minute: it unprepares the claims of pods that it has forgotten, whatever runs."""
    if "sockets" not in walk.unsettled:
        walk.bed.kubelet.reconcile(DRIVER)


def end_lingering(walk: Walk) -> None:
    """The last process of a forgotten pod ends."""
    if walk.lingering:
        end_containers(walk, walk.chance.choice(sorted(walk.lingering)))


def end_containers(walk: Walk, name: str) -> None:
    """First the process ends, and with it every open file; then the kernel says so."""
    pod = walk.lingering.pop(name)
    walk.note(f"~{name}")
    walk.runtime.closed(name)
    walk.stop_running(pod)
    walk.bed.kubelet.end_containers(pod.uid)


def end_forgotten(walk: Walk) -> None:
    """Containers that only the driver's state knows of end before it is lost: nobody could tell of them then."""
    for name in sorted(walk.lingering):
        end_containers(walk, name)
    for pod in walk.pods.values():
        # The kubelet lost its checkpoint, and the API server is what it was before the claim.
        if pod.runs and pod.claim.uid in walk.missed and not walk.bed.knows(pod.claim):
            ends_unseen(walk, pod)


def ends_unseen(walk: Walk, pod: Pod) -> None:
    """The containers end, and nobody calls the driver for the claim any more."""
    if pod.runs:
        walk.runtime.closed(pod.name)
    walk.bed.kubelet.cgroups.end(pod.uid)
    pod.runs, pod.ending = False, True
    walk.running.pop(pod.claim.uid, None)


def finalizer(walk: Walk) -> None:
    """A pod's containers end, and a foreign finalizer keeps its object: the claim stays allocated, the device is free on the node."""
    pod = walk.any_pod(runs=True)
    if pod is None or "down" in walk.unsettled:
        return
    walk.note(f"={pod.name}")
    others = [other for other in walk.users(pod.claim.uid) if other is not pod]
    if not walk.ends_on_node(pod):
        return
    walk.terminating.append(pod)
    # The kubelet calls after the last pod only. It knows a pod that was deleted by force until its loop of each minute.
    told = pod.claim.uid not in {*walk.missed, *walk.bed.kubelet.claims}
    if told and not others and pod.claim.uid in walk.bed.claims() and not walk.unsettled:
        raise AssertionError(f"{pod.name} has ended, and the driver still holds its devices")


def finalizer_goes(walk: Walk) -> None:
    """Whoever held the pod's object lets it go."""
    if walk.terminating and "down" not in walk.unsettled:
        walk.release_in_api(walk.terminating.pop())


def reallocate(walk: Walk) -> None:
    """A named claim that no pod reserves any more is allocated again, for a new pod, to whatever is free."""
    if not walk.idle or "down" in walk.unsettled:
        return
    claim = walk.idle.pop(walk.chance.randrange(len(walk.idle)))
    if not walk.bed.knows(claim):
        return  # the API server is what it was yesterday
    chosen = walk.machine.choose(walk, most=1)
    if not chosen:
        walk.idle.append(claim)
        return
    users = walk.users(claim.uid)
    if all(pod.admin for pod in users):
        # Forgotten containers with admin access own nothing: the claim may have other devices while they run.
        for pod in users:
            pod.runs = False
        walk.running.pop(claim.uid, None)
    walk.place(claim, chosen)
    for pod in walk.pods.values():
        # A pod that a restored etcd no longer knows as the claim's user waits still: it gets the new allocation too.
        if pod.claim.uid == claim.uid and not pod.runs:
            pod.devices, pod.admin = chosen, False
            pod.bound = not devices_of(chosen) & set(walk.machine.bound)


def lose_checkpoint(walk: Walk) -> None:
    """The kubelet starts without its checkpoint: it knows no claim, so those of running pods are never unprepared."""
    if "sockets" in walk.unsettled:
        return
    walk.missed |= set(walk.bed.kubelet.claims)
    walk.bed.kubelet.lose_checkpoint()
    walk.bed.register()


def lose_answer(walk: Walk) -> None:
    """A prepare or unprepare is done and its answer gets lost: the kubelet asks again, and is answered the same."""
    pod = walk.any_pod(runs=False)
    if (
        pod is None
        or walk.unsettled & {"down", "sockets", "armed"}
        or pod.claim.uid in walk.running
    ):
        return
    kubelet = walk.bed.kubelet
    walk.note(f"?{pod.name}")
    known = kubelet.claims.get(pod.claim.uid)
    asks = known is None or not known.prepared
    shorten(walk, short=bool(walk.in_the_way(pod)))
    with suppress(KubeletError):
        kubelet.prepare(DRIVER, [pod.claim], pod=f"default/{pod.name}", uid=pod.uid)
    kubelet.cgroups.end(pod.uid)  # nothing was started
    info = kubelet.claims.get(pod.claim.uid)
    if info is None or not info.prepared:
        return
    # A kubelet that still has the answer for an older allocation has not asked, and no answer was lost.
    if asks or walk.bed.is_allocation_of(pod.claim, pod.claim.uid):
        before, info.prepared, info.devices = info.devices, False, ()
        with suppress(KubeletError):
            kubelet.prepare(DRIVER, [pod.claim], pod=f"default/{pod.name}", uid=pod.uid)
            if info.devices != before:
                raise AssertionError(f"{pod.name} was answered {before}, and then {info.devices}")
        kubelet.cgroups.end(pod.uid)


def repeat_call(walk: Walk) -> None:
    """An unprepare arrives twice."""
    pod = walk.any_pod(runs=True)
    if pod is None or walk.unsettled & {"down", "sockets", "armed"}:
        return
    walk.end(pod)
    if pod.name not in walk.pods and not walk.users(pod.claim.uid):
        walk.bed.unprepare_again(pod.claim)


def slow_update(walk: Walk) -> None:
    """A device takes its time while the driver is updated: the old process sets it up, the new one recovers beside it."""
    if walk.unsettled or walk.vanished or walk.bed.beside is not None:
        return
    waiting = (pod for pod in walk.pods.values() if pod.bound and not pod.runs and not pod.ending)
    pod = next(waiting, None)
    if pod is None or pod.admin or pod.claim.uid in walk.running or walk.lingers(pod.devices):
        return
    walk.note(f"&{pod.name}")
    walk.bed.hang(device_of(pod.devices[0]))
    pause = walk.chance.random()
    errors: list[str] = []
    call = Thread(target=_prepare_beside, args=(walk, pod, errors))
    call.start()
    wait_for(lambda: pod.claim.uid in walk.bed.claims() or not call.is_alive(), "its row")
    # The new process waits at its start for whoever has the claim's lock; a device is quick or slow compared with that.
    waking = Timer(pause, walk.bed.vanish)
    waking.start()
    old = walk.bed.update()
    waking.join()
    call.join()
    walk.bed.end_old(*old)
    if errors:
        walk.refused(errors[0], pod)
    else:
        walk.has_started(pod)


def _prepare_beside(walk: Walk, pod: Pod, errors: list[str]) -> None:
    try:
        walk.bed.kubelet.prepare(DRIVER, [pod.claim], pod=f"default/{pod.name}", uid=pod.uid)
    except KubeletError as error:
        errors.append(str(error))


def last_breath(walk: Walk, pod: Pod) -> Timer | None:
    """Whoever still has one of the devices open ends in a moment, most of the times; else the call is a short one."""
    names = walk.in_the_way(pod)
    shorten(walk, short=bool(names))
    if not names or walk.chance.random() < 0.3:
        return None
    timer = Timer(LAST_BREATH_SECONDS, _end_all, (walk, names))
    timer.start()
    return timer


def shorten(walk: Walk, *, short: bool = False) -> None:
    """Let the next call be a short one if it may meet a device that nobody frees meanwhile."""
    # Where a checkpoint, the state or the API server's was lost, devices may be held until somebody vouches for them.
    held = any(row.held is not None for row in walk.bed.claims().values())
    if short or walk.missed or held or walk.unsettled & {"restored", "state", "disk"}:
        walk.bed.kubelet.call_seconds = SHORT_CALL_SECONDS
    else:
        walk.bed.kubelet.call_seconds = walk.call_seconds


def _end_all(walk: Walk, names: list[str]) -> None:
    for name in names:
        if name in walk.lingering:
            end_containers(walk, name)


# How often each happens, beside the walk's own actions.
DEPARTURES: dict[str, tuple[Any, float]] = {
    "force_delete": (force_delete, 5),
    "reconcile": (reconcile, 3),
    "end_lingering": (end_lingering, 3),
    "finalizer": (finalizer, 2),
    "finalizer_goes": (finalizer_goes, 2),
    "reallocate": (reallocate, 3),
    "lose_checkpoint": (lose_checkpoint, 0.7),
    "lose_answer": (lose_answer, 2),
    "repeat_call": (repeat_call, 2),
    "slow_update": (slow_update, 0.7),
}
