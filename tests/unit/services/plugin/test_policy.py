# SPDX-License-Identifier: Apache-2.0
"""The own policy over that of NVIDIA's files: when a change is noticed, and what stays while something cannot be read."""

from collections.abc import Mapping
from pathlib import Path
from threading import Event

import pytest
import structlog
from structlog.testing import LogCapture

from dra_driver.backends.nvidia.options import DevicePluginOptions
from dra_driver.backends.nvidia.plugin.choice import LABEL, ConfigOfNode
from dra_driver.errors import Temporary
from dra_driver.model.plugin_policy import MigStrategy, PluginPolicy, SharingRule
from dra_driver.services.plugin.policy import LOOK_SECONDS, PolicyOfNode

SLICED = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
RULE = SharingRule("nvidia.com/gpu", replicas=4)


class Node:
    """The labels of the Node."""

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}
        self.error: Exception | None = None
        self.asked = 0

    def read(self) -> Mapping[str, str]:
        self.asked += 1
        if self.error:
            raise self.error
        return self.labels


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def log() -> LogCapture:
    return LogCapture()


def made(
    place: Path | str,
    node: Node,
    log: LogCapture,
    own: PluginPolicy = PluginPolicy(),  # noqa: B008  frozen
    **variables: str,
) -> PolicyOfNode:
    options = DevicePluginOptions(config=str(place), fallback_strategies=("named", "single"))
    logger = structlog.wrap_logger(None, processors=[log])
    return PolicyOfNode(own, [ConfigOfNode(options, variables)], labels=node.read, log=logger)


def events(log: LogCapture) -> list[str]:
    return [entry["event"] for entry in log.entries]


def test_the_own_policy_counts_over_the_file_of_the_label(
    tmp_path: Path, node: Node, log: LogCapture
) -> None:
    (tmp_path / "sliced").write_text(SLICED)
    (tmp_path / "plain").write_text("flags: {migStrategy: single, gdsEnabled: true}")
    node.labels = {LABEL: "sliced"}
    policy = made(tmp_path, node, log, PluginPolicy(mig_strategy=MigStrategy.MIXED))
    assert policy.look()
    assert policy.current() == PluginPolicy(MigStrategy.MIXED, sharing=(RULE,))
    assert not policy.look()
    node.labels = {LABEL: "plain"}
    assert policy.look()
    assert policy.current() == PluginPolicy(MigStrategy.MIXED)
    assert events(log) == ["plugin_config_refused"]


def test_a_changed_file_is_noticed_and_a_wrong_one_leaves_the_last(
    tmp_path: Path, node: Node, log: LogCapture
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(SLICED)
    policy = made(file, node, log)  # a file, and no folder
    assert policy.look()
    assert policy.current().sharing == (RULE,)
    file.write_text(SLICED.replace("4", "0"))
    assert not policy.look()
    assert not policy.look()
    assert policy.current().sharing == (RULE,)
    file.unlink()
    assert not policy.look()
    assert events(log) == ["plugin_config_refused", "plugin_config_not_read"]
    file.write_text(SLICED.replace("4", "2"))
    assert policy.look()


def test_without_labels_no_file_is_chosen(tmp_path: Path, node: Node, log: LogCapture) -> None:
    (tmp_path / "default").write_text(SLICED)
    (tmp_path / "plain").write_text("")
    node.error = Temporary("down")
    policy = made(tmp_path, node, log)
    assert not policy.look()
    assert not policy.is_known
    node.error, node.labels = None, {LABEL: "plain"}
    assert not policy.look()
    assert policy.is_known
    node.error = Temporary("down")
    (tmp_path / "plain").write_text(SLICED)
    assert policy.look()  # the labels that were read last
    assert events(log) == ["node_labels_not_read"]


def test_without_files_only_the_variables_count_and_nobody_is_asked(
    node: Node, log: LogCapture
) -> None:
    policy = made("", node, log, MIG_STRATEGY="mixed", FAIL_ON_INIT_ERROR="true")
    assert policy.is_known
    assert policy.look()
    assert not policy.look()
    assert policy.current() == PluginPolicy(MigStrategy.MIXED)
    assert (node.asked, events(log)) == (0, ["plugin_config_noted"])


def test_without_a_vendor_the_own_policy_counts(node: Node) -> None:
    own = PluginPolicy(packed=True)
    policy = PolicyOfNode(own, labels=node.read)
    assert not policy.look()
    assert (policy.current(), node.asked) == (own, 0)


def test_the_loop_looks_at_its_pace_and_tells_changes(
    tmp_path: Path, node: Node, log: LogCapture
) -> None:
    policy = made(tmp_path, node, log)
    waits: list[float] = []
    changes: list[int] = []

    def wait(_stop: Event, seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 2:
            (tmp_path / "a").write_text(SLICED)
        return len(waits) == 4

    policy.run(Event(), lambda: changes.append(len(waits)), wait=wait)
    assert (waits, changes) == ([LOOK_SECONDS] * 4, [2])
