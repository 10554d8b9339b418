# SPDX-License-Identifier: Apache-2.0
"""Make a release: `python -m hack.release make`. RELEASE.md has the order of the commands."""

import argparse
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hack.release import changelog, chart, distributions, frozen, image, krew, version
from hack.release.errors import ReleaseError

ROOT = distributions.ROOT
DIST = ROOT / "dist"
SUMS = "SHA256SUMS"


def build(target: Path) -> None:
    """Wheel and source distribution."""
    for kind, file in distributions.build(target).items():
        print(f"{kind}: {file}, {file.stat().st_size / 1e6:.1f} MB")


def make(target: Path) -> None:
    """Everything of a release, and the hashes of it."""
    number, date = version.current(ROOT), distributions.date()
    section = changelog.of_version((ROOT / version.CHANGELOG).read_text(), number)
    build(target)
    packed = chart.package(ROOT, target, number, date=date)
    plugin = krew.write(ROOT, target, number, date=date)
    digest = image.write(target, number)
    files = sorted(path for path in target.rglob("*") if path.is_file())
    lines = [f"{_sha256(file)}  {file.relative_to(target).as_posix()}\n" for file in files]
    (target / SUMS).write_text("".join(lines))
    print(f"chart: {packed}\nkubectl dra: {plugin}, {plugin.stat().st_size / 1e6:.1f} MB")
    print(f"image: {target / image.LAYOUT}, {digest}\n{target / SUMS}: {len(files)} files")
    if section.date == changelog.NOT_RELEASED:
        print(f"CHANGELOG.md says that {number} is {section.date}: these files are a draft")


def check(target: Path) -> None:
    """Make it twice, and compare. Raises ReleaseError with the files that differ."""
    make(target)
    with tempfile.TemporaryDirectory() as temporary:
        make(Path(temporary))
        first, second = (set((folder / SUMS).read_text().splitlines()) for folder in (target, Path(temporary)))  # fmt: skip
    if first != second:
        names = sorted({line.split("  ")[1] for line in first ^ second})
        raise ReleaseError(f"two builds of one commit differ in {', '.join(names)}")
    print("the second build has the same bytes")


def require(tag: str) -> None:
    """Raise ReleaseError unless the tag is that of the version, and the changelog has its day."""
    number = version.current(ROOT)
    section = changelog.of_version((ROOT / version.CHANGELOG).read_text(), number)
    if tag != f"v{number}":
        raise ReleaseError(f"the tag is {tag}, and the version {number}: the tag must be v{number}")
    if section.date == changelog.NOT_RELEASED:
        raise ReleaseError(
            f"CHANGELOG.md says that {number} is {section.date}: `python -m hack.release version {number} --date DAY` before the tag"
        )


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.release", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, what in (
        ("build", "wheel and source distribution"),
        ("make", "everything of a release"),
        ("check", "everything twice, compared byte for byte"),
    ):
        verbs.add_parser(verb, help=f"{what}, into dist/")
    new = verbs.add_parser("version", help="write a version, and its day")
    new.add_argument("version")
    new.add_argument("--date", default=changelog.NOT_RELEASED, help="the day, as 2026-01-31")
    verbs.add_parser("freeze", help="keep chart and wheel for the tests of updates")
    tagged = verbs.add_parser("tag", help="say whether a tag may be released")
    tagged.add_argument("tag")
    packed = verbs.add_parser("chart", help="the chart alone, with an image by digest")
    packed.add_argument("--image", required=True, metavar="REGISTRY/NAME@sha256:…")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one verb; answers the exit code."""
    chosen = _arguments().parse_args(arguments)
    verbs = {"build": build, "make": make, "check": check}
    try:
        if chosen.verb in verbs:
            shutil.rmtree(DIST, ignore_errors=True)
            DIST.mkdir()
            verbs[chosen.verb](DIST)
        elif chosen.verb == "version":
            version.write(ROOT, chosen.version, chosen.date)
        elif chosen.verb == "tag":
            require(chosen.tag)
        elif chosen.verb == "freeze":
            print(f"kept in {frozen.freeze(ROOT)}")
        else:
            DIST.mkdir(exist_ok=True)
            number, date = version.current(ROOT), distributions.date()
            print(chart.package(ROOT, DIST, number, date=date, image=chosen.image))
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
