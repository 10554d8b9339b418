# SPDX-License-Identifier: Apache-2.0
"""Which versions and drivers does a cluster have?"""

from dra_driver.model.cluster import NotRead
from dra_driver.overview.versions import ClusterVersion, DriverOfCluster, version_of
from tests.e2e import fleet as words
from tests.unit.overview.scene import cluster, gpu_slice


def test_a_cluster() -> None:
    network = gpu_slice(words.device("x"), driver="a.example.com", pool="net", allNodes=True)
    state = cluster(
        gpu_slice(words.device("a"), words.device("b")),
        gpu_slice(words.device("a"), pool="n2"),
        gpu_slice(driver="empty.example.com", pool="n3"),
        network,
        served=["v1", "v1beta2"],
    )
    assert version_of("0.9", state) == ClusterVersion(
        client="0.9",
        is_known=True,
        problem="",
        server="v1.37.1",
        served=("v1", "v1beta2"),
        drivers=(
            DriverOfCluster(name="a.example.com", devices=1, nodes=0),
            DriverOfCluster(name="empty.example.com", devices=0, nodes=1),
            DriverOfCluster(name="gpu.example.com", devices=3, nodes=2),
        ),
        not_read=(),
    )


def test_no_cluster() -> None:
    found = version_of("0.9", None, "no answer")
    assert (found.is_known, found.problem, found.server, found.drivers) == (
        False,
        "no answer",
        "",
        (),
    )


def test_slices_that_may_not_be_read() -> None:
    forbidden = NotRead(resource="resourceslices", reason="forbidden", message="no")
    state = cluster(
        notRead=[{"resource": "resourceslices", "reason": "forbidden", "message": "no"}]
    )
    (gap,) = version_of("0.9", state).not_read
    assert (gap.lacks, gap.role, gap.message) == ("the drivers", "user-cluster", forbidden.message)
