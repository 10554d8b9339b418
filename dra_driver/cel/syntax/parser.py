# SPDX-License-Identifier: Apache-2.0
"""What is the tree of an expression?

A recursive descent parser: expression → || → && → relation → sum → product → unary → member → primary. It expands a macro
at the end of its call. Some errors do not stop the parser (a reserved word, a number that is too large). It reports all of
them together. A syntax error stops the parser.

cel-go has two limits, and other modules rely on them because they walk over the tree with recursive functions. A rule of
the grammar can be nested in itself at most 250 times. In the tree at most 250 operators, selections, indices
and member calls can be above an operand.
Source: cel-go parser/parser.go, parser/helper.go, parser/gen/CEL.g4.
"""

import sys
from collections.abc import Sequence

from dra_driver.cel.errors import CompileError, Issue, error_of
from dra_driver.cel.syntax import amounts, lexer, literals
from dra_driver.cel.syntax.ast import (
    Call,
    Constant,
    ConstantValue,
    Expr,
    Identifier,
    ListLiteral,
    MapEntry,
    MapLiteral,
    ParsedAst,
    Select,
    StructField,
    StructLiteral,
)
from dra_driver.cel.syntax.lexer import Token
from dra_driver.cel.syntax.macros import (
    MAX_NODES,
    MacroError,
    NodeFactory,
    TooManyNodesError,
    expander,
)
from dra_driver.cel.versions import Environment

MAX_DEPTH = 250
MAX_CODE_POINTS = 100_000
# Functions that walk over the deepest allowed tree need this many nested calls. Python's default limit is 1,000.
_STACK = 20_000
_BACKQUOTES = 37  # From 1.37 on, a field name can be written in backquotes.
_STRICT_CODE_POINTS = 33  # From 1.33 on, escapes of surrogates are errors.

_RELATIONS = {"<": "_<_", "<=": "_<=_", ">=": "_>=_", ">": "_>_", "==": "_==_", "!=": "_!=_", "in": "@in"}  # fmt: skip
_SUMS = {"+": "_+_", "-": "_-_"}
_PRODUCTS = {"*": "_*_", "/": "_/_", "%": "_%_"}
_RESERVED = frozenset(
    "as break const continue else for function if import let loop package namespace return var void while".split()  # noqa: SIM905 - easier to read than a list of string literals
)


def parse(expression: str, environment: Environment) -> ParsedAst:
    """Parse an expression. CompileError lists all issues."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _STACK))
    _refuse_what_is_no_text(expression)
    return _Parser(expression, environment).parsed()


def _refuse_what_is_no_text(expression: str) -> None:
    if len(expression) > MAX_CODE_POINTS:
        raise _too_long(expression)
    for offset, character in enumerate(expression):
        if "\ud800" <= character <= "\udfff":
            readable = expression.encode("utf-8", "replace").decode()
            raise error_of(readable, [Issue("Syntax error: invalid UTF-8", offset)])


def _too_long(expression: str) -> CompileError:
    message = (
        "expression code point size exceeds limit:"
        f" size: {len(expression)}, limit {MAX_CODE_POINTS}"
    )
    return error_of("", [Issue(message, None)])


class _Parser(NodeFactory):
    """Parses one expression. An object can run only once."""

    def __init__(self, expression: str, environment: Environment) -> None:
        super().__init__(environment)
        self._expression = expression
        self._tokens = lexer.tokens(expression)
        self._at = 0
        self._issues: list[Issue] = []
        # The nesting of each grammar rule that can contain itself, as recursionListener in parser.go counts it.
        self._inside: dict[str, int] = {"expression": 0, "relation": 0, "sum": 0}
        # The height of the tree under each node, 0 if missing. The second limit is about this height.
        self._heights: dict[int, int] = {}
        self._macros: dict[int, Call] = {}

    def parsed(self) -> ParsedAst:
        """Parse the whole expression. Raises CompileError if there are issues."""
        root = self._parse_expression()
        if self._token.kind != lexer.END:
            raise self._unexpected("the end of the expression")
        if self._issues:
            raise error_of(self._expression, self._issues)
        return ParsedAst(self._expression, root, self.offsets, self._macros)

    # --- the cursor

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _accept(self, kind: str) -> Token | None:
        token = self._tokens[self._at]
        if token.kind != kind:
            return None
        self._at += 1
        return token

    def _expect(self, kind: str, wanted: str = "") -> Token:
        token = self._accept(kind)
        if token is None:
            raise self._unexpected(wanted or f"'{kind}'")
        return token

    def _unexpected(self, wanted: str) -> CompileError:
        token = self._token
        if token.kind == lexer.NONE:
            return error_of(self._expression, [*self._issues, lexer.no_word(token)])
        found = "the expression ends" if token.kind == lexer.END else f"'{token.text}' stands there"
        # ANTLR lists all expected tokens. This message names only the needed token, so it differs from cel-go's.
        message = f"Syntax error: mismatched input '{token.text}' expecting {wanted}"
        before = self._tokens[self._at - 1].text if self._at else ""
        hint = (
            _ADVICE.get(token.text)
            or _ADVICE.get(before)
            or self._amount_hint()
            or f"Here {wanted} is expected, but {found}."
        )
        return error_of(self._expression, [*self._issues, Issue(message, token.offset, hint)])

    def _amount_hint(self) -> str:
        """Return the hint for a unit right after a number; "" if none stands there."""
        unit, number = self._token, self._tokens[self._at - 1]
        if number.kind not in ("int", "double") or not amounts.is_unit(unit.text):
            return ""
        return amounts.unquoted(self._expression[: number.offset], number.text + unit.text)

    # --- errors after which parsing goes on, and limits

    def _issue(self, message: str, offset: int, hint: str = "") -> Expr:
        """Report an error that does not stop the parser. Returns a node to use in place of the wrong one."""
        self._issues.append(Issue(message, offset, hint))
        return Constant(self.new_id(offset), None)

    def _enter(self, rule: str) -> None:
        self._inside[rule] += 1
        if self._inside[rule] > MAX_DEPTH:
            raise self._too_deep(f"expression recursion limit exceeded: {MAX_DEPTH}")

    def _leave(self, rule: str) -> None:
        self._inside[rule] -= 1

    def _too_deep(self, message: str) -> CompileError:
        hint = "The expression is nested too deeply: it has to be simpler."
        issue = Issue(message, None, hint, noticed=self._token.offset)
        return error_of(self._expression, [*self._issues, issue])

    def _measured(self, node: Expr, operands: Sequence[Expr], *, counts: bool = True) -> Expr:
        """Store the height of the tree under `node` and check it. Returns `node`.

        Only operators, selections, indices and member calls add to the height (`counts`). cel-go does the same: a list in a list does
        not make the tree higher.
        """
        # The parser builds the tree from the leaves, so the heights of the operands are already known.
        height = counts + max([self._heights.get(operand.id, 0) for operand in operands], default=0)
        if height > MAX_DEPTH:
            raise self._too_deep("max recursion depth exceeded")
        if height:
            self._heights[node.id] = height
        return node

    # --- operators

    def _parse_expression(self) -> Expr:
        self._enter("expression")
        node = self._parse_logic("||", "_||_")
        if mark := self._accept("?"):
            conditional = self.new_id(mark.offset)
            yes = self._parse_logic("||", "_||_")
            self._expect(":")
            args = (node, yes, self._parse_expression())
            node = self._measured(Call(conditional, "_?_:_", args), args)
        self._leave("expression")
        return node

    def _parse_logic(self, operator: str, function: str) -> Expr:
        """Parse a chain of && or ||."""
        # The tree of a chain is balanced (balancer in helper.go). So a selector with hundreds of terms does not reach the
        # limit of the height.
        terms = [self._parse_term(operator)]
        places: list[int] = []
        while mark := self._accept(operator):
            terms.append(self._parse_term(operator))
            places.append(self.new_id(mark.offset))
        if not places:
            return terms[0]
        node = _balanced(function, terms, places, range(len(places)))
        return self._measured(node, terms, counts=False)

    def _parse_term(self, operator: str) -> Expr:
        return self._parse_logic("&&", "_&&_") if operator == "||" else self._parse_relation()

    def _parse_relation(self) -> Expr:
        self._enter("relation")
        left = self._parse_sum()
        # ANTLR handles left recursion with a loop, but counts each iteration as one more level of the rule.
        while mark := self._accept_any(_RELATIONS):
            self._enter("relation")
            left = self._operation(_RELATIONS, mark, left, self._parse_sum())
            self._leave("relation")
        self._leave("relation")
        return left

    def _parse_sum(self) -> Expr:
        self._enter("sum")
        left = self._parse_product()
        while mark := self._accept_any(_SUMS):
            self._enter("sum")
            left = self._operation(_SUMS, mark, left, self._parse_product())
            self._leave("sum")
        self._leave("sum")
        return left

    def _parse_product(self) -> Expr:
        left = self._parse_unary()
        while mark := self._accept_any(_PRODUCTS):
            self._enter("sum")
            left = self._operation(_PRODUCTS, mark, left, self._parse_unary())
            self._leave("sum")
        return left

    def _accept_any(self, operators: dict[str, str]) -> Token | None:
        return self._next() if self._token.kind in operators else None

    def _operation(self, functions: dict[str, str], mark: Token, left: Expr, right: Expr) -> Expr:
        call = Call(self.new_id(mark.offset), functions[mark.text], (left, right))
        return self._measured(call, call.args)

    def _parse_unary(self) -> Expr:
        mark = self._token
        if mark.kind not in ("!", "-"):
            return self._parse_member()
        count = 0
        while self._token.kind == mark.kind and not self._at_negative_number(count):
            self._next()
            count += 1
        # cel-go drops pairs of ! or -, so `!!x` has the same tree as `x`.
        if count % 2 == 0:
            return self._parse_member()
        node = self.new_id(mark.offset)
        operand = self._parse_member()
        call = Call(node, "!_" if mark.kind == "!" else "-_", (operand,))
        return self._measured(call, call.args, counts=False)

    def _at_negative_number(self, marks_before: int) -> bool:
        """Return whether the minus here is the sign of a number.

        In `--1` the first minus is an operator, so no sign follows it.
        """
        if marks_before or self._token.kind != "-":
            return False
        return self._tokens[self._at + 1].kind in ("int", "double")

    # --- members

    def _parse_member(self) -> Expr:
        node = self._parse_primary()
        while True:
            if dot := self._accept("."):
                node = self._parse_selection(node, dot)
            elif bracket := self._accept("["):
                node = self._parse_index(node, bracket)
            else:
                return node

    def _parse_selection(self, operand: Expr, dot: Token) -> Expr:
        optional = self._accept("?") is not None
        name = self._token
        field = self._parse_field_name()
        # A name in backquotes is always a field, never a function.
        if not optional and name.kind == "identifier" and (bracket := self._accept("(")):
            return self._parse_call(bracket, name.text, operand)
        node: Expr
        if optional:
            node = Call(
                self.new_id(dot.offset),
                "_?._",
                (operand, Constant(self.new_id(name.offset), field)),
            )
        else:
            node = Select(self.new_id(dot.offset), operand, field)
        return self._measured(node, (operand,))

    def _parse_field_name(self) -> str:
        if quoted := self._accept("quoted"):
            if self.environment.minor < _BACKQUOTES:
                self._issue("unsupported syntax: '`'", quoted.offset, _NO_BACKQUOTES)
            return quoted.text[1:-1]
        return self._expect("identifier", "a field name").text

    def _parse_index(self, operand: Expr, bracket: Token) -> Expr:
        node = self.new_id(bracket.offset)
        optional = self._accept("?")
        index = self._parse_expression()
        self._expect("]")
        call = Call(node, "_[?_]" if optional else "_[_]", (operand, index))
        return self._measured(call, call.args)

    def _parse_call(self, bracket: Token, function: str, target: Expr | None) -> Expr:
        node = self.new_id(bracket.offset)
        call = Call(node, function, self._parse_arguments(), target)
        operands = call.args if target is None else (target, *call.args)
        return self._measured(self._expanded(call), operands, counts=target is not None)

    def _parse_arguments(self) -> tuple[Expr, ...]:
        if self._accept(")"):
            return ()
        found = [self._parse_expression()]
        while self._accept(","):
            found.append(self._parse_expression())
        self._expect(")")
        return tuple(found)

    def _expanded(self, call: Call) -> Expr:
        expand = expander(call, self.environment)
        if expand is None:
            return call
        self.place = self.offsets[call.id]
        # The call itself stays in `_macros`, so that messages show what the author wrote.
        try:
            node = expand(self, call.target or call, call.args)
        except MacroError as error:
            return self._issue(error.message, self.offsets[error.node], error.hint)
        except TooManyNodesError:
            message = f"the expression becomes more than {MAX_NODES} nodes"
            raise self._too_deep(message) from None
        self._macros[node.id] = call
        return node

    # --- primaries

    def _parse_primary(self) -> Expr:
        token = self._token
        if token.kind in ("identifier", "."):
            return self._parse_name()
        if token.kind in _LITERALS or self._at_negative_number(0):
            return self._parse_literal(self._next())
        if self._accept("["):
            return self._parse_list(token)
        if self._accept("{"):
            return self._parse_map(token)
        if not self._accept("("):
            raise self._unexpected("a value, a name, '(', '[' or '{'")
        node = self._parse_expression()
        self._expect(")")
        return node

    def _parse_name(self) -> Expr:
        start = self._token
        dot = "." if self._accept(".") else ""
        if self._begins_message():
            return self._parse_message(dot)
        # In CEL.g4 a reserved word is an identifier. cel-go refuses it only after parsing, see below.
        name = self._expect("identifier", "a name")
        before = len(self._issues)
        bracket = self._accept("(")
        node: Expr
        if bracket:
            node = self._parse_call(bracket, dot + name.text, None)
        else:
            node = Identifier(self.new_id(name.offset), dot + name.text)
        # cel-go reports only the reserved word, not the errors in the arguments behind it.
        if name.text in _RESERVED:
            del self._issues[before:]
            return self._issue(f"reserved identifier: {name.text}", start.offset, _RESERVED_ADVICE)
        return node

    def _begins_message(self) -> bool:
        """Return whether a message literal a.b.c{ comes next. This needs more than one token of lookahead."""
        at = self._at
        while self._tokens[at].kind == "identifier" and self._tokens[at + 1].kind == ".":
            at += 2
        return self._tokens[at].kind == "identifier" and self._tokens[at + 1].kind == "{"

    def _parse_message(self, name: str) -> Expr:
        name += self._expect("identifier").text
        while self._accept("."):
            name += f".{self._expect('identifier').text}"
        brace = self._expect("{")
        node = self.new_id(brace.offset)
        fields: list[StructField] = []
        while self._goes_on("}", len(fields)):
            optional = self._accept("?") is not None
            field = self._parse_field_name()
            colon = self._expect(":")
            place = self.new_id(colon.offset)
            fields.append(StructField(place, field, self._parse_expression(), optional))
        message = StructLiteral(node, name, tuple(fields))
        return self._measured(message, [field.value for field in fields], counts=False)

    def _parse_list(self, bracket: Token) -> Expr:
        node = self.new_id(bracket.offset)
        elements: list[Expr] = []
        optional: set[int] = set()
        while self._goes_on("]", len(elements)):
            if self._accept("?"):
                optional.add(len(elements))
            elements.append(self._parse_expression())
        found = ListLiteral(node, tuple(elements), frozenset(optional))
        return self._measured(found, elements, counts=False)

    def _parse_map(self, brace: Token) -> Expr:
        node = self.new_id(brace.offset)
        entries: list[MapEntry] = []
        parts: list[Expr] = []
        while self._goes_on("}", len(entries)):
            optional = self._accept("?") is not None
            key = self._parse_expression()
            colon = self._expect(":")
            place = self.new_id(colon.offset)
            value = self._parse_expression()
            entries.append(MapEntry(place, key, value, optional))
            parts += (key, value)
        return self._measured(MapLiteral(node, tuple(entries)), parts, counts=False)

    def _goes_on(self, closing: str, count: int) -> bool:
        """Return whether another element follows. The grammar allows one comma before the closing bracket, even in `[,]`."""
        if self._accept(closing):
            return False
        if count:
            self._expect(",", f"',' or '{closing}'")
        elif self._accept(","):
            self._expect(closing)
            return False
        return not (count and self._accept(closing))

    # --- literals

    def _parse_literal(self, token: Token) -> Expr:
        if token.kind == "-":
            return self._number(self._next(), sign=token)
        if token.kind in literals.NUMBERS:
            return self._number(token)
        if token.kind in _NAMED_VALUES:
            return Constant(self.new_id(token.offset), _NAMED_VALUES[token.kind])
        return self._quoted(token)

    def _number(self, token: Token, sign: Token | None = None) -> Expr:
        start = sign or token
        value = literals.NUMBERS[token.kind](token.text, -1 if sign else 1)
        if value is None:
            return self._issue(
                f"invalid {token.kind} literal", start.offset, literals.TOO_LARGE[token.kind]
            )
        return Constant(self.new_id(start.offset), value)

    def _quoted(self, token: Token) -> Expr:
        value: ConstantValue
        try:
            if token.kind == "bytes":
                value = literals.bytes_value(token.text)
            else:
                lenient = self.environment.minor < _STRICT_CODE_POINTS
                value = literals.string_value(token.text, surrogates=lenient)
        except literals.LiteralError as error:
            return self._issue(str(error), token.offset, _ESCAPE_ADVICE)
        return Constant(self.new_id(token.offset), value)


def _balanced(function: str, terms: Sequence[Expr], places: Sequence[int], part: range) -> Expr:
    """Return the tree of the operators in `part`. Its root is the operator in the middle."""
    middle = (part.start + part.stop) // 2
    left, right = range(part.start, middle), range(middle + 1, part.stop)
    return Call(
        places[middle],
        function,
        (
            _balanced(function, terms, places, left) if left else terms[middle],
            _balanced(function, terms, places, right) if right else terms[middle + 1],
        ),
    )


_NAMED_VALUES: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_LITERALS = frozenset({*literals.NUMBERS, *_NAMED_VALUES, "string", "bytes"})
_RESERVED_ADVICE = (
    "The word is reserved in CEL: as a key of a map write it in brackets, as in a['for']"
)
_NO_BACKQUOTES = (
    "Before Kubernetes 1.37 write such a field in brackets: a['b-c'] instead of a.`b-c`"
)
_ESCAPE_ADVICE = "Bytes know no \\u escapes, and no escape may stand for half a character."
_ADVICE = {
    "and": "'and' is written && in CEL.",
    "or": "'or' is written || in CEL.",
    "not": "'not' is written ! in CEL.",
}
