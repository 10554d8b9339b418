# SPDX-License-Identifier: Apache-2.0
"""Is every merge finished? A conflict marker in a page or a table breaks no program, so nothing else notices it."""

import re
from pathlib import Path

import pytest

from tests.support import tree_files

ROOT = Path(__file__).resolve().parents[2]
# A line of seven "=" alone is a heading in some formats. It never comes without the other two.
MARKER = re.compile(rb"^(<{7}|>{7}|\|{7})( |\r?$)", re.MULTILINE)


def whole_tree() -> list[Path]:
    return [path for name in tree_files.files() if (path := ROOT / name).is_file()]


@pytest.mark.parametrize("sign", [b"<", b">", b"|"])
@pytest.mark.parametrize("rest", [b" main", b"", b"\r"])
def test_the_search_finds_a_marker_at_the_beginning_of_a_line(sign: bytes, rest: bytes) -> None:
    assert MARKER.search(b"one\n" + sign * 7 + rest + b"\ntwo\n")
    assert not MARKER.search(b"one\n " + sign * 7 + rest + b"\n" + sign * 8 + rest + b"\n")


def test_no_file_has_a_conflict_marker() -> None:
    files = whole_tree()
    assert ROOT / "README.md" in files
    found = [str(path.relative_to(ROOT)) for path in files if MARKER.search(path.read_bytes())]
    assert found == []
