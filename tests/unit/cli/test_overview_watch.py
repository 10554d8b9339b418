# SPDX-License-Identifier: Apache-2.0
"""`kubectl dra … --watch`: which rows are printed when something has changed, and when it ends."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from dra_driver.cli.main import KUBECTL, KUBECTL_COMMANDS, kubectl, parser
from dra_driver.cli.overview import Asked, follow, watched
from dra_driver.explain.subject.labels import EVERYTHING
from dra_driver.kube import changes
from dra_driver.kube.transport import Transport
from dra_driver.testing.fake_api import FakeApi, refusal
from tests.support.fleet_api import TAINT, device_slice, gpu, held, small_cluster

Printed = pytest.CaptureFixture[str]
SECONDS = 60


@pytest.fixture
def api(tmp_path: Path) -> Iterator[FakeApi]:
    with small_cluster() as found:
        found.kubeconfig(tmp_path / "config")
        yield found


class Steps:
    """Lets one change happen in each wait. When none is left, the user presses Ctrl-C."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.left = list(steps)
        self.rests: list[float] = []
        self.assumed = 0

    def __call__(self, asked: Asked) -> Self:
        assert asked.served == ("v1",)
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
    """Follow the answer; each reading takes so many seconds."""
    top = parser(words[0], program=KUBECTL, commands=KUBECTL_COMMANDS)
    chosen = top.parse_args([*words, "-w", "--kubeconfig", str(tmp_path / "config")])
    times = iter(range(10_000))
    asked = Asked(chosen, EVERYTHING, now=lambda: datetime.now(UTC))
    return follow(asked, watch=steps, clock=lambda: next(times) * seconds)


def test_only_rows_that_are_others_are_printed(
    tmp_path: Path, api: FakeApi, capsys: Printed
) -> None:
    tainted = device_slice("n1", gpu("gpu-0"), gpu("gpu-1", taints=[TAINT]), gpu("gpu-2"))
    steps = Steps(
        lambda: api.put("namespaces", {"metadata": {"name": "other"}}),
        lambda: api.put("resourceclaims", held("new", "gpu-0"), namespace="team"),
        lambda: api.put("resourceslices", tainted),
        lambda: api.remove("resourceslices", "n2-nic.example.com"),
    )
    assert followed(tmp_path, steps, "devices") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("NODE   DRIVER")
    assert [line.split()[2] for line in shown[1:6]] == ["gpu-0", "gpu-1", "gpu-2", "gpu-0", "eth0"]
    assert shown[6:] == [
        "n1     gpu.example.com   gpu-0    Example H100   80Gi     ok          <none>                              team/new                  in use",
        "n1     gpu.example.com   gpu-1    Example H100   80Gi     unhealthy   gpu.example.com/xid=79:NoSchedule   team/train                in use",
        "n1     gpu.example.com   gpu-2    Example H100   80Gi     ok          <none>                              <none>                    free",
        "nic.example.com/n2/eth0 is gone",
    ]


def test_a_claim_that_is_followed_by_its_name_may_go(
    tmp_path: Path, api: FakeApi, capsys: Printed
) -> None:
    steps = Steps(lambda: api.remove("resourceclaims", "next", namespace="team"), lambda: None)
    assert followed(tmp_path, steps, "claims", "next", "-n", "team", "-o", "name") == 0
    said = capsys.readouterr()
    assert said.out == "resourceclaim.resource.k8s.io/next\n"
    assert "trying again" not in said.err


@pytest.mark.parametrize(
    ("words", "lines"),
    [(["claims", "-A"], 4), (["usage"], 1), (["usage", "-o", "yaml"], 25)],
)
def test_ages_alone_are_no_change(
    tmp_path: Path, api: FakeApi, capsys: Printed, words: list[str], lines: int
) -> None:
    assert followed_for_days(tmp_path, Steps(lambda: None), *words) == 0
    assert capsys.readouterr().out.count("\n") == lines


def test_a_row_of_which_only_the_age_is_another_is_not_printed_with_others(
    tmp_path: Path, api: FakeApi, capsys: Printed
) -> None:
    steps = Steps(lambda: api.put("resourceclaims", held("new", "gpu-0"), namespace="team"))
    assert followed_for_days(tmp_path, steps, "claims", "-A") == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[4:]] == ["new"]


def followed_for_days(tmp_path: Path, steps: Steps, *words: str) -> int:
    """Follow the answer; each time the cluster is read or shown, it is a day later."""
    times = iter(datetime(2030, 1, day, tzinfo=UTC) for day in range(1, 30))
    top = parser(words[0], program=KUBECTL, commands=KUBECTL_COMMANDS)
    config = str(tmp_path / "config")
    chosen = top.parse_args([*words, "-w", "--no-headers", "--kubeconfig", config])
    return follow(Asked(chosen, EVERYTHING, now=lambda: next(times)), watch=steps)


def test_headers_come_with_the_first_rows(tmp_path: Path, api: FakeApi, capsys: Printed) -> None:
    steps = Steps(lambda: api.put("resourceclaims", held("first", "gpu-0"), namespace="default"))
    assert followed(tmp_path, steps, "claims") == 0
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()] == ["CLAIM", "first"]
    assert (
        said.err
        == "dra-driver: namespace default has no claim that is asked about; -A shows those of all namespaces\n"
    )


def test_documents_are_printed_when_they_are_others(
    tmp_path: Path, api: FakeApi, capsys: Printed
) -> None:
    steps = Steps(lambda: None, lambda: api.remove("resourceslices", "n2-nic.example.com"))
    assert followed(tmp_path, steps, "free", "-o", "json") == 0
    out = capsys.readouterr().out
    first, _, second = out.partition("}\n{")
    assert json.loads(first + "}")["classes"][1]["free"] == 1
    assert json.loads("{" + second)["classes"][1]["free"] == 0


def test_a_reading_that_fails_later_is_told_once_and_tried_again(
    tmp_path: Path, api: FakeApi, capsys: Printed
) -> None:
    def fails() -> None:
        api.faults.add(refusal(403), verb="get", resource="discovery")

    steps = Steps(fails, fails, lambda: None, fails)
    assert followed(tmp_path, steps, "free") == 0
    said = capsys.readouterr()
    told = [line.rpartition("; ")[2] for line in said.err.splitlines()]
    assert told == ["trying again", "dra-driver: the cluster can be read again", "trying again"]
    assert "; what is shown may be old; " in said.err
    assert said.out.count("\n") == 3
    # No change of the cluster would tell it to try again.
    assert (steps.assumed, steps.rests) == (3, [1.0, 2.0, 4.0, 1.0, 2.0])


@pytest.mark.parametrize("code", [403, 500])
@pytest.mark.parametrize(
    ("words", "resource"),
    [
        (["devices"], "resourceslices"),
        (["claims", "-A"], "pods"),
        (["free"], "deviceclasses"),
        (["usage"], "resourceclaims"),
    ],
)
def test_rows_that_could_only_not_be_read_are_not_gone(
    tmp_path: Path, api: FakeApi, capsys: Printed, code: int, words: list[str], resource: str
) -> None:
    steps = Steps(lambda: api.faults.add(refusal(code), verb="list", resource=resource, times=2))
    assert followed(tmp_path, steps, *words) == 0
    said = capsys.readouterr()
    assert "is gone" not in said.out
    assert said.out.count("CLA" if words[0] != "devices" else "NODE") == 1
    assert said.err.startswith("dra-driver: not in the answer: ")
    assert said.err.endswith("; what is shown may be old; trying again\n")


@pytest.mark.parametrize(
    "words",
    [["claims", "-A"], ["usage"], ["devices", "-n", "team"], ["claims", "-n", "team"]],
)
def test_rows_of_the_only_namespace_that_the_user_may_list_are_not_gone_either(
    tmp_path: Path, api: FakeApi, capsys: Printed, words: list[str]
) -> None:
    config = yaml.safe_load((tmp_path / "config").read_text())
    config["contexts"][0]["context"]["namespace"] = "team"
    (tmp_path / "config").write_text(yaml.safe_dump(config))

    def answers(code: int) -> None:
        api.faults.status(403, verb="list", resource="resourceclaims")
        if code != 200:
            api.faults.status(code, verb="list", resource="resourceclaims")

    answers(200)
    api.faults.add(refusal(403), verb="list", resource="resourceclaims", after=1)
    followed(tmp_path, Steps(lambda: answers(500), lambda: answers(200)), *words)
    said = capsys.readouterr()
    assert "is gone" not in said.out
    assert "500" in said.err
    assert "; what is shown may be old; trying again\n" in said.err
    assert said.err.endswith("dra-driver: the cluster can be read again\n")


def test_what_could_not_be_read_from_the_start_and_matters_only_now_stops_no_answer(
    tmp_path: Path, api: FakeApi, capsys: Printed
) -> None:
    api.faults.status(403, verb="list", resource="nodes", times=99)
    chosen = gpu_slice_with_selector()
    new = held("new", "gpu-0", pods=("p",))
    steps = Steps(
        lambda: api.put("resourceslices", chosen),
        lambda: api.put("resourceclaims", new, namespace="team"),
    )
    followed(tmp_path, steps, "claims", "-n", "team")
    said = capsys.readouterr()
    assert "new " in said.out
    assert "may be old" not in said.err
    assert "not in the answer: the nodes of devices with a node selector" in said.err


def gpu_slice_with_selector() -> dict[str, Any]:
    expressions = [{"key": "rack", "operator": "In", "values": ["a"]}]
    terms = [{"matchExpressions": expressions}]
    pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": "fabric"},
        "spec": {
            "driver": "fabric.example.com",
            "pool": pool,
            "nodeSelector": {"nodeSelectorTerms": terms},
            "devices": [{"name": "f0"}],
        },
    }


def test_an_object_that_cannot_be_read_does_not_hide_what_changes(
    tmp_path: Path, api: FakeApi, capsys: Printed
) -> None:
    broken = {**device_slice("n2", gpu("gpu-0")), "metadata": {"name": "n2-gpu.example.com"}}
    broken["spec"]["devices"] = "none"
    steps = Steps(lambda: api.put("resourceslices", broken))
    assert followed(tmp_path, steps, "devices") == 3
    said = capsys.readouterr()
    assert said.out.endswith("gpu.example.com/n2/gpu-0 is gone\n")
    assert "resourceslices n2-gpu.example.com could not be read" in said.err


def test_the_first_reading_must_succeed(tmp_path: Path, api: FakeApi, capsys: Printed) -> None:
    api.faults.add(refusal(403), verb="get", resource="discovery")
    assert kubectl(["free", "-w", "--kubeconfig", str(tmp_path / "config")]) == 2
    assert "get /version" in capsys.readouterr().err


def test_it_rests_longer_after_a_reading_that_took_long(tmp_path: Path, api: FakeApi) -> None:
    slow, quick = Steps(), Steps()
    followed(tmp_path, slow, "free", seconds=10.0)
    followed(tmp_path, quick, "free")
    assert (slow.rests, quick.rests) == ([40.0], [1.0])


def test_a_record_is_not_watched() -> None:
    top = parser("free", program=KUBECTL, commands=KUBECTL_COMMANDS)
    asked = Asked(top.parse_args(["free", "--from", "file"]), EVERYTHING)
    with pytest.raises(ValueError, match="a record does not change"):
        watched(asked)


def test_a_change_is_seen_by_the_watches(tmp_path: Path, api: FakeApi) -> None:
    script = "import sys; from dra_driver.cli.main import kubectl; sys.exit(kubectl(sys.argv[1:]))"
    words = ("claims", "-n", "team", "-w", "--no-headers", "--kubeconfig", str(tmp_path / "config"))
    with subprocess.Popen(
        [sys.executable, "-c", script, *words], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        first = [process.stdout.readline() for _ in range(4)]
        api.put("resourceclaims", held("next", "gpu-0", pods=("p",)), namespace="team")
        changed = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
    assert [line.split()[:2] for line in first][1] == ["next", "pending"]
    assert changed.split()[:3] == ["next", "in", "use"]


def again(api: FakeApi) -> FakeApi:
    """The same server on its old port, once no connection of somebody else has it."""
    while True:
        with suppress(OSError):
            return FakeApi(store=api.store, port=api.port)
        time.sleep(0.05)


class Outage:
    """Real watches. The server goes away after the first wait, comes back without its old versions, and then a claim gets a device."""

    def __init__(self, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api = api
        self.patched = monkeypatch
        self.left = [self.goes, self.is_back, self.changes]
        self.ends = ExitStack()

    def __call__(self, asked: Asked) -> Self:
        self.waits = watched(asked)
        return self

    def __enter__(self) -> Self:
        self.ends.enter_context(self.waits)
        return self

    def __exit__(self, *_: object) -> None:
        self.ends.close()

    def wait(self, *, rest: float) -> None:
        if not self.left:
            raise KeyboardInterrupt
        step = self.left.pop(0)
        step()
        if step != self.goes:
            self.waits.wait(rest=rest / 100)

    def assume_change(self) -> None:
        self.waits.assume_change()

    def goes(self) -> None:
        self.api.close()
        self.patched.setitem(Transport.__init__.__kwdefaults__, "deadline_seconds", 0.2)

    def is_back(self) -> None:
        self.patched.undo()
        self.patched.setattr(changes, "FIRST_PAUSE_SECONDS", 0.01)
        self.patched.setattr(changes, "LONGEST_PAUSE_SECONDS", 0.02)
        self.api = again(self.api)
        self.api.faults.status(410, verb="watch", times=9)
        self.ends.enter_context(self.api)

    def changes(self) -> None:
        self.api.put("resourceclaims", held("new", "gpu-0", pods=("p",)), namespace="team")


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        (["devices"], "n1     gpu.example.com   gpu-0"),
        (["claims", "-n", "team"], "new        in use"),
        (["free"], "gpu     1      4"),
        (["usage"], "team        4        2"),
    ],
)
def test_a_server_that_is_away_and_forgets_its_versions_is_followed_again(
    tmp_path: Path,
    api: FakeApi,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Printed,
    words: list[str],
    changed: str,
) -> None:
    top = parser(words[0], program=KUBECTL, commands=KUBECTL_COMMANDS)
    chosen = top.parse_args([*words, "-w", "--kubeconfig", str(tmp_path / "config")])
    assert follow(Asked(chosen, EVERYTHING), watch=Outage(api, monkeypatch)) == 0
    said = capsys.readouterr()
    told = [line.rpartition("; ")[2] for line in said.err.splitlines()]
    assert told == ["trying again", "dra-driver: the cluster can be read again"]
    assert said.out.splitlines()[-1].startswith(changed)
    assert "is gone" not in said.out


def test_who_may_watch_one_namespace_only_sees_its_changes_at_once(
    tmp_path: Path, api: FakeApi
) -> None:
    top = parser("claims", program=KUBECTL, commands=KUBECTL_COMMANDS)
    config = str(tmp_path / "config")
    chosen = top.parse_args(["claims", "-n", "team", "-w", "--kubeconfig", config])
    asked = Asked(chosen, EVERYTHING)
    asked.look()
    before = len(api.requests)
    for resource in ("pods", "resourceclaims"):
        api.faults.status(403, verb="list", resource=resource)
    with watched(asked) as waits:
        api.put("resourceclaims", held("new", "gpu-0"), namespace="team")
        waits.wait(rest=0.0)
    lists = sorted(one.path for one in api.requests[before:] if one.verb == "list")
    assert [path.partition("?")[0] for path in lists] == [
        "/api/v1/namespaces/team/pods",
        "/api/v1/nodes",
        "/api/v1/pods",
        "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims",
        "/apis/resource.k8s.io/v1/resourceclaims",
        "/apis/resource.k8s.io/v1/resourceslices",
    ]


def test_what_may_not_be_read_is_not_watched(tmp_path: Path, api: FakeApi, capsys: Printed) -> None:
    top = parser("claims", program=KUBECTL, commands=KUBECTL_COMMANDS)
    config = str(tmp_path / "config")
    chosen = top.parse_args(["claims", "-n", "team", "-w", "--kubeconfig", config])
    asked = Asked(chosen, EVERYTHING)
    for resource, times in (("nodes", 1), ("pods", 1), ("resourceslices", 1)):
        api.faults.status(403, verb="list", resource=resource, times=times)
    asked.look()
    before = len(api.requests)
    with watched(asked):
        pass
    assert {one.resource for one in api.requests[before:]} == {"pods", "resourceclaims"}
    assert capsys.readouterr().err == ""
