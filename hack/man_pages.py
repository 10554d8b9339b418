# SPDX-License-Identifier: Apache-2.0
"""The man pages of `dra-driver`, `kubectl-dra` and their subcommands, as troff, from the parsers of the command line."""

import argparse
from collections.abc import Iterator, Mapping

from dra_driver import PROJECT
from dra_driver.cli.main import (
    COMMANDS,
    DESCRIPTIONS,
    KUBECTL,
    KUBECTL_COMMANDS,
    CommandLine,
    command_line,
    parser,
)
from dra_driver.model import exit_codes

SECTION = 1
HEAD = '.\\" Written by hack/generate-docs; change the code instead.\n'
PROGRAMS: Mapping[str, Mapping[str, str]] = {PROJECT: COMMANDS, KUBECTL: KUBECTL_COMMANDS}
_CODES = {PROJECT: exit_codes.COMMANDS, KUBECTL: exit_codes.KUBECTL}
_REQUIRED, _MANY = (None, 1), ("*", "+")


def man_pages() -> dict[str, str]:
    """All pages, by the names of their files."""
    found = {}
    for program, commands in PROGRAMS.items():
        top = parser("", program=program, commands=commands)
        found[_file(program)] = _page(program, DESCRIPTIONS[program], _program(program, top))
        for command, about in commands.items():
            line = command_line(program, commands, command)
            whole = f"{program} {command}"
            found[_file(whole)] = _page(whole, about, _command(program, command, line))
    return found


def _file(name: str) -> str:
    return f"{name.replace(' ', '-')}.{SECTION}"


def _page(name: str, about: str, body: Iterator[str]) -> str:
    title = name.replace(" ", "-")
    lines = (
        f'.TH {title.upper()} {SECTION} "" "{PROJECT}" "{PROJECT}"',
        ".SH NAME",
        f"{_text(title)} \\- {_text(about)}",
        *body,
    )
    return HEAD + "\n".join(lines) + "\n"


def _program(program: str, top: CommandLine) -> Iterator[str]:
    yield from (".SH SYNOPSIS", f".B {_text(program)}", "\\fICOMMAND\\fR [\\fIOPTIONS\\fR]")
    yield ".SH COMMANDS"
    for command, about in PROGRAMS[program].items():
        yield from (".TP", f"\\fB{_text(command)}\\fR", _text(about))
    yield ".SH OPTIONS"
    yield from _options(top)
    yield from (".SH EXIT STATUS", "A code means the same in every command.")
    for code, meaning in exit_codes.MEANINGS.items():
        yield from (".TP", f"\\fB{code}\\fR", _text(meaning))
    names = [f"{program} {command}" for command in PROGRAMS[program]]
    yield from _see_also([*names, *(one for one in PROGRAMS if one != program)])


def _command(program: str, command: str, line: CommandLine) -> Iterator[str]:
    words = [_argument(one) for one in line.arguments if not one.option_strings]
    yield from (".SH SYNOPSIS", f".B {_text(program)} {_text(command)}")
    yield " ".join(["[\\fIOPTIONS\\fR]", *words])
    arguments = [one for one in line.arguments if not one.option_strings]
    if arguments:
        yield ".SH ARGUMENTS"
        for one in arguments:
            yield from (".TP", _argument(one), _help(one))
    yield ".SH OPTIONS"
    yield from _options(line)
    yield ".SH EXIT STATUS"
    meanings = {**_CODES[program][command], exit_codes.WRONG_USAGE: "wrong usage"}
    for code, meaning in meanings.items():
        yield from (".TP", f"\\fB{code}\\fR", _text(meaning))
    yield from _see_also([program])


def _options(line: CommandLine) -> Iterator[str]:
    for one in line.arguments:
        if one.option_strings and one.help != argparse.SUPPRESS:
            flags = ", ".join(f"\\fB{_text(flag)}\\fR" for flag in one.option_strings)
            value = "" if one.nargs == 0 else f" \\fI{_value(one)}\\fR"
            yield from (".TP", flags + value, _help(one))


def _argument(one: argparse.Action) -> str:
    shown = f"\\fI{_value(one)}\\fR" + ("..." if one.nargs in _MANY else "")
    return shown if one.nargs in _REQUIRED or one.nargs == "+" else f"[{shown}]"


def _value(one: argparse.Action) -> str:
    if one.choices is not None:
        return "|\\:".join(_text(str(choice)) for choice in one.choices)  # a line may end there
    return _text(str(one.metavar or one.dest.upper()))


def _help(one: argparse.Action) -> str:
    return _text((one.help or "").replace("%%", "%"))


def _see_also(names: list[str]) -> Iterator[str]:
    yield ".SH SEE ALSO"
    shown = (f"\\fB{_text(name.replace(' ', '-'))}\\fR({SECTION})" for name in names)
    yield ",\n".join(shown)


def _text(text: str) -> str:
    """Escape what troff would read as a command: backslashes, hyphens, and a dot or quote that begins a line; and what is not ASCII."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    escaped = "".join(one if one.isascii() else f"\\[u{ord(one):04X}]" for one in escaped)
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
