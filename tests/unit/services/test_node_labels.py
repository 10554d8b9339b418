# SPDX-License-Identifier: Apache-2.0
"""Do the labels follow the devices, in the feature file and on the Node?"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from dra_driver.errors import DriverError, Temporary
from dra_driver.kube.base import Conflict
from dra_driver.kube.connection import Connection
from dra_driver.kube.http import HttpKubeApi
from dra_driver.model.events import DriverEvent, NodeLabelsWritten
from dra_driver.model.ids import DeviceName, DriverName, NodeName
from dra_driver.model.inventory import Inventory
from dra_driver.node.feature_file import FeatureFile
from dra_driver.planning.gfd_labels import GfdRules, Sharing
from dra_driver.planning.labels import LabelRules
from dra_driver.services.node_labels import FeatureFileWriter, NodeLabels, NodeLabelWriter
from dra_driver.testing.fake_api import FakeApi
from tests.support.api_values import found_device

DRIVER, NODE = DriverName("gpu.example.com"), NodeName("node-1")
COUNT = "gpu.dra-driver.dev/count"
GENERATION = "gpu.dra-driver.dev/generation"
LOG = structlog.get_logger()


def gpus(count: int, architecture: str = "Xe2") -> Inventory:
    attributes = {"vendor": "intel", "architecture": architecture}
    names = (f"gpu-{index}" for index in range(count))
    return Inventory(tuple(found_device(name, name, attributes) for name in names))


class Hardware:
    """The devices of the node as the loop asks for them."""

    def __init__(self) -> None:
        self.inventory: Inventory | DriverError = gpus(2)
        self.events: list[DriverEvent] = []

    def __call__(self) -> Inventory:
        if isinstance(self.inventory, DriverError):
            raise self.inventory
        return self.inventory


@pytest.fixture
def hardware() -> Hardware:
    return Hardware()


# Into the feature file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "features.d"
    folder.mkdir()
    return folder


def to_file(hardware: Hardware, folder: Path, **aliases: str) -> NodeLabels:
    writer = FeatureFileWriter(FeatureFile(folder, DRIVER), observe=hardware.events.append, log=LOG)
    return NodeLabels(hardware, writer, LabelRules(aliases))


def test_the_file_follows_the_devices_and_goes_with_them(hardware: Hardware, folder: Path) -> None:
    labels = to_file(hardware, folder)
    assert labels.look() == 60.0
    assert (folder / DRIVER).read_text() == f"{COUNT}=2\n{GENERATION}=xe2\n"
    labels.look()
    hardware.inventory = gpus(1, "Xe3")
    labels.look()
    assert (folder / DRIVER).read_text() == f"{COUNT}=1\n{GENERATION}=xe3\n"
    hardware.inventory = Inventory()
    labels.look()
    assert list(folder.iterdir()) == []
    assert hardware.events == [
        NodeLabelsWritten(2, (COUNT, GENERATION), ()),
        NodeLabelsWritten(2, (COUNT, GENERATION), ()),
        NodeLabelsWritten(0, (), (COUNT, GENERATION)),
    ]


def test_what_counts_for_the_device_plugin_is_asked_at_each_look(
    hardware: Hardware, folder: Path
) -> None:
    hardware.inventory = Inventory((found_device("gpu-0", "gpu-0", {"vendor": "nvidia"}),))
    rules: list[GfdRules] = []

    def gfd() -> GfdRules:
        if not rules:
            raise Temporary("it is not known yet")
        return rules[-1]

    writer = FeatureFileWriter(FeatureFile(folder, DRIVER), log=LOG)
    labels = NodeLabels(hardware, writer, LabelRules(), gfd=gfd)
    with pytest.raises(Temporary):
        labels.look()
    assert list(folder.iterdir()) == []
    for replicas in (2, 4):
        rules.append(GfdRules(sharing={"nvidia.com/gpu": Sharing(replicas, "time-slicing")}))
        labels.look()
        lines = (folder / DRIVER).read_text().splitlines()
        assert f"nvidia.com/gpu.replicas={replicas}" in lines


def test_a_file_that_somebody_removed_is_written_again(hardware: Hardware, folder: Path) -> None:
    labels = to_file(hardware, folder)
    labels.look()
    (folder / DRIVER).unlink()
    labels.look()
    assert (folder / DRIVER).exists()


@pytest.mark.parametrize(
    "unknown",
    [
        Temporary("no scan yet"),
        Inventory((), unanswered=("nvidia",), had={DeviceName("gpu-0"): "nvidia"}),
    ],
)
def test_nothing_is_removed_before_the_devices_are_known(
    hardware: Hardware, folder: Path, unknown: Inventory | DriverError
) -> None:
    """Pods are placed by labels, and a driver that starts knows no device for a while."""
    (folder / DRIVER).write_text("before/it=1\n")
    hardware.inventory = unknown
    with pytest.raises(Temporary):
        to_file(hardware, folder).look()
    assert (folder / DRIVER).read_text() == "before/it=1\n"


def test_without_the_folder_nothing_is_written_and_that_is_said_once(
    hardware: Hardware, tmp_path: Path
) -> None:
    folder = tmp_path / "features.d"
    labels = to_file(hardware, folder)
    hardware.inventory = Inventory()
    with capture_logs() as logs:
        labels.look()  # a node without devices needs no label
        hardware.inventory = gpus(2)
        labels.look()
        labels.look()
    assert [line["event"] for line in logs] == ["feature_folder_missing"]
    assert list(tmp_path.iterdir()) == []
    folder.mkdir()
    labels.look()
    assert (folder / DRIVER).exists()


def test_labels_without_a_domain_are_left_out_and_that_is_said_once(
    hardware: Hardware, folder: Path
) -> None:
    labels = to_file(hardware, folder, accelerator="vendor", **{"example.com/gpu": "vendor"})
    with capture_logs() as logs:
        labels.look()
        labels.look()
    assert [(line["event"], line["labels"]) for line in logs] == [
        ("labels_need_patch", ("accelerator",))
    ]
    assert (folder / DRIVER).read_text().splitlines()[0] == "example.com/gpu=intel"
    assert "accelerator" not in (folder / DRIVER).read_text()


# On the Node


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as api:
        api.put("nodes", {"metadata": {"name": NODE, "labels": {"theirs": "x"}}})
        yield api


@pytest.fixture
def to_node(api: FakeApi, hardware: Hardware, folder: Path) -> Iterator[NodeLabels]:
    kube = HttpKubeApi(Connection(api.url), driver=DRIVER, node=NODE)
    file = FeatureFile(folder, DRIVER)
    writer = NodeLabelWriter(kube.own_node(), file, observe=hardware.events.append, log=LOG)
    yield NodeLabels(hardware, writer, LabelRules({"accelerator": "vendor"}))
    kube.close()


def labels_of(api: FakeApi) -> dict[str, str]:
    found: dict[str, str] = api.object("nodes", NODE)["metadata"]["labels"]
    return found


def patches(api: FakeApi) -> int:
    return [request.verb for request in api.requests].count("patch")


def test_the_nodes_labels_follow_the_devices_and_go_with_them(
    api: FakeApi, to_node: NodeLabels, hardware: Hardware
) -> None:
    assert to_node.look() == 300.0
    ours = {COUNT: "2", GENERATION: "xe2", "accelerator": "intel"}
    assert labels_of(api) == {"theirs": "x", **ours}
    hardware.inventory = gpus(1)
    to_node.look()
    assert labels_of(api) == {"theirs": "x", **ours, COUNT: "1"}
    hardware.inventory = Inventory()
    to_node.look()
    assert labels_of(api) == {"theirs": "x"}
    every = ("accelerator", COUNT, GENERATION)
    assert hardware.events == [
        NodeLabelsWritten(3, every, ()),
        NodeLabelsWritten(3, (COUNT,), ()),
        NodeLabelsWritten(0, (), every),
    ]


def test_while_nothing_changes_nothing_is_written(api: FakeApi, to_node: NodeLabels) -> None:
    for _ in range(3):
        to_node.look()
    assert patches(api) == 1
    api.put("nodes", {**api.object("nodes", NODE), "spec": {"unschedulable": True}})
    to_node.look()
    assert patches(api) == 1


def test_the_feature_file_of_an_earlier_choice_goes(folder: Path, to_node: NodeLabels) -> None:
    """Node Feature Discovery would write its labels for ever."""
    (folder / DRIVER).write_text("a/b=1\n")
    to_node.look()
    assert list(folder.iterdir()) == []


def test_a_label_of_somebody_else_stays_and_that_is_said_once(
    api: FakeApi, to_node: NodeLabels
) -> None:
    api.put("nodes", {"metadata": {"name": NODE, "labels": {"accelerator": "mine"}}})
    with capture_logs() as logs:
        to_node.look()
        to_node.look()
    assert labels_of(api) == {"accelerator": "mine", COUNT: "2", GENERATION: "xe2"}
    assert [(line["event"], line["labels"]) for line in logs] == [
        ("labels_of_others", ("accelerator",))
    ]
    assert patches(api) == 1


def test_a_race_with_somebody_else_is_a_conflict_that_passes(
    api: FakeApi, to_node: NodeLabels
) -> None:
    api.faults.status(409, verb="patch", resource="nodes")
    with pytest.raises(Conflict):
        to_node.look()
    to_node.look()
    assert labels_of(api)[COUNT] == "2"
