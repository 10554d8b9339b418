# SPDX-License-Identifier: Apache-2.0
"""What does a container get for a device of the example driver? Variables with the names and values that the example driver gives.

A name has the number of the device, so two claims on different devices give different names: only this profile may do so, because
programs for the example driver read them. Two shares of one device in one container write the same names, as with the example driver.
"""

from collections.abc import Mapping

from msgspec import Struct

from dra_driver.backends.example import cpu_capacity
from dra_driver.backends.simulated_config import GpuConfig, GpuSharing, LabelConfig, NetConfig
from dra_driver.backends.simulated_edits import device_file
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.lease import Lease
from dra_driver.model.quantity import Quantity

ADMIN_ACCESS = "DRA_ADMIN_ACCESS"
_PREFIXES = {"gpu": "gpu-", "net": "nic-", "cpu": "numa-"}


class ExampleVariables(Struct, frozen=True):
    """The variables for leases of one profile ("gpu", "net", "cpu"), on one node, under one driver name."""

    profile: str
    node_name: str
    driver_name: str

    def edits(self, lease: Lease, *, major: int, minor: int) -> ContainerEdits:
        """Return the variables, and for a GPU the device file with these numbers. The other devices have no file."""
        files = (device_file(lease, major, minor),) if self.profile == "gpu" else ()
        return ContainerEdits(env=self.of(lease), device_nodes=files)

    def of(self, lease: Lease) -> dict[str, str]:
        """Return the variables of one lease."""
        number = _variable(lease.device.removeprefix(_PREFIXES[self.profile]))
        device = f"{self.profile.upper()}_DEVICE"
        own = {
            f"{device}_{number}_{name}": value for name, value in self._of_profile(lease).items()
        }
        return {
            "KUBERNETES_NODE_NAME": self.node_name,
            "DRA_RESOURCE_DRIVER_NAME": self.driver_name,
            ADMIN_ACCESS: str(lease.admin_access).lower(),
            f"{device}_{_variable(lease.device)}_RESOURCE_CLAIM": lease.claim_uid,
            f"{device}_{number}": lease.device,
            **own,
            **_label(lease),
        }

    def _of_profile(self, lease: Lease) -> Mapping[str, str]:
        match self.profile:
            case "net":
                return _of_nic(lease)
            case "cpu":
                consumed = lease.consumed_capacity.get(cpu_capacity(self.driver_name))
                return {"CONSUMED_CPU": consumed} if consumed else {}
            case _:
                return _of_gpu(lease)


def _label(lease: Lease) -> Mapping[str, str]:
    """What the driver's own configuration asks for; the example driver does not know it."""
    config = lease.config.value
    if not isinstance(config, LabelConfig) or not config.label:
        return {}
    return {f"GPU_LABEL_{_variable(lease.device)}": config.label}


def _of_gpu(lease: Lease) -> Mapping[str, str]:
    config = lease.config.value
    sharing = (
        config.sharing if isinstance(config, GpuConfig) else GpuSharing(strategy="TimeSlicing")
    )
    amounts = {
        name.upper(): lease.consumed_capacity[name]
        for name in ("memory", "compute")
        if name in lease.consumed_capacity
    }
    return {**sharing.variables, **amounts}


def _of_nic(lease: Lease) -> Mapping[str, str]:
    config = lease.config.value
    bursts = config.variables if isinstance(config, NetConfig) else {}
    rates = {
        f"{direction.upper()}_RATE": _digits(lease.consumed_capacity[f"{direction}Bandwidth"])
        for direction in ("ingress", "egress")
        if f"{direction}Bandwidth" in lease.consumed_capacity
    }
    return {**bursts, **rates}


def _digits(quantity: str) -> str:
    """The quantity as a whole number: "10G" is 10000000000."""
    return str(Quantity.parse(quantity).nanos // 10**9)


def _variable(text: str) -> str:
    return text.upper().replace("-", "_")
