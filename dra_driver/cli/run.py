# SPDX-License-Identifier: Apache-2.0
"""`dra-driver run`: serve until SIGTERM."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from dra_driver import config
from dra_driver.daemon.lifecycle import serve
from dra_driver.node.files import never


def settings_from(chosen: argparse.Namespace) -> config.Settings:
    """Settings from the parsed command line, the environment and the config file."""
    flags = {option.name: getattr(chosen, option.name) for option in config.OPTIONS}
    return config.load(flags, os.environ, Path(chosen.config) if chosen.config else None)


def run(chosen: argparse.Namespace, *, point: Callable[[str], None] = never) -> int:
    """Run the daemon; answers its exit code. `point` is for fault injection."""
    return serve(settings_from(chosen), point=point)
