# SPDX-License-Identifier: Apache-2.0
"""Which tests does a change concern? Those of the rooms that it touches, and of the rooms that import these.

A room is a folder or a module of `dra_driver`.
"""

import ast
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath

import grimp

PACKAGE = "dra_driver"
# Tests of rooms together with what stands around them are left to `make test`.
OF_ROOMS = ("tests/unit", "tests/property", "tests/conformance")
OF_FILES = {
    "docs": "tests/packaging/test_docs.py",
    "README.md": "tests/packaging/test_docs.py",
    "CONTRIBUTING.md": "tests/packaging/test_docs.py",
    "Makefile": "tests/packaging/test_docs.py",
    "helm": "tests/packaging/test_chart.py",
    "deviceclasses": "tests/packaging/test_selection.py",
    "Dockerfile": "tests/packaging/test_dockerfile.py",
}

Modules = frozenset[str]


def selected(
    changed: Collection[str], importers: Mapping[str, Collection[str]], tests: Mapping[str, Modules]
) -> list[str]:
    """The test files to run.

    `changed` are paths; `importers` says of a room which others import it; `tests` of a test file what it imports.
    """
    rooms = {room for path in changed if (room := room_of(path))}
    around = rooms.union(*(importers.get(room, ()) for room in rooms))
    modules = {module_of(path) for path in changed if path.startswith("tests/")}
    named = {test for part, test in OF_FILES.items() if any(_below(path, part) for path in changed)}
    return sorted(
        test
        for test, imports in tests.items()
        if test in changed
        or test in named
        or imports & modules
        or _is_of(test, around)
        or (test.startswith(OF_ROOMS[1:]) and rooms & {room_of_module(one) for one in imports})
        or _is_of(test, {folder for path in changed if (folder := _data_of(path))})
    )


def room_of(path: str) -> str:
    """The room that a source file is in; "" for none."""
    parts = PurePosixPath(path).parts
    return parts[1].removesuffix(".py") if parts[0] == PACKAGE and len(parts) > 1 else ""


def room_of_module(module: str) -> str:
    """The room of a module; "" for none."""
    parts = module.split(".")
    return parts[1] if parts[0] == PACKAGE and len(parts) > 1 else ""


def module_of(path: str) -> str:
    """The dotted name of a file."""
    return path.removesuffix(".py").replace("/", ".")


def _below(path: str, part: str) -> bool:
    return path == part or path.startswith(f"{part}/")


def _is_of(test: str, rooms: Collection[str]) -> bool:
    """Whether the test file is one of the unit tests of these rooms."""
    parts = PurePosixPath(test).parts
    if parts[:2] != ("tests", "unit"):
        return False
    return parts[2].removeprefix("test_").removesuffix(".py") in rooms


def _data_of(path: str) -> str:
    """The room whose tests a file of theirs that is no test belongs to: a conftest, recorded problems."""
    parts = PurePosixPath(path).parts
    is_test = parts[-1].startswith("test_")
    return (
        parts[2]
        if parts[:2] == ("tests", "unit")
        and len(parts) > len(("tests", "unit", "room"))
        and not is_test
        else ""
    )


def importers_by_room(cache: Path) -> dict[str, set[str]]:
    """Of each room, which other rooms import it directly."""
    graph = grimp.build_graph(PACKAGE, cache_dir=str(cache))
    found: dict[str, set[str]] = {}
    for module in graph.modules:
        imported = room_of_module(module)
        for importer in graph.find_modules_that_directly_import(module):
            room = room_of_module(importer)
            if imported and room and room != imported:
                found.setdefault(imported, set()).add(room)
    return found


def imports_of_tests(root: Path) -> dict[str, Modules]:
    """Of each test file, the modules that it names in its imports, and those that they may be parts of."""
    return {
        path.relative_to(root).as_posix(): frozenset(_imported(ast.parse(path.read_bytes())))
        for path in (root / "tests").rglob("test_*.py")
    }


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
