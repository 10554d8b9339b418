# SPDX-License-Identifier: Apache-2.0
"""Which file counts on a node, and what stays while something is wrong."""

import pytest

from dra_driver.backends.nvidia.options import DevicePluginOptions
from dra_driver.backends.nvidia.plugin.choice import LABEL, Choice, ConfigOfNode, choose
from dra_driver.backends.nvidia.plugin.config import PluginConfig
from dra_driver.model.plugin_policy import MigStrategy, PluginPolicy, SharingRule

USUAL = DevicePluginOptions()
OF_THE_PLUGIN = DevicePluginOptions(fallback_strategies=("named", "single"))
SLICED = b"sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"


def options(default: str = "", *strategies: str) -> DevicePluginOptions:
    return DevicePluginOptions(default=default, fallback_strategies=strategies)


@pytest.mark.parametrize(
    ("names", "label", "chosen", "name"),
    [
        (["a", "b"], "b", USUAL, "b"),
        (["a", "b"], "a", options("b"), "a"),
        (["a", "b"], None, options("b"), "b"),
        (["a", "default"], None, USUAL, ""),
        (["a"], None, USUAL, ""),
        (["a", "default"], None, OF_THE_PLUGIN, "default"),
        (["a", "default"], "", OF_THE_PLUGIN, "default"),
        (["a"], None, OF_THE_PLUGIN, "a"),
        (["a", "b"], None, options("", "single", "empty"), ""),
        ([], None, USUAL, ""),
    ],
)
def test_label_default_and_fallbacks_are_tried_in_this_order(
    names: list[str], label: str | None, chosen: DevicePluginOptions, name: str
) -> None:
    assert choose(names, label, chosen) == Choice(name)


@pytest.mark.parametrize(
    ("names", "label", "chosen", "last", "choice"),
    [
        # What people bring along: the label has the name of the ConfigMap, not of a key in it.
        (
            ["any"],
            "time-slicing",
            OF_THE_PLUGIN,
            "",
            Choice(
                "",
                f"the Node's label {LABEL} is 'time-slicing', and there is no such file; there are any: set the label to one of them, or add a file of this name; until then no configuration is in force",
            ),
        ),
        (
            ["a", "b", "default"],
            "c",
            USUAL,
            "b",
            Choice(
                "b",
                f"the Node's label {LABEL} is 'c', and there is no such file; there are a, b, default: set the label to one of them, or add a file of this name; until then 'b' stays in force",
            ),
        ),
        (
            [],
            "c",
            USUAL,
            "gone",
            Choice(
                "",
                f"the Node's label {LABEL} is 'c', and there is no such file; there is none: add one; until then no configuration is in force",
            ),
        ),
        (
            ["a", "b"],
            None,
            options("c"),
            "",
            Choice(
                "",
                "backends.nvidia.devicePlugin.default is 'c', and there is no such file; there are a, b: name one of them; until then no configuration is in force",
            ),
        ),
        (
            ["b", "a"],
            None,
            OF_THE_PLUGIN,
            "a",
            Choice(
                "a",
                f"no configuration of NVIDIA's device plugin is chosen; there are a, b: set the Node's label {LABEL} to one of them, or name one in backends.nvidia.devicePlugin.default; until then 'a' stays in force",
            ),
        ),
    ],
)
def test_a_choice_that_cannot_be_made_is_told_with_what_there_is(
    names: list[str], label: str | None, chosen: DevicePluginOptions, last: str, choice: Choice
) -> None:
    assert choose(names, label, chosen, last) == choice


def test_a_label_that_names_nothing_leaves_the_default_and_no_fallback() -> None:
    both = DevicePluginOptions(default="a", fallback_strategies=("single",))
    assert choose(["a"], "b", both).name == "a"


def test_a_single_file_counts_without_a_label() -> None:
    node = ConfigOfNode(DevicePluginOptions(config="/etc/plugin/config.yaml"), {})
    config, problems = node.update({"config.yaml": SLICED}, {})
    assert (len(config.policy.sharing), problems) == (1, ())
    assert node.update({"config.yaml": b""}, {LABEL: "any"}) == (PluginConfig(), ())


def test_a_wrong_file_leaves_the_last_good_one_in_force() -> None:
    node = ConfigOfNode(USUAL, {})
    good, problems = node.update({"a": SLICED}, {LABEL: "a"})
    assert (good.policy.sharing, problems) == ((SharingRule("nvidia.com/gpu", replicas=4),), ())
    bad = {"a": SLICED.replace(b"4", b"0")}
    assert node.update(bad, {LABEL: "a"}) == (
        good,
        (
            "NVIDIA's configuration a is wrong: sharing.timeSlicing.resources[0].replicas: number of replicas must be >= 2; it is 0; correct it, until then the last good one counts",
        ),
    )
    now, problems = node.update({"a": b"flags: {gdsEnabled: true}"}, {LABEL: "a"})
    assert now.policy == PluginPolicy()
    assert [one.partition(": true")[0] for one in problems] == [
        "NVIDIA's configuration a: flags.gdsEnabled"
    ]


def test_where_no_file_was_ever_good_none_is_in_force() -> None:
    node = ConfigOfNode(USUAL, {})
    bad = {"a": SLICED.replace(b"4", b"0")}
    none, (problem,) = node.update(bad, {LABEL: "a"})
    assert none == PluginConfig()
    assert problem.endswith("correct it, until then none is in force")


def test_a_label_that_names_nothing_keeps_the_last_file_and_follows_it() -> None:
    node = ConfigOfNode(USUAL, {"MIG_STRATEGY": "mixed"})
    files = {"a": SLICED, "default": b""}
    assert node.update(files, {LABEL: "a"})[0].policy.sharing
    kept, (problem,) = node.update(files, {LABEL: "typo"})
    assert (kept.policy.mig_strategy, len(kept.policy.sharing)) == (MigStrategy.MIXED, 1)
    assert problem.startswith(f"the Node's label {LABEL} is 'typo', and there is no such file; ")
    assert node.update(files, {}) == (
        PluginConfig(PluginPolicy(mig_strategy=MigStrategy.MIXED)),
        (),
    )


def test_without_a_file_the_variables_count() -> None:
    config, problems = ConfigOfNode(USUAL, {}, ["--mig-strategy=single"]).update({}, {})
    assert (config.policy.mig_strategy, problems) == (MigStrategy.SINGLE, ())
