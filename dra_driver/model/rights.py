# SPDX-License-Identifier: Apache-2.0
"""Rights at the API server, in the words of RBAC."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource; `namespace` is empty for all namespaces. A subresource is written "nodes/status"."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
