# SPDX-License-Identifier: Apache-2.0
"""The mock's folder is mounted in a machine that somebody else made, such as a node of kind: what is left to do there?

Device files, which only root can make, and which a mount may not bring along; and the driver's folders below /run.
"""

from pathlib import Path

from dra_driver.backends.nvidia.facts import Node
from dra_driver.testing.nvml.kernel_files import LOCAL_MAJORS, device_files

SCRIPT = "attach"
_DISPLAY = "/dev/dri/"  # numbers of these files are those of the machine's own displays
_HEAD = """\
#!/bin/sh
# Run as root in the machine where this folder is at {place}. Running it again changes nothing.
set -eu
made() {{
    if [ -e "$1" ]; then
        [ "$(stat -c %t "$1")" = "$(printf %x "$3")" ] && return
        echo "$1 is there already: this machine has NVIDIA GPUs of its own, and a mock beside them would give pods the wrong ones" >&2
        exit 1
    fi
    mkdir -p "${{1%/*}}"
    mknod -m "$2" "$1" c "$3" "$4"
}}
"""
_TAIL = """\
for from in {place}/host/run/*; do
    to="/run/${{from##*/}}"
    mkdir -p "$to"
    mountpoint -q "$to" || mount --bind "$from" "$to"
done
"""


def script(facts: Node, place: Path) -> str:
    """Return a shell script for the machine that has the mock's folder at `place`."""
    files = [
        f"made {file.path} {file.mode:o} {file.major} {file.minor}\n"
        for file in device_files(facts, LOCAL_MAJORS)
        if not file.path.startswith(_DISPLAY)
    ]
    return "".join([_HEAD.format(place=place), *files, _TAIL.format(place=place)])
