# SPDX-License-Identifier: Apache-2.0
"""`explain --watch`: which answers are printed, and when it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from dra_driver.cli.explain import Output
from dra_driver.cli.follow import follow, rest_after, watched
from dra_driver.cli.main import main, parser
from dra_driver.cli.question import Question
from dra_driver.cli.subjects import asked
from dra_driver.testing.fake_api import FakeApi, refusal

Object = dict[str, Any]
NOW = datetime(2026, 1, 1, 10, 31, 7, tzinfo=UTC)


def pod(name: str = "p", **spec: Any) -> Object:
    claims = [{"name": "gpu", "resourceClaimName": "c"}]
    return {"metadata": {"name": name}, "spec": {"resourceClaims": claims, **spec}}


def running() -> Object:
    return {**pod(nodeName="n1"), "status": {"phase": "Running"}}


def device_slice(*names: str) -> Object:
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": name} for name in names]
    spec = {"driver": "gpu.example.com", "nodeName": "n1", "pool": pool, "devices": devices}
    return {"metadata": {"name": "s"}, "spec": spec}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[FakeApi]:
    """A pod that waits for a claim, and a node without devices."""
    with FakeApi() as server:
        server.put("nodes", {"metadata": {"name": "n1"}, "status": {"allocatable": {"pods": "9"}}})
        server.put("deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
        server.put("resourceslices", device_slice())
        request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}
        spec = {"devices": {"requests": [request]}}
        server.put("resourceclaims", {"metadata": {"name": "c"}, "spec": spec})
        server.put("pods", pod())
        server.kubeconfig(tmp_path / "config")
        yield server


class Steps:
    """Lets one change happen in each wait. When none is left, the user presses Ctrl-C."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.left = list(steps)
        self.rests: list[float] = []
        self.assumed = 0

    def __call__(self, _question: Question, served: Sequence[str]) -> Self:
        assert served == ("v1",)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.left.clear()

    def wait(self, *, rest: float) -> None:
        self.rests.append(rest)
        if not self.left:
            raise KeyboardInterrupt
        self.left.pop(0)()

    def assume_change(self) -> None:
        self.assumed += 1


def followed(tmp_path: Path, steps: Steps, *words: str, seconds: float = 0.0) -> int:
    """Follow the subject; each reading takes so many seconds."""
    config = str(tmp_path / "config")
    chosen = parser("explain").parse_args(["explain", *words, "-w", "--kubeconfig", config])
    question = Question(chosen, asked(chosen.subject, files=bool(chosen.filename)))
    times = iter(range(10_000))
    return follow(
        question,
        Output(question),
        watch=steps,
        clock=lambda: next(times) * seconds,
        now=lambda: NOW,
    )


def test_an_answer_is_printed_when_it_is_another(tmp_path: Path, api: FakeApi, capsys) -> None:
    steps = Steps(
        lambda: api.put("namespaces", {"metadata": {"name": "other"}}),
        lambda: api.put("resourceslices", device_slice("gpu-0")),
        lambda: api.put("pods", running()),
        pytest.fail,
    )
    assert followed(tmp_path, steps, "pod/p") == 0
    first, second, third = capsys.readouterr().out.split("\n--- 10:31:07 ---\n")
    assert first.startswith("pod default/p: devices do not fit\n")
    assert second.startswith("pod default/p: devices fit\n")
    assert "  scheduled on node n1\n" in third


def test_ctrl_c_is_a_normal_end_with_the_code_of_the_last_answer(
    tmp_path: Path, api: FakeApi, capsys
) -> None:
    assert followed(tmp_path, Steps(), "pod/p") == 1
    assert capsys.readouterr().out.count("devices do not fit") == 1
    steps = Steps(lambda: api.put("resourceslices", device_slice("gpu-0")))
    assert followed(tmp_path, steps, "pod/p") == 0


def test_it_rests_longer_after_a_reading_that_took_long(tmp_path: Path, api: FakeApi) -> None:
    steps = Steps(lambda: None)
    followed(tmp_path, steps, "pod/p", seconds=10.0)
    assert steps.rests == [40.0, 40.0]
    assert api.requests
    steps = Steps(lambda: None)
    followed(tmp_path, steps, "pod/p")
    assert steps.rests == [1.0, 1.0]


def test_a_pod_that_is_deleted_ends_it(tmp_path: Path, api: FakeApi, capsys) -> None:
    steps = Steps(lambda: api.remove("pods", "p"), pytest.fail)
    assert followed(tmp_path, steps, "pod/p") == 1
    assert capsys.readouterr().err.startswith(
        "dra-driver: there is no pod default/p in this cluster: "
    )


def test_a_cluster_that_does_not_answer_for_a_while_is_asked_again(
    tmp_path: Path, api: FakeApi, capsys
) -> None:
    def fail() -> None:
        api.faults.add(refusal(500), verb="get", resource="*")

    steps = Steps(fail, fail, lambda: api.put("pods", running()), pytest.fail)
    assert followed(tmp_path, steps, "pod/p") == 0
    captured = capsys.readouterr()
    assert captured.err.count("; trying again\n") == captured.err.count("\n") == 1
    assert "scheduled on node n1" in captured.out
    # No change of the cluster would tell it to try again.
    assert (steps.assumed, steps.rests) == (2, [1.0, 2.0, 4.0])


def test_it_rests_longer_the_more_readings_have_failed_in_a_row() -> None:
    assert [rest_after(0.0, failures) for failures in (0, 1, 4, 5, 9000)] == [1, 2, 16, 30, 30]
    assert [rest_after(5.0, failures) for failures in (0, 1, 9)] == [20, 20, 30]


def test_what_is_not_there_at_first_is_an_error(tmp_path: Path, api: FakeApi, capsys) -> None:
    assert api.objects("pods")
    assert followed(tmp_path, Steps(pytest.fail), "pod/none", "-o", "json") == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out)["exitCode"] == 2
    assert "there is no pod default/none" in captured.err


def test_programs_get_one_document_after_the_other(tmp_path: Path, api: FakeApi, capsys) -> None:
    steps = Steps(lambda: api.put("resourceslices", device_slice("gpu-0")))
    assert followed(tmp_path, steps, "pods", "-o", "yaml") == 0
    found = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [one["exitCode"] for one in found] == [1, 0]
    assert {one["kind"] for one in found} == {"ExplanationList"}


def test_a_manifest_ends_it_when_it_fits(tmp_path: Path, api: FakeApi) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(
        yaml.safe_dump(
            {"apiVersion": "v1", "kind": "Pod", **pod("new", containers=[{"name": "c"}])}
        )
    )
    steps = Steps(lambda: api.put("resourceslices", device_slice("gpu-0")), pytest.fail)
    assert followed(tmp_path, steps, "-f", str(file)) == 0


def test_a_claim_ends_it_when_it_has_its_devices(tmp_path: Path, api: FakeApi) -> None:
    def allocate() -> None:
        stored = api.object("resourceclaims", "c")
        result = {"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
        stored["status"] = {"allocation": {"devices": {"results": [result]}}}
        api.put("resourceclaims", stored)

    assert followed(tmp_path, Steps(allocate, pytest.fail), "claim/c") == 0


def test_a_record_is_not_watched() -> None:
    chosen = parser("explain").parse_args(["explain", "pod/p", "--from", "file"])
    with pytest.raises(ValueError, match="a record does not change"):
        watched(Question(chosen, asked(["pod/p"])), ())
    with pytest.raises(SystemExit) as left:
        main(["explain", "pod/p", "-w", "--from", "file"])
    assert left.value.code == 64


def started(tmp_path: Path, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "dra_driver", "explain", *words, "-w"],
        env={**os.environ, "KUBECONFIG": str(tmp_path / "config")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_process_follows_a_pod_until_it_has_a_node(tmp_path: Path, api: FakeApi) -> None:
    with started(tmp_path, "pod/p") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "pod default/p: devices do not fit\n"
        wait_for_watches(api)
        api.put("resourceslices", device_slice("gpu-0"))
        while process.stdout.readline() != "pod default/p: devices fit\n":
            assert process.poll() is None
        api.put("pods", running())
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "scheduled on node n1" in out


def test_ctrl_c_ends_a_process_without_a_traceback(tmp_path: Path, api: FakeApi) -> None:
    with started(tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "pending pods of namespace default\n"
        wait_for_watches(api)
        process.send_signal(signal.SIGINT)
        _out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (1, "")


def test_a_reader_who_has_seen_enough_ends_it(tmp_path: Path, api: FakeApi) -> None:
    with started(tmp_path, "pod/p") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=60) == 1
    assert api.objects("pods")


def wait_for_watches(api: FakeApi) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if sum(one.verb == "watch" for one in api.requests) >= 7:
            return
        time.sleep(0.02)
    pytest.fail("the cluster is not watched")
