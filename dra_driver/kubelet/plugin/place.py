# SPDX-License-Identifier: Apache-2.0
"""Where do the sockets of extended resources lie, and what are they called?"""

import errno
import os
import re
import secrets
import socket
from contextlib import suppress
from hashlib import blake2s
from pathlib import Path

from msgspec import Struct

from dra_driver.kubelet.plugin.kubelet_socket import KubeletSocket
from dra_driver.kubelet.sockets import PATH_LIMIT_BYTES
from dra_driver.model.ids import DriverName, ResourceName

_AFTER = re.compile(r"-[0-9a-f]{8}\.sock")
_AFTER_LENGTH = len("-12345678.sock")


class Place(Struct, frozen=True):
    """The kubelet's folder of device plugins, the socket of the kubelet in it, and the driver that makes sockets there."""

    kubelet: KubeletSocket
    driver: DriverName

    @property
    def folder(self) -> Path:
        """The folder; the kubelet regards the names of sockets as relative to it."""
        return self.kubelet.path.parent

    def new_path(self, resource: ResourceName) -> Path:
        """A path for a socket that no socket had before. A long name of the driver is cut, because a path has a limit."""
        unique = f"{resource} {secrets.token_hex(8)}".encode()
        after = f"-{blake2s(unique, digest_size=4).hexdigest()}.sock"
        return self.folder / f"{self._stem(after)}{after}"

    def owns(self, name: str) -> bool:
        """Whether a socket of this driver has such a name."""
        stem, after = name[:-_AFTER_LENGTH], name[-_AFTER_LENGTH:]
        return bool(_AFTER.fullmatch(after)) and stem == self._stem(after)

    def remove_dead(self) -> None:
        """Remove sockets of this driver on which nobody listens: a killed process left them."""
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if self.owns(path.name):
                with suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
                    # A listener that accepts nothing would let it wait for ever; like this it is EAGAIN, which says that somebody listens.
                    asking.setblocking(False)
                    if asking.connect_ex(str(path)) == errno.ECONNREFUSED:
                        path.unlink()

    def _stem(self, after: str) -> str:
        room = PATH_LIMIT_BYTES - len(os.fsencode(self.folder / after))
        return self.driver[: max(room, 1)]
