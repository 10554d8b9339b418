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


def make(target: Path, repository: str = "") -> None:
    """Everything of a release, and the hashes of the files that its page has.

    `repository` is where the image will be pushed. The chart names the image there by its digest, so it comes after the image, and the
    hashes come last. Without a repository the chart names no image, and is not for publication.
    """
    number, date = version.current(ROOT), distributions.date()
    section = changelog.of_version((ROOT / version.CHANGELOG).read_text(), number)
    if repository:
        chart.require_repository(repository)
    build(target)
    digest = image.write(target, number)
    named = f"{repository}@{digest}" if repository else ""
    packed = chart.package(ROOT, target, number, date=date, image=named)
    plugin = krew.write(ROOT, target, number, date=date)
    sums = {name: digest for name, digest in hashes(target).items() if "/" not in name}
    (target / SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))
    print(f"image: {target / image.LAYOUT}, {digest}")
    print(f"chart: {packed}, with {f'the image {named}' if named else 'no image'}")
    print(f"kubectl dra: {plugin}, {plugin.stat().st_size / 1e6:.1f} MB")
    print(f"{target / SUMS}: {len(sums)} files")
    if not repository:
        print("these files are a draft: a chart that is published names its image, IMAGE=REGISTRY/NAME")  # fmt: skip
    if section.date == changelog.NOT_RELEASED:
        print(f"CHANGELOG.md says that {number} is {section.date}: these files are a draft")


def check(target: Path, repository: str = "") -> None:
    """Make it twice, and compare. Raises ReleaseError with the files that differ."""
    make(target, repository)
    with tempfile.TemporaryDirectory() as temporary:
        make(Path(temporary), repository)
        first, second = (set(hashes(folder).items()) for folder in (target, Path(temporary)))
    if first != second:
        names = sorted({name for name, _ in first ^ second})
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


def hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file below a folder, by its path there."""
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.release", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("build", help="wheel and source distribution, into dist/")
    for verb, what in (
        ("make", "everything of a release"),
        ("check", "everything twice, compared byte for byte"),
    ):
        whole = verbs.add_parser(verb, help=f"{what}, into dist/")
        whole.add_argument("--image", default="", metavar="REGISTRY/NAME", help="where the image will be pushed: the chart names it there, by digest")  # fmt: skip
    new = verbs.add_parser("version", help="write a version, and its day")
    new.add_argument("version")
    new.add_argument("--date", default=changelog.NOT_RELEASED, help="the day, as 2026-01-31")
    verbs.add_parser("freeze", help="keep chart and wheel for the tests of updates")
    tagged = verbs.add_parser("tag", help="say whether a tag may be released")
    tagged.add_argument("tag")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one verb; answers the exit code."""
    chosen = _arguments().parse_args(arguments)
    try:
        if chosen.verb in ("build", "make", "check"):
            shutil.rmtree(DIST, ignore_errors=True)
            DIST.mkdir()
            if chosen.verb == "build":
                build(DIST)
            else:
                {"make": make, "check": check}[chosen.verb](DIST, chosen.image)
        elif chosen.verb == "version":
            version.write(ROOT, chosen.version, chosen.date)
        elif chosen.verb == "tag":
            require(chosen.tag)
        else:
            print(f"kept in {frozen.freeze(ROOT)}")
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
