# SPDX-License-Identifier: Apache-2.0
"""What does process 1 of the cluster's namespaces do?

It makes the mounts and addresses that the node needs, says so, and from then on only buries
processes whose parent is gone (each container's shim is one). It ends when its standard input
ends: the cluster never outlives the program that started it, however that program died, because
with process 1 the kernel ends every process of the namespace.

usage: init.py ROOT (from `unshare --mount --net --pid --fork --mount-proc`)
"""

import os
import subprocess
import sys
import threading
from pathlib import Path

API_SERVER_ADDRESS = "10.96.0.1"  # the first of the service range, as in any cluster
NODE_ADDRESS = "192.0.2.10"
READY = "namespaces are ready"
KUBELET_FOLDER = Path("/var/lib/kubelet")
# The node's own versions of these folders lie below ROOT; outside nobody sees what it writes there.
NODE_FOLDERS = {
    KUBELET_FOLDER: "var-lib-kubelet",
    Path("/var/lib/cni"): "var-lib-cni",
    Path("/var/log"): "var-log",
    Path("/etc/kubernetes"): "etc-kubernetes",  # the driver's feature file goes there
}
RUN_FOLDER = Path("/run")


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def mount_run() -> None:
    """An empty /run, as after a boot."""
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(RUN_FOLDER))


def make_node(root: Path) -> None:
    """Mounts and addresses; the order matters, sharing comes first."""
    _run("mount", "--make-rshared", "/")
    for folder, below_root in NODE_FOLDERS.items():
        _run("mount", "--bind", str(root / below_root), str(folder))
    mount_run()
    _run("ip", "link", "set", "lo", "up")
    for address in (API_SERVER_ADDRESS, NODE_ADDRESS):
        _run("ip", "address", "add", f"{address}/32", "dev", "lo")


def _end_with_standard_input() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)


def _bury_orphans() -> None:
    waiting = threading.Event()
    while True:
        try:
            os.wait()
        except ChildProcessError:
            waiting.wait(1)  # nobody to wait for yet


def main() -> None:
    """Be process 1."""
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    make_node(Path(sys.argv[1]))
    os.write(sys.stdout.fileno(), f"{READY}\n".encode())
    _bury_orphans()


if __name__ == "__main__":
    main()
