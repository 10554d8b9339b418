# SPDX-License-Identifier: Apache-2.0
"""`dra-driver convert`: pods with claims instead of extended resources, as YAML."""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from dra_driver.cli import inputs, render
from dra_driver.cli.added_node import known_profile
from dra_driver.cli.destination import Destination
from dra_driver.cli.machine import FLAG, fits, product_names
from dra_driver.cli.over_files import Limit, exit_code
from dra_driver.convert.convert import Converted, as_pods, convert
from dra_driver.convert.names import Names
from dra_driver.convert.resources import Choice, NotConverted
from dra_driver.errors import Permanent
from dra_driver.model.exit_codes import COULD_NOT_TELL, DONE, NOT_DONE, WITH_RESERVATION
from dra_driver.model.yaml_documents import BadDocument
from dra_driver.model.yaml_text import yaml_text

Object = dict[str, Any]
_NAMED = ("ResourceClaim", "ResourceClaimTemplate")


def run(chosen: argparse.Namespace) -> int:
    """Convert the files. Returns the exit code."""
    names = [*chosen.file, *chosen.filename]
    if not names:
        chosen.parser.error("give files or directories to convert, or - for standard input")
    limit = Limit.of(chosen.timeout)
    return exit_code(lambda: limit.run(lambda: _converted(chosen, names)))


class _File(Struct, frozen=True):
    name: str
    objects: tuple[Converted, ...]

    @property
    def text(self) -> str:
        """The file as YAML, with what must be known as comments."""
        return "".join(part for one in self.objects for part in _documents(one))


def _documents(one: Converted) -> Iterator[str]:
    for number, document in enumerate(one.documents):
        is_last = number == len(one.documents) - 1
        comments = one.notes if one.is_changed and number == 0 else ()
        left = one.left if is_last else ()
        yield "---\n"
        yield from (f"# {render.plain(note)}\n" for note in comments)
        yield from (f"# not converted: {_line(each)}\n" for each in left)
        yield _shown(document)


def _shown(document: Object) -> str:
    """Return the document as YAML. Text with direction marks is escaped: a reader would see another order than a program."""
    text = yaml_text(document)
    if all(map(str.isprintable, text.split("\n"))):
        return text
    return yaml_text(document, is_ascii=True)


def _line(left: NotConverted) -> str:
    """Return what is left, and why, as one line. Both repeat text of the input, whose line ends would begin a document of their own."""
    return render.plain(f"{left.what}: {left.reason}")


def _converted(chosen: argparse.Namespace, names: Sequence[str]) -> int:
    if chosen.profile:
        known_profile(chosen.profile, flag=FLAG)
    choice = Choice(chosen.device_class, chosen.driver_name)
    taken = Names()
    files = []
    failed = False
    for name in inputs.files(names, recursive=chosen.recursive):
        try:
            files.append(_file(name, choice, taken))
        except Permanent as error:
            # One bad file of a directory keeps no other one back.
            failed = True
            render.error(str(error))
    objects = [one for file in files for one in file.objects]
    _write(chosen, files)
    left = [(one.title, each) for one in objects for each in one.left]
    labels = [(one.title, each) for one in objects for each in one.without_request]
    for title, each in (*left, *labels):
        render.error(f"{title}: not converted: {_line(each)}")
    changed = [one for one in objects if one.is_changed]
    if not (changed or left or failed):
        render.error("no pod asks for devices by a resource: nothing is converted")
    code = WITH_RESERVATION if left else DONE
    if left and not changed:
        code = NOT_DONE
    if chosen.profile and changed:
        made = [document for one in changed for document in one.documents]
        answer = fits(chosen.profile, [pod for document in made for pod in as_pods(document)])
        render.error(answer.text)
        code = code if answer.fits else NOT_DONE
    return COULD_NOT_TELL if failed else code


def _file(name: str, choice: Choice, taken: Names) -> _File:
    kept = inputs.Kept()
    try:
        kept.read(name, lambda _content: True)
    except BadDocument as error:
        raise Permanent(f"cannot read the manifest {name}: {error}") from error
    documents = [
        one
        for _, number, document in kept.found
        for one in _flat(document.content, f"{name}, document {number}")
    ]
    taken.add(_place(one) for one in documents if one.get("kind") in _NAMED)
    objects = [convert(one, choice, product_names(), taken) for one in documents]
    return _File(name, tuple(objects))


def _place(document: Object) -> tuple[str, str]:
    metadata = document.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    return str(found.get("namespace") or ""), str(found.get("name") or "")


def _flat(content: object, where: str) -> Iterator[Object]:
    """Yield the objects of a document, with the types that JSON has."""
    if not isinstance(content, dict):
        raise Permanent(f"{where} is no object: give YAML or JSON of the API")
    plain = msgspec.json.decode(msgspec.json.encode(content))
    if plain.get("kind") == "List" and isinstance(plain.get("items"), list):
        for item in plain["items"]:
            yield from _flat(item, where)
    else:
        yield plain


def _write(chosen: argparse.Namespace, files: Sequence[_File]) -> None:
    if not chosen.output_dir:
        for file in files:
            render.raw(file.text.encode().removesuffix(b"\n"))
        return
    folder = Path(chosen.output_dir)
    names = [
        f"{Path(file.name).stem if file.name != inputs.STANDARD_INPUT else 'stdin'}.yaml"
        for file in files
    ]
    twice = next((name for name, number in Counter(names).items() if number > 1), "")
    if twice:
        raise Permanent(f"two files would become {folder / twice}: convert one directory at a time")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Permanent(
            f"cannot make the folder {folder}: {error.strerror}; choose another one"
        ) from error
    destinations = [Destination.of(str(folder / name), force=chosen.force) for name in names]
    for destination, file in zip(destinations, files, strict=True):
        destination.write(file.text.encode())
        render.error(f"wrote {destination.name}")
