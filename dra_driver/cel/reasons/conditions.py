# SPDX-License-Identifier: Apache-2.0
"""Why is a condition of a selector false for a device, in words and with the values of the device?

Examples: "memory 40Gi < 80Gi"; "has no attribute model, it has: productName". On demand, the answer also has the smallest
change of the condition that makes it true for this device.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.cel.reasons.comparisons import OPPOSITE, TOLD_BY, sides
from dra_driver.cel.reasons.like_versions import Published
from dra_driver.cel.reasons.parsers import MIRRORED, PARSERS, TEXT_TESTS
from dra_driver.cel.reasons.part_texts import PartTexts
from dra_driver.cel.reasons.paths import DevicePath, is_version, names, path_of, paths, value_at
from dra_driver.cel.reasons.rewrite import presence
from dra_driver.cel.reasons.similar import (
    MOST_LOOKED_UP,
    likely_attribute,
    question,
    same_but_for_looks,
)
from dra_driver.cel.reasons.version_advice import joined, sentences, version_advice
from dra_driver.cel.syntax.ast import Call, Constant, Expr, ListLiteral, Select
from dra_driver.cel.syntax.unparse import literal, unparse
from dra_driver.model.api.resource_slice import Device, DeviceAttribute, DeviceCapacity

SHOWN_NAMES = 8
SHOWN_HINTS = 3
Meant = Callable[[DevicePath, str], str]
"""Returns the value of a device that was most likely meant by a text at a path, both as CEL literals; "" if there is none."""
_OPPOSITES = {
    "_==_": "_!=_",
    "_!=_": "_==_",
    "_<_": "_>=_",
    "_>=_": "_<_",
    "_>_": "_<=_",
    "_<=_": "_>_",
}


class FalseCondition(Struct, frozen=True):
    """A condition that is false for a device.

    `part` is the text of the condition, `found` the reason why it is false. `relaxed` is the smallest change of the condition
    that is true for the device; "" if the condition must be removed. `path` is the compared path. `wanted` are the first texts
    that would make the condition true, as CEL literals. `typo` is a missing path and the similar name that the author may
    have meant.
    """

    part: str
    found: str
    hint: str = ""
    relaxed: str = ""
    path: DevicePath | None = None
    wanted: tuple[str, ...] = ()
    typo: tuple[DevicePath, str] | None = None


class _Operand(Struct, frozen=True):
    """One side of a comparison: its name, and its value on this device ("" for a constant).

    `text` is the CEL literal, if the side is a text.
    """

    name: str
    value: str
    path: DevicePath | None = None
    text: str = ""


class ConditionExplainer:
    """Explains the conditions of one expression for one device. With `meant`, it also fills `FalseCondition.relaxed`.

    `is_published` says whether any device has a path, or a version there.
    """

    def __init__(
        self,
        driver: str,
        device: Device,
        texts: PartTexts,
        is_published: Published,
        meant: Meant | None = None,
    ) -> None:
        self._is_published = is_published
        self._driver = driver
        self._device = device
        self._texts = texts
        self._meant = meant

    def tell(self, part: Expr) -> FalseCondition:
        """Explain a condition that is false for the device."""
        told = self._told(part)
        hint = told.hint or self._beside_version(part)
        return replace(told, part=self._texts.of(part), hint=hint)

    def _told(self, part: Expr) -> FalseCondition:
        told = self._comparison(part) or self._test(part) or self._negation(part)
        return self._plain(part) if told is None else told

    def _beside_version(self, part: Expr) -> str:
        """Return the hint for what is compared with a version as it never is; "" if there is none."""
        advice = version_advice(self._texts, part, self._is_version, self._is_published)
        first = advice.told[:SHOWN_HINTS]
        told = ((f"{one.path.name} is a version", one.link, one.text) for one in first)
        return joined(sentences(told), len(advice.told) - len(first))

    def lacks(self, path: DevicePath) -> str:
        """Return the sentence that the device does not have the path, with the names that it has."""
        what = "attribute" if path.kind == "attributes" else "capacity"
        there = list(names(path.kind, path.domain, self._driver, self._device))
        if there:
            has = f"it has: {_listed(there)}"
        else:
            others = sorted(domains_of(path.kind, self._driver, self._device))
            has = f"it has none of domain {path.domain}" + (
                f", only of: {_listed(others)}" if others else ""
            )
        return f"has no {what} {path.name}, {has}"

    def absent(self, path: DevicePath) -> FalseCondition:
        """Explain a condition that is false because the device does not have the path."""
        near = self.near(path)
        typo = (path, near) if near else None
        return FalseCondition("", self.lacks(path), question(near), typo=typo)

    def near(self, path: DevicePath) -> str:
        """Return the similar name that the author may have meant, or ""."""
        there = names(path.kind, path.domain, self._driver, self._device)
        return likely_attribute(path.name, list(there))

    def _comparison(self, part: Expr) -> FalseCondition | None:
        both = sides(part)
        if both is None:
            return None
        sign, left, right = both
        first, second = self._operand(left), self._operand(right)
        if first.path is None and second.path is not None and sign in MIRRORED:
            sign, left, right, first, second = MIRRORED[sign], right, left, second, first
        missing = next(
            (side.path for side in (first, second) if side.path and not side.value), None
        )
        if missing is not None:
            return self.absent(missing)
        if first.path is None:
            return None
        if sign == "_!=_":
            return FalseCondition(
                "", f"{first.name} is {second.value or second.name}", path=first.path
            )
        found = f"{first.name} {first.value} {OPPOSITE[sign]} {second.value or second.name}"
        if first.path.kind == "driver" and sign == "_==_":
            found = f"of another driver than {second.name}"
        relaxed = self._relaxed(part, right, first.path)
        # No text equals a version, so none of those that are published was meant.
        wanted = () if self._is_version(first.path) else _texts_of([second])
        return FalseCondition("", found, relaxed=relaxed, path=first.path, wanted=wanted)

    def _relaxed(self, part: Expr, bound: Expr, path: DevicePath) -> str:
        """Return the comparison with the device's value as its bound, or "". For < and > no bound is the nearest."""
        strict = isinstance(part, Call) and part.function in ("_<_", "_>_", *TOLD_BY)
        published = self._at(path)
        constant = _bare(published) if self._meant else None
        if strict or constant is None or not _is_constant(bound):
            return ""
        new: Expr = Constant(bound.id, constant)
        if isinstance(bound, Call):
            new = replace(bound, args=(Constant(bound.args[0].id, str(constant)),))
        elif is_version(published):
            return ""  # A correction says which versions were meant. Another one was not.
        return unparse(self._texts.parsed, _with(part, bound, new))

    def _test(self, part: Expr) -> FalseCondition | None:
        path = presence(part)
        if path is not None:
            return self.absent(path)
        match part:
            case Call(function="@in", args=(item, container), target=None):
                return self._membership(item, container)
            case Call(function=function, args=(argument,), target=target) if (
                function in TEXT_TESTS and target is not None
            ):
                operand = self._operand(target)
                if operand.path is None:
                    return None
                told = f"{operand.name} {operand.value} {TEXT_TESTS[function]}"
                return FalseCondition(
                    "", f"{told} {self._operand(argument).name}", path=operand.path
                )
        return None

    def _membership(self, item: Expr, container: Expr) -> FalseCondition | None:
        operand = self._operand(item)
        if operand.path is None:
            return None
        listed = self._texts.of(container)
        elements = container.elements if isinstance(container, ListLiteral) else ()
        return FalseCondition(
            "",
            f"{operand.name} {operand.value} is not in {listed}",
            relaxed=self._extended(item, container, operand.path),
            path=operand.path,
            wanted=_texts_of(map(self._operand, elements)),
        )

    def _extended(self, item: Expr, container: Expr, path: DevicePath) -> str:
        """Return the `in` condition with the device's value in the list, or "": in the place of a mistyped one, else added."""
        published = _bare(value_at(path, self._driver, self._device)) if self._meant else None
        if published is None or not isinstance(container, ListLiteral):
            return ""
        value = Constant(0, published)
        elements = [
            value if _only_looks(one, published) or self._means(path, one, published) else one
            for one in container.elements
        ]
        listed = replace(container, elements=tuple(dict.fromkeys([*elements, value])))
        return unparse(self._texts.parsed, Call(0, "@in", (item, listed)))

    def _means(self, path: DevicePath, element: Expr, published: object) -> bool:
        text = element.value if isinstance(element, Constant) else None
        if not (self._meant and isinstance(text, str) and isinstance(published, str)):
            return False
        return self._meant(path, literal(text)) == literal(published)

    def _negation(self, part: Expr) -> FalseCondition | None:
        match part:
            case Call(function="!_", args=(Select(test_only=True) as test,)):
                path = presence(test)
                return FalseCondition("", f"has {path.shown(self._driver)}") if path else None
            case Call(function="!_", args=(Call(function=sign) as inner,)) if sign in _OPPOSITES:
                return self._comparison(replace(inner, function=_OPPOSITES[sign]))
            case Call(function="!_", args=(inner,)):
                operand = self._operand(inner)
                return FalseCondition("", f"{operand.name} is true") if operand.path else None
            case Call(function="_||_", args=alternatives):
                told = [self._told(alternative) for alternative in _disjuncts(alternatives)]
                hints = [one.hint for one in told if one.hint]
                found = ", and ".join(dict.fromkeys(one.found for one in told))
                return FalseCondition("", found, hints[0] if hints else "")
            case _:
                operand = self._operand(part)
                told_plainly = f"{operand.name} is {operand.value}"
                return FalseCondition("", told_plainly) if operand.path else None

    def _plain(self, part: Expr) -> FalseCondition:
        """Explain a condition of any other form: name the values that it reads."""
        values = [
            f"{path.shown(self._driver)} {value}"
            for path in sorted(paths(part) or ())
            if (value := self._value(path))
        ]
        told = f" with {', '.join(values)}" if values else ""
        return FalseCondition("", f"{self._texts.of(part)} is false{told}")

    def _operand(self, part: Expr) -> _Operand:
        match part:
            case Call(function="orValue", target=target, args=(default,)) if target is not None:
                inner = self._operand(target)
                if inner.path is None:
                    return _Operand(self._texts.of(part), "")
                return replace(
                    inner, value=inner.value or f"(not set: {self._operand(default).name})"
                )
            case Call(function=function, args=(Constant(value=str(text)),)) if function in PARSERS:
                return _Operand(text, "")
            case _:
                return self._plain_operand(part)

    def _plain_operand(self, part: Expr) -> _Operand:
        path = path_of(part)
        if path is None:
            match part:
                case Constant(value=str(constant)):
                    text = literal(constant)
                case _:
                    text = ""
            return _Operand(self._texts.of(part), "", text=text)
        published = self._at(path)
        value = shown(published)
        text = value if _is_text(published) else ""
        return _Operand(path.shown(self._driver), value, path, text)

    def _value(self, path: DevicePath) -> str:
        return shown(self._at(path))

    def _is_version(self, path: DevicePath) -> bool:
        return is_version(self._at(path))

    def _at(self, path: DevicePath) -> object:
        return value_at(path, self._driver, self._device)


def _is_text(published: object) -> bool:
    if isinstance(published, DeviceAttribute):
        return published.string_value is not None
    return isinstance(published, str)


def _texts_of(operands: Iterable[_Operand]) -> tuple[str, ...]:
    texts = (operand.text for operand in operands if operand.text)
    return tuple(islice(texts, MOST_LOOKED_UP))


def shown(published: object) -> str:
    """Return a published value as text, or "" for None."""
    if isinstance(published, DeviceCapacity):
        return str(published.value)
    if isinstance(published, DeviceAttribute) and published.version_value is not None:
        return published.version_value
    bare = _bare(published)
    if bare is not None:
        return literal(bare)
    if isinstance(published, DeviceAttribute):
        listed = published.int_values or published.bool_values or published.string_values
        listed = listed or published.version_values or []
        return f"[{', '.join(literal(value) for value in listed)}]"
    return ""


def _only_looks(element: Expr, published: object) -> bool:
    """Whether an element of a list is a text that only looks like the published value, and so is mistyped: O for 0, or "2" for 2."""
    text = element.value if isinstance(element, Constant) else None
    if isinstance(text, str) and isinstance(published, str):
        return bool(same_but_for_looks(text, [published]))
    return text == str(published).lower()


def _bare(published: object) -> bool | int | str | None:
    """Return the value of a scalar attribute, or the text of a capacity or version. Returns None for a list."""
    # This can run for each device, so it uses no loop.
    match published:
        case DeviceAttribute():
            if published.int_value is not None:
                return published.int_value
            if published.bool_value is not None:
                return published.bool_value
            text = published.string_value
            return published.version_value if text is None else text
        case bool() | int() | str():
            return published
        case DeviceCapacity():
            return str(published.value)
        case _:
            return None


def domains_of(kind: str, driver: str, device: Device) -> set[str]:
    """Return the domains of the device's attributes or capacities."""
    published = device.attributes if kind == "attributes" else device.capacity
    return {name.partition("/")[0] if "/" in name else driver for name in published or {}}


def _listed(words: Sequence[str]) -> str:
    more = f", … ({len(words)} in all)" if len(words) > SHOWN_NAMES else ""
    return ", ".join(words[:SHOWN_NAMES]) + more


def _disjuncts(parts: Sequence[Expr]) -> Iterator[Expr]:
    for part in parts:
        if isinstance(part, Call) and part.function == "_||_":
            yield from _disjuncts(part.args)
        else:
            yield part


def _is_constant(part: Expr) -> bool:
    match part:
        case Constant():
            return True
        case Call(function=function, args=(Constant(),)):
            return function in PARSERS
        case _:
            return False


def _with(part: Expr, old: Expr, new: Expr) -> Expr:
    """Return a copy of a comparison with the node `old` replaced by `new`."""
    if part is old:
        return new
    if isinstance(part, Call):
        target = None if part.target is None else _with(part.target, old, new)
        return replace(part, target=target, args=tuple(_with(arg, old, new) for arg in part.args))
    return part
