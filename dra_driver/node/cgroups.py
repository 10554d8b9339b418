# SPDX-License-Identifier: Apache-2.0
"""Does a pod still have a process on this node? The driver reads this from the pod's cgroup.

A driver gets no message when a container ends, and the kubelet forgets pods whose containers still run. But the kubelet removes a
pod's cgroup only when no process is left in it, and the kernel always knows whether a cgroup has processes. So a pod has ended if
its cgroup is empty or missing. A missing folder proves this only below the kubelet's own cgroup (`kubepods`): if the driver did
not find that cgroup, a missing folder proves nothing.

| | folder of a pod |
| --- | --- |
| cgroup driver systemd | `kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID, - as _>.slice` |
| cgroup driver cgroupfs | `kubepods/burstable/pod<UID>` |
| guaranteed pods | the same without `burstable` |
| below another cgroup (the kubelet's `--cgroup-root`, kind) | `kubelet.slice/kubelet-kubepods.slice/…`, `kubelet/kubepods/…` |

cgroup v2 has one tree; the line `populated` in a folder's `cgroup.events` is 1 if the folder or one below it has a process.
cgroup v1 has a tree for each controller; in the tree of `pids`, `pids.current` is the number of tasks in a folder and below. In
both versions `cgroup.procs` is useless here: it shows only processes of the reader's PID namespace, so a driver in a pod sees none.
"""

import errno
import os
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path

from msgspec import Struct

from dra_driver.model.ids import PodUid
from dra_driver.model.presence import Alive, CannotTell, Gone, Presence

HIERARCHIES = ("pids", "unified")  # cgroup v1; both versions in parallel
QUALITIES = ("", "burstable", "besteffort")
DEEPEST = 5  # levels to search for kubepods; usually it is on the first or second
MOST_FOLDERS = 4096
WITNESSES = ("cgroup.events", "pids.current")
FILE_BYTES = 4096
_MOUNT = ".mount"  # systemd makes one for each mount of a pod, so a pod decides how many; the kubelet's is below none
_UID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9]*")
_KUBEPODS = re.compile(r"kubepods|(.+-)?kubepods\.slice")
_VANISHED = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ENODEV))  # ENODEV: removed while open


class _Tree(Struct, frozen=True):
    """The cgroup `kubepods` of one kubelet in one hierarchy."""

    folder: str
    prefix: str  # of the slices' names with the cgroup driver systemd; empty with cgroupfs
    witness: str  # the file that shows whether a folder, or one below it, has processes

    def folders_of(self, pod: PodUid) -> Iterator[str]:
        """Yield the possible folders of the pod, one for each QoS class, because the pod's QoS class is not known here."""
        for quality in QUALITIES:
            if not self.prefix:
                yield "/".join(filter(None, (self.folder, quality, f"pod{pod}")))
                continue
            stem = f"{self.prefix}-{quality}" if quality else self.prefix
            above = f"{self.folder}/{stem}.slice" if quality else self.folder
            yield f"{above}/{stem}-pod{pod.replace('-', '_')}.slice"

    def pods(self) -> Iterator[PodUid]:
        """Yield the pods that have a folder in this tree."""
        for quality in QUALITIES:
            if not self.prefix:
                above, before, after = f"{self.folder}/{quality}".rstrip("/"), "pod", ""
            else:
                stem = f"{self.prefix}-{quality}" if quality else self.prefix
                above = f"{self.folder}/{stem}.slice" if quality else self.folder
                before, after = f"{stem}-pod", ".slice"
            for _, name in _folders(above):
                if name.startswith(before) and name.endswith(after):
                    uid = name.removeprefix(before).removesuffix(after)
                    yield PodUid(uid.replace("_", "-") if self.prefix else uid)

    def is_populated(self, folder: str) -> bool | None:
        """Whether this cgroup, or one below it, has a process; None if the cgroup does not exist."""
        if not _is_there(folder):
            return None
        text = _content(f"{folder}/{self.witness}")
        if text is not None:
            return _is_populated(text)
        if _is_there(folder):
            raise ValueError(f"it has no {self.witness}")
        return None


class PodCgroups:
    """Looks for pods below `root`, the node's /sys/fs/cgroup. Safe to use from several threads.

    `own_pod` is the driver's own pod, if it runs in one. A kubelet's cgroup is accepted only if this pod is in it, because a
    kubelet that changed to another cgroup leaves the old one behind, empty.
    """

    def __init__(self, root: Path, *, own_pod: PodUid | None = None) -> None:
        self._root = root
        self._own_pod = own_pod
        self._trees: tuple[_Tree, ...] = ()

    def presence(self, pods: Collection[PodUid]) -> Mapping[PodUid, Presence]:
        """Find out for each pod whether it has processes now."""
        known = self._trees
        answers = {pod: _look(known, pod) for pod in pods}
        absent = [pod for pod, answer in answers.items() if answer is None]
        if absent:
            # The pod is in no known tree. The kubelet's cgroup may have moved, so search for it again: only then the missing folder is
            # a proof.
            trees = self._find()
            for pod in absent:
                answers[pod] = (
                    trees if isinstance(trees, CannotTell) else _look(trees, pod) or Gone()
                )
        return {pod: answer for pod, answer in answers.items() if answer is not None}

    def pods(self) -> frozenset[PodUid] | CannotTell:
        """List the pods that have a cgroup now, with or without processes."""
        # A pod that is missing here counts as one that never was. So the kubelet's cgroup is searched for each time: it may have moved.
        trees = self._find()
        if isinstance(trees, CannotTell):
            return trees
        try:
            return frozenset(chain.from_iterable(tree.pods() for tree in trees))
        except OSError as error:
            return CannotTell(f"cannot list the cgroups of pods: {error}")

    def blind(self) -> str:
        """Return why cgroups cannot prove on this node that a pod has ended; empty if they can."""
        found = self._find()
        return found.reason if isinstance(found, CannotTell) else ""

    def _find(self) -> tuple[_Tree, ...] | CannotTell:
        try:
            trees = _trees(self._root)
        except OSError as error:
            return CannotTell(
                f"cannot read cgroups: {error}; mount the node's /sys/fs/cgroup at {self._root}, or name its place with "
                f"--cgroup-root"
            )
        if not trees:
            return CannotTell(
                f"the kubelet's cgroup (kubepods) was not found below {self._root}: mount the node's /sys/fs/cgroup there, or "
                f"name its place with --cgroup-root; if this kubelet makes no cgroups for pods (cgroupsPerQOS: false), only "
                f"--release-proof unprepare releases devices without a proof"
            )
        own = self._own_pod
        if own is not None and all(_look((tree,), own) is None for tree in trees):
            found = ", ".join(tree.folder for tree in trees)
            return CannotTell(
                f"the driver's own pod {own} has no cgroup below {found}, so the kubelet's pods are elsewhere: name the place "
                f"with --cgroup-root"
            )
        self._trees = trees
        return trees


def _look(trees: tuple[_Tree, ...], pod: PodUid) -> Presence | None:
    """Find the pod in these trees, and whether it has processes; None if the pod is in none of them."""
    if not _UID.fullmatch(pod):
        return CannotTell(f"{pod!r} is no pod's UID, so there is no cgroup of that name")
    answer: Presence | None = None
    for tree in trees:
        for folder in tree.folders_of(pod):
            try:
                populated = tree.is_populated(folder)
            except (OSError, ValueError) as error:
                return CannotTell(
                    f"cannot read the cgroup {folder} of pod {pod}: {error}; make it readable for the driver"
                )
            if populated:
                return Alive(f"its cgroup {folder} has processes")
            if populated is not None:
                answer = Gone()
                break  # a pod is in one of the folders only
    return answer


def _is_populated(text: bytes) -> bool:
    """Whether this is the text of a cgroup with a process: `cgroup.events` has the line "populated 1", or `pids.current` is not 0.

    Raises ValueError for another text.
    """
    words = text.split()
    if b"populated" in words[:-1]:
        return words[words.index(b"populated") + 1] != b"0"
    if len(words) == 1 and words[0].isdigit():
        return words[0] != b"0"
    raise ValueError(f"{text!r} does not say whether there are processes")


def _trees(root: Path) -> tuple[_Tree, ...]:
    """Find the kubelet's cgroups in each hierarchy; empty if the first hierarchy has none. Raises OSError if a folder is unreadable."""
    root.stat()
    found = [tuple(_trees_below(start)) for start in _starts(root)]
    return tuple(chain.from_iterable(found)) if found[0] else ()


def _trees_below(start: str) -> Iterator[_Tree]:
    waiting = [(start, 0)]
    for seen, (folder, depth) in enumerate(
        waiting
    ):  # breadth first: the list grows during the loop
        if seen == MOST_FOLDERS:
            raise OSError(f"more than {MOST_FOLDERS} folders below {start}")
        for below, name in _folders(folder):
            if _KUBEPODS.fullmatch(name):
                yield from _tree(below, name)
            elif depth < DEEPEST and not name.endswith(_MOUNT):
                waiting.append((below, depth + 1))


def _starts(root: Path) -> list[str]:
    """Return the folders to search: `root` itself if it is cgroup v2, otherwise its hierarchies."""
    if (root / "cgroup.controllers").exists():
        return [str(root)]
    named = [root / name for name in HIERARCHIES]
    return [str(path) for path in named if path.is_dir()] or [str(root)]


def _tree(folder: str, name: str) -> Iterator[_Tree]:
    prefix = name.removesuffix(".slice") if name.endswith(".slice") else ""
    there = (witness for witness in WITNESSES if Path(folder, witness).exists())
    yield from (_Tree(folder, prefix, witness) for witness in islice(there, 1))


def _is_there(folder: str) -> bool:
    try:
        os.stat(folder)  # noqa: PTH116  called several times for each pod; a Path would take most of the time
    except OSError as error:
        if error.errno in _VANISHED:
            return False
        raise
    return True


def _folders(folder: str) -> list[tuple[str, str]]:
    """List the folders in this folder, with their names; empty if this folder does not exist any more."""
    try:
        with os.scandir(folder) as entries:
            return [(e.path, e.name) for e in entries if e.is_dir(follow_symlinks=False)]
    except OSError as error:
        if error.errno in _VANISHED:
            return []
        raise


def _content(path: str) -> bytes | None:
    """Read a cgroup's file. None if the cgroup does not exist any more, also if it vanished during the read."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(opened, FILE_BYTES)
        finally:
            os.close(opened)
    except OSError as error:
        if error.errno in _VANISHED:
            return None
        raise
