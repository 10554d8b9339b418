# SPDX-License-Identifier: Apache-2.0
"""Patterns: Go's classes of characters, and what is refused because it is too large.

What Kubernetes answers to the same is in runtime.jsonl, topic "patterns".
"""

import pytest

from dra_driver.cel import golang, regex, unicode_classes
from dra_driver.cel.compile import compile_selector
from dra_driver.cel.errors import CompileError
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.versions import Environment

TOO_LARGE = r"\pL{900}\pL{900}\pL{900}\pL{900}"
SAYS_SO = "the pattern takes more than 64 MiB, the most that one may take here: repeat less, or shorter parts"


def found(pattern: str, text: str) -> list[str]:
    """All that a pattern finds."""
    return regex.compile_pattern(pattern).find_all(text)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("LATIN", "Latin"),
        ("la tin", "Latin"),
        ("Old_Italic", "Olditalic"),
        ("-l_", "L"),
        ("\u017f", ""),
        ("", ""),
    ],
)
def test_a_name_is_looked_up_as_in_go(name: str, known: str) -> None:
    assert unicode_classes.canonical(name) == known


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"\p{p}", "a!b", ["!"]),
        (r"\p{^p}", "a!b", ["a", "b"]),
        (r"[b\p{p}]", "a!b", ["!", "b"]),
        (r"[b\P{p}]", "a!b", ["a", "b"]),
        (r"\pl\PL", "a!b", ["a!"]),
        (r"\p{ASCII}", "aé", ["a"]),
        (r"\P{ASCII}", "aé", ["é"]),
        (r"\p{Assigned}", "a\u0378", ["a"]),
        (r"\p{Unassigned}[^\P{Cn}]", "a\u0378\u0378", ["\u0378\u0378"]),
        (r"[\P{C}]", "a\u0378", ["a"]),
        (r"\p{LC}[\P{LC}]", "aª", ["aª"]),
        (r"\p{L}", "a\U0002ebf0", ["a"]),
        (r"[\P{L}]", "a\U0002ebf0", ["\U0002ebf0"]),
        (r"(?i)[\P{L}]", "a\u03b9\u0345\U0002ebf0", ["\U0002ebf0"]),
        (r"[-\p{L}]", "-é", ["-", "é"]),
        (r"[]\p{L}]", "]é", ["]", "é"]),
        (r"[^]\p{L}]", "]é!", ["!"]),
        (r"[[:digit:]\p{L}]", "1é!", ["1", "é"]),
        (r"\Q\p{L}", r"é\p{L}", [r"\p{L}"]),
        (r"\\p{2}", r"\pp", [r"\pp"]),
    ],
)
def test_a_class_has_the_characters_that_it_has_in_go(
    pattern: str, text: str, matches: list[str]
) -> None:
    assert found(pattern, text) == matches


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"\p{Old_Italic}", r"invalid character class range: `\p{Old_Italic}`"),
        (r"[a\p{Old_Italic}]", r"invalid character class range: `\p{Old_Italic}`"),
        (r"\px", r"invalid character class range: `\px`"),
        (r"\p", r"invalid character class range: `\p`"),
        (r"[a-\p{L}]", r"invalid escape sequence: `\p`"),
        (r"(\p{L}", r"missing closing ): `(\p{L}`"),
        (r"\p{L})", r"unexpected ): `\p{L})`"),
        (r"[b]\p{L}[a\p{L}", r"missing closing ]: `[a\p{L}`"),
        (r"a\C", r"invalid escape sequence: `\C`"),
    ],
)
def test_an_error_quotes_the_pattern_as_it_was_written(pattern: str, text: str) -> None:
    with pytest.raises(EvaluationError) as error:
        regex.compile_pattern(pattern)
    assert str(error.value) == f"error parsing regexp: {text}"


def test_a_pattern_that_is_too_large_is_refused_with_the_reason() -> None:
    written = TOO_LARGE.replace("\\", "\\\\")

    with pytest.raises(CompileError) as constant:
        compile_selector(f'device.driver.matches("{written}")', Environment())
    with pytest.raises(EvaluationError) as computed:
        regex.compile_pattern(TOO_LARGE)

    assert str(constant.value) == f"program instantiation failed: {SAYS_SO}"
    assert str(computed.value) == SAYS_SO


def test_a_large_pattern_is_searched_in_texts_of_a_device_and_refused_for_a_long_one() -> None:
    pattern = regex.compile_pattern(r"\pL{1000}\pL{600}")

    assert not pattern.matches("a" * 64)
    with pytest.raises(EvaluationError) as error:
        pattern.matches("a" * 65)
    assert str(error.value) == (
        "the pattern is too large to be searched in 65 bytes: it may be searched in 64"
    )


def test_many_repetitions_are_searched_quickly_or_not_at_all() -> None:
    assert regex.compile_pattern("(a{0,1000}){1}" * 3).find("a" * 3001) == "a" * 3000
    with pytest.raises(EvaluationError, match="too large to be searched in 3001 bytes"):
        regex.compile_pattern("(a{0,1000}){1}" * 30).matches("a" * 3001)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("é\U0001fae8", '"é\U0001fae8"'),
        ("\u0378\u00ad", '"\\u0378\\u00ad"'),
        ("\x1b\x7f\u00a0", '"\\x1b\\x7f\\u00a0"'),
    ],
)
def test_what_is_quoted_is_printable_in_gos_version_of_unicode(text: str, quoted: str) -> None:
    assert golang.quote(text) == quoted


def test_the_patterns_that_were_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regex, "_MOST_KEPT", 2)
    patterns = regex.Patterns()
    first = patterns.compiled("a")
    patterns.compiled("b")
    assert patterns.compiled("a") is first
    patterns.compiled("c")
    assert (len(patterns), patterns.compiled("a") is first) == (2, True)


def test_few_large_patterns_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large one takes as much memory as a thousand usual ones."""
    patterns = regex.Patterns()
    monkeypatch.setattr(regex, "_MOST_KEPT_INSTRUCTIONS", 2_000)
    for number in range(9):
        patterns.compiled(f"a{{{900 + number}}}")
    assert len(patterns) == 2
    patterns.compiled(r"\pL{50}")
    assert len(patterns) == 1
