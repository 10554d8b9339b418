# SPDX-License-Identifier: Apache-2.0
"""Small wrongs, made by rule from the code that keeps devices apart.

A mutant is one change to the syntax tree of one file: a condition turned round, a statement left out, a step missing from a
plan. They are found in a fixed order and drawn by a seed, evenly over the files, so that the same seed makes the same mutants as
long as the files stay as they are. Texts of messages, annotations and docstrings are left alone.
"""

import ast
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# The code whose mistakes give a device to two workloads, or to none.
FILES = (
    "dra_driver/planning/adopt.py",
    "dra_driver/planning/allocation.py",
    "dra_driver/planning/prepare.py",
    "dra_driver/planning/unprepare.py",
    "dra_driver/planning/recover.py",
    "dra_driver/node/cgroups.py",
    "dra_driver/services/adopt.py",
    "dra_driver/services/claim_locks.py",
    "dra_driver/services/conflicts.py",
    "dra_driver/services/follow.py",
    "dra_driver/services/held.py",
    "dra_driver/services/prepare.py",
    "dra_driver/services/unprepare.py",
    "dra_driver/services/execute.py",
    "dra_driver/services/recover.py",
    "dra_driver/services/release.py",
    "dra_driver/services/publish.py",
    "dra_driver/services/sweep.py",
    "dra_driver/services/take_back.py",
)
_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One wrong: `key` names it as long as its function stays the same; it is the `number`th of its file."""

    file: str
    line: int
    key: str
    number: int


Change = Callable[[], None]


def mutants(root: Path, files: Sequence[str] = FILES) -> Iterator[Mutant]:
    """All mutants of the files below `root`, in the order of the files and lines."""
    for file in files:
        tree = ast.parse((root / file).read_text(encoding="utf-8"))
        for number, (where, line, what, _) in enumerate(_sites(tree)):
            yield Mutant(file, line, f"{file}:{where}: {what}", number)


def broken(root: Path, mutant: Mutant) -> str:
    """The whole file with it."""
    tree = ast.parse((root / mutant.file).read_text(encoding="utf-8"))
    *_, change = _sites(tree)[mutant.number]
    change()
    return ast.unparse(tree)


def drawn(root: Path, count: int, seed: int) -> list[Mutant]:
    """`count` of them, as evenly over the files as they allow; the same for the same seed and files."""
    chance = random.Random(seed)  # noqa: S311  a draw, no secret
    by_file = {file: list(mutants(root, [file])) for file in FILES if (root / file).exists()}
    for found in by_file.values():
        chance.shuffle(found)
    chosen: list[Mutant] = []
    while len(chosen) < count and any(by_file.values()):
        for found in by_file.values():
            if found and len(chosen) < count:
                chosen.append(found.pop())
    return sorted(chosen, key=lambda mutant: (mutant.file, mutant.line, mutant.key))


_Site = tuple[str, int, str, Change]


def _sites(tree: ast.Module) -> list[_Site]:
    found: list[_Site] = []
    for function, name in _functions(tree):
        seen: dict[str, int] = {}
        for line, what, change in _changes(function):
            seen[what] = seen.get(what, 0) + 1
            # The second of two alike is told apart by its number.
            label = what if seen[what] == 1 else f"{what} ({seen[what]})"
            found.append((name, line, label, change))
    return found


def _functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, str]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node, node.name
        elif isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    yield part, f"{node.name}.{part.name}"


def _changes(function: ast.FunctionDef) -> Iterator[tuple[int, str, Change]]:
    for statement in function.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.JoinedStr | ast.Constant):
                continue
            for what, change in _changes_of(node):
                yield getattr(node, "lineno", function.lineno), what, change
    yield from _left_out(function)


def _changes_of(node: ast.AST) -> Iterator[tuple[str, Change]]:
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in _OPPOSITES:
            opposite = _OPPOSITES[type(operator)]()
            yield f"turn round {ast.unparse(node)!r}", _setter(node, "ops", [opposite])
        case ast.BoolOp(op=operator):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield f"swap and, or in {ast.unparse(node)!r}", _setter(node, "op", other)
        case ast.If(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Compare):
            yield f"negate {ast.unparse(test)!r}", _setter(node, "test", _negated(test))
        case ast.Tuple(elts=elements, ctx=ast.Load()) if _is_plan(elements):
            for index, element in enumerate(elements):
                rest = [*elements[:index], *elements[index + 1 :]]
                yield f"leave out {ast.unparse(element)!r}", _setter(node, "elts", rest)
        case ast.keyword(arg=str(name), value=ast.Constant(value=bool(value))):
            yield f"{name}={not value}", _setter(node, "value", ast.Constant(not value))
        case ast.comprehension(ifs=[condition]):
            yield f"do not ask {ast.unparse(condition)!r}", _setter(node, "ifs", [])


def _is_plan(elements: Sequence[ast.expr]) -> bool:
    """Steps of a plan or answers; pairs of names are what a loop unpacks or a lookup's key."""
    return any(isinstance(element, ast.Call | ast.Starred) for element in elements)


def _negated(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    return ast.UnaryOp(ast.Not(), test)


def _left_out(function: ast.FunctionDef) -> Iterator[tuple[int, str, Change]]:
    """Each call that is a statement, each raise, continue and early return, gone."""
    for holder in ast.walk(function):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(holder, field, None)
            if not isinstance(block, list):
                continue
            for index, statement in enumerate(block):
                if _may_go(statement) and not (holder is function and _is_last(block, index)):
                    what = f"leave out {ast.unparse(statement).splitlines()[0][:70]!r}"
                    yield statement.lineno, what, _dropper(block, index)


def _may_go(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.Continue() | ast.Return():
            return True
        case ast.AugAssign():
            return True
    return False


def _is_last(block: Sequence[ast.stmt], index: int) -> bool:
    # A function that only returns is not left without any answer: a type checker says so, no test need.
    return index == len(block) - 1 and isinstance(block[index], ast.Return)


def _setter(node: ast.AST, name: str, value: object) -> Change:
    return lambda: setattr(node, name, value)


def _dropper(block: list[ast.stmt], index: int) -> Change:
    def drop() -> None:
        block[index] = ast.Pass()

    return drop
