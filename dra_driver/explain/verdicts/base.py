# SPDX-License-Identifier: Apache-2.0
"""What all verdicts share."""

import msgspec


class Case(msgspec.Struct, frozen=True, tag=True, tag_field="reason", rename="camel"):
    """A member of the union. Equal cases are counted together."""
