# SPDX-License-Identifier: Apache-2.0
"""How often may the loops of an expression turn where nobody counts the cost? costs/turns.py finds out."""

from collections.abc import Mapping
from typing import NamedTuple


class Turns(NamedTuple):
    """By the id of a loop how often it may turn, and whether names and texts must be as short as the API server takes them."""

    most: Mapping[int, int]
    short_texts: bool = False


NO_LOOPS = Turns({})
