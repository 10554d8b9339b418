# SPDX-License-Identifier: Apache-2.0
"""Make a mock node by hand, and let something befall it.

python -m dra_driver.testing.nvml make /tmp/gpus --board h100 --count 8 --mig "3g.40gb 1g.10gb"
python -m dra_driver.testing.nvml make /tmp/gpus --board h100 --layout operator --mounted-at /mock
python -m dra_driver.testing.nvml fault /tmp/gpus fallen_off_bus 3 after_calls=20
python -m dra_driver.testing.nvml fault /tmp/gpus clear
"""

import argparse
import sys
from pathlib import Path

import msgspec

from dra_driver.backends import recording
from dra_driver.backends.nvidia.facts import Node
from dra_driver.testing.nvml import attach, build, faults_by_hand, installs, machine
from dra_driver.testing.nvml.boards import BOARDS
from dra_driver.testing.nvml.control import Control
from dra_driver.testing.nvml.kernel_files import LOCAL_MAJORS
from dra_driver.testing.nvml.node import MockNode

_LAYOUTS = ("ubuntu", "fedora", "operator", "gke", "talos", "bottlerocket")
_FAULTS = (
    *("fail", "hang", "delay", "lost", "fallen_off_bus", "vanished", "ecc_uncorrectable", "xid"),
    *("event", "recovery_action", "set", "nvlink_down", "fabric", "unloaded", "mismatch"),
    *("no_permission", "no_processes", "hide_mig", "restore", "clear", "count_calls"),
)


def main() -> int:
    arguments = _parser().parse_args()
    folder = Path(arguments.folder).absolute()
    if arguments.verb == "make":
        sys.stdout.write(make(folder, arguments))
        return 0
    words = [_value(word) for word in arguments.arguments if "=" not in word]
    named = dict(word.split("=", 1) for word in arguments.arguments if "=" in word)
    values = {key: _value(word) for key, word in named.items()}
    gpus = faults_by_hand.gpu_count(folder)
    wrong = (
        [f"{folder} has no mock node; make one there: `make {folder} --board h100`"]
        if gpus is None
        else list(faults_by_hand.mistakes(arguments.fault, words, values, gpus))
    )
    if wrong:
        sys.stderr.write("".join(f"{one}\n" for one in wrong))
        return 2
    getattr(Control(folder / "control"), arguments.fault)(*words, **values)
    return 0


def make(folder: Path, arguments: argparse.Namespace) -> str:
    """Write the node, and return what to do with it."""
    facts = _facts(arguments)
    Control(folder / "control")
    place = Path(arguments.mounted_at or folder)
    control = place / "control"
    library = build.library(
        facts,
        control=control / "control",
        state=control / "state",
        dev="/dev" if arguments.mounted_at else place / "host" / "dev",
    )
    node = MockNode(
        folder / "host",
        facts,
        layout=getattr(installs, arguments.layout.upper()),
        library=library,
        nvidia_smi=build.nvidia_smi(),
        character_devices=arguments.character_devices,
        majors=LOCAL_MAJORS if arguments.mounted_at else None,
    )
    if arguments.mounted_at:
        (folder / attach.SCRIPT).write_text(attach.script(facts, place))
        return f"{len(facts.gpus)} GPUs; where it is mounted:  sh {place / attach.SCRIPT}\n"
    tool = node.driver_root / node.layout.binary_folder / "nvidia-smi"
    return (
        f"{len(facts.gpus)} GPUs in {node.folder}\n"
        f"the driver:  option hostRoot: {node.folder}\n"
        f"nvidia-smi:  LD_LIBRARY_PATH={node.library.parent} {tool} -L\n"
        f"faults:      python -m dra_driver.testing.nvml fault {folder} lost 0\n"
    )


def _facts(arguments: argparse.Namespace) -> Node:
    if arguments.snapshot:
        return msgspec.convert(recording.read(Path(arguments.snapshot)).facts, type=Node)
    return machine.node(BOARDS[arguments.board], arguments.count, mig=arguments.mig)


def _value(word: str) -> int | str:
    return int(word, 0) if word.removeprefix("0x").isalnum() and word[:1].isdigit() else word


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dra_driver.testing.nvml")
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("make", help="write a node with NVIDIA GPUs into a folder")
    one.add_argument("folder")
    what = one.add_mutually_exclusive_group(required=True)
    what.add_argument("--board", choices=sorted(BOARDS))
    what.add_argument("--snapshot", help="a file of `dra-driver snapshot`")
    one.add_argument("--count", type=int, default=1)
    one.add_argument("--mig", default="", help='the MIG devices of each GPU: "3g.40gb 1g.10gb"')
    one.add_argument("--layout", choices=_LAYOUTS, default="ubuntu")
    one.add_argument(
        "--mounted-at",
        help="where a node has the folder mounted; a script there makes device files",
    )
    one.add_argument("--character-devices", action="store_true", help="as root: real device files")
    fault = verbs.add_parser("fault", help="change what the library answers")
    fault.add_argument("folder")
    fault.add_argument("fault", choices=_FAULTS)
    fault.add_argument("arguments", nargs="*", help="the GPU's number first; then name=value")
    return parser


if __name__ == "__main__":
    sys.exit(main())
