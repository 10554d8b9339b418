# SPDX-License-Identifier: Apache-2.0
"""What becomes of a configuration of NVIDIA's device plugin: a policy that planning reads, and sentences about the rest."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from dra_driver.backends.nvidia.plugin.keys import KEYS, OUTSIDE, Key, Outcome
from dra_driver.backends.nvidia.plugin.read import Said, is_number, read_said
from dra_driver.backends.nvidia.plugin.sharing import Lists, read_lists
from dra_driver.model.decoding import Mistake, shown
from dra_driver.model.plugin import Strategy
from dra_driver.model.plugin_policy import (
    MigStrategy,
    PluginPolicy,
)

VERSION = "v1"
STRATEGIES: Mapping[str, Strategy] = {
    "cdi-cri": Strategy.CDI,
    "cdi-annotations": Strategy.CDI_ANNOTATIONS,
    "envvar": Strategy.EDITS,
    "volume-mounts": Strategy.EDITS,
}
"""What each strategy of NVIDIA's is here, the best one first."""
_LIST_STRATEGY = "flags.plugin.deviceListStrategy"
_DISABLED, _ENABLED = "disableHealthChecks", "enableHealthChecks"
_EVERY_XID = ("all", "xids")


class PluginConfig(Struct, frozen=True):
    """A configuration that counts.

    `driver_root` is where NVIDIA's driver is, and `ignored_xids` do not count for health. `refusals` are keys that this driver does not do, each with what to
    do instead; `notes` are keys for which nothing is to do, or that count here and not there.
    """

    policy: PluginPolicy = field(default_factory=PluginPolicy)
    driver_root: str = ""
    ignored_xids: tuple[int, ...] = ()
    refusals: tuple[Mistake, ...] = ()
    notes: tuple[Mistake, ...] = ()


def read_config(
    text: bytes, environment: Mapping[str, str], arguments: Sequence[str] = ()
) -> tuple[PluginConfig | None, tuple[Mistake, ...]]:
    """The configuration, or None and all mistakes. An empty text is a configuration that says nothing."""
    said = read_said(text, environment, arguments)
    lists = read_lists(said.lists)
    mistakes = [*said.mistakes, *lists.mistakes, *_wrong_values(said)]
    if mistakes:
        return None, tuple(mistakes)
    ignored, bad_xids = _xids(said)
    told = list(_told(said))
    config = PluginConfig(
        policy=_policy(said, lists),
        driver_root=said.values.get("flags.nvidiaDriverRoot", ""),
        ignored_xids=ignored,
        refusals=(
            *said.unknown,
            *lists.unknown,
            *(one for outcome, one in told if outcome is Outcome.REFUSED),
            *lists.refusals,
            *bad_xids,
        ),
        notes=(
            *(one for outcome, one in told if outcome is Outcome.NOTHING_TO_DO),
            *lists.notes,
        ),
    )
    return config, ()


def ignored_xids(environment: Mapping[str, str]) -> tuple[int, ...]:
    """The XIDs that the variables of NVIDIA's plugin take out of the health of GPUs."""
    return _xids(read_said(b"", environment))[0]


def _wrong_values(said: Said) -> Iterator[Mistake]:
    """Yield values of the right type that NVIDIA's plugin refuses, in its words."""
    version = said.values.get("version", "")
    if version not in ("", VERSION):
        yield Mistake("version", f"unknown version: {shown(version)[1:-1]}; write {VERSION}")
    for key in KEYS:
        value = said.values.get(key.path)
        for one in (value if isinstance(value, tuple) else (value,)) if key.allowed else ():
            if one is not None and one not in key.allowed:
                told = key.wrong.format(shown(one)[1:-1])
                yield Mistake(
                    said.places[key.path], f"{told}; write one of {', '.join(key.allowed)}"
                )
    if said.values.get(_LIST_STRATEGY) == ():
        told = f"no device list strategy specified; at least one of [{' '.join(STRATEGIES)}] is required"
        yield Mistake(said.places[_LIST_STRATEGY], told)
    channels = said.values.get("imex.channelIDs", ())
    if channels not in ((), (0,)):
        told = f"invalid IMEX config: channelIDs must be [] or [0]; found {list(channels)}"
        yield Mistake(said.places["imex.channelIDs"], shown(told)[1:-1])


def _told(said: Said) -> Iterator[tuple[Outcome, Mistake]]:
    """Yield what has to be said about keys that become no value."""
    for key in (*KEYS, *OUTSIDE):
        value = said.values.get(key.path)
        if value is None or key.outcome is Outcome.HONOURED or _is_quiet(key, value):
            continue
        if key.path == "flags.nvidiaDevRoot" and value == said.values.get("flags.nvidiaDriverRoot"):
            continue  # its default
        yield key.outcome, Mistake(said.places[key.path], f"{_written(value)}: {key.words}")


def _written(value: object) -> str:
    """The value as it is written in YAML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return shown(list(value) if isinstance(value, tuple) else value)


def _is_quiet(key: Key, value: object) -> bool:
    return any(value == one and type(value) is type(one) for one in key.quiet)


def _policy(said: Said, lists: Lists) -> PluginPolicy:
    values = said.values
    mig = values.get("flags.migStrategy")
    shared = values.get("flags.plugin.sharedDevicesAllocationPolicy")
    wanted = values.get(_LIST_STRATEGY, ())
    best_first = [strategy for name, strategy in STRATEGIES.items() if name in wanted]
    return PluginPolicy(
        mig_strategy=MigStrategy(mig) if mig else None,
        sharing=tuple(lists.sharing),
        resources=tuple(lists.resources),
        strategies=tuple(dict.fromkeys(best_first)),
        packed=shared == "packed" if shared else None,
    )


def _xids(said: Said) -> tuple[tuple[int, ...], list[Mistake]]:
    """The XIDs that do not count, and what cannot be one."""
    refusals = []
    numbers: dict[str, list[int]] = {_DISABLED: [], _ENABLED: []}
    for path, found in numbers.items():
        for word in said.values.get(path, ()):
            if is_number(word):
                found.append(int(word))
            elif path == _DISABLED and word.lower() in _EVERY_XID:
                told = f"{shown(word)}: not every XID can be ignored, for a GPU that needs a reset would be given out: name the numbers"
                refusals.append(Mistake(said.places[path], told))
            else:
                refusals.append(
                    Mistake(said.places[path], f"{shown(word)} must be the number of an XID")
                )
    enabled = set(numbers[_ENABLED])
    return tuple(dict.fromkeys(one for one in numbers[_DISABLED] if one not in enabled)), refusals
