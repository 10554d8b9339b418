# SPDX-License-Identifier: Apache-2.0
"""`dra-driver explain`: what it is given, what it prints, and what the exit code says."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.cli.main import main
from dra_driver.testing.fake_api import FakeApi

Object = dict[str, Any]
DRIVER = "gpu.example.com"


def claim(name: str, memory: str) -> Object:
    expression = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{memory}")) >= 0'
    exactly = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [{"cel": {"expression": expression}}],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeApi]:
    """A node with one device of 80Gi, and a kubeconfig beside it."""
    with FakeApi() as api:
        allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10"}
        api.put("nodes", {"metadata": {"name": "n1"}, "status": {"allocatable": allocatable}})
        device = {"name": "gpu-0", "capacity": {"memory": {"value": "80Gi"}}}
        pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": "n1", "pool": pool, "devices": [device]}
        api.put("resourceslices", {"metadata": {"name": "s"}, "spec": spec})
        api.put("deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
        api.put("resourceclaims", claim("fits", "40Gi"))
        api.put("resourceclaims", claim("does-not", "100Gi"))
        api.kubeconfig(tmp_path / "config")
        yield api


def ask(tmp_path: Path, *arguments: str) -> int:
    return main(["explain", *arguments, "--kubeconfig", str(tmp_path / "config")])


@pytest.mark.parametrize(
    ("subject", "code"),
    [
        (("claim/fits",), 0),
        (("claim", "fits"), 0),
        (("ResourceClaim/fits",), 0),
        (("resourceclaims.resource.k8s.io", "fits"), 0),
        (("claim/does-not",), 1),
        (("claim/is-not-there",), 2),
        (("template/is-not-there",), 2),
        (("pod/is-not-there",), 2),
        (("is-not-there",), 2),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_the_exit_code_says_what_was_found(
    tmp_path: Path, subject: tuple[str, ...], code: int
) -> None:
    assert ask(tmp_path, *subject) == code


@pytest.mark.usefixtures("cluster")
def test_the_answer_can_be_text_or_json(tmp_path: Path, capsys) -> None:
    assert ask(tmp_path, "claim/does-not") == 1
    text = capsys.readouterr().out
    assert "memory 80Gi < 100Gi" in text
    assert "\033" not in text
    assert ask(tmp_path, "claim/does-not", "-o", "json") == 1
    assert json.loads(capsys.readouterr().out)["exitCode"] == 1


@pytest.mark.usefixtures("cluster")
def test_manifests_are_explained_without_being_applied(
    tmp_path: Path, cluster: FakeApi, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    file = tmp_path / "claim.yaml"
    file.write_text("---\n" + yaml.safe_dump(claim("new", "100Gi")))
    assert ask(tmp_path, "-f", str(file)) == 1
    assert "memory 80Gi < 100Gi" in capsys.readouterr().out
    given = io.TextIOWrapper(io.BytesIO(json.dumps(claim("new", "40Gi")).encode()))
    monkeypatch.setattr(sys, "stdin", given)
    assert ask(tmp_path, "-f", "-") == 0
    names = [found["metadata"]["name"] for found in cluster.objects("resourceclaims")]
    assert sorted(names) == ["does-not", "fits"]


@pytest.mark.usefixtures("cluster")
def test_a_record_answers_as_the_cluster_did(tmp_path: Path, capsys) -> None:
    record = tmp_path / "cluster.json"
    assert main(["record", "--kubeconfig", str(tmp_path / "config"), str(record)]) == 0
    capsys.readouterr()
    assert ask(tmp_path, "claim/does-not") == 1
    live = capsys.readouterr().out
    assert main(["explain", "--from", str(record), "claim/does-not"]) == 1
    assert capsys.readouterr().out == live


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b'{"format": "dra-driver/record", "forma', "is no whole JSON document"),
        (b"{}", "is no record of a cluster"),
        (b'{"format": "dra-driver/record", "formatVersion": 99, "cluster": {}}', "version 99"),
        (b'{"format": "dra-driver/record", "formatVersion": 1, "cluster": {"nodes": 5}}', "nodes"),
        (b"\xff\xfe", "is no whole JSON document"),
    ],
)
def test_a_record_that_cannot_be_read_is_a_sentence(
    tmp_path: Path, content: bytes, said: str, capsys
) -> None:
    record = tmp_path / "cluster.json"
    record.write_bytes(content)
    assert main(["explain", "--from", str(record), "claim/c"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"dra-driver: {record} ")
    assert said in captured.err
    assert captured.err.count("\n") == 1


def test_a_record_that_is_not_there_is_a_sentence(tmp_path: Path, capsys) -> None:
    assert main(["explain", "--from", str(tmp_path / "none"), "claim/c"]) == 2
    assert f"cannot read the record {tmp_path}/none" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", [b"{", b"\xff\xfe\x00", b"a: [" * 3000, b"kind: !!python/object:os.system {}"]
)
@pytest.mark.usefixtures("cluster")
def test_a_manifest_that_cannot_be_read_is_a_sentence(
    tmp_path: Path, content: bytes, capsys
) -> None:
    file = tmp_path / "claim.yaml"
    file.write_bytes(content)
    assert ask(tmp_path, "-f", str(file)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"dra-driver: cannot read the manifest {file}: ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["node/n1"],
        ["pod/"],
        ["claim"],
        ["pod/a", "-f", "file"],
        ["pod/a", "--no-such-flag"],
        ["pod/a", "-o", "xml"],
        ["pod/a", "--timeout", "nan"],
        ["pod/a", "--timeout", "-1"],
        ["pod/a", "--timeout", "inf"],
        ["pod/a", "--timeout", "soon"],
        ["pod/a", "--timeout", "1e30"],
        ["pod/a", "--timeout", "86401"],
    ],
)
def test_wrong_usage_is_exit_code_64(tmp_path: Path, arguments: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as left:
        ask(tmp_path, *arguments)
    assert left.value.code == 64
    assert capsys.readouterr().err != ""


@pytest.mark.usefixtures("cluster")
def test_a_search_that_takes_too_long_could_not_tell(tmp_path: Path, capsys) -> None:
    assert ask(tmp_path, "claim/fits", "--timeout", "0") == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.usefixtures("cluster")
def test_what_nobody_foresaw_says_nothing_about_devices(
    tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OverflowError("timestamp too large")

    monkeypatch.setattr("dra_driver.cli.question.explain", fail)
    assert ask(tmp_path, "claim/fits", "-o", output) == 2
    captured = capsys.readouterr()
    assert "OverflowError: timestamp too large" in captured.err
    assert "dra-driver: this is a bug in dra-driver (OverflowError)" in captured.err
    assert ("Traceback" in captured.out, bool(captured.out)) == (False, output == "json")


@pytest.mark.usefixtures("cluster")
def test_one_node_can_be_asked_about(tmp_path: Path, capsys) -> None:
    assert ask(tmp_path, "claim/fits", "--node", "n1") == 0
    assert ask(tmp_path, "claim/fits", "--node", "n2") == 2


@pytest.mark.parametrize(
    ("arguments", "subject"),
    [
        (("claim/none", "-n", "ns"), "claim ns/none"),
        (("none",), "pod none"),
        (("-f", "/none.yaml", "-f", "/nor.yaml"), "/none.yaml, /nor.yaml"),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_programs_get_a_document_even_where_nothing_could_be_looked_at(
    tmp_path: Path, arguments: tuple[str, ...], subject: str, capsys
) -> None:
    assert ask(tmp_path, *arguments, "-o", "json") == 2
    captured = capsys.readouterr()
    message = captured.err.removeprefix("dra-driver: ").removesuffix("\n")
    found = json.loads(captured.out)
    told = {key: found[key] for key in ("subject", "outcome", "exitCode", "summary", "verdicts")}
    assert told == {
        "subject": subject,
        "outcome": "could not tell",
        "exitCode": 2,
        "summary": message,
        "verdicts": [{"reason": "CouldNotTell", "cause": "failed", "what": message}],
    }


@pytest.mark.usefixtures("cluster")
def test_an_answer_that_cannot_be_written_is_exit_code_2(tmp_path: Path) -> None:
    kubeconfig = ("--kubeconfig", str(tmp_path / "config"))
    command = [sys.executable, "-m", "dra_driver", "explain", "claim/fits", *kubeconfig]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("dra-driver: cannot write to standard output: ")
    assert done.stderr.count("\n") == 1


NOWHERE = {"KUBECONFIG": "", "HOME": "/nonexistent", "KUBERNETES_SERVICE_HOST": ""}


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cluster is known."""
    for name, value in NOWHERE.items():
        monkeypatch.setenv(name, value)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["explain", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


@pytest.mark.usefixtures("nowhere")
def test_a_manifest_that_is_not_there_is_told_first_and_alone(tmp_path: Path, capsys) -> None:
    file = str(tmp_path / "nope")
    told = f"dra-driver: cannot read the manifest {file}: there is no such file\n"
    assert said(capsys, "-f", file) == told
    assert said(capsys, "-f", file, "--from", "/nor-this") == told
    assert said(capsys, "-f", str(tmp_path)) == (
        f"dra-driver: cannot read the manifests in {tmp_path}: no file ends in .json, .yaml, .yml; its subdirectories are read with -R\n"
    )


@pytest.mark.usefixtures("cluster")
def test_a_mistake_in_a_directory_is_told_with_its_file(tmp_path: Path, capsys) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "a.yaml").write_text(json.dumps(claim("right", "1Gi")))
    wrong = claim("wrong", "1Gi")
    wrong["spec"]["devices"]["wanted"] = []
    (folder / "b.yaml").write_text(json.dumps(wrong))
    assert ask(tmp_path, "-f", str(folder)) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"dra-driver: {folder}/b.yaml: the API server would refuse")
    assert "a.yaml" not in told


@pytest.mark.usefixtures("nowhere")
def test_a_record_that_is_not_there_is_told_in_plain_words(tmp_path: Path, capsys) -> None:
    file = str(tmp_path / "nope")
    told = f"dra-driver: cannot read the record {file}: there is no such file; `dra-driver record` writes one\n"
    assert said(capsys, "pod/x", "--from", file) == told
    told = f"dra-driver: cannot read the record {tmp_path}: it is a directory\n"
    assert said(capsys, "pod/x", "--from", str(tmp_path)) == told


@pytest.mark.usefixtures("nowhere")
def test_where_no_cluster_is_known_all_ways_to_name_one_are_told(capsys) -> None:
    told = said(capsys, "pod/x")
    for way in ("--kubeconfig", "KUBECONFIG", "~/.kube/config", "--from"):
        assert way in told
    assert main(["record", "-"]) == 1
    assert "--from" not in capsys.readouterr().err


def test_nobody_is_sent_to_a_cluster_that_is_a_file(
    tmp_path: Path, cluster: FakeApi, capsys
) -> None:
    cluster.put(
        "pods", {"metadata": {"name": "trainer", "namespace": "team"}, "spec": {"containers": []}}
    )
    record = str(tmp_path / "cluster.json")
    assert main(["record", "--kubeconfig", str(tmp_path / "config"), record]) == 0
    capsys.readouterr()
    told = said(capsys, "pod/x", "--from", record)
    assert told == "dra-driver: there is no pod default/x in the record: it has team/trainer\n"
    assert "there is one in team: give it with -n" in said(capsys, "trainer", "--from", record)


def test_what_is_not_looked_at_is_shown(tmp_path: Path, cluster: FakeApi, capsys) -> None:
    spec = {"worker": {"template": {"spec": {"containers": [{"name": "c"}]}}}}
    training = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "t"}}
    file = tmp_path / "file.yaml"
    file.write_text(yaml.safe_dump_all([claim("new", "40Gi"), {**training, "spec": spec}]))
    assert cluster.objects("pods") == []
    assert ask(tmp_path, "-f", str(file)) == 2
    out = capsys.readouterr().out
    assert "Not looked at\n  - PyTorchJob t: this kind is not known here, its pods" in out
    assert ask(tmp_path, "-f", str(file), "-o", "json") == 2
    assert len(json.loads(capsys.readouterr().out)["passedOver"]) == 1


def test_a_file_with_nothing_to_explain_is_told_before_a_cluster_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    for variable in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "empty.yaml"
    file.write_text("# nothing yet\n")
    assert main(["explain", "-f", str(file)]) == 2
    assert capsys.readouterr().err == (
        f"dra-driver: {file} has no pod, no ResourceClaim and no ResourceClaimTemplate: there is nothing to explain\n"
    )


@pytest.mark.parametrize("flags", [["-k", "over lay"], ["--kustomize=over lay"]])
def test_whoever_gives_a_folder_of_kustomize_is_told_what_to_pipe(capsys, flags: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["explain", *flags])
    assert left.value.code == 64
    assert capsys.readouterr().err.splitlines()[-1] == (
        "dra-driver explain: error: kustomize is not run: "
        "`kubectl kustomize 'over lay' | dra-driver explain -f -` explains what it makes"
    )
