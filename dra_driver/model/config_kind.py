# SPDX-License-Identifier: Apache-2.0
"""A kind of configuration that a claim or a DeviceClass can have for the devices of a backend."""

from collections.abc import Callable

import msgspec
from msgspec import Struct

from dra_driver.model.claim import DeviceConfig


class NotSupported(ValueError):
    """A configuration is right, and this driver does not do what it asks for. Another driver of the same hardware may."""


class ConfigKind(Struct, frozen=True):
    """A kind of opaque configuration.

    `structure` has the fields of `opaque.parameters` besides apiVersion and kind. `default` is what a device gets if no claim or class
    has a configuration for it; None: then it gets none. Of several kinds only one can have a default. With a `device_type` only those
    devices of the backend read it whose attribute `type` has this value. `advice` is what a message adds if a claim has it for a device
    that does not read it. `judge` gets the value that counts for a device, before the hardware is touched: it raises ValueError if the
    value is wrong, and NotSupported if it is right and this driver cannot do it; what it returns does not matter.
    """

    api_version: str
    kind: str
    structure: type[msgspec.Struct]
    default: msgspec.Struct | None = None
    device_type: str = ""
    advice: str = ""
    judge: Callable[[object], object] | None = None

    def __str__(self) -> str:
        return f"{self.api_version} {self.kind}"

    def config(self, value: object) -> DeviceConfig:
        """A decoded configuration of this kind."""
        return DeviceConfig(self.api_version, self.kind, value)
