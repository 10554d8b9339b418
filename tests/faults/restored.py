# SPDX-License-Identifier: Apache-2.0
"""etcd is restored from a backup, as one action of the random walk (`tests.faults.walk`)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from tests.faults.departures import end_forgotten, reconcile

if TYPE_CHECKING:
    from tests.faults.walk import Walk


def back_up(walk: Walk) -> None:
    """What the API server stores now, and what the walk knows of it: pods, and those that a finalizer keeps."""
    pods = {name: dataclasses.replace(pod, runs=False) for name, pod in walk.pods.items()}
    walk.backup = walk.bed.snapshot(), pods, list(walk.terminating)


def restore(walk: Walk) -> None:
    """etcd is what it was at the last backup: later claims are unknown, ended pods are back."""
    if "down" in walk.unsettled:
        return
    if walk.backup is None:
        back_up(walk)
        for _ in range(3):  # a day passes
            if (pod := walk.any_pod()) is not None:
                walk.end(pod)
            walk.new_and_prepare()
    # To stop etcd, restore it and start it again takes longer than the kubelet's loop of a minute, which does not need the API server.
    # Otherwise the kubelet would still count the claim of a force-deleted pod as prepared, and not ask about it when the pod is back.
    reconcile(walk)
    assert walk.backup is not None
    store, pods, walk.terminating = walk.backup
    walk.backup, walk.idle = None, []
    end_forgotten(walk)
    walk.restart_api(store)
    walk.unsettled |= {"api", "restored"}
    # A claim that was allocated anew since the backup has its older allocation again, and a pod that joined it since is not named
    # any more. Such pods are deleted, as docs/faults.md says.
    for pod in list(walk.pods.values()):
        if walk.bed.knows(pod.claim) and not walk.bed.has(pod.claim, pod.uid, pod.devices):
            walk.end(pod)
    known = {pod.claim.uid for pod in walk.pods.values()}
    for pod in pods.values():
        if pod.claim.uid not in known:
            walk.numbers += 1
            name = f"p{walk.numbers}"
            walk.pods[name] = dataclasses.replace(pod, name=name, runs=False, ending=False)
            walk.try_to_start(walk.pods[name])
    walk.new_and_prepare()


# How often each happens, beside the walk's own actions.
RESTORED: dict[str, tuple[Any, float]] = {"back_up": (back_up, 1), "restore": (restore, 1.5)}
