# SPDX-License-Identifier: Apache-2.0
"""How does a file's text change when findings are corrected? Everything else stays as it is, byte for byte.

After each correction the text is read again: every object must have what it had before, and a corrected one what its edits promise.
Otherwise the text stays, and the finding says so. Several are corrected at once only in different documents.
"""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.check.finding import Edit, Finding
from dra_driver.model.yaml_documents import BadDocument, documents

LEFT = "the changed text would not have the right meaning, so it is left: write it by hand"


class Fixed(Struct, frozen=True):
    """The text after the corrections, what was corrected, and what could not be."""

    text: str
    corrected: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()


def fix(text: str, findings_of: Callable[[str], Sequence[Finding]]) -> Fixed:
    """Correct everything in a text that can be corrected. `findings_of` checks a text, and names its findings in the order of their places."""
    corrected: list[Finding] = []
    left: dict[_Key, Finding] = {}
    while True:
        # One of each document at a time: the edits of an object say what it is after them alone.
        todo: dict[int, Finding] = {}
        for one in findings_of(text):
            if one.edits and _key(one) not in left:
                todo.setdefault(one.document, one)
        if not todo:
            return Fixed(text, tuple(corrected), tuple(left.values()))
        batch = list(todo.values())
        changed = _changed(text, batch)
        if changed is None:
            wrong = [one for one in batch if _changed(text, [one]) is None] or batch
            left |= {_key(one): replace(one, edits=(), unfixed=LEFT) for one in wrong}
        else:
            text = changed
            corrected += batch


_Key = tuple[str, int, str, str]


def _key(finding: Finding) -> _Key:
    # Not the path: another correction of the object may change it.
    return finding.rule, finding.document, finding.subject, finding.message


def _changed(text: str, findings: Sequence[Finding]) -> str | None:
    """Return the text after the edits of findings in different documents; None if it would not have exactly the right meaning."""
    before = _contents(text)
    edits = [edit for one in findings for edit in one.edits]
    changed: str | None = text
    for edit in sorted(edits, key=lambda one: (one.start, one.indent), reverse=True):
        changed = None if changed is None else applied(changed, edit)
    after = None if changed is None else _contents(changed)
    if before is None or after is None or len(after) != len(before):
        return None
    wanted = {one.document: one.edits[0].content for one in findings}
    differ = [number for number, one in enumerate(before, 1) if after[number - 1] != one]
    right = differ == sorted(wanted) and all(
        _differs_only_by(before[number - 1], after[number - 1], wanted[number]) for number in differ
    )
    return changed if right else None


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
