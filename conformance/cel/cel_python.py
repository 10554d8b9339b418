# SPDX-License-Identifier: Apache-2.0
"""Where does cel-python, which is written in Python too, answer otherwise than Kubernetes?

    python -m conformance.cel.cel_python [--write | --check]

Asks cel-python those recorded vectors of the newest release that both know: no libraries of Kubernetes, no optionals,
no cel.bind, no second variable, no types of Kubernetes' own, and nothing that the API server refuses, because
cel-python checks no types. --write puts the list into docs/cel-differences.md, --check fails where that is another.
"""

import argparse
import json
import re
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import celpy
from celpy import celtypes, evaluation

from dra_driver.testing.conformance.verdicts import FAILS, FALSE, REFUSED, TRUE, verdict

ROOT = Path(__file__).resolve().parents[2]
VECTORS = ROOT / "tests" / "conformance" / "vectors" / "cel-1.37.jsonl"
PAGE = ROOT / "docs" / "cel-differences.md"
LONGEST = 100  # bytes of an expression: cel-python takes minutes for some that are longer
ENVIRONMENT = celpy.Environment()
KNOWN = {*evaluation.base_functions, "has", "all", "exists", "exists_one", "map", "filter", "dyn"}
CALL = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
NEWER = re.compile(r"\.\?|\[\?|[{,]\s*\?|\(\s*\w+\s*,\s*\w+\s*,")  # optionals, two variables
HEAD = """<!-- Written by conformance/cel/cel_python.py; change the code instead. -->

# Where cel-python answers otherwise

The recorded vectors of Kubernetes 1.37, as far as both know them (no libraries of Kubernetes, nothing that the API server refuses), asked of
cel-python {version}: {same} of {all} cases have the verdict of Kubernetes.
This project has it in each of these cases; what it refuses on purpose where Kubernetes answers (messages such as google.protobuf.Duration{{}}
among them) is not among these cases and is listed in [conformance.md](conformance.md#refused-on-purpose). Each expression on which cel-python differs:

"""


def main() -> int:
    """Compare and show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    chosen = parser.parse_args()
    counts: Counter[bool] = Counter()
    rows: dict[tuple[str, str], str] = {}
    with VECTORS.open() as lines:
        for asked in filter(is_common, map(json.loads, lines)):
            wanted, found = verdict(asked["want"]), ask(asked)
            counts[wanted == found] += 1
            if wanted != found:
                rows[asked["expression"], wanted] = found
    text = page(counts, rows)
    print(text)
    if chosen.write:
        PAGE.write_text(text)
    if chosen.check and PAGE.read_text() != text:
        print(f"{PAGE.name} is another: run {Path(__file__).name} --write")
        return 1
    return 0


def is_common(asked: dict[str, Any]) -> bool:
    """Whether both know all that the case needs."""
    expression, want = asked["expression"], asked["want"]
    return (
        want["compileError"] is None
        and not (want["matchError"] or "").startswith("attribute ")  # the device is no good
        and len(expression) <= LONGEST
        and "capacity" not in expression
        and "sets." not in expression
        and not any("version" in kind for value in asked["attributes"].values() for kind in value)
        and KNOWN.issuperset(CALL.findall(expression))
        and not NEWER.search(expression)
    )


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


def page(counts: Counter[bool], rows: dict[tuple[str, str], str]) -> str:
    """The list as Markdown."""
    head = HEAD.format(version=version("cel-python"), same=counts[True], all=counts.total())
    listed = ["| expression | Kubernetes | cel-python |", "| --- | --- | --- |"]
    for (expression, wanted), found in sorted(rows.items(), key=lambda row: (row[1], row[0])):
        shown = expression.replace("|", "\\|").replace("\n", " ")
        listed.append(f"| `` {shown} `` | {wanted} | {found} |")
    return head + "\n".join(listed) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
