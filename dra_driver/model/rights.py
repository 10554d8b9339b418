# SPDX-License-Identifier: Apache-2.0
"""Rights at the API server, in the words of RBAC."""

from msgspec import Struct


class Right(Struct, frozen=True):
    """One verb on one resource; `namespace` is empty for all namespaces. A subresource is written "nodes/status".

    `name` is that of the only object that the right is for; empty for all.
    """

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""
