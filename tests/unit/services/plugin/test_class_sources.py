# SPDX-License-Identifier: Apache-2.0
"""Folder or cluster: which classes count, and when a change is noticed."""

from pathlib import Path
from threading import Event

import pytest
import structlog
from structlog.testing import LogCapture

from dra_driver.errors import Temporary
from dra_driver.kube.base import NotServed
from dra_driver.model.api.meta import ObjectMeta
from dra_driver.model.api.resource_claim import DeviceClass
from dra_driver.node.mounted_folder import LARGEST_FILE
from dra_driver.services.plugin.class_sources import LOOK_SECONDS, ClassSources


def text(name: str) -> str:
    return f"apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: {name}}}\n"


class Cluster:
    """The API server and the clock."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.error: Exception | None = None
        self.asked = 0
        self.now = 0.0

    def listed(self) -> tuple[DeviceClass, ...]:
        self.asked += 1
        if self.error:
            raise self.error
        return tuple(DeviceClass(metadata=ObjectMeta(name=name)) for name in self.names)

    def clock(self) -> float:
        return self.now


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def log() -> LogCapture:
    return LogCapture()


@pytest.fixture
def sources(tmp_path: Path, cluster: Cluster, log: LogCapture) -> ClassSources:
    logger = structlog.wrap_logger(None, processors=[log])
    return ClassSources(tmp_path, cluster.listed, clock=cluster.clock, log=logger)


def places(sources: ClassSources) -> list[str]:
    return [one.where for one in sources.current().sources]


def test_a_class_of_the_folder_counts_and_the_cluster_is_not_asked(
    tmp_path: Path, sources: ClassSources, cluster: Cluster
) -> None:
    cluster.names = ["other"]
    (tmp_path / "a.yaml").write_text(text("gpu"))
    assert sources.look()
    assert (places(sources), cluster.asked) == (["a.yaml document 1"], 0)
    assert not sources.look()


def test_without_a_class_in_the_folder_those_of_the_cluster_count(
    tmp_path: Path, sources: ClassSources, cluster: Cluster
) -> None:
    cluster.names = ["large", "gpu"]
    assert sources.look()
    assert places(sources) == ["DeviceClass gpu of the cluster", "DeviceClass large of the cluster"]
    (tmp_path / "a.yaml").write_text(text("gpu"))
    assert sources.look()
    assert places(sources) == ["a.yaml document 1"]
    (tmp_path / "a.yaml").unlink()
    assert sources.look()
    assert len(places(sources)) == 2


def test_a_folder_with_broken_classes_only_is_meant(
    tmp_path: Path, sources: ClassSources, cluster: Cluster
) -> None:
    cluster.names = ["gpu"]
    (tmp_path / "a.yaml").write_text(text("GPU"))
    assert not sources.look()
    assert (places(sources), cluster.asked) == ([], 0)


@pytest.mark.parametrize("written", ["kind: [", "a text", "x" * (LARGEST_FILE + 1)])
def test_a_class_file_that_cannot_be_read_is_meant(
    written: str, tmp_path: Path, sources: ClassSources, cluster: Cluster
) -> None:
    cluster.names = ["gpu"]
    (tmp_path / "a.yaml").write_text(written)
    assert not sources.look()
    assert (places(sources), sources.current().meant, cluster.asked) == ([], True, 0)


@pytest.mark.parametrize("written", ["", "# later\n", "---\n---\n"])
def test_a_class_file_that_is_empty_on_purpose_is_not_meant(
    written: str, tmp_path: Path, sources: ClassSources, cluster: Cluster
) -> None:
    cluster.names = ["gpu"]
    (tmp_path / "a.yaml").write_text(written)
    assert sources.look()
    assert places(sources) == ["DeviceClass gpu of the cluster"]


def test_a_folder_that_was_never_listed_is_meant(tmp_path: Path, cluster: Cluster) -> None:
    cluster.names = ["gpu"]
    sources = ClassSources(tmp_path / "away", cluster.listed, clock=cluster.clock)
    assert not sources.look()
    assert (places(sources), sources.current().meant, cluster.asked) == ([], True, 0)


@pytest.mark.parametrize("broken", [b"kind: [", b"#" * (LARGEST_FILE + 1)])
def test_a_file_that_becomes_unreadable_keeps_its_classes(
    broken: bytes, tmp_path: Path, sources: ClassSources, log: LogCapture
) -> None:
    file, other = tmp_path / "a.yaml", tmp_path / "b.yaml"
    file.write_text(f"{text('gpu')}---\n{text('large')}")
    sources.look()
    file.write_bytes(text("gpu").encode() + b"---\n" + broken)
    assert not sources.look()
    other.write_text(text("other"))
    assert sources.look()
    assert places(sources) == ["a.yaml document 1", "a.yaml document 2", "b.yaml document 1"]
    assert [entry["event"] for entry in log.entries] == ["device_class_refused"]
    file.write_text(text("gpu"))
    assert sources.look()
    assert places(sources) == ["a.yaml document 1", "b.yaml document 1"]
    file.unlink()
    assert sources.look()
    file.write_bytes(broken)
    assert not sources.look()
    assert places(sources) == ["b.yaml document 1"]


def test_the_cluster_is_asked_every_minute(sources: ClassSources, cluster: Cluster) -> None:
    assert not sources.look()
    cluster.names = ["gpu"]
    cluster.now = 59
    assert not sources.look()
    assert cluster.asked == 1
    cluster.now = 60
    assert sources.look()
    cluster.error = Temporary("down")
    cluster.now = 120
    assert not sources.look()
    assert places(sources) == ["DeviceClass gpu of the cluster"]
    cluster.now = 180
    cluster.error = NotServed("no group")
    assert sources.look()
    assert places(sources) == []
    cluster.now = 479
    assert not sources.look()
    assert cluster.asked == 4


def test_a_folder_that_cannot_be_listed_keeps_its_classes(
    tmp_path: Path, cluster: Cluster, log: LogCapture
) -> None:
    folder = tmp_path / "classes"
    folder.mkdir()
    (folder / "a.yaml").write_text(text("gpu"))
    logger = structlog.wrap_logger(None, processors=[log])
    sources = ClassSources(folder, cluster.listed, clock=cluster.clock, log=logger)
    assert sources.look()
    folder.rename(tmp_path / "away")
    assert not sources.look()
    assert not sources.look()
    assert places(sources) == ["a.yaml document 1"]
    assert [entry["event"] for entry in log.entries] == ["device_class_refused"]
    (tmp_path / "away").rename(folder)
    (folder / "b.yaml").write_text(text("large"))
    assert sources.look()


def test_without_a_folder_the_cluster_alone_counts(cluster: Cluster) -> None:
    cluster.names = ["gpu"]
    sources = ClassSources(None, cluster.listed, clock=cluster.clock)
    assert sources.look()
    assert not sources.look()


def test_each_problem_is_logged_once_as_long_as_it_lasts(
    tmp_path: Path, sources: ClassSources, log: LogCapture
) -> None:
    (tmp_path / "a.yaml").write_text(text("GPU"))
    (tmp_path / "b.txt").write_text("")
    sources.look()
    sources.look()
    (tmp_path / "a.yaml").write_text(text("gpu"))
    sources.look()
    (tmp_path / "a.yaml").write_text(text("GPU"))
    sources.look()
    assert [entry["event"] for entry in log.entries] == [
        "device_class_refused",
        "object_passed_over",
        "device_class_refused",
    ]


def test_the_loop_looks_at_its_pace_and_tells_changes(
    tmp_path: Path, sources: ClassSources
) -> None:
    waits: list[float] = []
    changes: list[int] = []

    def wait(stop: Event, seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 2:
            (tmp_path / "a.yaml").write_text(text("gpu"))
        return len(waits) == 4

    sources.run(Event(), lambda: changes.append(len(waits)), wait=wait)
    assert (waits, changes) == ([LOOK_SECONDS] * 4, [2])
    assert LOOK_SECONDS > 1
