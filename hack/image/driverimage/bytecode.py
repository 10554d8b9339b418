# SPDX-License-Identifier: Apache-2.0
"""How do modules become bytecode, with the image's own Python?

Bytecode belongs to one Python. The image's is started right here, from a copy of its tree, by its
own loader and with its own libraries; no root is needed for that, and it shows that the tree can
run at all. Compiled files say "do not compare me with a source" (PEP 552): they are the same
whenever they are made, and nothing is looked up or written when the driver starts.
"""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from driverimage import elf, tree
from driverimage.python import Layout
from driverimage.tree import File, ImageError, Tree

# Each line of the input: source, place of the result, name in tracebacks. One process for all.
COMPILE = """
import py_compile, sys
for line in sys.stdin:
    source, target, name = line.rstrip("\\n").split("\\t")
    py_compile.compile(source, target, name, doraise=True,
                       invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
"""
TIMEOUT_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Python:
    """The Python of a tree that lies below `root` of this machine."""

    root: Path
    layout: Layout

    def command(self) -> list[str]:
        """How to start it from here: by the loader of the tree."""
        program = self.root / self.layout.interpreter
        loader = elf.interpreter(program.read_bytes())
        if loader is None:
            raise ImageError(f"/{self.layout.interpreter} names no loader: is it a program?")
        libraries = ":".join(
            sorted(str(path.parent) for path in self.root.glob("usr/lib*/**/libc.so.*"))
        )
        return [str(self.root / loader.lstrip("/")), "--library-path", libraries, str(program)]

    def run(self, *arguments: str, text: str = "") -> str:
        """Run it with arguments; it sees nothing of this machine's Python."""
        home = (self.root / self.layout.interpreter).parents[1]
        environment = {"PYTHONHOME": str(home), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
        ended = subprocess.run(
            [*self.command(), "-s", "-S", "-B", "-P", *arguments],
            env=environment, input=text, capture_output=True, text=True, check=False,
            timeout=TIMEOUT_SECONDS,
        )  # fmt: skip
        if ended.returncode != 0:
            raise ImageError(f"the image's Python failed:\n{ended.stderr[-2000:]}")
        return ended.stdout


@contextmanager
def on_disk(files: Tree) -> Iterator[Path]:
    """A temporary folder with the tree in it."""
    with tempfile.TemporaryDirectory() as temporary:
        tree.write(files, Path(temporary))
        yield Path(temporary)


def compiled(python: Python, files: Tree, *, keep_sources: bool) -> Tree:
    """The tree with bytecode for each module, beside its source or instead of it.

    Bytecode without a source lies where the source was, and knows no columns: a traceback has no line to mark them in. Bytecode
    beside a source lies in __pycache__.
    """
    flags = () if keep_sources else ("-X", "no_debug_ranges")
    modules: Tree = {
        path: entry
        for path, entry in files.items()
        if isinstance(entry, File) and path.endswith(".py")
    }
    result = {path: entry for path, entry in files.items() if keep_sources or path not in modules}
    with on_disk(modules) as sources, tempfile.TemporaryDirectory() as made:
        wanted = [(path, Path(made, str(number))) for number, path in enumerate(sorted(modules))]
        lines = [f"{sources / path}\t{place}\t/{path}\n" for path, place in wanted]
        python.run(*flags, "-c", COMPILE, text="".join(lines))
        for path, place in wanted:
            folder, _, name = path.removesuffix(".py").rpartition("/")
            target = (
                f"__pycache__/{name}.{python.layout.bytecode_tag}.pyc"
                if keep_sources
                else f"{name}.pyc"
            )
            result[f"{folder}/{target}"] = File(place.read_bytes())
    return result
