# SPDX-License-Identifier: Apache-2.0
"""How many iterations may the loops of a generated function have?

A generated function does not count its cost. costs/turns.py calculates limits with which it stays cheap.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Turns(NamedTuple):
    """The limits of one expression.

    `most` is the largest number of iterations, by the ID of the comprehension. With `short_texts`, a device with longer names
    or texts than the API server accepts must go to the exact evaluation.
    """

    most: Mapping[int, int]
    short_texts: bool = False


NO_LOOPS = Turns({})
