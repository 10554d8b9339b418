# SPDX-License-Identifier: Apache-2.0
"""What is known besides the files that `check` and `convert` read: the driver's configuration, and a cluster or a record of it."""

import argparse
import json
import shlex
from collections.abc import Mapping

from dra_driver import PROJECT
from dra_driver.backends.nvidia.config import KINDS
from dra_driver.backends.nvidia.plugin.config import read_config
from dra_driver.backends.nvidia.plugin.mig_layout import read_layouts
from dra_driver.backends.registry import kinds_of_others
from dra_driver.backends.simulated_config import GPU, GPU_OF_LATER_RELEASES, LABEL, NET
from dra_driver.check.given import Known, ReadConfig
from dra_driver.cli import cluster, inputs
from dra_driver.model.cluster import ClusterState


def known(chosen: argparse.Namespace) -> Known:
    """Return what decides beside the files. Raises DriverError if the cluster or the record cannot be read."""
    return Known(
        driver=chosen.driver_name,
        kinds=(*KINDS, LABEL, GPU, GPU_OF_LATER_RELEASES, NET, *kinds_of_others()),
        state=state(chosen),
        explain=_explain(chosen),
        read_layouts=_layouts,
        read_plugin_config=_plugin_config,
    )


def state(chosen: argparse.Namespace) -> ClusterState | None:
    """Return the cluster that was asked for; None if the files are checked alone. Raises DriverError."""
    if chosen.record:
        return inputs.record(chosen.record)
    if chosen.cluster or chosen.kubeconfig or chosen.context:
        return cluster.read(cluster.target(chosen))
    return None


def _explain(chosen: argparse.Namespace) -> str:
    """Return the command that explains a manifest in the same cluster or record."""
    flags = {
        "--from": chosen.record,
        "--kubeconfig": chosen.kubeconfig,
        "--context": chosen.context,
    }
    given = (word for flag, value in flags.items() if value for word in (flag, str(value)))
    return shlex.join((PROJECT, "explain", *given))


def _layouts(content: Mapping[str, object]) -> ReadConfig:
    layouts, mistakes = read_layouts(content)
    told = "" if mistakes else "; ".join(f"{one}: {one.applied_by}" for one in layouts)
    return ReadConfig(mistakes, applied_by=told)


def _plugin_config(content: Mapping[str, object]) -> ReadConfig:
    config, mistakes = read_config(json.dumps(content, default=str).encode(), {})
    return ReadConfig(mistakes, config.refusals if config else ())
