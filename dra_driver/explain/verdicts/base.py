# SPDX-License-Identifier: Apache-2.0
"""The base class of all verdicts."""

import msgspec


class Case(msgspec.Struct, frozen=True, tag=True, tag_field="reason", rename="camel"):
    """A member of the union `Verdict`. Devices or nodes with equal cases form one group in the report."""
