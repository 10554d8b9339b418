# SPDX-License-Identifier: Apache-2.0
"""Which message does the API server return for an invalid expression, and what should the author write instead?

An issue is one message at one position. The error has all issues of the expression, sorted by position, in the format of
the API server: `ERROR: <input>:1:8: …`, then the line of the expression, then a caret. The API server has no hints; this
project adds them.
Source: cel-go common/error.go, common/errors.go.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

MAX_ISSUES = 100
_MAX_SNIPPET_BYTES = 16_384
_COMPILATION = "compilation failed: "
PROGRAM = "program instantiation failed: "


class Issue(Struct, frozen=True):
    """One error in an expression. `offset` is the index of the character, None for the expression as a whole.

    `noticed` is the index where the parser stopped; the API server does not report it. `hint` may be a function, because
    the search for a similar name takes longer than the rest of the check, and not every caller shows hints.
    """

    message: str
    offset: int | None
    hint: str | Callable[[], str] = ""
    noticed: int | None = None

    def advice(self) -> str:
        """Return the hint as text, "" if there is none."""
        return self.hint if isinstance(self.hint, str) else self.hint()


class _Place(Struct, frozen=True):
    line: int
    column: int
    text: str


class CompileError(Exception):
    """The API server refuses the expression.

    `detail` is the API server's message, `message` the same without "compilation failed: ". `line` and `column` start at 1;
    both are 0 if the error is about the whole expression.
    """

    def __init__(
        self,
        message: str,
        *,
        line: int = 0,
        column: int = 0,
        hint: str = "",
        detail: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column
        self.hint = hint
        self.detail = detail or message

    def __str__(self) -> str:
        return f"{self.detail}\n{self.hint}" if self.hint else self.detail


def error_of(expression: str, issues: Sequence[Issue]) -> CompileError:
    """Return the error for `issues`, which has at least one entry."""
    ordered = sorted(
        issues[:MAX_ISSUES], key=lambda issue: -1 if issue.offset is None else issue.offset
    )
    shown = [_display(expression, issue) for issue in ordered]
    if len(issues) > MAX_ISSUES:
        shown.append(f"{len(issues) - MAX_ISSUES} more errors were truncated")
    message = "\n".join(shown)
    first = ordered[0]
    offset = first.noticed if first.offset is None else first.offset
    place = None if offset is None else _place(expression, offset)
    return CompileError(
        message,
        line=place.line if place else 0,
        column=place.column + 1 if place else 0,
        hint=next((advice for issue in ordered if (advice := issue.advice())), ""),
        detail=_COMPILATION + message,
    )


def _place(expression: str, offset: int) -> _Place:
    start = expression.rfind("\n", 0, offset) + 1
    end = expression.find("\n", offset)
    return _Place(
        line=expression.count("\n", 0, offset) + 1,
        column=offset - start,
        text=expression[start : end if end >= 0 else len(expression)],
    )


def _display(expression: str, issue: Issue) -> str:
    if issue.offset is None:
        return f"ERROR: <input>:-1:0: {issue.message}"
    place = _place(expression, issue.offset)
    head = f"ERROR: <input>:{place.line}:{place.column + 1}: {issue.message}"
    if len(place.text.encode()) > _MAX_SNIPPET_BYTES:
        return head
    snippet = place.text.replace("\t", " ")
    dots = "".join(_wide(character, ".", "\uff0e") for character in snippet[: place.column])
    caret = _wide(snippet[place.column : place.column + 1], "^", "\uff3e")
    return f"{head}\n | {snippet}\n | {dots}{caret}"


def _wide(character: str, narrow: str, wide: str) -> str:
    """Return the narrow mark under an ASCII character, else the wide one. cel-go does this for East Asian characters."""
    return narrow if character.isascii() else wide
