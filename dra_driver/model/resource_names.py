# SPDX-License-Identifier: Apache-2.0
"""Which resources of a node may be devices, by their names, and which names does the API server take in a pod?"""

from dra_driver.model.dns_names import is_label_key

DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
HUGE_PAGES = "hugepages-"
_NATIVE = ("cpu", "memory", "ephemeral-storage")
_OF_QUOTAS = "requests."
_OF_KUBERNETES = "kubernetes.io/"


def is_extended(resource: str) -> bool:
    """Return whether this is an extended resource: its name has a domain, and not a domain of Kubernetes."""
    domain, slash, _ = resource.partition("/")
    native = not slash or domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return not native and not resource.startswith(_OF_QUOTAS)


def may_be_devices(resource: str) -> bool:
    """Return whether a DeviceClass or a device plugin can provide the resource, by its name."""
    return is_extended(resource) or resource.startswith(DEVICE_CLASS_PREFIX)


def is_sent_extended(name: str) -> bool:
    """Return whether this is the name of an extended resource, as the API server sees it."""
    if "/" not in name or _OF_KUBERNETES in name or name.startswith(_OF_QUOTAS):
        return False
    return is_label_key(f"{_OF_QUOTAS}{name}")  # a quota must be able to name it


def resource_refusal(name: str) -> str:
    """Return why the API server refuses a resource of this name in a container, and what to write; "" if it takes it."""
    if "/" in name:
        taken = is_label_key(name) and (_OF_KUBERNETES in name or is_sent_extended(name))
    else:
        taken = name in _NATIVE or name.startswith(HUGE_PAGES)
    if taken:
        return ""
    return f"{name!a:.80} is no name of a resource; write cpu, memory or DOMAIN/NAME as in nvidia.com/gpu"
