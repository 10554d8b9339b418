# SPDX-License-Identifier: Apache-2.0
"""Does each CEL expression compile, is it cheap enough, does it read what devices have, and does a device of the cluster match?"""

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from dra_driver.cel.compile import (
    DerivedAttribute,
    Selector,
    compile_attribute,
    compile_selector,
)
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.errors import CompileError
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.reasons.corrections import Correction, replaced
from dra_driver.cel.reasons.like_versions import like_versions, texts_beside
from dra_driver.cel.reasons.mistyped import VERSION, mistyped_texts
from dra_driver.cel.reasons.paths import DevicePath, children, path_of
from dra_driver.cel.reasons.version_tests import tested_as_texts
from dra_driver.cel.syntax.ast import Call, Constant, Expr, ListLiteral, ParsedAst
from dra_driver.cel.versions import MAX_COST, NEWEST, OLDEST, Environment
from dra_driver.check.finding import Finding
from dra_driver.check.given import Given, Known
from dra_driver.check.memory import amounts_without_unit, few_bytes, written_as_capacity
from dra_driver.check.names import Names
from dra_driver.check.parts import Expression, expressions
from dra_driver.model.yaml_documents import Place

_CONVERSIONS = ("int", "semver")
_COMPARED = ("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_")
_HEAD = re.compile(r"ERROR: <input>:-?\d+:\d+: ")
_FITTING: Mapping[str, tuple[type, ...]] = {"string": (str,), "int": (int, float), "bool": (bool,)}
_ANOTHER = DeviceValue("another.example.com")
"""A device of another driver, which has nothing of what the expressions of a class read."""


def unguarded_findings(one: Given, known: Known) -> Iterator[Finding]:
    """Yield the first expression of a class that ends with an error for devices of other drivers, which the scheduler asks too.

    It asks the expressions in their order, and none after one that is false.
    """
    if one.kind != "DeviceClass":
        return
    for expression in expressions(one):
        for selector in compiled([expression.text], known):
            try:
                if not selector.matches(_ANOTHER):
                    return
            except EvaluationError as error:
                yield one.finding(
                    "cel-unguarded",
                    expression.path,
                    f"the expression fails for devices of other drivers: {error}",
                    'begin with device.driver == "…" &&, or ask with has(…) first',
                )
                return


def environment(known: Known) -> Environment:
    """Return the environment in which the API server compiles new expressions: of the cluster's release, else of the newest."""
    minor = (known.state.minor if known.state else None) or NEWEST
    return Environment(min(max(minor, OLDEST), NEWEST), "NewExpressions")


def selector_findings(one: Given, known: Known, names: Names) -> Iterator[Finding]:
    """Yield what is wrong with the expressions of an object, without a cluster's devices."""
    for expression in expressions(one):
        if expression.is_derived:
            yield from _derived(one, expression, known)
            continue
        try:
            selector = compile_selector(expression.text, environment(known))
        except CompileError as error:
            yield _refused(one, expression, error, known)
            continue
        yield from _cost(one, expression, selector)
        yield from _read(one, expression, selector, names)


def _derived(one: Given, expression: Expression, known: Known) -> Iterator[Finding]:
    try:
        attribute = compile_attribute(expression.text, environment(known))
    except CompileError as error:
        yield _refused(one, expression, error, known)
        return
    yield from _cost(one, expression, attribute)


def _refused(one: Given, expression: Expression, error: CompileError, known: Known) -> Finding:
    first, *detail = error.message.splitlines()
    first = _HEAD.sub("", first)
    line, column = in_file(one, expression, error.line, error.column)
    action = error.hint or "correct the expression"
    minor = environment(known).minor
    if _compiles_later(expression, minor):
        action = f"Kubernetes 1.{minor} takes this only in objects that it has already: use what 1.{minor - 1} knows"
    where = {"line": line, "column": column} if line else {}
    return one.finding(
        "cel-compile",
        expression.path,
        f"the expression does not compile: {first}",
        action,
        detail=tuple(_HEAD.sub("", text) for text in detail),
        **where,
    )


def _compiles_later(expression: Expression, minor: int) -> bool:
    """Return whether the release compiles it in a stored object: then only the rule for new objects is in the way."""
    compile_one = compile_attribute if expression.is_derived else compile_selector
    try:
        compile_one(expression.text, Environment(minor, "StoredExpressions"))
    except CompileError:
        return False
    return True


def _cost(
    one: Given, expression: Expression, selector: Selector | DerivedAttribute
) -> Iterator[Finding]:
    if selector.cost > MAX_COST:
        yield one.finding(
            "cel-cost",
            expression.path,
            f"the API server estimates a cost of {selector.cost:,} for the expression, and refuses more than {MAX_COST:,}",
            "leave out loops in loops, or patterns over long texts",
        )


def _read(
    one: Given, expression: Expression, selector: Selector, names: Names
) -> Iterator[Finding]:
    parsed = selector.checked.parsed
    told: set[DevicePath] = set()
    written = written_as_capacity(_all(parsed.root))
    for part, path in _paths(parsed.root):
        if path in told or not path.name:
            continue
        problem, action = names.problem(path, written.get(part.id, ""))
        if problem:
            told.add(path)
            where = _where(one, expression, parsed.offsets[part.id])
            yield one.finding("cel-name", expression.path, problem, action, **where)
    for part, text, question in amounts_without_unit(_all(parsed.root)):
        where = _where(one, expression, parsed.offsets[part.id])
        yield one.finding("memory-unit", expression.path, few_bytes(text), question, **where)
    versions = like_versions(parsed, parsed.root, lambda path: _is_version(names, path), names.has)
    meant = {right.number: (path, right) for path, right in versions}
    for part in _all(parsed.root):
        if isinstance(part, Call):
            for what, action in _types(part, names, parsed, meant):
                where = _where(one, expression, parsed.offsets[part.id])
                yield one.finding("cel-type", expression.path, what, action, **where)
    yield from _values(one, expression, parsed)
    for tested in tested_as_texts(parsed, parsed.root, lambda path: _is_version(names, path)):
        problem = f"{tested.path.name} is a version, and {tested.call.function} is for strings"
        where = _where(one, expression, parsed.offsets[tested.call.id])
        yield one.finding("cel-type", expression.path, problem, tested.write, **where)


def _is_version(names: Names, path: DevicePath) -> bool:
    return path.kind == "attributes" and names.kind_of(path) == "version"


def _paths(root: Expr) -> Iterator[tuple[Expr, DevicePath]]:
    for part in _all(root):
        path = path_of(part)
        if path is not None:
            yield part, path


def _all(root: Expr) -> Iterator[Expr]:
    todo = [root]
    while todo:
        part = todo.pop()
        yield part
        todo.extend(children(part))


def _values(one: Given, expression: Expression, parsed: ParsedAst) -> Iterator[Finding]:
    """Yield the constants that cannot be parsed. The API server compiles them, and each device ends with the error."""
    for wrong in mistyped_texts(parsed, parsed.root):
        yield one.finding(
            "cel-value",
            expression.path,
            f"{wrong.wrong}: the expression ends with an error, and stops the scheduling of the pod",
            f"write {wrong.write}",
            **_where(one, expression, parsed.offsets[wrong.call.id]),
        )


def _types(
    part: Call, names: Names, parsed: ParsedAst, meant: Mapping[int, tuple[DevicePath, Correction]]
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the types of a call, and what to do. `meant` has what to write where a version is taken for something else."""
    told = list(_compared(part, names, parsed, meant)) if part.function in _COMPARED else []
    yield from told
    if part.id in meant and not told:
        path, right = meant[part.id]
        # The conversion alone is not the comparison.
        instead = right.instead_in(parsed.root) if part.function in _CONVERSIONS else ""
        yield _version(part, path), f"write {right.write}{instead}"
    elif part.function == "@in":
        yield from _in_list(part, names, parsed)


def _in_list(part: Call, names: Names, parsed: ParsedAst) -> Iterator[tuple[str, str]]:
    path = path_of(part.args[0])
    if path is None or not _is_version(names, path) or not isinstance(part.args[1], ListLiteral):
        return
    write = _with_versions(part, path, parsed)
    if write:
        yield _version(part, path), f"write {write}"
    elif any(isinstance(one, Constant) for one in part.args[1].elements):
        yield _version(part, path), f"write only versions into it: {VERSION}"


def _version(part: Call, path: DevicePath) -> str:
    is_read = part.function == "@in" and path_of(part.args[0]) is not None
    why = "and the list has others" if is_read else "which cannot be converted"
    return f"{path.name} is a version, {why}"


def _compared(
    part: Call, names: Names, parsed: ParsedAst, meant: Mapping[int, tuple[DevicePath, Correction]]
) -> Iterator[tuple[str, str]]:
    for left, right in (part.args, reversed(part.args)):
        path = path_of(left)
        # A capacity has a type, so that the compiler refuses such a comparison. An attribute has its type only in a device.
        if path is None or path.kind != "attributes" or not isinstance(right, Constant):
            continue
        kind, value = names.kind_of(path), right.value
        fitting = _FITTING.get(kind)
        if kind == "" or (fitting and isinstance(value, fitting) and _same_truth(kind, value)):
            continue
        what, action = _right(path, kind, value)
        if kind == "version":
            told = meant.get(part.id)
            write = told[1].write if told else _with_versions(part, path, parsed)
            action = f"write {write or VERSION}"
        yield what, action


def _same_truth(kind: str, value: object) -> bool:
    """A bool is an int for Python, and is none for CEL."""
    return isinstance(value, bool) == (kind == "bool")


def _right(path: DevicePath, kind: str, value: object) -> tuple[str, str]:
    plain = "null" if value is None else str(value).lower()
    shown = f'"{value}"' if isinstance(value, str) else plain
    read = f'device.{path.kind}["{path.domain}"].{path.name}'
    what = f"{path.name} is a {kind}, and is compared with {shown}"
    match kind:
        case "list of strings":
            return what, f"write {shown} in {read}"
        case _:
            return what, f"compare it with a value of the type {kind}"


def _with_versions(part: Call, path: DevicePath, parsed: ParsedAst) -> str:
    """Return a comparison of a version with its texts parsed; "" if there are none, or if one is no version."""
    beside = texts_beside(parsed, part, lambda one: one == path)
    right = {one.number: one.new for _, one in beside}
    return replaced(replace(parsed, root=part), right) if right else ""


def _where(one: Given, expression: Expression, offset: int) -> dict[str, int]:
    before = expression.text[:offset]
    line = before.count("\n") + 1
    column = offset - (before.rfind("\n") + 1) + 1
    found = in_file(one, expression, line, column)
    return {"line": found[0], "column": found[1]} if found[0] else {}


def in_file(one: Given, expression: Expression, line: int, column: int) -> tuple[int, int]:
    """Return line and column in the file for a place in the expression; 0 for what is not known.

    Where YAML folds lines or has escapes, a place in the value does not tell the place in the file: then it is that of the value.
    """
    place: Place | None = one.exact(expression.path)
    if place is None or not line:
        return 0, 0
    if place.style == "|":
        return place.line + line, 0
    plain = (
        expression.text.isascii() and "\n" not in expression.text and "\\" not in expression.text
    )
    quote = len(place.style)
    same_length = place.end - place.start == len(expression.text) + 2 * quote
    if plain and same_length and place.style in ("", "'", '"'):
        return place.line, place.column + quote + column - 1
    return place.line, place.column


def compiled(texts: Iterable[str], known: Known) -> list[Selector]:
    """Return the selectors that compile for the scheduler, which knows more than the API server takes in new objects."""
    found = []
    for text in texts:
        try:
            found.append(compile_selector(text, Environment(environment(known).minor)))
        except CompileError:
            continue
    return found
