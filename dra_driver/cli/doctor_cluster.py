# SPDX-License-Identifier: Apache-2.0
"""The checks of `dra-driver doctor` that ask the API server about a node.

The cluster is read once, by the first check. If the API server does not answer, no other check is tried.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing

from dra_driver.cli.checks import Check
from dra_driver.config.settings import Settings
from dra_driver.doctor import cluster as rules
from dra_driver.doctor.findings import Finding, finding
from dra_driver.doctor.runtime import judge_version
from dra_driver.errors import DriverError
from dra_driver.kube.connection import Connection
from dra_driver.kube.http import HttpKubeApi
from dra_driver.kube.node_view import NodeView
from dra_driver.model.cluster import ClusterState
from dra_driver.model.ids import DriverName, NodeName, PoolName
from dra_driver.planning.prepare import NodePlace
from dra_driver.planning.unrestricted import FEATURES
from dra_driver.services.served_fields import DROPPED, ServedFields

CLUSTER_SECONDS = 120.0
"""A cluster with thousands of nodes takes this long to read."""
THIS_USER = "the user of this command"


class ClusterLook:
    """One API server and one node of it. `state` is None until the cluster has been read."""

    def __init__(self, connection: Connection, settings: Settings, node: NodeName) -> None:
        self._connection = connection
        self._settings = settings
        self._driver: DriverName = settings.node.driver
        self._node = node
        self._view = NodeView(connection, node)
        self.state: ClusterState | None = None

    def checks(
        self,
        *,
        account: str,
        served: Callable[[], Collection[str] | None],
        host_is_seen: bool,
    ) -> Iterator[Check]:
        """Yield the checks. `account` is the driver's service account; empty: whoever asks. `served` are the resources that the kubelet
        has from plugins, None if it was not asked. `host_is_seen`: the configuration of the container runtime was looked at.
        """
        server = self._connection.shown_server
        yield Check("api", server, self._read, CLUSTER_SECONDS)
        state = self.state
        if state is None:
            return
        node, driver, wish = self._node, str(self._driver), self._settings.plugin.path
        who = account or THIS_USER
        if state.served:
            yield Check("rights", who, lambda: self._rights(state, account, who))
        if not node:
            return
        yield Check("versions", node, lambda: rules.judge_versions(state, node, wish))
        if not host_is_seen:
            yield Check(
                "container-runtime",
                node,
                lambda: judge_version(self._view.runtime_version(), node),
            )
        if state.served:
            yield Check("kept-fields", node, self._kept_fields)
            yield Check("slices", node, lambda: rules.judge_slices(state, driver, node, wish))
            yield Check(
                "other-drivers", node, lambda: rules.judge_other_drivers(state, driver, node)
            )
        yield Check(
            "stale-capacity", node, lambda: rules.judge_capacity(state, driver, node, served())
        )
        yield Check("privileged-pods", node, lambda: rules.judge_pods(*self._view.pods(), node))

    def runtime_version(self) -> str:
        """Return the node's container runtime and its version; "" if it is not known."""
        try:
            return self._view.runtime_version() if self._node else ""
        except DriverError:
            return ""

    def _read(self) -> Iterable[Finding]:
        try:
            self.state = self._view.cluster()
        except DriverError as error:
            return [finding("api-silent", self._connection.shown_server, str(error))]
        return rules.judge_api(self.state)

    def _rights(self, state: ClusterState, account: str, who: str) -> Iterable[Finding]:
        about = self._settings.about_node
        more = rules.rights_of_settings(
            node_labels=about.labels,
            node_condition=about.condition,
            startup_taint=about.startup_taint,
            device_status=self._settings.device_status,
            driver=self._driver,
            kubernetes=state.kubernetes_version,
        )
        missing = self._view.missing_rights((*rules.RIGHTS, *more), account)
        return rules.judge_rights(missing, who, more)

    def _kept_fields(self) -> Iterable[Finding]:
        place = NodePlace(self._driver, PoolName(self._node))
        with closing(HttpKubeApi(self._connection, driver=self._driver, node=self._node)) as kube:
            asked = ServedFields(kube, place, clock=time.monotonic)
            return rules.judge_kept_fields(asked.rules(frozenset(FEATURES)).off, DROPPED)
