# SPDX-License-Identifier: Apache-2.0
"""Where does cel-python, which is written in Python too, answer otherwise than Kubernetes?

    python hack/conformance/cel_python.py [--write]

Asks cel-python the recorded vectors of the newest release. It knows the language without the libraries of Kubernetes,
does not check types and cannot do what came after it (optionals, cel.bind, two variables): those cases are only
counted. What it evaluates otherwise is listed. --write puts the list into docs/cel-differences.md.
"""

import argparse
import json
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import celpy
from celpy import celtypes

from dra_driver.testing.conformance.verdicts import FAILS, FALSE, REFUSED, TRUE, verdict

ROOT = Path(__file__).resolve().parents[2]
VECTORS = ROOT / "tests" / "conformance" / "vectors" / "cel-1.37.jsonl"
PAGE = ROOT / "docs" / "cel-differences.md"
SHOWN, LONGEST = 40, 100
ENVIRONMENT = celpy.Environment()
HEAD = """<!-- Written by hack/conformance/cel_python.py; change the code instead. -->

# Where cel-python answers otherwise

The recorded vectors of Kubernetes 1.37, asked of cel-python {version}. Kubernetes is right by definition; this project
agrees with it.

"""


def main() -> int:
    """Compare and show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    counts: Counter[str] = Counter()
    rows: dict[tuple[str, str], str] = {}
    for line in VECTORS.read_text().splitlines():
        asked = json.loads(line)
        if len(asked["expression"]) > LONGEST or asked["name"].startswith("limit"):
            continue  # cel-python takes minutes for some of these
        wanted, found = verdict(asked["want"]), ask(asked)
        counts[f"{wanted} | {found}"] += 1
        if wanted != found and found in (TRUE, FALSE) and wanted != REFUSED:
            expression = asked["expression"]
            if "\n" not in expression and "|" not in expression and "`" not in expression:
                rows[expression, wanted] = found
    text = page(counts, rows)
    print(text)
    if write:
        PAGE.write_text(text)
    return 0


def ask(asked: dict[str, Any]) -> str:
    """The verdict of cel-python."""
    try:
        program = ENVIRONMENT.program(ENVIRONMENT.compile(asked["expression"]))
    except Exception:  # noqa: BLE001 - whatever it raises, it does not take the expression
        return REFUSED
    try:
        answer = program.evaluate({"device": device(asked)})
    except Exception:  # noqa: BLE001 - as above
        return FAILS
    if not isinstance(answer, celtypes.BoolType | bool):
        return FAILS
    return TRUE if answer else FALSE


def device(asked: dict[str, Any]) -> Any:
    """The device as far as cel-python has values for it: versions and quantities stay text."""
    attributes: dict[str, dict[str, Any]] = {}
    for name, attribute in asked.get("attributes", {}).items():
        domain, _, identifier = name.rpartition("/")
        attributes.setdefault(domain or asked.get("driver", ""), {})[identifier] = next(
            iter(attribute.values()), None
        )
    plain = {
        "driver": asked.get("driver", ""),
        "attributes": attributes,
        "capacity": {},
        "allowMultipleAllocations": asked.get("allowMultipleAllocations", False),
    }
    return celpy.json_to_cel(plain)


def page(counts: Counter[str], rows: dict[tuple[str, str], str]) -> str:
    """The page as Markdown."""
    table = ["| Kubernetes | cel-python | cases |", "| --- | --- | --- |"]
    table += [f"| {pair} | {count} |" for pair, count in sorted(counts.items())]
    shown = sorted(rows.items(), key=lambda row: (len(row[0][0]), row[0]))[:SHOWN]
    listed = ["| expression | Kubernetes | cel-python |", "| --- | --- | --- |"]
    listed += [f"| `{expression}` | {wanted} | {found} |" for (expression, wanted), found in shown]
    head = HEAD.format(version=version("cel-python"))
    lines = "\n".join(table)
    return (
        f"{head}{lines}\n\nEvaluated, and otherwise (the {SHOWN} shortest):\n\n"
        + "\n".join(listed)
        + "\n"
    )


if __name__ == "__main__":
    raise SystemExit(main())
