# SPDX-License-Identifier: Apache-2.0
"""`dra-driver snapshot`: save what the hardware of this node answers to a file. `--backend recorded` plays the file on any machine.

UUIDs and serial numbers are replaced, the same always by the same, unless --keep-identifiers is given. PCI addresses, versions and paths
of the driver installation stay: devices and container edits depend on them.
"""

import argparse

from dra_driver.backends import recording
from dra_driver.backends.registry import options_of
from dra_driver.cli import render
from dra_driver.cli.destination import Destination
from dra_driver.cli.settings import settings_from
from dra_driver.daemon.offline import take_snapshot
from dra_driver.model.exit_codes import DONE


def run(chosen: argparse.Namespace) -> int:
    """Ask the hardware and write the file. Returns the exit code."""
    destination = Destination.of(chosen.file, force=chosen.force)
    snapshot = take_snapshot(settings_from(chosen, options_of=options_of))
    if not chosen.keep_identifiers:
        snapshot = recording.redacted(snapshot)
    destination.write(recording.encode(snapshot))
    if not destination.is_standard_output:
        done = "replaced" if snapshot.redacted else "as they are: do not publish the file"
        render.line(
            render.plain(
                f"{chosen.file}: the hardware of backend {snapshot.backend}; UUIDs and serial numbers are {done}"
            )
        )
    return DONE
