# SPDX-License-Identifier: Apache-2.0
"""How much work without a cost may one evaluation do?

cel-go counts the cost of an evaluation, but some work costs nothing in cel-go. Values can share their parts: if each list
contains the list before it twice, 40 short lists have 2^40 elements, and `==` or format() visits all of them. In the same
way format() makes a text of a billion characters from a short expression. cel-go would run almost forever, or use up the
memory. This module ends such an evaluation with Aborted. No real selector comes near these limits.

The same counter calls the caller's `cancelled` from time to time, so that such work can be cancelled. It also does so while an
expression is compiled, because some short expressions become very large trees.

Library functions get values and nothing else, so the counter is a context variable. `with Work(cancelled):` sets it.
"""

from contextvars import ContextVar, Token
from types import TracebackType
from typing import Self

from dra_driver.cel.cancellation import STEPS_BETWEEN_CHECKS, Cancelled, Check, never
from dra_driver.cel.failures import Aborted

MOST_ELEMENTS = 2_000_000
# If cel-go charges for a character, it charges 0.1, and an evaluation may cost 1,000,000.
MOST_CHARACTERS = 10_000_000
SHORT_TEXT = 1_024
"""The longest text that a generated function makes. No selector for real devices needs a longer one."""
MOST_PARSED = 65_536
"""The longest text, in characters, that a parser of a library reads. The parsers count nothing while they read."""
_CHARACTERS_OF_A_STEP = 64
_UNCOUNTED_ELEMENTS, _UNCOUNTED_CHARACTERS = 20_000, 100_000


class Work:
    """Counts the work that one evaluation or compilation may still do. Use it as a context manager."""

    __slots__ = ("_cancelled", "_characters", "_elements", "_longest", "_steps", "_token")
    _token: "Token[Work]"

    def __init__(self, cancelled: Check = never) -> None:
        self._cancelled = cancelled
        self._elements = MOST_ELEMENTS
        self._characters = MOST_CHARACTERS
        self._longest = MOST_CHARACTERS
        self._steps = 0

    def __enter__(self) -> Self:
        _UNCOUNTED.refill()
        self._token = _current.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _current.reset(self._token)

    def refill(self) -> None:
        """Set the small limits for generated functions."""
        self._elements, self._characters = _UNCOUNTED_ELEMENTS, _UNCOUNTED_CHARACTERS
        self._longest = SHORT_TEXT

    def elements(self, number: int) -> None:
        """Count elements that are compared, formatted or copied."""
        self._elements -= number
        if self._elements < 0:
            raise Aborted(f"more than {MOST_ELEMENTS} elements would have to be looked at")
        self.steps(number)

    def characters(self, number: int) -> None:
        """Count characters that are written or compared."""
        self._characters -= number
        if self._characters < 0:
            raise Aborted(f"more than {MOST_CHARACTERS} characters would have to be looked at")
        self.steps(number // _CHARACTERS_OF_A_STEP)

    def text(self, length: int, *, added: int | None = None) -> None:
        """Count a text before it is made. `added` is the number of its characters that were not counted yet."""
        if length > self._longest:
            raise Aborted(f"the text would have more than {self._longest} characters")
        self.characters(length if added is None else added)

    def steps(self, number: int) -> None:
        """Count small steps. After enough steps, ask the caller. Raises Cancelled if the caller no longer waits."""
        self._steps += number
        if self._steps >= STEPS_BETWEEN_CHECKS:
            self._steps = 0
            self.ask()

    def ask(self) -> None:
        """Raise Cancelled if the caller no longer waits."""
        if self._cancelled():
            raise Cancelled


def require_parseable(text: str) -> None:
    """Raise Aborted if the text is too long to be parsed. Whether Kubernetes could parse it stays unknown."""
    if len(text) > MOST_PARSED:
        raise Aborted(f"a text of more than {MOST_PARSED} characters is not parsed")


# A generated function starts no counter, because most of these functions run for a shorter time than that takes. All generated
# functions share this small counter. When it is used up, one device goes to the exact evaluation, which fills the counter again.
_UNCOUNTED = Work()
_UNCOUNTED.refill()
_current: ContextVar[Work] = ContextVar("work", default=_UNCOUNTED)
current = _current.get
"""The counter of the evaluation or compilation that is running."""
