# SPDX-License-Identifier: Apache-2.0
"""This module makes `Settings` from the parsed command line."""

import argparse
import os
from pathlib import Path

from dra_driver.config import settings as config
from dra_driver.config.options import OPTIONS


def settings_from(chosen: argparse.Namespace, *, named: bool = True) -> config.Settings:
    """Read the settings from command line, environment and config file. If `named` is false, the node name may be missing."""
    flags = {option.name: getattr(chosen, option.name) for option in OPTIONS}
    return config.load(
        flags, os.environ, Path(chosen.config) if chosen.config else None, named=named
    )
