# SPDX-License-Identifier: Apache-2.0
"""`dra-driver doctor`: what is wrong on this node, what does it mean, and which command mends it?

It looks at this machine, or at the one whose / is at --root, and asks the API server about its node. With --node it only asks the API
server, from anywhere. It changes nothing.
"""

import argparse
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from dra_driver.backends.registry import options_of
from dra_driver.cli import arguments, render
from dra_driver.cli.checks import Check, run_checks
from dra_driver.cli.doctor_node import node_checks
from dra_driver.cli.render_doctor import lines
from dra_driver.cli.settings import settings_from
from dra_driver.config.settings import Settings
from dra_driver.doctor.findings import Diagnosis, ordered

IN_CLUSTER = "KUBERNETES_SERVICE_HOST"


def run(chosen: argparse.Namespace) -> int:
    """Run the checks and print what they find. Returns the exit code."""
    settings = settings_from(chosen, named=False, options_of=options_of)
    found = Diagnosis(
        node=chosen.node or settings.node.name,
        driver=settings.node.driver,
        seen_from="cluster" if chosen.node else "node",
        findings=ordered(run_checks(_checks(chosen, settings))),
    )
    match chosen.output:
        case render.JSON | render.YAML:
            render.document(found, chosen.output)
        case arguments.LINES:
            for one in found.findings:
                render.json_line(msgspec.to_builtins(one))
        case _:
            width = shutil.get_terminal_size().columns
            for text in lines(
                found, width=width, color=render.colored(), everything=chosen.verbose
            ):
                render.line(text)
    return found.exit_code


def _checks(chosen: argparse.Namespace, settings: Settings) -> Iterator[Check]:
    if not chosen.node:
        in_pod = bool(os.environ.get(IN_CLUSTER))
        yield from node_checks(
            settings, Path(chosen.root), in_pod=in_pod, runtime_version=lambda: ""
        )
