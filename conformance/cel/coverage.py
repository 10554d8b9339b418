# SPDX-License-Identifier: Apache-2.0
"""What has been asked so far, and what is still missing?

The table's rows are what a case can be about, its columns the oracle's verdicts. A cell that no case has reached is a
gap, unless it stands in `UNREACHABLE` with the reason why no case can.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from conformance.cel.cases import Case
from conformance.cel.declarations import Declarations, DeclaredOverload
from dra_driver.testing.conformance.verdicts import FAILS, FALSE, REFUSED, TRUE, VERDICTS

_AUTHORIZER = "no variable of this environment is an authorizer, so the call can only fail"
_NO_ARGUMENT = "takes no argument, so nothing can go wrong in it"
_TRUTH = (TRUE, FALSE)
_AUTHORIZATION = (
    *(
        "allowed",
        "check",
        "error",
        "errored",
        "fieldSelector",
        "group",
        "labelSelector",
        "name",
        "namespace",
    ),
    *("path", "reason", "resource", "serviceAccount", "subresource"),
)


def unreachable(overload: DeclaredOverload, verdict: str) -> str | None:
    """Why no case can have the verdict at the overload, if so."""
    if overload.function in _AUTHORIZATION and verdict in _TRUTH:
        return _AUTHORIZER
    if not overload.arguments and verdict == FAILS:
        return _NO_ARGUMENT
    return None


class Coverage:
    """Counts cases by what they are about and the oracle's verdict."""

    def __init__(self, declarations: Declarations) -> None:
        self.overloads = {
            f"{one.function}|{one.id}": one for one in declarations.overloads if one.writable
        }
        self.cells: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        for focus in self.overloads:
            self.cells["overload"][focus].clear()

    def add(self, case: Case, verdict: str) -> None:
        """One case was answered."""
        self.cells[case.group][case.focus][verdict] += 1
        gates = case.line.get("features")
        said = (
            "all"
            if gates is None
            else "+".join(key.removeprefix("Enable") for key, on in gates.items() if on) or "none"
        )
        self.cells["environment"][f"{case.line['env'] or 'default'}, gates: {said}"][verdict] += 1

    def gaps(self) -> Iterator[tuple[str, str, str]]:
        """Group, focus and verdict of each cell that is empty and should not be."""
        for group in ("overload", "macro", "environment", "absorption"):
            for focus, row in self.cells[group].items():
                for verdict in self._columns(group, focus):
                    if not row[verdict]:
                        yield group, focus, verdict

    def _columns(self, group: str, focus: str) -> Iterable[str]:
        if group == "absorption":
            return (TRUE, FALSE, FAILS)
        if group == "overload":
            return (one for one in VERDICTS if unreachable(self.overloads[focus], one) is None)
        return VERDICTS

    def table(self) -> str:
        """The table as text; overloads of one function that miss nothing share a line."""
        lines = [f"{'':58}" + "".join(f"{verdict:>16}" for verdict in VERDICTS)]
        for group in (
            "environment",
            "absorption",
            "macro",
            "syntax",
            "limit",
            "random",
            "surrounded",
            "overload",
        ):
            rows = self.cells[group]
            lines.append(f"\n{group} ({len(rows)})")
            lines.extend(self._row(group, focus, row) for focus, row in sorted(rows.items()))
        lines.append(f"\nmarked -: {TRUE}, {FALSE} of the authorizer's functions: {_AUTHORIZER};")
        lines.append(f"          {FAILS} of a function that {_NO_ARGUMENT}")
        return "\n".join(lines)

    def _row(self, group: str, focus: str, row: Mapping[str, int]) -> str:
        columns = set(self._columns(group, focus)) if group == "overload" else set(VERDICTS)
        cells = (str(row.get(verdict, 0)) if verdict in columns else "-" for verdict in VERDICTS)
        return f"  {focus:56}" + "".join(f"{cell:>16}" for cell in cells)

    def summary(self) -> str:
        """One line."""
        cells = sum(len(list(self._columns("overload", focus))) for focus in self.overloads)
        filled = cells - sum(group == "overload" for group, _, _ in self.gaps())
        total = Counter[str]()
        for row in self.cells["environment"].values():
            total.update(row)
        shares = ", ".join(
            f"{verdict} {total[verdict]}" for verdict in (TRUE, FALSE, FAILS, REFUSED)
        )
        return f"{total.total()} evaluations ({shares}); {filled} of {cells} cells of {len(self.overloads)} overloads"
