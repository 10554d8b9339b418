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
COPIED = ("docs", "mkdocs.yml", "hack/site", "helm", "deviceclasses", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")  # fmt: skip


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
def tree(tmp_path: Path) -> Path:
    for name in COPIED:
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[x](nowhere.md)", "nowhere.md"),
        ("[x](install.md#nowhere)", "#nowhere"),
        ("[x](#nowhere)", "#nowhere"),
        ("[x](../nowhere.yaml)", "nowhere.yaml"),
        ("[x](/nowhere)", "/nowhere"),
    ],
)
def test_a_link_that_leads_nowhere_fails_the_build(tree: Path, text: str, said: str) -> None:
    page = tree / "docs" / "why.md"
    page.write_text(f"{page.read_text()}\n{text}\n")
    ended = build(tree, tree / "site")
    assert ended.returncode == 1
    assert said in ended.stderr


def test_a_page_that_the_menu_lacks_fails_the_build(tree: Path) -> None:
    (tree / "docs" / "lost.md").write_text("# Lost\n")
    ended = build(tree, tree / "site")
    assert ended.returncode == 1
    assert "lost.md" in ended.stderr
