# SPDX-License-Identifier: Apache-2.0
"""`dra-driver doctor --from FILE`: the answer about a node of a cluster that was recorded, by `doctor --bundle` or by `record`.

What the API server showed is judged again, by this release. What only a look at the node can tell is what the bundle found, in the words of
this release and without commands, for anybody may have written the file; a record of the cluster has nothing of it.
"""

from collections.abc import Iterable, Iterator

import msgspec

from dra_driver.cli.checks import Check, run_checks
from dra_driver.cli.inputs import recorded_text, state_in
from dra_driver.config.settings import Settings
from dra_driver.doctor import cluster as rules
from dra_driver.doctor.findings import Diagnosis, Finding, ordered, retold, unknown
from dra_driver.doctor.texts import CHECKS
from dra_driver.errors import Permanent
from dra_driver.explain.names import first_names
from dra_driver.model.cluster import ClusterState
from dra_driver.model.ids import DriverName, NodeName
from dra_driver.model.names import NODE_BUNDLE_KIND
from dra_driver.model.plugin import Path

NOT_IN_A_RECORD = "a record has nothing of it"
_ONLY_ASKED = ("rights", "container-runtime", "kept-fields", "privileged-pods")
"""The checks that ask the API server more than what a record has."""


class _Bundle(msgspec.Struct, rename="camel"):
    kind: str = ""
    diagnosis: msgspec.Raw = msgspec.Raw()


def diagnosis_of(name: str, node: NodeName, settings: Settings) -> Diagnosis:
    """Return what is wrong on a node of the recorded cluster; an empty name is the node of the bundle. Raises Permanent."""
    driver = settings.node.driver
    # Read once: the file may be a pipe, or another one a moment later.
    content = recorded_text(name)
    state = state_in(content, name)
    told = _told(content, name)
    if told is not None and node in ("", told.node):
        node, driver = NodeName(told.node), DriverName(told.driver)
        known = tuple(retold(one) for one in told.findings if one.check in CHECKS)
    elif node:
        _must_be_there(state, name, node)
        known = tuple(unknown(check, node, NOT_IN_A_RECORD) for check in _ONLY_ASKED)
    else:
        raise Permanent(
            f"{name} is the record of a cluster: name the node with --node NODE; it has {_names(state)}"
        )
    judged = (
        tuple(run_checks(_checks(state, driver, node, settings.plugin.path)))
        if _was_read(state)
        else ()
    )
    again = {one.check for one in judged}
    left = tuple(one for one in known if one.check not in again)
    return Diagnosis(
        node=node, driver=driver, seen_from="record", findings=ordered((*judged, *left))
    )


def untold(name: str, node: NodeName, settings: Settings, why: str) -> Diagnosis:
    """Return the diagnosis of a file that gives no answer, for a program that reads documents."""
    step = "give a file of `dra-driver doctor --bundle` or `dra-driver record`, and for a record --node NODE"
    one = msgspec.structs.replace(unknown("api", name, why), next_step=step)
    return Diagnosis(node=node, driver=settings.node.driver, seen_from="record", findings=(one,))


def _told(content: bytes, name: str) -> Diagnosis | None:
    """Return the findings of a bundle; None if the content is none. Raises Permanent if they cannot be read."""
    try:
        found = msgspec.json.decode(content, type=_Bundle)
        if found.kind != NODE_BUNDLE_KIND:
            return None
        return msgspec.json.decode(found.diagnosis, type=Diagnosis)
    except msgspec.MsgspecError as error:
        raise Permanent(
            f"cannot read the findings of the bundle {name}: {error}; use the release that wrote it"
        ) from error


def _checks(state: ClusterState, driver: str, node: str, wish: Path | None) -> Iterator[Check]:
    def check(name: str, found: Iterable[Finding]) -> Check:
        return Check(name, node, lambda: found)

    yield check("api", rules.judge_api(state))
    yield check("versions", rules.judge_versions(state, node, wish))
    if state.served:
        yield check("slices", rules.judge_slices(state, driver, node, wish))
        yield check("other-drivers", rules.judge_other_drivers(state, driver, node))
    yield check("stale-capacity", rules.judge_capacity(state, driver, node, None))


def _was_read(state: ClusterState) -> bool:
    """Return whether there is anything of a cluster. A bundle may have been written without an API server."""
    return msgspec.structs.replace(state, not_read=()) != ClusterState()


def _must_be_there(state: ClusterState, name: str, node: str) -> None:
    """Raise Permanent if the record has nothing of such a node. Slices of a node that does not exist are a finding."""
    there = {one.metadata.name for one in state.nodes}
    there |= {one.spec.node_name for one in state.resource_slices if one.spec.node_name}
    if _was_read(state) and node not in there and state.unread("nodes") is None:
        raise Permanent(f"there is no node {node} in {name}: it has {_names(state)}")


def _names(state: ClusterState) -> str:
    names = sorted(one.metadata.name for one in state.nodes)
    return first_names(names) if names else "no nodes"
