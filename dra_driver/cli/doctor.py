# SPDX-License-Identifier: Apache-2.0
"""`dra-driver doctor`: what is wrong on this node, what does it mean, and which command mends it?

It looks at this machine, or at the one whose / is at --root, and asks the API server about its node. With --node it only asks the API
server, from anywhere; with --from it asks a file. It changes nothing.
"""

import argparse
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path

import msgspec

from dra_driver.backends.registry import options_of
from dra_driver.cli import bundle, cluster, common_arguments, render
from dra_driver.cli.checks import Check, run_checks
from dra_driver.cli.destination import Destination
from dra_driver.cli.doctor_cluster import ClusterLook
from dra_driver.cli.doctor_record import diagnosis_of, untold
from dra_driver.cli.main import KUBECTL
from dra_driver.cli.render_doctor import lines
from dra_driver.cli.settings import is_given, settings_from
from dra_driver.config.settings import Settings
from dra_driver.doctor.findings import Diagnosis, ordered, unknown
from dra_driver.errors import DriverError
from dra_driver.model.exit_codes import INTERRUPTED
from dra_driver.model.ids import NodeName

IN_CLUSTER = "KUBERNETES_SERVICE_HOST"


def run(chosen: argparse.Namespace) -> int:
    """Run the checks and print what they find. Returns the exit code."""
    try:
        return _run(chosen)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(chosen: argparse.Namespace) -> int:
    if not (chosen.node or chosen.record) and chosen.parser.prog.startswith(KUBECTL):
        chosen.parser.error("name the node: --node NODE; `dra-driver doctor` looks at this machine")
    if chosen.record and (chosen.bundle or chosen.root):
        chosen.parser.error("--from reads a file, so it goes neither with --bundle nor with --root")
    if chosen.root and not Path(chosen.root).is_dir():
        # Below nothing all would be as on a node without GPUs.
        chosen.parser.error(
            f"argument --root: {chosen.root} is no directory; give the one where the node's / is mounted"
        )
    settings = settings_from(chosen, named=False, options_of=options_of)
    if chosen.record:
        try:
            found = diagnosis_of(chosen.record, NodeName(chosen.node), settings)
        except DriverError as error:
            render.error(str(error))
            found = untold(chosen.record, NodeName(chosen.node), settings, str(error))
            if chosen.output not in (render.JSON, render.YAML, common_arguments.LINES):
                return found.exit_code
        _show(found, chosen)
        return found.exit_code
    account = _account(chosen)
    destination = Destination.of(chosen.bundle, force=chosen.force) if chosen.bundle else None
    node = NodeName(chosen.node or settings.node.name)
    look = _cluster(chosen, settings, node)
    found = Diagnosis(
        node=node,
        driver=settings.node.driver,
        seen_from="cluster" if chosen.node else "node",
        findings=ordered(run_checks(_checks(chosen, settings, look, account))),
    )
    if destination is None or not destination.is_standard_output:
        _show(found, chosen)
    if destination is not None:
        _write(found, chosen, look, settings, destination)
    return found.exit_code


def _show(found: Diagnosis, chosen: argparse.Namespace) -> None:
    match chosen.output:
        case render.JSON | render.YAML:
            render.document(found, chosen.output)
        case common_arguments.LINES:
            for one in found.findings:
                render.json_line(msgspec.to_builtins(one))
        case _:
            width = shutil.get_terminal_size().columns
            for text in lines(
                found, width=width, color=render.colored(), everything=chosen.verbose
            ):
                render.line(text)


def _write(
    found: Diagnosis,
    chosen: argparse.Namespace,
    look: ClusterLook | str,
    settings: Settings,
    destination: Destination,
) -> None:
    state = look.state if isinstance(look, ClusterLook) else None
    made = bundle.made(found, state, None if chosen.node else settings, chosen.log)
    destination.write(bundle.encode(made))
    if not destination.is_standard_output:
        render.error(
            f"{chosen.bundle}: for a bug report. {bundle.PROMISE} Missing: {'; '.join(made.left_out) or 'nothing'}"
        )


def _checks(
    chosen: argparse.Namespace, settings: Settings, look: ClusterLook | str, account: str
) -> Iterator[Check]:
    served: Callable[[], Collection[str] | None] = lambda: None  # noqa: E731
    host_is_seen = False
    here = True
    if not chosen.node:
        # On the node only: it imports gRPC, which kubectl's plugin may not have.
        from dra_driver.cli.doctor_node import (  # noqa: PLC0415
            is_node,
            node_checks,
            served_resources,
        )

        root = Path(chosen.root or "/")
        in_pod = bool(os.environ.get(IN_CLUSTER))
        # Whoever names the root in a pod has the host there: mounted, or by chroot.
        host_is_seen = bool(chosen.root) or not in_pod
        version = look.runtime_version if isinstance(look, ClusterLook) else str
        here = not host_is_seen or is_node(settings, root)
        yield from node_checks(
            settings,
            root,
            is_node=here,
            host_is_seen=host_is_seen,
            http_is_named=is_given(chosen, "http_address"),
            runtime_version=version,
        )
        served = partial(served_resources, settings, root)
    if isinstance(look, ClusterLook):
        found = look.checks(account=account, served=served, host_is_seen=host_is_seen)
        # What the user of a laptop may do says nothing of the driver.
        yield from (one for one in found if here or account or one.name != "rights")
    else:
        why = look
        yield Check("api", "no API server", lambda: [unknown("api", "no API server", why)])


def _cluster(chosen: argparse.Namespace, settings: Settings, node: NodeName) -> ClusterLook | str:
    """Return the API server that is meant, or why none is known."""
    try:
        found = cluster.target(chosen)
    except DriverError as error:
        return str(error)
    return ClusterLook(found.connection, settings, node)


def _account(chosen: argparse.Namespace) -> str:
    if not chosen.service_account:
        return ""
    namespace, slash, name = chosen.service_account.partition("/")
    if not (namespace and slash and name):
        chosen.parser.error(f"--service-account {chosen.service_account} is no NAMESPACE/NAME")
    return f"system:serviceaccount:{namespace}:{name}"
