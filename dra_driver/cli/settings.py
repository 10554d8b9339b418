# SPDX-License-Identifier: Apache-2.0
"""This module makes `Settings` from the parsed command line."""

import argparse
import os
from pathlib import Path

from dra_driver.config import settings as config
from dra_driver.config.document import OptionsOf, nothing_declared
from dra_driver.config.options import CONFIG_VARIABLE, OPTIONS


def settings_from(
    chosen: argparse.Namespace, *, named: bool = True, options_of: OptionsOf = nothing_declared
) -> config.Settings:
    """Read the settings from command line, environment and config file. If `named` is false, the node name may be missing.

    A command that uses the backends passes `options_of`, so that their sections of the config file are checked too.
    """
    flags = {option.name: getattr(chosen, option.name) for option in OPTIONS}
    named_file = chosen.config or os.environ.get(CONFIG_VARIABLE)
    file = Path(named_file) if named_file else None
    return config.load(flags, os.environ, file, named=named, options_of=options_of)


def is_given(chosen: argparse.Namespace, name: str) -> bool:
    """Return whether a setting was given to this process itself, by its flag or its variable: a config document may be the driver's."""
    (option,) = (one for one in OPTIONS if one.name == name)
    return getattr(chosen, name) is not None or option.variable in os.environ
