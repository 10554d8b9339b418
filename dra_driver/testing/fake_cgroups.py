# SPDX-License-Identifier: Apache-2.0
"""The cgroups that a kubelet and a container runtime make, as files: a tree of version 2 with the driver cgroupfs.

Only what says whether processes run is there. A kubelet makes a pod's cgroup before it asks any driver to prepare; it is
populated while a container runs, and removed some time after the last one ended.
"""

from pathlib import Path

from dra_driver.model.ids import PodUid


class FakeCgroups:
    """The tree below `root`, with the kubelet's own cgroup and none of a pod."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._pods = root / "kubepods" / "besteffort"
        root.mkdir(parents=True, exist_ok=True)
        (root / "cgroup.controllers").write_text("cpu memory pids\n")
        for folder in (root / "kubepods", self._pods):
            folder.mkdir(exist_ok=True)
            _tell(folder, populated=True)

    def folder(self, pod: PodUid) -> Path:
        """The pod's cgroup."""
        return self._pods / f"pod{pod}"

    def make(self, pod: PodUid) -> None:
        """Make the pod's cgroup, unless it is there; nothing runs in a new one."""
        folder = self.folder(pod)
        if not folder.exists():
            folder.mkdir()
            _tell(folder, populated=False)

    def run(self, pod: PodUid) -> None:
        """Containers of the pod run now."""
        self.make(pod)
        _tell(self.folder(pod), populated=True)

    def end(self, pod: PodUid) -> None:
        """The pod's last process has ended; its cgroup is still there, if it was."""
        if self.folder(pod).exists():
            _tell(self.folder(pod), populated=False)

    def remove(self, pod: PodUid) -> None:
        """The kubelet has cleaned up behind the pod."""
        folder = self.folder(pod)
        if folder.exists():
            (folder / "cgroup.events").unlink()
            folder.rmdir()

    def is_running(self, pod: PodUid) -> bool:
        """Whether the pod has processes."""
        events = self.folder(pod) / "cgroup.events"
        return events.exists() and "populated 1" in events.read_text()

    def pods(self) -> list[PodUid]:
        """Every pod that has a cgroup."""
        return [PodUid(path.name.removeprefix("pod")) for path in sorted(self._pods.glob("pod*"))]


def _tell(folder: Path, *, populated: bool) -> None:
    # By a rename: the kernel's file is never seen half written.
    new = folder.parent / f".{folder.name}.events"
    new.write_text(f"populated {int(populated)}\nfrozen 0\n")
    new.replace(folder / "cgroup.events")
