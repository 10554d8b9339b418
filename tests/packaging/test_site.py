# SPDX-License-Identifier: Apache-2.0
"""Is the site of docs/ whole, does it load nothing from elsewhere, and does its check notice what is wrong? `make check` builds it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HANGING_SECONDS = 300
SMALL_NAV = "nav: [index.md, install.md, repository/README.md]\n"
MISTAKES = {
    "a page that does not exist": ("[x](nowhere.md)", "nowhere.md"),
    "an anchor of another page": ("[x](install.md#lost)", "install.md#lost"),
    "an anchor of the same page": ("[x](#nowhere)", "#nowhere"),
    "a file outside docs": ("[x](../nowhere.yaml)", "repository/nowhere.yaml"),
    "an absolute link": ("[x](/from-the-top)", "repository/from-the-top"),
}


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "mkdocs", "build", "--site-dir", site)
    return subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=False, timeout=HANGING_SECONDS
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    ended = build(ROOT, folder)
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Two pages with the rules of the whole site: a build of all pages takes as much time as all other tests here."""
    rules, nav, _ = (ROOT / "mkdocs.yml").read_text().partition("nav:\n")
    assert nav
    (tmp_path / "mkdocs.yml").write_text(rules + SMALL_NAV)
    shutil.copytree(ROOT / "hack" / "site", tmp_path / "hack" / "site")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "site.css").touch()
    (tmp_path / "docs" / "install.md").write_text("# Install\n\n## Values\n")
    (tmp_path / "README.md").write_text("# Outside\n\nBack to [values](docs/install.md#values).\n")
    (tmp_path / "docs" / "index.md").write_text(
        "# Start\n\n## Here\n\n[a](install.md#values), [b](#here), [c](../README.md#outside)\n"
    )
    return tmp_path


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loads = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*(?:src|href)=["']?(?:https?:)?//""")
    imports = re.compile(r"""url\(["']?(?:https?:)?//""")
    for path in site.rglob("*"):
        if path.suffix in {".html", ".css"}:
            assert not loads.search(path.read_text()), path
            assert not imports.search(path.read_text()), path


def test_files_outside_docs_are_taken_along(site: Path) -> None:
    assert 'href="repository/CHANGELOG.html"' in (site / "index.html").read_text()
    of_chart = "repository/helm/dra-driver/platforms.yaml"
    assert (site / of_chart).read_bytes() == (ROOT / "helm/dra-driver/platforms.yaml").read_bytes()
    assert f'href="{of_chart}"' in (site / "platforms.html").read_text()


def test_code_in_a_list_is_code(site: Path) -> None:
    page = (site / "moving-to-dra.html").read_text()
    assert "<pre><code>$ kubectl cordon NODE\n" in page
    assert "```" not in page


def test_a_pipe_in_a_table_has_no_backslash(site: Path) -> None:
    assert r"\|" not in (site / "performance.html").read_text()


def test_each_mistake_is_told_and_fails_the_build(small: Path) -> None:
    page = small / "docs" / "index.md"
    right = build(small, small / "site")
    assert (right.returncode, right.stderr.count("WARNING")) == (0, 0), right.stderr

    links = "\n".join(text for text, _ in MISTAKES.values())
    page.write_text(f"{page.read_text()}\n{links}\n")
    (small / "docs" / "lost.md").write_text("# Lost\n")
    wrong = build(small, small / "site")
    assert wrong.returncode == 1
    # One warning for each mistake, and one for the page that the menu lacks.
    assert f"Aborted with {len(MISTAKES) + 1} warnings in strict mode" in wrong.stdout
    assert "  - lost.md\n" in wrong.stderr
    warned = [line for line in wrong.stderr.splitlines() if line.startswith("WARNING")]
    for what, (_, said) in MISTAKES.items():
        assert sum(f" link '{said}'" in line for line in warned) == 1, (what, wrong.stderr)
