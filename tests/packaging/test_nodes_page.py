# SPDX-License-Identifier: Apache-2.0
"""Does docs/nodes.md say what the code does?"""

import re
from pathlib import Path

from dra_driver.cli.arguments import CLEANUP_FLAGS
from dra_driver.model import exit_codes
from dra_driver.model.names import DEVICE_PLUGIN_BESIDE
from dra_driver.node.schema import SCHEMA
from dra_driver.planning.neighbours import RESOURCES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "nodes.md").read_text()


def column(head: str) -> list[str]:
    """The first cells of the table whose head line starts so."""
    _, _, rest = PAGE.partition(f"| {head} |")
    table = rest.partition("\n\n")[0]
    return re.findall(r"^\| ([^|]*) \|", table, re.MULTILINE)[1:]


def test_the_table_of_device_plugins_has_every_vendor() -> None:
    assert column("vendor") == list(RESOURCES)


def test_the_table_of_schemas_ends_with_todays() -> None:
    assert column("schema") == [str(schema) for schema in range(1, SCHEMA + 1)]


def test_the_tables_of_cleanup_are_those_of_the_command() -> None:
    assert [cell.strip("`") for cell in column("flag")] == sorted(
        CLEANUP_FLAGS, key=["--dry-run", "--keep-slices", "--force"].index
    )
    assert column("exit code") == [
        str(code) for code in (*exit_codes.COMMANDS["cleanup"], exit_codes.WRONG_USAGE)
    ]


def test_the_event_is_named() -> None:
    assert f"`{DEVICE_PLUGIN_BESIDE}`" in PAGE


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#:]+)", PAGE)
    docs = Path(__file__).resolve().parents[2] / "docs"
    assert [target for target in targets if not (docs / target).exists()] == []
