# SPDX-License-Identifier: Apache-2.0
"""Does a pod still have a process on this node? Its cgroup says so.

Nobody tells a driver that a container has ended, and the kubelet forgets pods that run on. It removes a pod's cgroup only when
no process is left in it, and the kernel knows at any time whether one is. So a pod is gone when its cgroup is empty, or absent
below the kubelet's own cgroup (`kubepods`), which must have been found: a folder that was never looked at proves nothing.

| | folder of a pod |
| --- | --- |
| cgroup driver systemd | `kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID, - as _>.slice` |
| cgroup driver cgroupfs | `kubepods/burstable/pod<UID>` |
| guaranteed pods | the same without `burstable` |
| below another cgroup (the kubelet's `--cgroup-root`, kind) | `kubelet.slice/kubelet-kubepods.slice/…`, `kubelet/kubepods/…` |

Version 2 has one tree; its `cgroup.events` speak for a folder and all below. Version 1 has a tree for each controller, and that
of `pids` counts the same way (`pids.current`). `cgroup.procs` is no witness there: it leaves out every process that the reader's
pid namespace does not have, so to a driver in a pod it shows nobody.
"""

import errno
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from dra_driver.model.ids import PodUid
from dra_driver.model.presence import Alive, CannotTell, Gone, Presence

HIERARCHIES = ("pids", "unified")  # of version 1, and of both side by side
QUALITIES = ("", "burstable", "besteffort")
DEEPEST = 5  # folders above the kubelet's own: it is one or two deep where nobody chose otherwise
MOST_FOLDERS = 4096
WITNESSES = ("cgroup.events", "pids.current")
FILE_BYTES = 4096
_UID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9]*")
_KUBEPODS = re.compile(r"kubepods|(.+-)?kubepods\.slice")
_VANISHED = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ENODEV))  # ENODEV: removed while open


@dataclass(frozen=True, slots=True)
class _Tree:
    """One kubelet's cgroup in one hierarchy."""

    folder: str
    prefix: str  # of its slices' names under systemd; "" with the driver cgroupfs
    witness: str  # the file that tells of a folder and all below

    def folders_of(self, pod: PodUid) -> Iterator[str]:
        """Where the pod's cgroup may be: its quality of service is not known here."""
        for quality in QUALITIES:
            if not self.prefix:
                yield "/".join(filter(None, (self.folder, quality, f"pod{pod}")))
                continue
            stem = f"{self.prefix}-{quality}" if quality else self.prefix
            above = f"{self.folder}/{stem}.slice" if quality else self.folder
            yield f"{above}/{stem}-pod{pod.replace('-', '_')}.slice"

    def is_populated(self, folder: str) -> bool | None:
        """Whether a process is in a cgroup of this tree or below; None where there is no such cgroup."""
        if not _is_there(folder):
            return None
        text = _content(f"{folder}/{self.witness}")
        if text is not None:
            return _is_populated(text)
        if _is_there(folder):
            raise ValueError(f"it has no {self.witness}")
        return None


class PodCgroups:
    """Looks for pods below `root`, the node's /sys/fs/cgroup; safe to use from several threads.

    `own_pod` is the driver's own, where it runs in one: the kubelet's cgroup is only believed to have been found when it is there.
    A kubelet that was told to use another cgroup leaves the old, empty one behind.
    """

    def __init__(self, root: Path, *, own_pod: PodUid | None = None) -> None:
        self._root = root
        self._own_pod = own_pod
        self._trees: tuple[_Tree, ...] = ()

    def presence(self, pods: Collection[PodUid]) -> Mapping[PodUid, Presence]:
        """What is known of each pod now."""
        known = self._trees
        answers = {pod: _look(known, pod) for pod in pods}
        absent = [pod for pod, answer in answers.items() if answer is None]
        if absent:
            # Nowhere where pods were so far. Before that counts as a proof, the kubelet's cgroup is looked for again.
            trees = self._find()
            for pod in absent:
                answers[pod] = (
                    trees if isinstance(trees, CannotTell) else _look(trees, pod) or Gone()
                )
        return {pod: answer for pod, answer in answers.items() if answer is not None}

    def blind(self) -> str:
        """Why no pod can be shown to be gone on this node; "" where it can."""
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
    """What the trees say; None when the pod is in none of them."""
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
                break  # a pod has one quality of service
    return answer


def _is_populated(text: bytes) -> bool:
    """Of `cgroup.events` ("populated 1", and other lines) or `pids.current` (a number)."""
    words = text.split()
    if b"populated" in words[:-1]:
        return words[words.index(b"populated") + 1] != b"0"
    if len(words) == 1 and words[0].isdigit():
        return words[0] != b"0"
    raise ValueError(f"{text!r} does not say whether there are processes")


def _trees(root: Path) -> tuple[_Tree, ...]:
    """The kubelet's cgroups, in each hierarchy that counts; none where the first has none. Raises OSError where it cannot be read."""
    root.stat()
    found = [tuple(_trees_below(start)) for start in _starts(root)]
    return tuple(chain.from_iterable(found)) if found[0] else ()


def _trees_below(start: str) -> Iterator[_Tree]:
    waiting = [(start, 0)]
    for seen, (folder, depth) in enumerate(waiting):  # grows while it is read: breadth first
        if seen == MOST_FOLDERS:
            raise OSError(f"more than {MOST_FOLDERS} folders below {start}")
        for below, name in _folders(folder):
            if _KUBEPODS.fullmatch(name):
                yield from _tree(below, name)
            elif depth < DEEPEST:
                waiting.append((below, depth + 1))


def _starts(root: Path) -> list[str]:
    """The hierarchies to look at: the folder itself where it is one."""
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
        os.stat(folder)  # noqa: PTH116  asked several times for each pod, and a Path would be most of the time
    except OSError as error:
        if error.errno in _VANISHED:
            return False
        raise
    return True


def _folders(folder: str) -> list[tuple[str, str]]:
    """The folders in one, with their names; none where it has vanished."""
    try:
        with os.scandir(folder) as entries:
            return [(e.path, e.name) for e in entries if e.is_dir(follow_symlinks=False)]
    except OSError as error:
        if error.errno in _VANISHED:
            return []
        raise


def _content(path: str) -> bytes | None:
    """A file of a cgroup; None where the cgroup has vanished, even while it was read."""
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
