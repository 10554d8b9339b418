# SPDX-License-Identifier: Apache-2.0
"""What only `nvidia-smi` can do: the library has no call for time slices.

The program is the one of the driver root, and its arguments are ours: a UUID that the library listed, and a number.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path

from dra_driver.backends.nvidia.hardware.nvml import Failed, Found
from dra_driver.backends.nvidia.hardware.tree import Tree

SECONDS = 10.0
PROGRAM = "nvidia-smi"
_NEVER = frozenset({2, 3, 13})
"""Exit codes: wrong arguments, not supported by the GPU, not in the library. After others, such as a lost GPU, the setting may be there."""
_MOST = 300  # characters of its output in a message

Run = Callable[[list[str], dict[str, str]], subprocess.CompletedProcess[str]]


def set_time_slice(
    found: Found, host_root: str, uuid: str, interval: int, *, run: Run | None = None
) -> None:
    """Set the time slice of a GPU. Raises Failed."""
    arguments = ["compute-policy", "-i", uuid, "--set-timeslice", str(interval)]
    said = f"`{PROGRAM} {' '.join(arguments)}`"
    program = _program(found, host_root)
    # The program finds the library of its own driver root only by this.
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LD_PRELOAD": found.library}
    try:
        done = (run or _run)([program, *arguments], environment)
    except subprocess.TimeoutExpired as error:
        raise Failed(
            f"{said} did not end within {SECONDS:.0f} s, and was stopped; see `dmesg` of the node",
            retry=True,
        ) from error
    except OSError as error:
        raise Failed(
            f"{said} cannot be run: {program}: {error.strerror or error}; see that this file of the driver can be executed",
            retry=True,
        ) from error
    if done.returncode < 0:
        raise Failed(
            f"{said} was ended by signal {-done.returncode}; see `dmesg` of the node, whether the kernel or a limit of the container ended it",
            retry=True,
        )
    if done.returncode:
        output = " ".join((done.stderr or done.stdout or "no output").split())[:_MOST]
        refused = done.returncode in _NEVER or "not supported" in output.lower()
        more = ". A GPU older than Volta has no time slices" if refused else ""
        raise Failed(
            f"{said} failed with exit code {done.returncode}: {output}; try it on the node{more}",
            retry=not refused,
        )


def _program(found: Found, host_root: str) -> str:
    for path in found.installation.binaries:
        if path.rpartition("/")[2] == PROGRAM:
            root = Tree(Path(host_root)).below(found.installation.driver_root)
            return str(root.outside(root.resolve(path) or path))
    raise Failed(
        f"a time slice cannot be set: the driver root {found.installation.driver_root or '(none found)'} has no {PROGRAM}, and the library has "
        "no call for it; use claims without `timeSlicingConfig` on this node, or install the driver's programs"
    )


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  see the head of this file
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=SECONDS,
        check=False,
    )
