# SPDX-License-Identifier: Apache-2.0
"""The bundle of `doctor`: one file for `explain` and for the backend `recorded`, without the secrets of the node and the cluster."""

import json
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest

from dra_driver.backends import recording
from dra_driver.cli import bundle
from dra_driver.cli.main import main
from dra_driver.config.settings import Settings
from dra_driver.daemon import offline
from dra_driver.errors import Permanent
from dra_driver.model.ids import DeviceName, PoolName
from dra_driver.model.state import Held, Phase, PreparedClaim, PreparedDevice
from dra_driver.node.state import StateStore
from dra_driver.testing.builders import a_ref
from dra_driver.testing.fake_api import Answer, FakeApi

MARK = "hunter2hunter2"
UUID = "GPU-12345678-90ab-cdef-1234-567890abcdef"
DRIVER = "gpu.dra-driver.dev"
OPAQUE = {"driver": DRIVER, "parameters": {"apiVersion": "x/v1", "kind": "K", "label": MARK}}
DEVICES = {
    "requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}],
    "config": [{"opaque": OPAQUE}],
}
NOTED = {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": MARK}}
POD_UID = "99999999-2222-3333-4444-555555555555"
SERIAL = "1650921000123"
FACTS = {"gpus": [{"uuid": UUID, "serial": SERIAL}]}
LEAK = (
    f"{MARK} is the password, pwd={MARK}, https://admin:{MARK}@hook.example.com/?access_token={MARK}&x=1, "
    f"Authorization: Bearer {MARK}, --client-secret {MARK}, AKIA{MARK}, of {UUID}"
)
"""What somebody else says: no list of forms is long enough for it."""
FORMS = (
    f"pwd={MARK}",
    f"DB_PASS={MARK}",
    f'{{\\"password\\":\\"{MARK}\\"}}',
    f"https://acct.blob.core.windows.net/c?sig={MARK}",
    f"ghp_{MARK}",
    f"AKIA{MARK}",
    f"client-key-data: LS0tLS1CRUdJTi{MARK}",
    f'{{"auths":{{"r.io":{{"auth":"{MARK}"}}}}}}',
    f"the password '{MARK}' is wrong",
    f"Authorization: Digest username=u, response={MARK}",
    f"https://x@y:{MARK}@host/",
    f"curl -u user:{MARK}",
)
"""What this program says itself, or people write into labels and selectors."""
CONDITION = {"type": "Ready", "status": "True", "reason": "R", "message": LEAK}


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "NODE_NAME"):
        monkeypatch.delenv(name, raising=False)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("HOME", folder)
        (Path(folder) / "var/lib/kubelet").mkdir(parents=True)
        yield Path(folder)


def put(root: Path, path: str, text: str) -> Path:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


@pytest.fixture
def api(root: Path) -> Iterator[FakeApi]:
    with FakeApi() as found:
        found.kubeconfig(root / "config", token=MARK)
        fill(found)
        yield found


def fill(api: FakeApi) -> None:
    """Put the mark wherever an object can have it."""
    info = {
        "kubeletVersion": "v1.37.0",
        "containerRuntimeVersion": f"containerd://2.0 token={MARK}",
    }
    status = {"nodeInfo": info, "conditions": [CONDITION]}
    labels = {"token": MARK, "api-key": MARK, "nvidia.com/gpu.serial": SERIAL}
    api.put("nodes", {"metadata": {"name": "n", "labels": labels, **NOTED}, "status": status})
    container = {
        "name": "c",
        "env": [{"name": "TOKEN", "value": MARK}],
        "args": [f"--token={MARK}"],
        "image": f"registry/{MARK}",
        "securityContext": {"privileged": True},
    }
    volume = {"name": MARK, "hostPath": {"path": f"/srv/{MARK}"}}
    spec = {
        "nodeName": "n",
        "containers": [container],
        "initContainers": [{**container, "name": "i", "command": ["sh", "-c", MARK]}],
        "ephemeralContainers": [{**container, "name": "e"}],
        "imagePullSecrets": [{"name": MARK}],
        "serviceAccountName": MARK,
        "volumes": [volume],
    }
    unscheduled = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": LEAK,
    }
    told = {"conditions": [CONDITION, unscheduled], "message": MARK, "reason": MARK}
    meta = {"name": "p", "uid": POD_UID, "labels": {"api-key": MARK}, **NOTED}
    pod = {"metadata": meta, "spec": {**spec, "nodeSelector": {"token": MARK}}, "status": told}
    api.put("pods", pod)
    api.put("namespaces", {"metadata": {"name": "default", **NOTED}})
    fill_devices(api)
    said = {"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403}
    body = json.dumps({**said, "message": f"denied by webhook: {LEAK}"}).encode()
    api.faults.add(Answer(403, {}, body), verb="list", resource="poddisruptionbudgets")
    api.faults.add(Answer(403, {}, body), verb="create", resource="discovery", times=20)
    api.faults.add(Answer(403, {}, body), verb="list", resource="namespaces", times=1)


def fill_devices(api: FakeApi) -> None:
    """Put the mark and identifiers wherever an object of resource.k8s.io can have them."""
    asked = " || ".join(f"device.driver == {json.dumps(form)}" for form in FORMS)
    selectors = [
        {"cel": {"expression": f"{asked} || device.attributes['{DRIVER}'].uuid == '{UUID}'"}}
    ]
    device_class = {"config": [{"opaque": OPAQUE}], "selectors": selectors}
    api.put("deviceclasses", {"metadata": {"name": "gpu", **NOTED}, "spec": device_class})
    result = {"request": "r", "driver": DRIVER, "pool": "n", "device": "gpu-0"}
    config = [{"source": "FromClaim", "opaque": OPAQUE}]
    report = {
        **result,
        "data": {"x": MARK, "deep": [{"token": MARK}]},
        "networkData": {"interfaceName": MARK, "ips": [MARK], "hardwareAddress": MARK},
        "conditions": [CONDITION],
    }
    del report["request"]
    claim_status = {
        "allocation": {"devices": {"results": [result], "config": config}},
        "devices": [report],
    }
    claim = {"metadata": {"name": "c", **NOTED}, "spec": {"devices": DEVICES}}
    api.put("resourceclaims", {**claim, "status": claim_status})
    template = {"metadata": NOTED, "spec": {"devices": DEVICES}}
    api.put("resourceclaimtemplates", {"metadata": {"name": "t", **NOTED}, "spec": template})
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    published = {"uuid": {"string": UUID}, "serial": {"string": SERIAL}}
    device = {"name": "gpu-0", "attributes": published}
    slice_spec = {"driver": DRIVER, "nodeName": "n", "pool": pool, "devices": [device]}
    api.put("resourceslices", {"metadata": {"name": "s", **NOTED}, "spec": slice_spec})


def fill_node(root: Path) -> None:
    """Put the mark wherever a file of the node can have it."""
    auth = f'[plugins."io.containerd.cri.v1.runtime".registry.auth]\npassword = "{MARK}"\n'
    put(root, "/etc/containerd/config.toml", f"version = 3\n{auth}")
    put(root, "/etc/crio/crio.conf", f'password = "{MARK}')
    put(root, "/var/run/cdi/x.json", f'{{"env": ["TOKEN={MARK}"]')
    put(root, "/etc/cdi/y.json", f'{{"env": ["TOKEN={MARK}"]}}')
    put(root, "/var/lib/kubelet/config.yaml", f"containerRuntimeEndpoint: /run/x?token={MARK}\n")
    put(root, "/var/lib/kubelet/kubeadm-flags.env", f"--feature-gates=A=false --token={MARK}\n")
    put(root, "/etc/docker/daemon.json", f'{{"registry-auth": "{MARK}", }}')
    put(root, "/proc/7/comm", "nvidia-imex\n")
    put(root, "/proc/7/environ", f"TOKEN={MARK}\0")
    put(root, "/proc/7/cmdline", f"--token={MARK}\0")
    folder = root / "var/lib/kubelet/plugins" / DRIVER
    folder.mkdir(parents=True)
    store = StateStore(folder / "state.db", boot_id="boot-1")
    device = PreparedDevice(("gpu",), PoolName("n"), DeviceName("gpu-0"), (), UUID)
    spec = f'{{"env": ["TOKEN={MARK}"]}}'
    row = PreparedClaim(a_ref("mine"), Phase.PREPARED, "boot-1", (device,), spec, metadata=MARK)
    with store.transaction("started") as transaction:
        transaction.start(row)
    with store.transaction("releasing") as transaction:
        reason = f"cannot reset {UUID}: bearer {MARK} {' '.join(FORMS)}"
        transaction.hold(row.ref.uid, Held(reason, "2027-01-15T08:00:00Z"))
    store.close()


def snapshot_file(root: Path) -> Path:
    whole = recording.Snapshot(backend="nvidia", facts=FACTS)
    place = root / "taken.json"
    place.write_bytes(recording.encode(whole))
    return place


def bundled(root: Path, *words: str, code: int = 1) -> tuple[Path, dict[str, Any]]:
    file = root / "bundle.json"
    arguments = ["doctor", "--root", str(root), "--kubeconfig", str(root / "config")]
    assert main([*arguments, "--bundle", str(file), *words]) == code
    return file, json.loads(file.read_text())


def test_no_secret_is_in_it(
    api: FakeApi,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fill_node(root)
    log = {"event": "claim_refused", "level": "warning", "error": MARK, "timestamp": MARK}
    log |= {"exception": f"Traceback: {MARK}", "opaque": {"deep": [MARK]}, "count": 3, MARK: MARK}
    text = "".join(
        f"{json.dumps(one)}\n" for one in (log, {"event": f"x {MARK}"}, {"event": [MARK]})
    )
    lines = put(root, "driver.log", f"{text}{MARK}\nTraceback: {MARK}\nerror={MARK} event=x\n")
    taken = recording.Snapshot(backend="nvidia", facts=FACTS)
    monkeypatch.setattr(offline, "take_snapshot", lambda _settings: taken)
    monkeypatch.setenv("DRA_DRIVER_PASSWORD", MARK)
    file, whole = bundled(root, "--node-name", "n", "--log", str(lines))
    assert MARK not in file.read_text()
    # The mark was there to be found, and the sections are not empty.
    assert any(MARK in str(api.objects(kind)) for kind in ("pods", "resourceclaims"))
    ids = {one["id"] for one in whole["diagnosis"]["findings"]}
    assert {"device-held", "cdi-file-broken", "pod-sees-every-gpu", "imex-on-host"} <= ids
    assert whole["log"] == [{"event": "claim_refused", "level": "warning"}]
    assert whole["cluster"]["resourceClaims"][0]["metadata"]["name"] == "c"
    assert any("characters left out" in str(one) for one in whole["cluster"]["notRead"])
    assert whole["leftOut"] == []
    # A GPU has another UUID, the same in the snapshot and in the findings.
    (gpu,) = whole["snapshot"]["facts"]["gpus"]
    assert UUID not in file.read_text()
    assert not any(one in file.read_text() for one in (SERIAL, POD_UID))
    assert gpu["uuid"] in json.dumps(whole["diagnosis"])
    (found,) = whole["cluster"]["resourceSlices"][0]["spec"]["devices"]
    assert found["attributes"] == {
        "uuid": {"string": gpu["uuid"]},
        "serial": {"string": gpu["serial"]},
    }
    (chosen,) = whole["cluster"]["deviceClasses"][0]["spec"]["selectors"]
    assert f"uuid == '{gpu['uuid']}'" in chosen["cel"]["expression"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    captured = capsys.readouterr()
    assert "PROBLEM" in captured.out
    assert captured.err == (
        f"dra-driver: {file}: for a bug report. {bundle.PROMISE} Missing: nothing\n"
    )


@pytest.mark.parametrize(
    ("cluster", "environment"),
    [
        ({"server": f"https://admin:{MARK}@192.0.2.1:6443/?a={MARK}#{MARK}"}, True),
        ({"server": f"https://admin:{MARK}@[fd00?a={MARK}"}, False),
        ({"server": "https://192.0.2.1:6443", "proxy-url": f"http://u:{MARK}@127.0.0.1:9/?a={MARK}"}, False),
        ({"server": "https://192.0.2.1:6443", "proxy-url": f"socks5://u:{MARK}@127.0.0.1:9"}, False),
    ],
)  # fmt: skip
def test_no_credential_of_an_address_is_in_it(
    root: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    cluster: dict[str, str],
    environment: bool,
) -> None:
    """Nobody answers there, so the addresses are in the messages: of the API server, and of the proxy in between."""
    if environment:
        monkeypatch.setenv("HTTPS_PROXY", f"http://u:{MARK}@127.0.0.1:9/?a={MARK}")
    config = {
        "clusters": [{"name": "x", "cluster": cluster}],
        "users": [{"name": "x", "user": {"token": MARK}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "current-context": "x",
    }
    put(root, "config", json.dumps(config))
    code = 2 if "[" in cluster["server"] or "socks" in str(cluster) else 1
    words = ["doctor", "--node", "n", "--kubeconfig", str(root / "config")]
    assert main([*words, "--bundle", str(root / "b.json")]) == code
    text = (root / "b.json").read_text()
    assert "192.0.2.1" in text or "[fd00" in text or "127.0.0.1:9" in text
    assert MARK not in text + "".join(capsys.readouterr())


def test_nothing_of_what_a_login_program_says_is_in_it(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"sts denied for {MARK} {' '.join(FORMS)}"
    login = put(root, "login", f"#!/bin/sh\ncat >&2 <<'END'\n{words}\nEND\nexit 3\n")
    login.chmod(0o700)
    program = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(login),
        "interactiveMode": "Never",
    }
    config = {
        "clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "x", "user": {"exec": program}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "current-context": "x",
    }
    put(root, "config", json.dumps(config))
    file, whole = bundled(root, "--node", "n")
    assert MARK not in file.read_text()
    (found,) = (one["found"] for one in whole["diagnosis"]["findings"] if one["check"] == "api")
    assert "it ended with 3: [" in found
    assert "characters left out]; try kubectl" in found
    # Who asked on this machine sees the words.
    assert f"sts denied for {MARK}" in " ".join(capsys.readouterr().out.split())


def test_the_other_commands_read_it(
    api: FakeApi, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = recording.named("t4x2")
    monkeypatch.setattr(offline, "take_snapshot", lambda _settings: whole)
    file, _ = bundled(root)
    capsys.readouterr()
    # The class of the claim has no selector, and the device is allocated: there is nothing to wait for.
    assert main(["explain", "claim/c", "--from", str(file)]) in (0, 1, 3)
    assert "claim default/c" in capsys.readouterr().out
    words = ["devices", "--backend", "recorded", "--backend-option", f"file={file}"]
    assert main([*words, "--node-name", "n", "--state-dir", str(root / "none")]) == 0
    assert "Tesla T4" in capsys.readouterr().out


def test_what_is_missing_is_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, whole = bundled(root, "--kubeconfig", str(root / "none"), "--backend", "simulated")
    snapshot, cluster, log = whole["leftOut"]
    assert snapshot.startswith("snapshot: cannot take a snapshot: of the backends simulated")
    assert (cluster, log) == ("cluster: no API server was read", "log: none was given (--log)")
    assert whole["snapshot"] is None
    with pytest.raises(Permanent, match=r"this bundle has none, and `leftOut` in it says why"):
        recording.read(file)
    assert main(["explain", "--from", str(file)]) == 2
    assert "no API server was read" in "".join(capsys.readouterr())


def test_from_outside_there_is_no_snapshot(api: FakeApi, root: Path) -> None:
    _, whole = bundled(root, "--node", "n", code=3)
    assert whole["leftOut"][0] == "snapshot: this machine is not the node"
    assert whole["diagnosis"]["from"] == "cluster"


def test_hardware_that_hangs_costs_the_snapshot_only(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = Event()

    def hang(_settings: Settings) -> None:
        let_go.wait()

    monkeypatch.setattr(offline, "take_snapshot", hang)
    monkeypatch.setattr(bundle, "SNAPSHOT_SECONDS", 0.2)
    try:
        _, whole = bundled(root, "--kubeconfig", str(root / "none"))
    finally:
        let_go.set()
    assert whole["leftOut"][0] == "snapshot: no answer in 0.2 s"


def test_a_file_that_is_there_is_refused_before_anything_is_looked_at(
    api: FakeApi, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(root, "bundle.json", "mine")
    assert main(["doctor", "--bundle", str(root / "bundle.json")]) == 1
    assert api.requests == []
    assert "give --force to overwrite it" in capsys.readouterr().err
    _, whole = bundled(root, "--node", "n", "--force", code=3)
    assert whole["kind"] == "NodeBundle"


def test_standard_output_has_the_bundle_alone(
    api: FakeApi, root: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    words = ["doctor", "--node", "n", "--kubeconfig", str(root / "config"), "--bundle", "-"]
    main(words)
    found = msgspec.json.decode(capfdbinary.readouterr().out)
    assert found["kind"] == "NodeBundle"


def test_a_log_that_cannot_be_read(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--kubeconfig", str(root / "none"), "--log", str(root / "no.log")]
    arguments = ["doctor", "--root", str(root), "--bundle", str(root / "b.json"), *words]
    assert main(arguments) == 1
    assert "cannot read the log" in capsys.readouterr().err
    assert not (root / "b.json").exists()
