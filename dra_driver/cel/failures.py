# SPDX-License-Identifier: Apache-2.0
"""What goes wrong when an expression runs.

CEL treats an error as a value: `error || true` is true, and an error in one turn of `exists` is forgotten if another
turn is true. So the evaluator passes an `EvaluationError` around as a result and only raises it at the end. Functions
of the libraries raise it, as is usual in Python. `Aborted` is never absorbed: it ends the evaluation at once, as the
cost limit does.
"""


class EvaluationError(Exception):
    """An error of CEL's run time, with the text that the scheduler reports."""

    @property
    def message(self) -> str:
        """The text."""
        return str(self)


class Aborted(EvaluationError):
    """An error that `||` and `&&` do not absorb."""


class PlanError(EvaluationError):
    """An error that shows already when the program is made: a constant that cannot be converted, for example."""


def no_such_overload(*description: str) -> EvaluationError:
    """Nothing is defined for values of these kinds."""
    return EvaluationError(": ".join(("no such overload", *description)))
