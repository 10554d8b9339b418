# SPDX-License-Identifier: Apache-2.0
"""How does a file's text change when findings are corrected? Everything else stays as it is, byte for byte.

One finding is corrected at a time. Then the text is read again: every object must have what it had before, and the corrected one what
its edits promise. Otherwise the text stays, and the finding says so.
"""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dra_driver.check.finding import Edit, Finding
from dra_driver.model.yaml_documents import BadDocument, documents

LEFT = "the changed text would not have the right meaning, so it is left: write it by hand"


@dataclass(frozen=True, slots=True)
class Fixed:
    """The text after the corrections, what was corrected, and what could not be."""

    text: str
    corrected: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()


def fix(text: str, findings_of: Callable[[str], Sequence[Finding]]) -> Fixed:
    """Correct everything in a text that can be corrected. `findings_of` checks a text, and names its findings in the order of their places."""
    corrected: list[Finding] = []
    left: dict[tuple[str, int, str, str], Finding] = {}
    while True:
        finding = next(
            (one for one in findings_of(text) if one.edits and _key(one) not in left), None
        )
        if finding is None:
            return Fixed(text, tuple(corrected), tuple(left.values()))
        changed = _changed(text, finding)
        if changed is None:
            left[_key(finding)] = replace(finding, edits=(), unfixed=LEFT)
        else:
            text = changed
            corrected.append(finding)


def _key(finding: Finding) -> tuple[str, int, str, str]:
    # Not the path: another correction of the object may change it.
    return finding.rule, finding.document, finding.subject, finding.message


def _changed(text: str, finding: Finding) -> str | None:
    """Return the text after the edits of a finding; None if it would not have exactly the right meaning."""
    before = _contents(text)
    changed: str | None = text
    for edit in sorted(finding.edits, key=lambda one: (one.start, one.indent), reverse=True):
        changed = None if changed is None else applied(changed, edit)
    if changed is None or before is None:
        return None
    after = _contents(changed)
    wanted = finding.edits[0].content
    if after is None or len(after) != len(before):
        return None
    differ = [number for number, one in enumerate(before) if after[number] != one]
    if len(differ) != 1:
        return None
    return changed if _differs_only_by(before[differ[0]], after[differ[0]], wanted) else None


def _contents(text: str) -> list[Any] | None:
    try:
        return [one.content for one in documents(io.BytesIO(text.encode()))]
    except BadDocument:
        return None


def _differs_only_by(before: Any, after: Any, wanted: Mapping[str, object]) -> bool:
    """Return whether the document is the wanted object, or a List in which one item is it and the others are as before."""
    if after == wanted:
        return True
    old, new = (list(_items(one)) for one in (before, after))
    changed = [item for item, one in zip(new, old, strict=False) if item != one]
    return len(old) == len(new) and changed == [wanted]


def _items(content: Any) -> Iterator[Any]:
    items = content.get("items") if isinstance(content, dict) else None
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and item.get("kind") == "List":
            yield from _items(item)
        else:
            yield item


def applied(text: str, edit: Edit) -> str | None:
    """Return the text after one edit; None if `old` is not exactly once in its part."""
    part = text[edit.start : edit.end]
    new = edit.new.replace("\n", "\r\n") if "\r\n" in text else edit.new
    if edit.indent:
        first, *lines = part.split("\n")
        space = " " * edit.indent
        part = "\n".join((first, *(space + line if line.strip() else line for line in lines)))
    elif edit.old and part.count(edit.old) != 1:
        return None
    else:
        part = part.replace(edit.old, new) if edit.old else new + part
    return text[: edit.start] + part + text[edit.end :]
