# SPDX-License-Identifier: Apache-2.0
"""Which of several configurations counts on this node? As in NVIDIA's config manager: a label of the Node names it.

Without the label it is the default, else the first fallback that exists. Without any of these no file counts, as under NVIDIA's operator: nodes on
which a pod has a GPU for itself stay so. NVIDIA's config manager ends with an error if the label names
nothing, and the plugin goes on with what it had. Here the reason is told too, with the names that there are.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePath

from msgspec import Struct

from dra_driver.backends.nvidia.options import DevicePluginOptions
from dra_driver.backends.nvidia.plugin.config import PluginConfig, read_config
from dra_driver.model.decoding import shown, told
from dra_driver.model.plugin_policy import BroughtPolicy

LABEL = "nvidia.com/device-plugin.config"
NAMED = "default"
"""The name that the fallback `named` looks for."""


class Choice(Struct, frozen=True):
    """The name of the configuration; empty: none. `problem` is why it is not the one that somebody wanted."""

    name: str = ""
    problem: str = ""


def choose(
    names: Collection[str], label: str | None, options: DevicePluginOptions, last: str = ""
) -> Choice:
    """Choose among the names of the files. If what somebody wants is not there, the `last` one stays, else it is as without the label."""
    if label and label in names:
        return Choice(label)
    usual = _usual(names, options)
    if not label and not usual.problem:
        return usual
    # Of what a fallback would choose nobody said that it is for a node with a label.
    by_name = options.default if options.default in names else ""
    stays = last if last in names else by_name
    problem = usual.problem
    if label:
        step = "set the label to one of them, or add a file of this name" if names else "add one"
        problem = f"the Node's label {LABEL} is {shown(label)}, and there is no such file; {_list(names)}: {step}"
    now = f"{shown(stays)} stays in force" if stays else "no configuration is in force"
    return Choice(stays, f"{problem}; until then {now}")


def _usual(names: Collection[str], options: DevicePluginOptions) -> Choice:
    """The choice without a label."""
    if options.default in names:
        return Choice(options.default)
    if options.default:
        problem = f"backends.nvidia.devicePlugin.default is {shown(options.default)}, and there is no such file; {_list(names)}: name one of them"
        return Choice(problem=problem)
    found = {
        "named": NAMED if NAMED in names else None,
        "single": next(iter(names)) if len(names) == 1 else None,
        "empty": "",
    }
    for strategy in options.fallback_strategies:
        if (name := found[strategy]) is not None:
            return Choice(name)
    problem = (
        f"no configuration of NVIDIA's device plugin is chosen; {_list(names)}: set the Node's label {LABEL} to one of them, or name one in "
        "backends.nvidia.devicePlugin.default"
    )
    return Choice(problem=problem if names else "")


def _list(names: Collection[str]) -> str:
    return f"there are {', '.join(sorted(names))}" if names else "there is none"


class ConfigOfNode:
    """The configuration of NVIDIA's device plugin that counts on this node; a `PolicyReader`. The last good one stays while a new one is wrong.

    `environment` and `arguments` are those of NVIDIA's DaemonSet, if an admin has given them to this driver.
    """

    def __init__(
        self,
        options: DevicePluginOptions,
        environment: Mapping[str, str],
        arguments: Sequence[str] = (),
    ) -> None:
        self._options = options
        self._environment = environment
        self._arguments = arguments
        self._name = ""
        self._good = PluginConfig()
        self._until = "none is in force"

    def _choose(self, files: Mapping[str, bytes], label: str | None) -> Choice:
        [*names] = files
        if names == [PurePath(self._options.config).name]:
            return Choice(names[0])  # it is a file, and no folder to choose from
        return choose(names, label, self._options, self._name)

    @property
    def place(self) -> str:
        return self._options.config

    def read(self, files: Mapping[str, bytes], labels: Mapping[str, str], /) -> BroughtPolicy:
        config, problems = self.update(files, labels)
        return BroughtPolicy(config.policy, problems, tuple(map(str, config.notes)))

    def update(
        self, files: Mapping[str, bytes], labels: Mapping[str, str]
    ) -> tuple[PluginConfig, tuple[str, ...]]:
        """What counts with these files and labels of the Node, and sentences about everything that does not."""
        choice = self._choose(files, labels.get(LABEL))
        problems = [choice.problem] if choice.problem else []
        text = files.get(choice.name, b"")
        config, mistakes = read_config(text, self._environment, self._arguments)
        source = f"NVIDIA's configuration {shown(choice.name)[1:-1]}".rstrip()
        if config is None:
            problems.append(
                f"{source} is wrong: {told(mistakes)}; correct it, until then {self._until}"
            )
        else:
            self._name, self._good = choice.name, config
            self._until = "the last good one counts"
            problems += [f"{source}: {one}" for one in config.refusals]
        return self._good, tuple(problems)
