# SPDX-License-Identifier: Apache-2.0
"""A device plugin at one path, which registers when the test says so."""

from pathlib import Path

import structlog

from dra_driver.kubelet.pb import deviceplugin_v1beta1_pb2 as pb
from dra_driver.kubelet.plugin.kubelet_socket import KubeletSocket
from dra_driver.kubelet.plugin.service import THREADS, PluginService
from dra_driver.kubelet.sockets import SocketServer
from dra_driver.model.ids import ResourceName
from dra_driver.testing.fake_kubelet import FakeKubelet
from tests.support.plugin_calls import GPU, Units, Work, unit


class BarePlugin:
    """Serves `resource` with the units of these names. `close` ends it as a killed process would."""

    def __init__(
        self, kubelet: FakeKubelet, name: str, *units: str, resource: ResourceName = GPU
    ) -> None:
        self.manager = kubelet.device_manager
        self.resource = resource
        self.units = Units(*map(unit, units))
        self.work = Work()
        self.path: Path = self.manager.folder / name
        self.service = PluginService(resource, self.units, self.work, structlog.get_logger())
        handlers = [self.service.handler()]
        self.server = SocketServer(self.path, handlers, workers=THREADS, name="plugin")
        self.server.start()

    def register(self, version: str = "v1beta1") -> str:
        """Register. Returns why the kubelet refused, or "" after it has the list of units."""
        lists = self.manager.lists
        request = pb.RegisterRequest(
            version=version, endpoint=self.path.name, resource_name=self.resource
        )
        error, _ = KubeletSocket(self.manager.folder).register(request)
        if not error:
            self.manager.until(lambda: self.manager.lists > lists)
        return error

    def close(self) -> None:
        self.service.end()
        self.server.stop(0)
