# SPDX-License-Identifier: Apache-2.0
"""Which settings did the command line choose?"""

import argparse
import os
from pathlib import Path

from dra_driver.config import settings as config
from dra_driver.config.options import OPTIONS


def settings_from(chosen: argparse.Namespace, *, named: bool = True) -> config.Settings:
    """Settings from the parsed command line, the environment and the config file; `named`: the node's name has to be there."""
    flags = {option.name: getattr(chosen, option.name) for option in OPTIONS}
    return config.load(
        flags, os.environ, Path(chosen.config) if chosen.config else None, named=named
    )
