# SPDX-License-Identifier: Apache-2.0
"""`dra-driver run`: run the driver on this node until it gets SIGTERM or SIGINT."""

import argparse
from collections.abc import Callable

from dra_driver.backends.registry import options_of
from dra_driver.cli.settings import settings_from
from dra_driver.daemon.lifecycle import serve
from dra_driver.node.files import never


def run(chosen: argparse.Namespace, *, point: Callable[[str], None] = never) -> int:
    """Run the daemon. Returns its exit code. `point` is called at each failpoint; tests use it to inject faults."""
    return serve(settings_from(chosen, options_of=options_of), point=point)
