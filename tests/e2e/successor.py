# SPDX-License-Identifier: Apache-2.0
"""The driver's next version, for updates and rollbacks: this one, with another number and one more state schema."""

import shutil
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PARTS = (
    *("dra_driver", "deviceclasses", "docs/man", "requirements"),
    *("pyproject.toml", "README.md", "LICENSE"),
)
VERSION = "99.0.0"
# Additive, as every migration of the project is: a table, and a column that an older driver does not name.
NEXT_SCHEMA = """
_MIGRATIONS += (
    (
        "CREATE TABLE telemetry (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        "ALTER TABLE claims ADD COLUMN note TEXT NOT NULL DEFAULT 'written by 99.0.0'",
    ),
)
SCHEMA += 1
"""
AFTER_MIGRATIONS = "\n\ndef migrate("


def write_successor(target: Path) -> Path:
    """A source tree of it below `target`."""
    for name in PARTS:
        part = REPOSITORY / name
        if part.is_dir():
            shutil.copytree(part, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(part, target / name)
    _change(
        target / "dra_driver" / "__init__.py", '__version__ = "', f'__version__ = "{VERSION}"  # "'
    )
    schema = target / "dra_driver" / "node" / "schema.py"
    _change(schema, AFTER_MIGRATIONS, NEXT_SCHEMA + AFTER_MIGRATIONS)
    return target


def _change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times"
    file.write_text(text.replace(old, new))
