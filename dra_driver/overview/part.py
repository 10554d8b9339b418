# SPDX-License-Identifier: Apache-2.0
"""The base of the documents that this room makes, and what stands in for a value that is not known."""

import msgspec


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A document for programs, or a part of one. A new release may add fields, but never removes or changes one."""


class Gap(Part, frozen=True, kw_only=True):
    """Something that could not be read: what the user may not do, what the answer lacks because of it, and what to do.

    `verb` and `resource` are those of RBAC, `name` is that of one object ("" for all). `role` is the ClusterRole of the chart that
    gives the right, without the name of the release; "" if no right is missing.
    """

    verb: str
    resource: str
    name: str
    message: str
    lacks: str
    role: str
