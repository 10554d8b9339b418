# SPDX-License-Identifier: Apache-2.0
"""A DRA driver that does nothing: it answers each of the kubelet's calls at once, reads no claim, keeps no state, and gives no container a device.

python empty_driver.py SOCKET REGISTRATION_SOCKET DRIVER POOL

What pods with claims need beside it is Kubernetes' own work: their claims, the allocation, and what the kubelet does for a claim.
"""

import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event

import structlog

from dra_driver.kubelet.dra import DraPlugin
from dra_driver.kubelet.registration import Registrar
from dra_driver.kubelet.sockets import SocketServer
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, DeviceName, DriverName, PoolName
from dra_driver.model.plan import Refusal
from dra_driver.model.state import PreparedDevice

WORKERS = 64


def main() -> None:
    """Serve until the process is ended."""
    endpoint, registration = map(Path, sys.argv[1:3])
    driver, pool = DriverName(sys.argv[3]), PoolName(sys.argv[4])
    device = PreparedDevice(("gpu",), pool, DeviceName("gpu-0"), (), "")
    structlog.configure(
        processors=[
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )

    def prepare(
        refs: Sequence[ClaimRef], *, until: float | None = None
    ) -> Mapping[ClaimUid, tuple[PreparedDevice, ...] | Refusal]:
        del until
        return {ref.uid: (device,) for ref in refs}

    def unprepare(
        refs: Sequence[ClaimRef], *, until: float | None = None
    ) -> Mapping[ClaimUid, Refusal | None]:
        del until
        return {ref.uid: None for ref in refs}

    log = structlog.get_logger()
    plugin = DraPlugin(prepare, unprepare, log)
    server = SocketServer(endpoint, [plugin.handler()], workers=WORKERS, name="dra")
    registrar = Registrar(registration, driver=driver, endpoint=endpoint, log=log)
    for each in (server, registrar):  # the kubelet calls the first when it sees the second
        each.start()
    Event().wait()


if __name__ == "__main__":
    main()
