# SPDX-License-Identifier: Apache-2.0
"""How is `"%s-%d".format([a, b])` written as Python?

A template that is known is read once, when the function is made. Texts and numbers of a surely known kind are filled in by Python's
own `%`, where it writes what Kubernetes writes; everything else by the exact implementation of its clause.
"""

from functools import partial

from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.fast.writer import Code, Form, Unsupported, Writer
from dra_driver.cel.library import formatting

_MOST_DIGITS = 100
_MOST_WRITTEN = 1_000_000  # characters; a text in a text in a text grows without costing anything


def filled(writer: Writer, template: str, operands: list[Code]) -> Code:
    """The template with its clauses replaced."""
    try:
        parts = formatting.parse(template)
    except EvaluationError as error:
        raise Unsupported from error
    clauses = [part for part in parts if not isinstance(part, str)]
    if len(clauses) != len(operands):
        raise Unsupported
    if any(clause.precision > _MOST_DIGITS for clause in clauses):
        raise Unsupported  # each clause may write megabytes, and the length of the text is checked only when it is whole
    left = iter(operands)
    pattern, arguments = "", []
    for part in parts:
        if isinstance(part, str):
            pattern += part.replace("%", "%%")
            continue
        pattern += "%s"
        arguments.append(_shown(writer, part, next(left)))
    name, most = writer.name(), min(_MOST_WRITTEN, formatting.MOST_WRITTEN)
    text = f"({pattern!r} % ({''.join(f'{one}, ' for one in arguments)}))"
    return Code(f"({name} if len({name} := {text}) <= {most} else stumble())", Form.STRING)


def _shown(writer: Writer, clause: formatting.Verb, operand: Code) -> str:
    """What `%s` of Python writes as the clause would."""
    if (clause.letter, operand.form) in _AS_IT_IS:
        return operand.text
    exact = writer.constant(partial(formatting.write, clause), Form.ANYTHING).text
    if clause.letter != "s" or operand.form is not Form.ANYTHING:
        return f"{exact}({operand.text})"
    name = writer.name()
    return f"({name} if type({name} := {operand.text}) is str else {exact}({name}))"


_AS_IT_IS = {("s", Form.STRING), ("s", Form.INT), ("d", Form.INT)}
