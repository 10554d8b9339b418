# SPDX-License-Identifier: Apache-2.0
"""How does `dra-driver check --fix` change files? Each is replaced in one step, or left as it was, which is told."""

import difflib
import io
import os
import stat
import tempfile
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
from dra_driver.errors import Permanent
from dra_driver.model.yaml_documents import BadDocument, documents
from dra_driver.node.files import content_of

LARGEST_FIXED = 64 * 1024 * 1024
_MARK = "\ufeff"


class Corrections(Struct):
    """What --fix did in the files. `is_complete`: all files were looked at, and what can be corrected was written."""

    fixed: list[Fixed] = field(default_factory=list)
    is_complete: bool = True


def correct(files: Sequence[str], facts: Known, limit: Limit) -> Corrections:
    """Correct the files in place, as many as the time allows."""
    done = Corrections()
    for place, file in enumerate(files):
        try:
            found = limit.run(partial(_correction, file, facts))
            # Without the limit: its end must not come between the change of a file and the word about it.
            if found is not None:
                _write(file, *found)
                done.fixed.append(found[1])
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


def _correction(file: str, facts: Known) -> tuple[str, Fixed] | None:
    """Return the text of a file, and what corrects it; None for what is no file with text."""
    path = Path(file)
    try:
        if path.is_symlink():
            render.error(f"{file} is a link: it is not corrected; give the file that it leads to")
        # A link in somebody's checkout may lead anywhere, and a device never ends.
        content = content_of(path, most=LARGEST_FIXED + 1, links=False)
        if content is None or len(content) > LARGEST_FIXED:
            return None
        text = content.decode()
    except (OSError, UnicodeDecodeError):
        return None  # reading it again says what is wrong, and what is no UTF-8 is left as it is
    return text, corrected(text, file, facts)


def _write(file: str, before: str, fixed: Fixed) -> None:
    """Write the corrected file, and show what has changed. Raises Permanent."""
    if not fixed.corrected:
        return
    try:
        _replace(Path(file), fixed.text.encode())
    except OSError as error:
        raise Permanent(
            f"cannot write {file}: {error.strerror}; nothing in it was corrected"
        ) from error
    _tell(file, before, fixed)


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


def _replace(path: Path, content: bytes) -> None:
    """Replace the file in one step: after an error it still has what it had. Raises OSError."""
    mode = stat.S_IMODE(path.stat().st_mode)
    beside, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(beside, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _tell(file: str, before: str, fixed: Fixed) -> None:
    lines = difflib.unified_diff(
        before.splitlines(), fixed.text.splitlines(), file, f"{file} (fixed)", lineterm="", n=1
    )
    render.error(f"{file} is changed:", *lines)


def tell_left(fixed: Fixed) -> None:
    """Say what was not corrected although its right form is known."""
    for one in fixed.left:
        render.error(f"{one.file}:{one.line}: {one.subject}: {one.message}: {one.unfixed}")
