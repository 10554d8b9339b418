# SPDX-License-Identifier: Apache-2.0
"""A Started row and a CDI file: the file vouches for the row only if it describes exactly its devices.

The file follows the commit that makes its row Prepared. So beside a Started row it shows that this commit was lost with a damaged log.
"""

from contextlib import suppress
from pathlib import Path

import pytest

from dra_driver.model.claim import Claim
from dra_driver.model.state import Phase
from dra_driver.testing.builders import a_claim, a_result
from dra_driver.testing.failpoints import Failpoints, raising
from tests.support.local_node import LocalNode, ManualClock

CLAIM = a_claim("wine", results=[a_result("gpu-0"), a_result("gpu-1")])


class Crash(BaseException):
    """The process dies here."""


def file_of(directory: Path, claim: Claim) -> str:
    """The CDI file of a finished preparation."""
    node = LocalNode(directory, clock=ManualClock())
    node.prepare(*node.add(claim))
    (text,) = node.disk().files.values()
    node.close()
    return text


def started(directory: Path) -> LocalNode:
    """A new process after a crash just before the claim became Prepared."""
    points = Failpoints({"commit.prepared.before": raising(Crash())})
    node = LocalNode(directory, point=points, clock=ManualClock())
    refs = node.add(CLAIM)
    with suppress(Crash):
        node.prepare(*refs)
    node.restart()
    (row,) = row_of(node)
    assert (row.phase, row.cdi_spec) == (Phase.STARTED, "")
    assert [lease.device for lease in row.leases or ()] == ["gpu-0", "gpu-1"]
    node.backend_calls.clear()
    return node


def row_of(node: LocalNode):
    with node.store.reading() as state:
        return state.all_claims()


def test_a_file_of_exactly_its_devices_makes_the_row_prepared_with_its_text(
    tmp_path: Path,
) -> None:
    text = file_of(tmp_path / "other", CLAIM)
    node = started(tmp_path / "node")
    node.cdi.write(CLAIM.ref.uid, text)
    assert node.recover() == {}
    (row,) = row_of(node)
    assert (row.phase, row.cdi_spec) == (Phase.PREPARED, text)
    assert node.backend_calls == []
    assert node.violations() == []
    node.close()


@pytest.mark.parametrize(
    "results",
    [[a_result("gpu-0")], [a_result("gpu-0"), a_result("gpu-2")], None],
    ids=["of fewer devices", "of another allocation", "damaged"],
)
def test_any_other_file_vouches_for_nothing_and_the_leases_are_undone(
    tmp_path: Path, results: list | None
) -> None:
    text = "{" if results is None else file_of(tmp_path / "other", a_claim("wine", results=results))
    node = started(tmp_path / "node")
    node.cdi.write(CLAIM.ref.uid, text)
    assert node.recover() == {}
    (row,) = row_of(node)
    assert (row.phase, node.disk().files) == (Phase.STARTED, {})
    assert [call[:2] for call in node.backend_calls] == [("reset", "gpu-1"), ("reset", "gpu-0")]
    assert node.disk().owners == {
        ("node-1", device, "", CLAIM.ref.uid) for device in ("gpu-0", "gpu-1")
    }
    node.close()
