# SPDX-License-Identifier: Apache-2.0
"""What stops a resource of the device plugin API, and which names a resource can have."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec import Struct

from dra_driver.model.plugin import RESOURCE_PATTERN

LONGEST_DOMAIN = 244
"""Characters. A quota writes "requests." before the name, and a DNS name has at most 253 characters."""
LONGEST_NAME = 63
_NAMED = 3


class ResourceProblem(Struct, frozen=True):
    """A part of a class, of a sharing rule or of the node that cannot be offered; everything else is.

    `where` is the object ("DeviceClass gpu, classes.yaml document 2"), `field` the path in it, `found` what is wrong there, and `action`
    what was done and what to write.
    """

    where: str
    field: str
    found: str
    action: str

    def __str__(self) -> str:
        field = f"{self.field}: " if self.field else ""
        return f"{self.where}: {field}{self.found}; {self.action}"


def wrong_resource(name: str) -> str:
    """Return why the kubelet would refuse a resource of this name; empty if it is good.

    Source: IsExtendedResourceName in pkg/apis/core/v1/helper of Kubernetes.
    """
    return next(_wrong_resource(name), "")


def _wrong_resource(name: str) -> Iterator[str]:
    domain, slash, rest = name.partition("/")
    if not slash:
        yield f"{name[:80]!a} has no domain; write <domain>/<name>, such as example.com/gpu"
    if "kubernetes.io/" in name:
        yield f"{name[:80]!a} is in a domain of Kubernetes; write a domain of your own"
    if name.startswith("requests."):
        yield f"{name[:80]!a} begins with 'requests.', as only quotas do; write another domain"
    if len(domain) > LONGEST_DOMAIN:
        yield f"the domain has {len(domain)} characters; write at most {LONGEST_DOMAIN}"
    if len(rest) > LONGEST_NAME:
        yield f"{rest[:80]!a} has {len(rest)} characters; write at most {LONGEST_NAME} after the domain"
    if not re.fullmatch(RESOURCE_PATTERN, name):
        yield (
            f"{name[:80]!a} is no name of a resource; write a lower-case DNS name, a slash, and letters, digits, '-', '_' and '.', "
            f"with a letter or digit at both ends"
        )


def few(names: Iterable[str]) -> str:
    """Some names for a message: "gpu-0, gpu-1, gpu-2 and 5 more"."""
    every = list(names)
    more = len(every) - _NAMED
    return ", ".join(islice(every, _NAMED)) + (f" and {more} more" if more > 0 else "")
