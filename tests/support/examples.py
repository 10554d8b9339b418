# SPDX-License-Identifier: Apache-2.0
"""How many examples a property is tried on: as many as it says, or fewer where somebody waits (`make quick`)."""

import os
from typing import Any

from hypothesis import settings

MOST = int(os.environ.get("DRA_TESTS_EXAMPLES", "1000000"))


def examples(count: int, **more: Any) -> settings:
    """`settings` of so many examples, and without a deadline for one: other work would miss it."""
    return settings(max_examples=min(count, MOST), deadline=None, **more)
