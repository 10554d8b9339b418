# SPDX-License-Identifier: Apache-2.0
"""Inside a Dockerfile: put the driver and what it runs on into a folder, which becomes the image.

The same rules as those of build.py decide what is taken; only the system is the base image's.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from driverimage import assemble, base_image, bytecode, tree, wheels
from driverimage.tree import ImageError, Tree, merged

ROOT = Path(__file__).resolve().parents[2]


def require_same(version: str) -> None:
    """The Python that was collected must be the one that runs here."""
    if version != sys.version:
        raise ImageError(f"collected Python {version}, but this is {sys.version}; are there two?")


def collected(source: Path) -> Tree:
    """Everything that the image holds."""
    layout = base_image.layout()
    with tempfile.TemporaryDirectory() as temporary:
        downloads, backend = Path(temporary, "wheels"), Path(temporary, "backend")
        wheels.download(assemble.lock_of(source), downloads)
        wheels.install_backend(source, backend)
        libraries = assemble.libraries(downloads, layout)
        system = base_image.parts(layout, merged(libraries.values()))
        with bytecode.on_disk(merged(system.values())) as root:
            python = bytecode.Python(root, layout)
            require_same(python.run("-c", "import sys; print(sys.version)").strip())
            driver, _ = assemble.driver(source, python, backend)
            lower = [assemble.without_sources(python, parts) for parts in (system, libraries)]
    return merged([*lower[0].values(), *lower[1].values(), driver])


def main(arguments: Sequence[str] | None = None) -> int:
    """Collect; answers the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, metavar="DIR", help="folder to fill")
    chosen = parser.parse_args(arguments)
    try:
        files = collected(ROOT)
    except ImageError as error:
        print(f"collect: {error}", file=sys.stderr)
        return 1
    chosen.root.mkdir()
    tree.write(files, chosen.root)
    print(f"{chosen.root}: {len(files)} files, {tree.size(files) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
