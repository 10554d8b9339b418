# SPDX-License-Identifier: Apache-2.0
"""The text about several subjects: a line for each, and the details of those that do not fit."""

from dra_driver.cli.render_list import list_text
from dra_driver.explain.outcome import Report, ReportList
from dra_driver.explain.verdict import OtherCondition
from dra_driver.model.cluster import NotRead


def report(name: str, code: int, **more: object) -> Report:
    outcome = ("devices fit", "devices do not fit", "could not tell")[code]
    return Report(subject=f"pod ns/{name}", outcome=outcome, exit_code=code, summary="so", **more)


def answer(*items: Report, summary: str = "", **more: object) -> ReportList:
    code = max((one.exit_code for one in items), default=0)
    outcome = ("devices fit", "devices do not fit", "could not tell")[code]
    return ReportList(
        subject="pods of ns", outcome=outcome, exit_code=code, summary=summary, items=items, **more
    )


def shown(found: ReportList, *, width: int = 80, color: bool = False) -> str:
    return "\n".join(list_text(found, width=width, color=color))


def test_each_subject_has_a_line_and_only_what_does_not_fit_has_details() -> None:
    found = answer(
        report("a", 0, verdicts=(OtherCondition("shown only in the details", "of a"),)),
        report("b", 1, alike=("ns/c", "ns/d")),
        summary="devices do not fit: 3; devices fit: 1",
    )
    assert shown(found) == (
        "pods of ns: devices do not fit\n"
        "  devices do not fit: 3; devices fit: 1\n"
        "\n"
        "  pod ns/a: devices fit: so\n"
        "  pod ns/b and 2 alike: devices do not fit: so\n"
        "\n"
        "pod ns/b: devices do not fit\n"
        "  so\n"
        "\n"
        "The same is true of ns/c, ns/d"
    )


def test_a_single_answer_is_shown_whole() -> None:
    assert shown(answer(report("a", 0), summary="1 of 1 pods wait")) == (
        "pods of ns\n  1 of 1 pods wait\n\npod ns/a: devices fit\n  so"
    )


def test_no_answer_at_all_is_a_sentence() -> None:
    assert shown(answer(summary="no pod waits")) == "pods of ns\n  no pod waits"


def test_many_equal_pods_are_counted() -> None:
    names = tuple(f"ns/{number}" for number in range(1, 2001))
    text = shown(answer(report("0", 1, alike=names)))
    assert "The same is true of ns/1, ns/2, ns/3, ns/4, … (2,000)" in text
    assert "pod ns/0 and 2,000 alike" in shown(answer(report("0", 1, alike=names), report("x", 0)))


def test_long_lines_are_cut_and_what_others_wrote_is_escaped() -> None:
    found = answer(report("a" * 100, 0), report("\033[31m", 0), summary="two " * 40)
    lines = list_text(found, width=60, color=False)
    assert max(map(len, lines)) == 60
    assert any(line.endswith(" …") for line in lines)
    assert "\033" not in "".join(lines)


def test_the_title_has_the_colour_of_the_outcome() -> None:
    text = shown(answer(report("a", 1), report("b", 0)), color=True)
    assert text.startswith("\033[31m\033[1mpods of ns: devices do not fit\033[0m\n")


def test_what_could_not_be_read_comes_once_at_the_end() -> None:
    gap = NotRead(resource="deployments", reason="forbidden", message="may not list")
    text = shown(answer(report("a", 1), report("b", 1), not_read=(gap,)))
    assert text.endswith("\nCould not be read\n  - deployments (forbidden): may not list")
    assert text.count("may not list") == 1
