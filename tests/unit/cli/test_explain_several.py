# SPDX-License-Identifier: Apache-2.0
"""`dra-driver explain` about workloads, all pending pods, several names, and directories of manifests."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.cli import inputs
from dra_driver.cli.main import main
from dra_driver.cli.question import searching
from dra_driver.errors import Permanent
from dra_driver.testing.fake_api import FakeApi

Object = dict[str, Any]


def request(memory: str) -> Object:
    expression = f'device.capacity["gpu.example.com"].memory == quantity("{memory}")'
    exactly = {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": expression}}]}
    return {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}


def owned_by(kind: str, name: str, uid: str) -> list[Object]:
    return [{"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "controller": True}]


def pod(name: str, template: str, **metadata: Any) -> Object:
    claims = [{"name": "gpu", "resourceClaimTemplateName": template}]
    spec = {"containers": [{"name": "c"}], "resourceClaims": claims}
    return {"metadata": {"name": name, **metadata}, "spec": spec}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeApi]:
    """A node with one device of 80Gi, a Deployment whose two pods want one of 90Gi, and a pod in another namespace."""
    with FakeApi() as api:
        api.put("nodes", {"metadata": {"name": "n1"}, "status": {"allocatable": {"pods": "9"}}})
        device = {"name": "gpu-0", "capacity": {"memory": {"value": "80Gi"}}}
        pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "gpu.example.com", "nodeName": "n1", "pool": pool, "devices": [device]}
        api.put("resourceslices", {"metadata": {"name": "s"}, "spec": spec})
        api.put("deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
        for namespace in ("default", "team"):
            api.put("namespaces", {"metadata": {"name": namespace}})
            large = {"name": "large", "namespace": namespace}
            spec = {"spec": request("90Gi")}
            api.put("resourceclaimtemplates", {"metadata": large, "spec": spec})
        web = api.put("deployments", {"metadata": {"name": "web"}, "spec": {"replicas": 2}})
        owner = owned_by("Deployment", "web", web["metadata"]["uid"])
        metadata = {"name": "web-5f", "ownerReferences": owner}
        replicas = api.put("replicasets", {"metadata": metadata, "spec": {"replicas": 2}})
        owner = owned_by("ReplicaSet", "web-5f", replicas["metadata"]["uid"])
        labels = {"app": "web", "pod-template-hash": "5f"}
        for name in ("web-5f-a", "web-5f-b"):
            api.put("pods", pod(name, "large", ownerReferences=owner, labels=labels))
        api.put("pods", pod("other", "large", namespace="team"))
        api.kubeconfig(tmp_path / "config")
        yield api


def ask(tmp_path: Path, *arguments: str) -> int:
    return main(["explain", *arguments, "--kubeconfig", str(tmp_path / "config")])


def found(tmp_path: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> Object:
    code = ask(tmp_path, *arguments, "-o", "json")
    document: Object = json.loads(capsys.readouterr().out)
    assert document["exitCode"] == code
    return document


@pytest.mark.parametrize(
    ("words", "pods"),
    [
        ((), ["pod default/web-5f-a"]),
        (("pods", "-n", "team"), ["pod team/other"]),
        (("-A",), ["pod default/web-5f-a", "pod team/other"]),
        (("-A", "-l", "app!=web"), ["pod team/other"]),
        (("-l", "app=web"), ["pod default/web-5f-a"]),
        (("-l", "app=none"), []),
        (("deploy/web",), ["pod default/web-5f-a"]),
        (("replicasets", "web-5f"), ["pod default/web-5f-a"]),
        (("po/web-5f-b", "po/web-5f-a"), ["pod default/web-5f-b", "pod default/web-5f-a"]),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_each_pod_that_is_meant_has_its_report(
    tmp_path: Path, capsys, words: tuple[str, ...], pods: list[str]
) -> None:
    document = found(tmp_path, capsys, *words)
    assert document["kind"] == "ExplanationList"
    assert [one["subject"] for one in document["items"]] == pods
    assert document["exitCode"] == (1 if pods else 0)


@pytest.mark.usefixtures("cluster")
def test_the_text_has_a_line_for_each_pod_and_the_details(
    tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert ask(tmp_path, "-A") == 1
    out = capsys.readouterr().out
    assert out.startswith(
        "pending pods of all namespaces: devices do not fit\n"
        "  3 pods that ask for devices wait for a node; devices do not fit: 3\n\n"
        "  pod default/web-5f-a and 1 alike: devices do not fit: the devices fit on no node (1 looked at)\n"
    )
    assert "The same is true of default/web-5f-b\n" in out
    assert out.count("\nNodes\n") == 2


def test_workloads_are_read_only_when_one_is_asked_about(tmp_path: Path, cluster: FakeApi) -> None:
    ask(tmp_path, "-A")
    workloads = {"deployments", "replicasets", "jobs"}
    assert not workloads & {one.resource for one in cluster.requests}
    ask(tmp_path, "deploy/web", "-n", "team")
    asked = [one.path.partition("?")[0] for one in cluster.requests if one.resource in workloads]
    assert asked == [
        f"/apis/apps/v1/namespaces/team/{kind}" for kind in ("deployments", "replicasets")
    ]


@pytest.mark.parametrize("resource", ["deployments", "replicasets"])
def test_without_the_right_to_read_workloads_names_tell_and_the_gap_is_told(
    tmp_path: Path, cluster: FakeApi, resource: str, capsys
) -> None:
    cluster.faults.status(403, verb="list", resource=resource)
    document = found(tmp_path, capsys, "deploy/web")
    assert [one["subject"] for one in document["items"]] == ["pod default/web-5f-a"]
    gaps = [gap["resource"] for gap in document["notRead"]]
    assert resource in gaps


@pytest.mark.parametrize("words", [(), ("pod/web-5f-a",), ("deploy/web",)])
def test_with_rights_for_one_namespace_its_pods_are_explained(
    tmp_path: Path, cluster: FakeApi, words: tuple[str, ...], capsys
) -> None:
    for resource in ("pods", "resourceclaimtemplates"):
        cluster.faults.status(403, verb="list", resource=resource)
    assert ask(tmp_path, *words) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "pod default/web-5f-a: devices do not fit" in out
    assert out.count("; only those of namespace default were read") == 2


def test_all_namespaces_need_the_right_for_all(tmp_path: Path, cluster: FakeApi, capsys) -> None:
    cluster.faults.status(403, verb="list", resource="pods")
    assert ask(tmp_path, "-A") == 2
    assert "cannot find pending pods of all namespaces: " in capsys.readouterr().err


@pytest.mark.usefixtures("cluster")
def test_a_record_answers_about_workloads_by_the_names_of_their_pods(
    tmp_path: Path, capsys
) -> None:
    record = str(tmp_path / "cluster.json")
    assert main(["record", "--kubeconfig", str(tmp_path / "config"), record]) == 0
    capsys.readouterr()
    assert main(["explain", "deploy/web", "--from", record]) == 1
    out = capsys.readouterr().out
    assert out.startswith(
        "deployment default/web\n  2 of 2 pods wait for a node\n\npod default/web"
    )
    assert main(["explain", "sts/db", "--from", record]) == 2
    assert capsys.readouterr().err == (
        "dra-driver: cannot find pods of statefulset default/db: a record has the pods of workloads, not the workloads; "
        "this one has pods of deployment default/web\n"
    )
    assert main(["explain", "-A", "--from", record]) == 1
    assert main(["explain", "-n", "nope", "--from", record]) == 2
    assert "there is no namespace nope in the record" in capsys.readouterr().err


@pytest.mark.usefixtures("cluster")
def test_programs_get_a_list_even_where_nothing_could_be_looked_at(tmp_path: Path, capsys) -> None:
    document = found(tmp_path, capsys, "deploy/none", "-n", "team")
    assert (document["kind"], document["exitCode"]) == ("ExplanationList", 2)
    assert document["subject"] == "deployment team/none"
    assert document["summary"].startswith("there is no deployment team/none in this cluster: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["deploymnt/web"], "there is no kind 'deploymnt'; did you mean deployment?"),
        (["pdo", "a"], "there is no kind 'pdo'; did you mean pod?"),
        (["pod/a", "-A"], "an object is named in one namespace"),
        (["-R"], "--recursive is for the directories of -f"),
        (["-l", "a=b=c"], "is no label selector"),
    ],
)
def test_wrong_usage_shows_how_explain_is_used(capsys, words: list[str], said: str) -> None:
    with pytest.raises(SystemExit) as left:
        main(["explain", *words])
    assert left.value.code == 64
    err = capsys.readouterr().err
    assert err.startswith("usage: dra-driver explain [-h]")
    assert said in err


def claim(name: str, memory: str) -> str:
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    return yaml.safe_dump({**head, "metadata": {"name": name}, "spec": request(memory)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Manifests in a directory and below it, and other files."""
    root = tmp_path / "manifests"
    (root / "below").mkdir(parents=True)
    (root / "b.yml").write_text(claim("b", "80Gi"))
    (root / "a.yaml").write_text(claim("a", "80Gi"))
    (root / "README.md").write_text("{")
    (root / "below" / "c.json").write_text(json.dumps(yaml.safe_load(claim("c", "90Gi"))))
    return root


def names(documents: tuple[tuple[str, object], ...]) -> list[str]:
    return [one["metadata"]["name"] for _, one in documents if isinstance(one, dict)]


def test_of_a_directory_the_manifests_are_read(folder: Path) -> None:
    assert names(inputs.manifests([str(folder)])) == ["a", "b"]
    assert names(inputs.manifests([str(folder)], recursive=True)) == ["a", "b", "c"]
    single = str(folder / "below" / "c.json")
    assert names(inputs.manifests([single, str(folder)])) == ["c", "a", "b"]
    other = folder / "no-suffix"
    other.write_text(claim("d", "80Gi"))
    assert names(inputs.manifests([str(other)])) == ["d"]


def test_a_directory_without_manifests_is_told(folder: Path) -> None:
    empty = folder / "empty"
    (empty / "below").mkdir(parents=True)
    with pytest.raises(Permanent, match=r"\.yml; its subdirectories are read with -R$"):
        inputs.manifests([str(empty)])
    with pytest.raises(Permanent, match=r"empty: no file ends in \.json, \.yaml, \.yml$"):
        inputs.manifests([str(empty)], recursive=True)


def test_a_file_of_a_directory_that_cannot_be_read_is_named(folder: Path) -> None:
    (folder / "z.yaml").write_text("a: [")
    with pytest.raises(Permanent, match=rf"cannot read the manifest {folder}/z.yaml: "):
        inputs.manifests([str(folder)])
    (folder / "below" / "loop.yaml").symlink_to("loop.yaml")
    with pytest.raises(Permanent, match=rf"cannot read the manifest {folder}/below/loop.yaml: "):
        inputs.manifests([str(folder / "below")])


def test_a_url_is_not_fetched(capsys) -> None:
    assert main(["explain", "-f", "https://example.com/a.yaml"]) == 2
    assert "try `curl -L https://example.com/a.yaml | dra-driver explain -f -`" in (
        capsys.readouterr().err
    )


@pytest.mark.usefixtures("cluster")
def test_the_manifests_of_a_directory_are_explained(tmp_path: Path, folder: Path) -> None:
    (folder / "b.yml").unlink()
    assert ask(tmp_path, "-f", str(folder)) == 0
    assert ask(tmp_path, "-R", "-f", str(folder)) == 1


@pytest.mark.parametrize(("left", "seconds"), [(60, 54), (20, 16), (10, 6), (4, 2), (0.5, 0.25)])
def test_however_short_the_time_is_a_step_of_the_search_may_take_some_seconds(
    left: float, seconds: float
) -> None:
    assert searching(left) == pytest.approx(seconds)
