# SPDX-License-Identifier: Apache-2.0
"""How does `dra-driver check --fix` change files? Each is replaced in one step, or left as it was, which is told."""

import difflib
import io
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from dra_driver.check.check import fixable, objects_of
from dra_driver.check.finding import Finding
from dra_driver.check.fixing import Fixed, fix
from dra_driver.check.given import Given, Known
from dra_driver.cli import render
from dra_driver.cli.over_files import Limit, OutOfTime, named
from dra_driver.cli.replaced import replace_content
from dra_driver.errors import Permanent
from dra_driver.model.yaml_documents import BadDocument, documents
from dra_driver.node.files import content_of

LARGEST_FIXED = 64 * 1024 * 1024
_MARK = "\ufeff"


class Corrections(Struct):
    """What --fix did in the files. `is_complete`: all files were looked at, and what can be corrected was written."""

    fixed: list[Fixed] = field(default_factory=list)
    is_complete: bool = True


class _Correction(Struct, frozen=True):
    """The text of a file that is no link, and what corrects it."""

    path: Path
    before: str
    fixed: Fixed


def correct(
    files: Sequence[str], facts: Known, limit: Limit, given: Sequence[str] = ()
) -> Corrections:
    """Correct the files in place, as many as the time allows. Links that lead out of the working directory and the `given` ones stay."""
    done = Corrections()
    folders = [Path.cwd(), *(Path(os.path.realpath(one)) for one in given if Path(one).is_dir())]
    for place, file in enumerate(files):
        try:
            found = limit.run(partial(_correction, file, facts, folders))
            # Without the limit: its end must not come between the change of a file and the word about it.
            if found is not None:
                _write(file, found)
                done.fixed.append(found.fixed)
        except OutOfTime as error:
            left = files[place:]
            render.error(
                f"{error.what}: {len(left)} of {len(files)} files were not corrected: {named(left)}"
            )
            done.is_complete = False
            break
        except Permanent as error:
            render.error(str(error))
            done.is_complete = False
    return done


def _correction(file: str, facts: Known, folders: Sequence[Path]) -> _Correction | None:
    """Return what corrects a file; None for what is no file with text, and what must not be corrected."""
    path = _real(file, folders)
    if path is None:
        return None
    try:
        # Without links, as one may have come meanwhile. And a device never ends.
        content = content_of(path, most=LARGEST_FIXED + 1, links=False)
        if content is None or len(content) > LARGEST_FIXED:
            return None
        text = content.decode()
    except (OSError, UnicodeDecodeError):
        return None  # reading it again says what is wrong, and what is no UTF-8 is left as it is
    return _Correction(path, text, corrected(text, file, facts))


def _real(file: str, folders: Sequence[Path]) -> Path | None:
    """Return the file that is meant: a link stays, and the file that it leads to is corrected. None if that may be anybody's."""
    path = Path(file)
    if not path.is_symlink():
        return path
    target = Path(os.path.realpath(path))  # also for a link that leads to itself
    if any(target.is_relative_to(one) for one in folders if one != Path(one.anchor)):
        return target
    # A link in somebody's checkout may lead anywhere.
    render.error(
        f"{file} is a link to {target}, outside of what is checked: it is not corrected; give that file, or its folder"
    )
    return None


def _write(file: str, found: _Correction) -> None:
    """Write the corrected file, and show what has changed. Raises Permanent."""
    if not found.fixed.corrected:
        return
    try:
        replace_content(found.path, found.fixed.text.encode())
    except OSError as error:
        raise Permanent(
            f"cannot write {file}: {error.strerror}; nothing in it was corrected"
        ) from error
    _tell(file, found.before, found.fixed)


def corrected(text: str, file: str, facts: Known) -> Fixed:
    """Return the corrected text of a file."""
    return _fix(text, _finder(file, facts))


def _fix(text: str, find: Callable[[str], list[Finding]]) -> Fixed:
    """Correct the text. A mark of the byte order before it, as editors on Windows write it, is in no place of YAML, and stays."""
    bare = text.removeprefix(_MARK)
    fixed = fix(bare, find)
    return fixed if bare == text else replace(fixed, text=_MARK + fixed.text)


def _finder(file: str, facts: Known) -> Callable[[str], list[Finding]]:
    def find(text: str) -> list[Finding]:
        given: list[Given] = []
        try:
            for number, document in enumerate(
                documents(io.BytesIO(text.encode()), with_places=True), 1
            ):
                given += objects_of(document.content, file, number, document.places)
        except BadDocument:
            return []  # a file that is no YAML is told, and left
        return list(fixable(given, facts))

    return find


def _tell(file: str, before: str, fixed: Fixed) -> None:
    lines = difflib.unified_diff(
        before.splitlines(), fixed.text.splitlines(), file, f"{file} (fixed)", lineterm="", n=1
    )
    render.error(f"{file} is changed:", *lines)


def tell_left(fixed: Fixed) -> None:
    """Say what was not corrected although its right form is known."""
    for one in fixed.left:
        render.error(f"{one.file}:{one.line}: {one.subject}: {one.message}: {one.unfixed}")
