# SPDX-License-Identifier: Apache-2.0
"""Build the driver's image without a registry: `python hack/image/build.py --output FILE`."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from driverimage import contents, image, sbom
from driverimage.tree import ImageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Build and say what came out; answers the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="docker-archive to write"
    )
    parser.add_argument(
        "--version", default="", metavar="TAG", help="tag (default: the driver's version)"
    )
    parser.add_argument("--name", default=image.NAME, help=f"repository (default: {image.NAME})")
    parser.add_argument(
        "--source",
        type=Path,
        default=image.ROOT,
        metavar="DIR",
        help="source tree (default: this one)",
    )
    parser.add_argument(
        "--sbom",
        type=Path,
        metavar="FILE",
        help="build of the packages that it names, or not at all",
    )
    parser.add_argument(
        "--oci", type=Path, metavar="DIR", help="write an OCI layout as well, and print its digest"
    )
    parser.add_argument("--table", action="store_true", help="print the table of docs/image.md")
    chosen = parser.parse_args(arguments)
    begun = time.monotonic()
    try:
        built = image.build(
            chosen.output,
            version=chosen.version,
            name=chosen.name,
            source=chosen.source.resolve(),
            given=chosen.sbom,
            layout=chosen.oci,
        )
    except ImageError as error:
        print(f"build: {error}", file=sys.stderr)
        return 1
    print(contents.page_table(built.sizes) if chosen.table else contents.listing(built.sizes))
    print(
        f"{built.path}: {built.name}, sha256:{built.identity[:12]}, {built.path.stat().st_size / 1e6:.1f} MB"
    )
    if chosen.oci:
        print(f"{chosen.oci}: the same as an OCI layout, {built.digest}")
    print(f"{built.sbom}: what it is made of, named in its label {sbom.LABEL}")
    print(f"built in {time.monotonic() - begun:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
