# SPDX-License-Identifier: Apache-2.0
"""The backend of docs/write-a-backend.md, as it stands there: its files, an installation, and the hardware that it is for."""

import re
import tomllib
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "write-a-backend.md"
_BLOCK = re.compile(
    r"^`(?P<name>[\w.]+)`[^\n]*:\n\n```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


def page_files() -> dict[str, str]:
    """The files that the page shows, by name."""
    return {found["name"]: found["text"] for found in _BLOCK.finditer(PAGE.read_text())}


def install(place: Path) -> None:
    """Write the page's files as an installed distribution: modules, metadata and entry points."""
    files = page_files()
    project = tomllib.loads(files["pyproject.toml"])["project"]
    metadata = place / f"acme_dra-{project['version']}.dist-info"
    metadata.mkdir(parents=True)
    for name in ("acme_dra.py", "test_acme.py"):
        (place / name).write_text(files[name])
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(groups))


def make_cards(root: Path, *states: str) -> None:
    """Make one card for each state, and a bitstream `adder`."""
    for number, state in enumerate(states):
        files = {"serial": f"A{number}\n", "state": f"{state}\n", "shell": "off\n"}
        for name, text in {**files, "region0/bitstream": "\n", "region1/bitstream": "\n"}.items():
            file = root / f"card{number}" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    (root / "adder.bit").touch()
