# SPDX-License-Identifier: Apache-2.0
"""`dra-driver cleanup` on a node where the real driver ran: what goes, what stays, what is refused, what force breaks."""

from pathlib import Path

import pytest
import yaml

from dra_driver.model.ids import ClaimUid
from dra_driver.testing.stage import DEADLINE_SECONDS, DRIVER, NODE, Stage, wait_for
from tests.support import starting
from tests.support.invariants import read_state

CLEAN, LEFT, REFUSED = 0, 1, 4
SELECTOR = f"spec.driver={DRIVER},spec.nodeName={NODE}"


class Done:
    """One run of the command."""

    def __init__(self, node: Stage, *flags: str, arguments: list[str] | None = None) -> None:
        done = starting.run(
            "dra_driver",
            *("cleanup", *(arguments or node.arguments()), *flags),
            timeout=DEADLINE_SECONDS,
            program=node.start_child.program,
        )
        self.code = done.returncode
        self.out = done.stdout.splitlines()
        self.errors = [line.removeprefix("dra-driver: ") for line in done.stderr.splitlines()]

    @property
    def removed(self) -> set[str]:
        return {line.removeprefix("removed ") for line in self.out if line.startswith("removed ")}


def disk(node: Stage) -> set[str]:
    """Every file that the driver could have left."""
    places = (node.cdi_dir, node.state_file.parent, node.kubelet.plugins_dir / DRIVER)
    return {
        str(path.relative_to(node.root))
        for place in (*places, node.kubelet.registry_dir)
        for path in (place.rglob("*") if place.exists() else ())
    }


def ran(node: Stage) -> None:
    """The driver published and is up."""
    node.start_registered()
    wait_for(node.slices, "the slice")


@pytest.mark.program
def test_after_a_driver_that_ended_the_node_is_as_before(node: Stage) -> None:
    before = disk(node)
    ran(node)
    claim = node.claim("one", ["gpu-0"])
    node.kubelet.prepare(DRIVER, [claim])
    node.kubelet.unprepare(DRIVER, [claim])
    assert node.stop() == 0
    (node.cdi_dir / "nvidia.yaml").write_text("theirs")
    theirs = {"metadata": {"name": "theirs"}, "spec": {"driver": DRIVER, "nodeName": "node2"}}
    node.api.put("resourceslices", theirs)
    done = Done(node)
    assert (done.code, done.errors) == (CLEAN, [])
    assert f"ResourceSlice 00000-{DRIVER}-{NODE}" in done.removed
    assert f"state file {node.state_file}" in done.removed
    assert f"not touched: {node.cdi_dir}: nvidia.yaml" in done.out
    assert disk(node) == before | {"cdi/nvidia.yaml"}
    assert [found["metadata"]["name"] for found in node.slices()] == ["theirs"]
    again = Done(node)
    assert (again.code, again.removed) == (CLEAN, set())
    assert again.out[0] == "nothing of this driver is left on this node"
    ran(node)  # and a driver starts here as on a new node
    node.kubelet.prepare(DRIVER, [claim])


def test_a_killed_drivers_sockets_and_half_written_files_go_too(node: Stage) -> None:
    ran(node)
    node.kill()
    (node.cdi_dir / f".k8s.{DRIVER}-claim_u.json.abc.tmp").write_text("half")
    assert any(name.endswith("dra.sock") for name in disk(node))
    assert Done(node).code == CLEAN
    assert disk(node) == set()


def test_a_running_driver_is_named_and_not_even_force_overrides_it(node: Stage) -> None:
    ran(node)
    assert node.process is not None
    before, slices = disk(node), node.slices()
    for flags in ([], ["--force"], ["--dry-run"]):
        done = Done(node, *flags)
        assert done.code == REFUSED
        assert done.removed == set()
        assert f"process {node.process.pid}" in done.errors[0]
        assert done.errors[-1].startswith("end it first")
    assert (disk(node), node.slices()) == (before, slices)
    assert node.alive()


def test_a_prepared_claim_is_named_and_stays(node: Stage) -> None:
    ran(node)
    claim = node.claim("one", ["gpu-0", "gpu-3"])
    node.kubelet.prepare(DRIVER, [claim])
    assert node.stop() == 0
    before, slices = disk(node), node.slices()
    done = Done(node)
    assert done.code == REFUSED
    assert (
        done.errors[0]
        == f"refused: claim default/one (uid {claim.uid}) is Prepared with gpu-0, gpu-3"
    )
    assert done.errors[-1].startswith("drain the node")
    assert any("no container of theirs can be started" in line for line in done.errors)
    assert (disk(node), node.slices()) == (before, slices)
    assert Done(node, "--dry-run").code == REFUSED


def test_force_says_what_it_breaks_and_does_it(node: Stage) -> None:
    ran(node)
    claim = node.claim("one", ["gpu-0"])
    node.kubelet.prepare(DRIVER, [claim])
    assert node.stop() == 0
    done = Done(node, "--force")
    assert done.code == CLEAN
    assert done.errors[0] == f"forced: claim default/one (uid {claim.uid}) is Prepared with gpu-0"
    assert [line.partition(":")[0] for line in done.errors[1:]] == ["broken"] * 3
    assert (disk(node), node.slices()) == (set(), [])
    # What was said is so: a driver that starts here finds the owner by asking, not by remembering.
    ran(node)
    wait_for(lambda: node.owners() == {"gpu-0": claim.uid}, "the claim, taken up by the sweep")


def is_asked_for(node: Stage, uid: ClaimUid) -> bool:
    """Whether the claim is held, and the driver knows all pods that used it."""
    row = read_state(node.state_file)[0].get(uid)
    return row is not None and row.held is not None and not row.held.unasked


def test_a_held_claim_ends_with_its_containers_and_without_a_driver(node: Stage) -> None:
    ran(node)
    claim = node.claim("one", ["gpu-0"])
    node.kubelet.prepare(DRIVER, [claim], pod="default/pod")
    pod = node.kubelet.force_delete("default/pod")
    node.api.remove("resourceclaims", "one")
    node.kubelet.reconcile(DRIVER)
    wait_for(lambda: is_asked_for(node, claim.uid), "the API server, asked for the pods")
    assert node.stop() == 0
    done = Done(node)
    assert done.code == REFUSED
    assert f"claim default/one (uid {claim.uid}) is held since" in done.errors[0]
    assert f"pod {pod} still runs" in done.errors[0]
    assert "`crictl stop CONTAINER`" in done.errors[-1]
    node.kubelet.end_containers(pod)
    assert Done(node).code == CLEAN
    assert disk(node) == set()


def test_a_pod_of_a_lost_state_is_not_overlooked(node: Stage) -> None:
    ran(node)
    node.kubelet.prepare(DRIVER, [node.claim("one", ["gpu-0"])])
    assert node.stop() == 0
    for file in node.state_file.parent.glob("state.db*"):
        file.unlink()
    done = Done(node)
    assert done.code == REFUSED
    assert done.errors[0] == (
        "refused: the kubelet says that a pod uses device gpu-0 through claim default/one"
    )


def test_a_state_that_cannot_be_read_is_not_taken_for_an_empty_one(node: Stage) -> None:
    ran(node)
    assert node.stop() == 0
    node.state_file.write_bytes(b"no database" * 1000)
    done = Done(node)
    assert done.code == REFUSED
    assert done.errors[0].startswith("refused: which claims are prepared is not known: state file ")
    assert Done(node, "--force").code == CLEAN
    assert disk(node) == set()


def test_a_dry_run_lists_and_changes_nothing(node: Stage) -> None:
    ran(node)
    assert node.stop() == 0
    before, slices = disk(node), node.slices()
    done = Done(node, "--dry-run")
    assert done.code == CLEAN
    assert (disk(node), node.slices()) == (before, slices)
    would = {line.removeprefix("would remove ") for line in done.out if "would remove" in line}
    assert would == Done(node).removed


def test_slices_that_cannot_be_listed_are_left_and_named_and_the_node_is_cleaned(
    node: Stage,
) -> None:
    ran(node)
    assert node.stop() == 0
    node.api.faults.status(500, verb="list", resource="resourceslices", times=1)
    done = Done(node)
    assert done.code == LEFT
    assert disk(node) == set()
    (line,) = done.errors
    assert line.startswith("ResourceSlices may be left: ")
    assert f"`kubectl delete resourceslices --field-selector {SELECTOR}`" in line
    assert len(node.slices()) == 1
    assert Done(node).code == CLEAN
    assert node.slices() == []


def test_slices_can_be_left_on_purpose(node: Stage) -> None:
    ran(node)
    assert node.stop() == 0
    requests = len(node.api.requests)
    assert Done(node, "--keep-slices", "--dry-run").code == CLEAN
    assert Done(node, "--keep-slices").code == CLEAN
    assert disk(node) == set()
    assert len(node.slices()) == 1
    assert len(node.api.requests) == requests


def test_without_credentials_at_all_it_says_so(node: Stage) -> None:
    ran(node)
    assert node.stop() == 0
    arguments = node.arguments()
    arguments[arguments.index("--kubeconfig") + 1] = ""
    done = Done(node, arguments=arguments)
    assert done.code == LEFT
    assert "no API server is known" in done.errors[0]


def test_a_slice_that_may_not_be_deleted_is_left_and_named(node: Stage) -> None:
    ran(node)
    assert node.stop() == 0
    node.api.faults.status(403, verb="delete", resource="resourceslices", times=1)
    done = Done(node)
    assert done.code == LEFT
    assert done.errors[0].startswith(f"ResourceSlice 00000-{DRIVER}-{NODE} is left: ")
    assert disk(node) == set()


def test_another_plugin_under_the_same_name_is_somebody_at_work(
    node: Stage, tmp_path: Path
) -> None:
    name = "gpu.nvidia.com"
    node.start("--driver-name", name)
    wait_for(lambda: node.kubelet.register(name), "registration")
    state = tmp_path / "other-state"
    flags = ["--driver-name", name, "--state-dir", str(state)]
    done = Done(node, *flags)
    assert done.code == REFUSED
    assert any(f"listens on {node.kubelet.plugins_dir}/{name}/dra.sock" in e for e in done.errors)
    assert not state.exists()


def test_the_nodes_name_may_come_from_a_file(node: Stage, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    arguments = iter(node.arguments())
    content = {
        flag.removeprefix("--").replace("-", "_"): value
        for flag, value in zip(arguments, arguments, strict=True)
    }
    config.write_text(yaml.safe_dump(content))
    assert Done(node, arguments=["--config", str(config)]).code == CLEAN
