# SPDX-License-Identifier: Apache-2.0
"""Which resources of a node may be devices, by their names?"""

DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"


def is_extended(resource: str) -> bool:
    """Return whether this is an extended resource: its name has a domain, and not a domain of Kubernetes."""
    domain, slash, _ = resource.partition("/")
    native = not slash or domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return not native and not resource.startswith("requests.")


def may_be_devices(resource: str) -> bool:
    """Return whether a DeviceClass or a device plugin can provide the resource, by its name."""
    return is_extended(resource) or resource.startswith(DEVICE_CLASS_PREFIX)
