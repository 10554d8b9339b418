# SPDX-License-Identifier: Apache-2.0
"""What is a finding, and how does it say where it is?"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from dra_driver.check.rules import RULES, SEVERITIES, Severity


class Edit(Struct, frozen=True):
    """A change of a file's text that corrects a finding: `old`, which stands between two characters of the text, becomes `new`.

    An edit with `indent` puts so many spaces before each line of that part too, and `old` is not compared. `content` is the whole object
    after the change: the changed file is read again, and must have exactly this.
    """

    start: int
    end: int
    old: str
    new: str
    content: Mapping[str, object]
    indent: int = 0


class Finding(Struct, frozen=True):
    """One mistake. `line` and `column` begin at 1, and are 0 if they are not known; `document` is the number of the document in the file.

    `message` says what was found, `action` what to do. `detail` has more lines, such as the place in an expression. `edits`
    correct it; `unfixed` says why --fix leaves it although it knows the right form.
    """

    rule: str
    file: str
    document: int
    line: int
    column: int
    subject: str
    path: str
    message: str
    action: str = ""
    detail: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    unfixed: str = ""

    @property
    def severity(self) -> Severity:
        """The severity of its rule."""
        return RULES[self.rule].severity


def sorted_findings(findings: Sequence[Finding], files: Sequence[str]) -> list[Finding]:
    """Return the findings in the order of these files, and of their places there; each only once."""
    order = {name: place for place, name in enumerate(dict.fromkeys(files))}
    different: dict[tuple[object, ...], Finding] = {}
    for one in findings:
        key = (one.rule, one.file, one.document, one.line, one.path, one.message)
        different.setdefault(key, one)
    return sorted(
        different.values(),
        key=lambda one: (
            order[one.file],
            one.document,
            one.line,
            one.column,
            SEVERITIES.index(one.severity),
        ),
    )
