# SPDX-License-Identifier: Apache-2.0
"""`dra-driver run`: serve until SIGTERM."""

import argparse
from collections.abc import Callable

from dra_driver.cli.settings import settings_from
from dra_driver.daemon.lifecycle import serve
from dra_driver.node.files import never


def run(chosen: argparse.Namespace, *, point: Callable[[str], None] = never) -> int:
    """Run the daemon; answers its exit code. `point` is for fault injection."""
    return serve(settings_from(chosen), point=point)
