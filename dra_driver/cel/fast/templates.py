# SPDX-License-Identifier: Apache-2.0
"""How is `"%s-%d".format([a, b])` written as Python?

A constant template is parsed once, when the function is generated. Python's `%` writes texts and ints as Kubernetes does, if
their static type is known. The exact implementation of the clause writes everything else.
"""

from functools import partial

from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.fast.writer import Code, Form, Unsupported, Writer
from dra_driver.cel.library import formatting

_MOST_DIGITS = 100
_MOST_CLAUSES = 32


def filled(writer: Writer, template: str, operands: list[Code]) -> Code:
    """Return the template with its clauses replaced by the operands. Raises Unsupported if they do not match."""
    try:
        parts = formatting.parse(template)
    except EvaluationError as error:
        raise Unsupported from error
    clauses = [part for part in parts if not isinstance(part, str)]
    if len(clauses) != len(operands):
        raise Unsupported
    # The generated code checks the length only of the whole text. So the text must stay short before this check: a template with
    # more clauses than `_MOST_CLAUSES`, or with a precision above `_MOST_DIGITS`, gets no generated code.
    if len(clauses) > _MOST_CLAUSES or any(one.precision > _MOST_DIGITS for one in clauses):
        raise Unsupported
    left = iter(operands)
    pattern, arguments = "", []
    for part in parts:
        if isinstance(part, str):
            pattern += part.replace("%", "%%")
            continue
        pattern += "%s"
        arguments.append(_shown(writer, part, next(left)))
    text = f"({pattern!r} % ({''.join(f'{one}, ' for one in arguments)}))"
    return Code(writer.short_text(text), Form.STRING)


def _shown(writer: Writer, clause: formatting.Verb, operand: Code) -> str:
    """Return the operand in a form that Python's `%s` writes as the clause would."""
    if (clause.letter, operand.form) in _AS_IT_IS:
        return operand.text
    exact = writer.constant(partial(formatting.write, clause), Form.ANYTHING).text
    if clause.letter != "s" or operand.form is not Form.ANYTHING:
        return f"{exact}({operand.text})"
    name = writer.name()
    return f"({name} if type({name} := {operand.text}) is str else {exact}({name}))"


_AS_IT_IS = {("s", Form.STRING), ("s", Form.INT), ("d", Form.INT)}
