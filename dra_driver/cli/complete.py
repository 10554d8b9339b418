# SPDX-License-Identifier: Apache-2.0
"""Which words can stand where the user is typing? The scripts of `dra-driver completion`, and kubectl, ask this.

The answer has the form that kubectl's own completion uses: a candidate on each line, perhaps with a tab and a description, and at last
`:` and a number that tells the shell what else to do. A completion must neither fail nor wait: whatever goes wrong, there are just
fewer candidates.

Source: kubectl's pkg/cmd/plugin_completion.go, cobra's ShellCompDirective.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from dra_driver.backends.profiles import PROFILES
from dra_driver.cli import completion_values, render
from dra_driver.cli.main import CommandLine, command_line, parser
from dra_driver.cli.subjects import SPELLINGS
from dra_driver.model.api.workload import PLURALS
from dra_driver.model.exit_codes import DONE

FILES, NO_SPACE, NO_FILES = 0, 2, 4
"""The shell completes names of files itself; it puts no space after the word; it completes no names of files."""
Candidate = tuple[str, str]
"""A word and what it means."""
_FILE_METAVARS = ("FILE", "FOLDER", "PATH")


class Answer(Struct):
    """The candidates, and the number for the shell."""

    candidates: list[Candidate] = field(default_factory=list)
    directive: int = NO_FILES


def run(program: str, commands: Mapping[str, str], words: Sequence[str]) -> int:
    """Print the candidates for the last word. Returns the exit code."""
    found = complete(program, commands, words)
    for word, about in found.candidates:
        # A description may have been written by somebody else; it must stay on its line.
        render.line(render.plain(word) + (f"\t{render.plain(about)}" if about else ""))
    render.line(f":{found.directive}")
    return DONE


def complete(program: str, commands: Mapping[str, str], words: Sequence[str]) -> Answer:
    """Return the candidates for the last of the words after the program's name."""
    *typed, current = words or ("",)
    place = next((at for at, word in enumerate(typed) if not word.startswith("-")), None)
    if place is None:
        top = parser("", program=program, commands=commands)
        found = _flags(top) if current.startswith("-") else list(commands.items())
        return Answer(_beginning(found, current))
    command = typed[place]
    if command not in commands:
        return Answer()
    line = command_line(program, commands, command)
    return _of_command(line, typed[place + 1 :], current)


def _of_command(line: CommandLine, typed: Sequence[str], current: str) -> Answer:
    values = _Values(line, typed)
    before = typed[-1] if typed else ""
    waits = values.option(before)
    if waits is not None and "=" not in before:
        return values.of(waits, current)
    if current.startswith("--") and "=" in current:
        name, _, part = current.partition("=")
        option = values.option(name)
        if option is None:
            return Answer()
        found = values.of(option, part)
        found.candidates = [(f"{name}={word}", about) for word, about in found.candidates]
        return found
    if current.startswith("-"):
        return Answer(_beginning(_flags(line), current))
    positional = values.positional()
    return values.of(positional, current) if positional else Answer()


class _Values:
    """The values that an argument can have, with what was typed before."""

    def __init__(self, line: CommandLine, typed: Sequence[str]) -> None:
        self._line = line
        self._typed = typed

    def option(self, flag: str) -> argparse.Action | None:
        """Return the option of this flag if it takes a value."""
        name = flag.partition("=")[0]
        for action in self._line.arguments:
            if name in action.option_strings and action.nargs != 0:
                return action
        return None

    def positional(self) -> argparse.Action | None:
        """Return the argument that the next word without a dash belongs to; None if there may be no more."""
        arguments = [one for one in self._line.arguments if not one.option_strings]
        given = list(self._words())
        if len(given) < len(arguments):
            return arguments[len(given)]
        return arguments[-1] if arguments and arguments[-1].nargs == "*" else None

    def _words(self) -> Iterator[str]:
        """Yield the words that are neither flags nor their values."""
        before = ""
        for word in self._typed:
            if not word.startswith("-") and (self.option(before) is None or "=" in before):
                yield word
            before = word

    def of(self, action: argparse.Action, current: str) -> Answer:
        """Return the values of the argument that begin with what was typed."""
        choices = _choices(action)
        if choices:
            return Answer(_beginning([(one, "") for one in choices], current))
        if action.metavar in _FILE_METAVARS or action.dest in ("config", "kubeconfig"):
            return Answer(directive=FILES)
        made = _VALUES.get(action.dest)
        found = _beginning(made(self, current), current) if made else []
        goes_on = any(word.endswith("/") for word, _ in found)
        return Answer(found, NO_FILES | NO_SPACE if goes_on else NO_FILES)

    def flag(self, *names: str) -> str:
        """Return the value that was typed for a flag; "" if it was not."""
        for place, word in enumerate(self._typed):
            name, sign, value = word.partition("=")
            if name in names:
                following = self._typed[place + 1] if place + 1 < len(self._typed) else ""
                return value if sign else following
        return ""

    def cluster(self, resource: str, *, namespaced: bool = False) -> list[Candidate]:
        """Return the names of objects in the cluster that the typed flags name."""
        asked = completion_values.Asked(
            kubeconfig=self.flag("--kubeconfig"),
            context=self.flag("--context"),
            namespace=self.flag("-n", "--namespace") if namespaced else None,
        )
        return [(name, "") for name in completion_values.names(asked, resource)]

    def subjects(self, current: str) -> list[Candidate]:
        """Return KIND/NAME for a kind that was typed, a name if the kind is the word before it, and the kinds and the pods else."""
        kind, slash, _ = current.partition("/")
        if slash:
            return [(f"{kind}/{name}", "") for name, _ in self._of_kind(kind)]
        words = list(self._words())
        if words and words[-1] in SPELLINGS:
            return self._of_kind(words[-1])
        kinds = [(f"{one}/", "") for one in _SHOWN_KINDS]
        return kinds + self._of_kind("pod")

    def _of_kind(self, kind: str) -> list[Candidate]:
        plural = _PLURALS.get(SPELLINGS.get(kind, ""), "")
        return self.cluster(plural, namespaced=True) if plural else []

    def contexts(self) -> list[Candidate]:
        """Return the contexts of the kubeconfig."""
        return [(name, "") for name in completion_values.contexts(self.flag("--kubeconfig"))]


_SHOWN_KINDS = ("pod", "claim", "template", "deployment", "statefulset", "daemonset", "job")
_PLURALS = {
    "Pod": "pods",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    **{kind: plural for kind, (_, plural) in PLURALS.items()},
}


def _choices(action: argparse.Action) -> Sequence[str]:
    """Return the only values of an argument, which for a setting of the driver are in the place of its value; empty if there are others."""
    if action.choices is not None:
        return [str(one) for one in action.choices]
    shown = str(action.metavar)
    return shown[1:-1].split(",") if shown.startswith("{") else ()


_VALUES: Mapping[str, Callable[[_Values, str], list[Candidate]]] = {
    "subject": _Values.subjects,
    "namespace": lambda values, _: values.cluster("namespaces"),
    "node": lambda values, _: values.cluster("nodes"),
    "device_class": lambda values, _: values.cluster("deviceclasses"),
    "driver": lambda values, _: values.cluster(completion_values.DRIVERS),
    "claim_names": lambda values, _: values.cluster("resourceclaims", namespaced=True),
    "context": lambda values, _: values.contexts(),
    "add_node": lambda _, __: [(name, "") for name in PROFILES],
}
"""What an argument can be, by its name."""


def _flags(line: CommandLine) -> list[Candidate]:
    """Return the flags with their help; the short form only of what has no long one."""
    found = []
    for action in line.arguments:
        if action.help == argparse.SUPPRESS:
            continue
        long = [flag for flag in action.option_strings if flag.startswith("--")]
        found += [(flag, _first(action.help or "")) for flag in long or action.option_strings]
    return found


def _first(text: str) -> str:
    """Return the help up to its first semicolon, colon or bracket, so that it fits beside the flag."""
    ends = [place for sign in (";", ":", " (", ",") if (place := text.find(sign)) > 0]
    return text[: min(ends, default=len(text))]


def _beginning(candidates: Iterable[Candidate], current: str) -> list[Candidate]:
    return [one for one in candidates if one[0].startswith(current)]
