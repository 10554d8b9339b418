# SPDX-License-Identifier: Apache-2.0
"""What mkdocs needs to show docs/ as a forge does: the same anchors, and links to files outside docs/ that lead somewhere.

The pages are written for a checkout: a link may lead to ../CHANGELOG.md or to a file of the chart. The site takes each such file along, below
`repository/`, so that it is whole without the repository.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = "docs"
OUTSIDE = "repository"
LINK = re.compile(r"(?<=\]\()(?![a-z]+:)([^)#\s]+)(#[^)\s]*)?(?=\))")
FENCE = re.compile(r"^( *)(`{3,}).*?^\1\2 *$", re.DOTALL | re.MULTILINE)
CODE_IN_TABLE = re.compile(r"`[^`\n]*`")


def slug(text: str, separator: str) -> str:
    """The anchor of a heading, as on a forge: `What is "free"?` is what-is-free, `When …` is when-."""
    return re.sub(r"[^\w -]", "", text).lower().replace(" ", separator)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    return config


def in_repository(page: str) -> str:
    """Path in the repository of a page of the site."""
    outside = page.partition(f"{OUTSIDE}/")
    return outside[2] if not outside[0] and outside[1] else posixpath.join(DOCS, page)


def in_site(path: str) -> str:
    """Path in the site of a file of the repository."""
    return path.removeprefix(f"{DOCS}/") if path.startswith(f"{DOCS}/") else f"{OUTSIDE}/{path}"


def pieces(text: str) -> list[tuple[bool, str]]:
    """The text in order, in pieces that are blocks of code (True) and others."""
    found, end = [], 0
    for block in FENCE.finditer(text):
        found += [(False, text[end : block.start()]), (True, block[0])]
        end = block.end()
    return [*found, (False, text[end:])]


def targets(text: str, page: str) -> set[str]:
    """The files of the repository that a page links to."""
    here = posixpath.dirname(in_repository(page))
    return {
        posixpath.normpath(posixpath.join(here, link[1]))
        for is_code, piece in pieces(text)
        if not is_code
        for link in LINK.finditer(piece)
    }


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take along what the pages link to outside docs/, and what those pages link to."""
    root = Path(config.config_file_path).parent
    waiting = list(files.documentation_pages())
    while waiting:
        page = waiting.pop()
        for target in sorted(targets(page.content_string, page.src_uri)):
            name = in_site(target)
            source = root / target
            if (
                target.startswith(f"{DOCS}/")
                or files.get_file_from_path(name)
                or not source.is_file()
            ):
                continue  # what is missing is told when the page is built
            file = File.generated(config, name, abs_src_path=str(source))
            files.append(file)
            if file.is_documentation_page():
                waiting.append(file)
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    here = posixpath.dirname(page.file.src_uri)
    there = posixpath.dirname(in_repository(page.file.src_uri))

    def moved(link: re.Match[str]) -> str:
        target = in_site(posixpath.normpath(posixpath.join(there, link[1])))
        return posixpath.relpath(target, here or ".") + (link[2] or "")

    def shown(piece: str) -> str:
        # Forges take `a \| b` in a table for `a | b`; Python-Markdown would show the backslash.
        plain = CODE_IN_TABLE.sub(lambda code: code[0].replace(r"\|", "|"), piece)
        return LINK.sub(moved, plain)

    def set_in(block: str) -> str:
        """Python-Markdown knows fences at the margin only; in a list it takes code by its indent."""
        fence, *lines, _end = block.split("\n")
        return "\n".join(f"    {line}" for line in lines) if fence.startswith(" ") else block

    return "".join(
        set_in(piece) if is_code else shown(piece) for is_code, piece in pieces(markdown)
    )
