# SPDX-License-Identifier: Apache-2.0
"""`kubectl dra devices`, `claims`, `free` and `usage`: what is printed, and what the exit code says."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

from dra_driver.cli.limits import TookTooLong
from dra_driver.cli.main import kubectl
from dra_driver.overview.devices import ClusterDevices
from dra_driver.testing.fake_api import FakeApi, refusal
from tests.support.fleet_api import device_slice, gpu, held, small_cluster, write_record

Command = Callable[..., int]
Printed = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cluster") / "record.json"
    write_record(path)
    return path


@pytest.fixture
def dra(record: Path) -> Command:
    return lambda *words: kubectl([*words, "--from", str(record)])


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with small_cluster() as found:
        yield found


@pytest.fixture
def live(tmp_path: Path, api: FakeApi) -> Command:
    path = tmp_path / "config"
    api.kubeconfig(path)
    return lambda *words: kubectl([*words, "--kubeconfig", str(path)])


DEVICES = """\
NODE   DRIVER            DEVICE   PRODUCT        MEMORY   HEALTH      TAINTS                              HOLDER                    FREE
n1     gpu.example.com   gpu-0    Example H100   80Gi     ok          <none>                              <none>                    free
n1     gpu.example.com   gpu-1    Example H100   80Gi     ok          <none>                              team/train                in use
n1     gpu.example.com   gpu-2    Example H100   80Gi     unhealthy   gpu.example.com/xid=79:NoSchedule   <none>                    tainted
n2     gpu.example.com   gpu-0    Example H100   80Gi     ok          <none>                              team/chat,team/notebook   20Gi of 80Gi
n2     nic.example.com   eth0     <none>         <none>   ok          <none>                              <none>                    free
"""


def test_devices_of_a_record_and_of_a_cluster(dra: Command, live: Command, capsys: Printed) -> None:
    for run in (dra, live):
        assert run("devices") == 0
        said = capsys.readouterr()
        assert (said.out, said.err) == (DEVICES, "")


def test_all_attributes(dra: Command, capsys: Printed) -> None:
    assert dra("devices", "-o", "wide", "--driver", "nic.example.com") == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[-4:] == ["FREE", "POOL", "CAPACITY", "ATTRIBUTES"]
    assert row.split()[-4:] == ["free", "n2", "<none>", "mac=00:00:5e:00:53:01"]
    assert dra("devices", "-o", "wide", "--node", "n1", "--no-headers") == 0
    out = capsys.readouterr().out
    assert "unhealthy (gpu.example.com/xid=79)   gpu" in out
    assert out.count("\n") == 3
    assert "memory=80Gi   index=0,productName=Example H100\n" in out


def test_what_is_left_is_told_in_memory_or_else_in_the_first_capacity(
    live: Command, api: FakeApi, capsys: Printed
) -> None:
    def shared(name: str, **amounts: str) -> dict[str, object]:
        capacity = {key: {"value": value} for key, value in amounts.items()}
        return gpu(name, allowMultipleAllocations=True, capacity=capacity)

    several = shared("gpu-0", cores="9", memory="80Gi"), shared("gpu-1", slots="7", cores="9")
    api.put("resourceslices", device_slice("n2", *several, shared("gpu-2")))
    assert live("devices", "--node", "n2", "--driver", "gpu.example.com", "--no-headers") == 0
    shown = [line.split("   ")[-1].strip() for line in capsys.readouterr().out.splitlines()]
    assert shown == ["20Gi of 80Gi", "9 of 9", "free"]


def test_only_devices_that_a_namespace_has(dra: Command, capsys: Printed) -> None:
    assert dra("devices", "-n", "team", "--no-headers") == 0
    assert [line.split()[2] for line in capsys.readouterr().out.splitlines()] == ["gpu-1", "gpu-0"]
    assert dra("devices", "-n", "other", "--no-headers") == 0
    assert capsys.readouterr().out == ""
    assert dra("devices", "-A", "--no-headers") == 0
    assert len(capsys.readouterr().out.splitlines()) == 5
    assert dra("devices", "-l", "app=none", "--no-headers") == 0
    assert capsys.readouterr().out == ""
    assert dra("devices", "-l", "app!=none", "--no-headers") == 0
    assert [line.split()[2] for line in capsys.readouterr().out.splitlines()] == ["gpu-1", "gpu-0"]


@pytest.mark.parametrize("words", [["-n", "team"], ["-A"], ["-l", "app=train"]])
def test_what_is_free_is_of_no_namespace(dra: Command, capsys: Printed, words: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        dra("free", *words)
    assert left.value.code == 64
    said = capsys.readouterr().err
    assert f"what is free belongs to no namespace and to no claim, so {words[0]} chooses" in said


CLAIMS = """\
CLAIM      STATE       AGE    POD         NODE     DEVICE
chat       allocated   150m   <none>      n2       gpu-0
next       pending     45m    <none>      <none>   <none>
notebook   allocated   150m   <none>      n2       gpu-0
train      in use      150m   trainer-0   n1       gpu-1
"""
ALL_CLAIMS = """\
NAMESPACE   CLAIM      STATE       AGE    POD         NODE     DEVICE                     CLASS   ALLOCATED
team        chat       allocated   150m   <none>      n2       gpu.example.com/n2/gpu-0   gpu     120m
team        next       pending     45m    <none>      <none>   <none>                     gpu     <none>
team        notebook   allocated   150m   <none>      n2       gpu.example.com/n2/gpu-0   gpu     120m
team        train      in use      150m   trainer-0   n1       gpu.example.com/n1/gpu-1   gpu     120m
"""


def test_claims(dra: Command, capsys: Printed) -> None:
    assert dra("claims", "-n", "team") == 0
    assert capsys.readouterr().out == CLAIMS
    assert dra("claims") == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == (
        "",
        "dra-driver: namespace default has no claim that is asked about; -A shows those of all namespaces\n",
    )


def test_claims_of_all_namespaces(dra: Command, capsys: Printed) -> None:
    assert dra("claims", "-A", "-o", "wide") == 0
    assert capsys.readouterr().out == ALL_CLAIMS


def test_a_claim_by_its_name_with_all_that_use_it(
    live: Command, api: FakeApi, capsys: Printed
) -> None:
    pods = tuple(f"worker-{number}" for number in range(4))
    for number, pod in enumerate(pods):
        placed = {"metadata": {"name": pod}, "spec": {"nodeName": f"n{number}"}}
        api.put("pods", placed, namespace="team")
    api.put("resourceclaims", held("all", "gpu-0", pods=pods), namespace="team")
    for name in ("all", "claim/all", "resourceclaims.resource.k8s.io/all"):
        assert live("claims", name, "-n", "team", "--no-headers") == 0
        shown = capsys.readouterr().out.split()
        assert shown[:3] == ["all", "in", "use"]
        assert shown[4:] == [",".join(pods), "n0,n1,n2,n3", "gpu-0"]
    assert live("claims", "claim/next", "train", "-n", "team", "--no-headers") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["next", "train"]
    api.faults.status(403, verb="list", resource="pods", times=2)
    assert live("claims", "typo", "-n", "team") == 2
    assert "there is no claim team/typo" in capsys.readouterr().err
    assert live("claims", "train", "all") == 2
    assert capsys.readouterr().err == (
        "dra-driver: there is no claim default/all; `kubectl dra claims -n default` lists those of the namespace\n"
    )
    api.faults.status(403, verb="list", resource="resourceclaims", times=2)
    assert live("claims", "train", "-n", "team") == 3


def test_why_says_who_uses_a_claim(dra: Command, capsys: Printed) -> None:
    assert dra("why", "claim/train", "-n", "team") == 0
    assert (
        "  has gpu.example.com/n1/gpu-1 for request gpu\n  used by team/trainer-0\n"
        in capsys.readouterr().out
    )
    assert dra("why", "claim/train", "-n", "team", "-o", "json") == 0
    (found,) = json.loads(capsys.readouterr().out)["claims"]
    assert found["usedBy"] == ["team/trainer-0"]
    assert dra("why", "claim/next", "-n", "team") == 0
    assert "used by" not in capsys.readouterr().out.partition("request gpu")[0]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["claims", "-n", "team", "train", "next"], ["next", "train"]),
        (["free"], ["gpu", "nic"]),
        (["usage", "--by", "class"], ["gpu"]),
        (["usage", "--by", "node"], ["n1", "n2"]),
        (["usage"], ["team"]),
    ],
)
def test_names_that_kubectl_takes(
    dra: Command, capsys: Printed, words: list[str], names: list[str]
) -> None:
    kinds = {"claims": "resourceclaim.resource.k8s.io", "free": "deviceclass.resource.k8s.io"}
    by = {"class": kinds["free"], "node": "node", "usage": "namespace"}
    assert dra(*words, "-o", "name") == 0
    kind = kinds.get(words[0]) or by[words[-1]]
    assert capsys.readouterr().out.splitlines() == [f"{kind}/{name}" for name in names]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["devices", "-o", "name"], "a device is no object that kubectl can get: `-o json` has"),
        (["usage", "--by", "product", "-o", "name"], "give --by namespace, class or node"),
        (["usage", "--by", "driver", "-o", "name"], "give --by namespace, class or node"),
        (["claims", "-A", "-o", "name"], "do not say where the claims are: give -n, or -o json"),
        (["claims", "pod/x"], "'pod/x' names no claim: give NAME or claim/NAME"),
        (["claims", "claim/"], "'claim/' names no claim"),
        (["claims", "x", "-A"], "give it with -n, without --all-namespaces"),
        (["claims", "x", "-l", "a=b"], "give it with -n, without -l"),
    ],
)
def test_names_that_name_nothing(
    dra: Command, capsys: Printed, words: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as left:
        dra(*words)
    assert left.value.code == 64
    assert said in capsys.readouterr().err


FREE = """\
CLASS   FREE   MATCHING   NODES   LARGEST   PRODUCTS
gpu     2      4          2       80Gi      Example H100 x2
nic     1      1          1       <none>    <unknown> x1
"""


def test_what_is_free(dra: Command, capsys: Printed) -> None:
    assert dra("free") == 0
    assert capsys.readouterr().out == FREE
    assert dra("free", "gpu", "-o", "wide", "--no-headers") == 0
    cells = capsys.readouterr().out.split("   ")
    assert [cell.strip() for cell in cells if cell.strip()] == [
        *("gpu", "2", "4", "n1,n2", "80Gi", "Example H100 x2", "1", "0", "<none>")
    ]


def test_notes_about_classes(live: Command, api: FakeApi, capsys: Printed) -> None:
    api.put("nodes", {"metadata": {"name": "n2"}, "spec": {"unschedulable": True}})
    wrong = {"selectors": [{"cel": {"expression": "device.nothing == 'x'"}}]}
    api.put("deviceclasses", {"metadata": {"name": "wrong"}, "spec": wrong})
    assert live("free") == 0
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == [
        "dra-driver: class gpu: 1 more device is free, on nodes that are cordoned or not ready",
        "dra-driver: class nic: 1 more device is free, on nodes that are cordoned or not ready",
    ]
    assert said[2].startswith("dra-driver: class wrong: class wrong selector #0")


def test_partitions_of_one_device(live: Command, api: FakeApi, capsys: Printed) -> None:
    def part(number: int, size: int) -> dict[str, object]:
        used = {"counterSet": "card", "counters": {"slices": {"value": str(size)}}}
        return gpu(f"part-{number}", consumesCounters=[used])

    counters = {"name": "card", "counters": {"slices": {"value": "7"}}}
    parts = device_slice("mig", part(0, 7), part(1, 3), part(2, 2), part(3, 2), part(4, 4))
    sets = {**device_slice("mig"), "metadata": {"name": "sets"}}
    del sets["spec"]["devices"]
    sets["spec"]["sharedCounters"] = [counters]
    for one in (parts, sets):
        one["spec"]["pool"]["resourceSliceCount"] = 2
        one["spec"]["nodeName"] = "n1"
        api.put("resourceslices", one)
    api.put("resourceclaims", held("nb", "part-1", node="mig"), namespace="team")
    assert live("devices", "--no-headers", "--node", "n1") == 0
    shown = [line.split("   ")[-1].strip() for line in capsys.readouterr().out.splitlines()]
    assert shown[:5] == ["used up by team/nb", "in use", "free", "free", "free"]
    assert live("free", "gpu", "--no-headers") == 0
    said = capsys.readouterr()
    # gpu-0 of n1, the shared one of n2, and the two small partitions; not the large one beside them.
    assert said.out.split()[:3] == ["gpu", "4", "9"]
    assert said.err == (
        "dra-driver: class gpu: each of 5 devices is free, but some are parts of the same hardware: claims can have 4 of them at the same time\n"
    )


USAGE = """\
NODE    CLAIMS   DEVICES   SHARES   GIB     DEVICE-HOURS
n1      1        1         0        80.0    2.0
n2      2        0         2        60.0    1.5
total   3        1         2        140.0   3.5
"""


def test_usage(dra: Command, capsys: Printed) -> None:
    assert dra("usage", "--by", "node") == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == (USAGE, "")
    assert dra("usage", "-o", "wide", "--no-headers") == 0
    assert capsys.readouterr().out.split() == ["team", "3", "1", "2", "140.0", "3.5", "0"]
    assert dra("usage", "-l", "app=none") == 0
    assert capsys.readouterr().err == "dra-driver: no claim has devices\n"


def test_usage_without_the_time_of_allocations_or_the_devices(
    live: Command, api: FakeApi, capsys: Printed
) -> None:
    claim = api.object("resourceclaims", "train", namespace="team")
    del claim["status"]["allocation"]["allocationTimestamp"]
    api.put("resourceclaims", claim, namespace="team")
    api.remove("resourceslices", "n2-gpu.example.com")
    assert live("usage") == 0
    assert capsys.readouterr().err.splitlines() == [
        "dra-driver: the server does not give the time of each allocation: device-hours count from the creation of the claim there",
        "dra-driver: 2 of the devices in use are in no slice now, so their memory is not counted",
    ]


def test_documents(dra: Command, capsys: Printed) -> None:
    for command, kind in (
        ("devices", "ClusterDevices"),
        ("claims", "ClusterClaims"),
        ("free", "FreeDevices"),
        ("usage", "DeviceUsage"),
    ):
        assert dra(command, "-o", "json") == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["apiVersion"], found["kind"]) == ("gpu.dra-driver.dev/v1", kind)
        assert dra(command, "-o", "yaml") == 0
        again = yaml.safe_load(capsys.readouterr().out)
        assert again.keys() == found.keys()
    assert dra("devices", "-o", "json") == 0
    whole = msgspec.json.decode(capsys.readouterr().out, type=ClusterDevices)
    assert [one.free for one in whole.devices] == [
        "free",
        "in use",
        "tainted",
        "partly free",
        "free",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["devices", "--node", "n9"], "there is no node n9; `kubectl get nodes` lists them"),
        (["free", "gpux"], "there is no DeviceClass gpux; there are: gpu, nic"),
        (
            ["usage", "--driver", "x"],
            "no driver x publishes ResourceSlices in this cluster; those that do: gpu.example.com, nic.example.com",
        ),
    ],
)
def test_what_the_cluster_does_not_have(
    dra: Command, capsys: Printed, words: list[str], said: str
) -> None:
    assert dra(*words) == 2
    assert said in capsys.readouterr().err


def test_an_empty_cluster(tmp_path: Path, capsys: Printed) -> None:
    with FakeApi() as api:
        api.kubeconfig(tmp_path / "config")
        for words, said in (
            (["devices", "--driver", "x"], "those that do: none at all"),
            (["free", "x"], "there is no DeviceClass x; there are: none at all"),
        ):
            assert kubectl([*words, "--kubeconfig", str(tmp_path / "config")]) == 2
            assert said in capsys.readouterr().err
        assert kubectl(["devices", "--kubeconfig", str(tmp_path / "config")]) == 0
        said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "dra-driver: no device is published that is asked about\n"


def test_a_right_that_is_missing(live: Command, api: FakeApi, capsys: Printed) -> None:
    api.faults.add(refusal(403), verb="list", resource="nodes")
    assert live("devices", "--node", "n9") == 3
    said = capsys.readouterr()
    assert said.out == ""
    api.faults.add(refusal(403), verb="list", resource="nodes")
    assert live("devices") == 3
    said = capsys.readouterr()
    assert said.out == DEVICES
    assert said.err == (
        "dra-driver: not in the answer: which nodes are cordoned, and the nodes of devices with a node selector; you may not list nodes. "
        "The ClusterRole …-explain of the driver's chart gives this right (docs/kubectl-dra.md)\n"
    )


@pytest.mark.parametrize(
    ("resource", "words", "answer"),
    [
        ("nodes", ["claims", "-A", "--node", "n9"], (0, "there is no claim that is asked about")),
        ("resourceslices", ["devices", "--driver", "x"], (3, "not in the answer: the devices; ")),
        ("deviceclasses", ["free", "x"], (3, "not in the answer: the classes; ")),
    ],
)
def test_what_could_not_be_read_may_exist(
    live: Command,
    api: FakeApi,
    capsys: Printed,
    resource: str,
    words: list[str],
    answer: tuple[int, str],
) -> None:
    api.faults.add(refusal(403), verb="list", resource=resource)
    code, begin = answer
    assert live(*words) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"dra-driver: {begin}")


def test_the_claims_of_one_namespace_need_no_other_right(
    live: Command, api: FakeApi, capsys: Printed
) -> None:
    api.faults.status(403, verb="list", resource="resourceclaims", times=1)
    assert live("claims", "-n", "team", "--no-headers") == 0
    assert capsys.readouterr().out.count("\n") == 4
    api.faults.status(403, verb="list", resource="resourceclaims", times=2)
    assert live("claims", "-n", "team") == 3
    assert "The ClusterRole …-user of" in capsys.readouterr().err


def test_an_object_that_cannot_be_read(live: Command, api: FakeApi, capsys: Printed) -> None:
    broken = device_slice("n1", gpu("gpu-9"))
    broken["metadata"]["name"] = "broken"
    broken["spec"]["devices"] = "none"
    api.put("resourceslices", broken)
    assert live("devices") == 3
    said = capsys.readouterr()
    assert said.out == DEVICES
    assert said.err.startswith(
        "dra-driver: not in the answer: the devices of this slice; resourceslices broken could not be read: "
    )


def test_a_cluster_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert kubectl(["devices"]) == 2
    assert "or --from with a file of `dra-driver record`" in capsys.readouterr().err
    assert kubectl(["devices", "--from", str(tmp_path / "none")]) == 2
    assert "cannot read the record" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-w"], "a record does not change"),
        (["-l", "a b"], "is no label selector"),
        (["--by", "color"], "invalid choice: 'color'"),
    ],
)
def test_wrong_usage(dra: Command, capsys: Printed, words: list[str], said: str) -> None:
    with pytest.raises(SystemExit) as left:
        dra("usage", *words)
    assert left.value.code == 64
    said_all = capsys.readouterr().err
    assert said_all.startswith("usage: kubectl dra usage ")
    assert said in said_all


def test_a_search_that_takes_too_long(
    dra: Command, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    # Which of the two limits ends a search of --timeout 0 depends on how fast the machine is: here it is the one of the search.
    monkeypatch.setattr("dra_driver.cli.overview.SEARCHING", 0)
    assert dra("free", "--timeout", "60") == 2
    said = capsys.readouterr()
    assert said.out.splitlines()[1].split() == ["gpu", "<unknown>", "0", *["<unknown>"] * 3]
    assert "class gpu: could not tell (timeout): a selector took too long\n" in said.err

    def hangs(*_: object, **__: object) -> None:
        raise TookTooLong

    monkeypatch.setattr("dra_driver.cli.overview.free_of", hangs)
    assert dra("free", "--timeout", "5") == 2
    assert "gave up after 5 s (--timeout): give more time" in capsys.readouterr().err


def test_ctrl_c_before_an_answer(
    dra: Command, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    def interrupted(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dra_driver.cli.inputs.record", interrupted)
    assert dra("devices") == 130
    assert capsys.readouterr().out == ""


def test_text_of_others_is_escaped(live: Command, api: FakeApi, capsys: Printed) -> None:
    evil = gpu("gpu-0")
    evil["attributes"]["productName"] = {"string": "\x1b[2J"}
    api.put("resourceslices", device_slice("n2", evil))
    assert live("devices") == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("environment", "is_colored"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_colours_only_on_a_terminal_that_has_them(
    dra: Command,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Printed,
    environment: dict[str, str],
    is_colored: bool,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert dra("devices") == 0
    out = capsys.readouterr().out
    assert ("\x1b[31munhealthy\x1b[0m" in out) is is_colored
    plain = out
    for code in ("\x1b[31m", "\x1b[32m", "\x1b[0m"):
        plain = plain.replace(code, "")
    assert plain == DEVICES


def test_why_is_explain(record: Path, capsys: Printed) -> None:
    said = []
    for command in ("why", "explain"):
        assert kubectl([command, "claim/next", "-n", "team", "--from", str(record)]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert said[0].startswith("claim team/next: devices fit\n")


@pytest.mark.parametrize("command", ["devices", "claims", "usage"])
def test_a_namespace_that_is_not_there_is_named(
    live: Command, api: FakeApi, capsys: Printed, command: str
) -> None:
    api.put("namespaces", {"metadata": {"name": "team"}})
    assert live(command, "-n", "teem") == 2
    assert capsys.readouterr().err == (
        "dra-driver: there is no namespace teem; give one that `kubectl get namespaces` lists with -n, or -A for all\n"
    )
    assert live(command, "-n", "team") == 0


@pytest.mark.parametrize("output", ["json", "yaml"])
@pytest.mark.parametrize(
    ("command", "kind", "rows"),
    [
        ("devices", "ClusterDevices", "devices"),
        ("claims", "ClusterClaims", "claims"),
        ("free", "FreeDevices", "classes"),
        ("usage", "DeviceUsage", "rows"),
    ],
)
def test_programs_get_a_document_also_when_there_is_no_answer(
    tmp_path: Path, capsys: Printed, output: str, command: str, kind: str, rows: str
) -> None:
    missing = tmp_path / "missing.json"
    assert kubectl([command, "--from", str(missing), "-o", output]) == 2
    said = capsys.readouterr()
    found = yaml.safe_load(said.out)
    problem = (
        f"cannot read the record {missing}: there is no such file; `dra-driver record` writes one"
    )
    assert (found["kind"], found[rows], found["problem"]) == (kind, [], problem)
    assert said.err == f"dra-driver: {problem}\n"
