# SPDX-License-Identifier: Apache-2.0
"""Which errors can the evaluation of an expression have?

In CEL an error is a value: `error || true` is true, and `exists` ignores an error for one element if another element is
true. So the evaluator passes an `EvaluationError` as a result and raises it only at the end. Library functions
raise an `EvaluationError`, as usual in Python. No operator ignores `Aborted`: this error ends the evaluation at once, for example at the cost limit.
"""


class EvaluationError(Exception):
    """An error of an evaluation, with the text that the scheduler reports."""

    @property
    def message(self) -> str:
        """The text that the scheduler reports."""
        return str(self)


class Aborted(EvaluationError):
    """An error that `||`, `&&` and macros do not ignore."""


class PlanError(EvaluationError):
    """An error while the program is made, for example a constant that cannot be converted."""


def no_such_overload(*description: str) -> EvaluationError:
    """Return the error for a function that has no overload for these arguments."""
    return EvaluationError(": ".join(("no such overload", *description)))
