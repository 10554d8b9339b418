# SPDX-License-Identifier: Apache-2.0
"""Which settings did the command line choose?"""

import argparse
import os
from pathlib import Path

from dra_driver import config


def settings_from(chosen: argparse.Namespace) -> config.Settings:
    """Settings from the parsed command line, the environment and the config file."""
    flags = {option.name: getattr(chosen, option.name) for option in config.OPTIONS}
    return config.load(flags, os.environ, Path(chosen.config) if chosen.config else None)
