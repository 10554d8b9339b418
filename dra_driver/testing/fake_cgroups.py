# SPDX-License-Identifier: Apache-2.0
"""The cgroups that a kubelet and a container runtime make, as files: a tree of version 2 with the driver cgroupfs.

The tree has only the files that show whether processes run. A kubelet creates the cgroup of a pod before it calls a driver's prepare. The
cgroup is populated while a container runs, and removed some time after the last container ended.
"""

from pathlib import Path

from dra_driver.model.ids import PodUid


class FakeCgroups:
    """The tree below `root`. At first it has the kubelet's own cgroup, and no pod."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._pods = root / "kubepods" / "besteffort"
        root.mkdir(parents=True, exist_ok=True)
        (root / "cgroup.controllers").write_text("cpu memory pids\n")
        for folder in (root / "kubepods", self._pods):
            folder.mkdir(exist_ok=True)
            _tell(folder, populated=True)

    def folder(self, pod: PodUid) -> Path:
        """Return the directory of the pod's cgroup."""
        return self._pods / f"pod{pod}"

    def make(self, pod: PodUid) -> None:
        """Create the pod's cgroup if it does not exist. A new one has no processes."""
        folder = self.folder(pod)
        if not folder.exists():
            folder.mkdir()
            _tell(folder, populated=False)

    def run(self, pod: PodUid) -> None:
        """Set the pod's cgroup to populated: containers run."""
        self.make(pod)
        _tell(self.folder(pod), populated=True)

    def end(self, pod: PodUid) -> None:
        """Set the pod's cgroup, if it exists, to not populated: the last process has ended."""
        if self.folder(pod).exists():
            _tell(self.folder(pod), populated=False)

    def remove(self, pod: PodUid) -> None:
        """Remove the pod's cgroup, as the kubelet does after the pod."""
        folder = self.folder(pod)
        if folder.exists():
            (folder / "cgroup.events").unlink()
            folder.rmdir()

    def is_running(self, pod: PodUid) -> bool:
        """Return whether the pod has processes."""
        events = self.folder(pod) / "cgroup.events"
        return events.exists() and "populated 1" in events.read_text()

    def pods(self) -> list[PodUid]:
        """Return every pod that has a cgroup."""
        return [PodUid(path.name.removeprefix("pod")) for path in sorted(self._pods.glob("pod*"))]


def _tell(folder: Path, *, populated: bool) -> None:
    # Write by rename, so that a reader never sees a half-written file. A file of the kernel is never half written either.
    new = folder.parent / f".{folder.name}.events"
    new.write_text(f"populated {int(populated)}\nfrozen 0\n")
    new.replace(folder / "cgroup.events")
