# SPDX-License-Identifier: Apache-2.0
"""`dra-driver convert`: what it reads and writes, and that the scheduler's search places the result on the machine that the pod was for."""

import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dra_driver.backends.profiles import PROFILES
from dra_driver.check.check import check
from dra_driver.check.given import Given, Known
from dra_driver.cli import machine
from dra_driver.cli.added_node import new_node
from dra_driver.cli.machine import classes, fits, product_names
from dra_driver.cli.main import main
from dra_driver.convert.convert import convert
from dra_driver.convert.resources import Choice
from dra_driver.errors import Permanent
from dra_driver.explain.report import ManifestSubject, explain
from dra_driver.model.api.core import NodeStatus
from dra_driver.model.api.resource_slice import ResourceSlice
from dra_driver.model.cluster import ClusterState

Object = dict[str, Any]
CONTAINER = "[{name: c, resources: {limits: %s}}]"


def pod(limits: str, spec: str = "{}") -> Object:
    containers = yaml.safe_load(CONTAINER % limits)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {**yaml.safe_load(spec), "containers": containers},
    }


def written(tmp_path: Path, *documents: Object, name: str = "pod.yaml") -> str:
    path = tmp_path / name
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


@pytest.mark.parametrize(
    ("limits", "spec", "profile", "elsewhere"),
    [
        ("{nvidia.com/gpu: 8}", "{}", "h100x8", "t4x2"),
        (
            "{nvidia.com/gpu: 2}",
            "{nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}}",
            "h100x8",
            "a100x8",
        ),
        (
            "{nvidia.com/gpu: 1}",
            "{nodeSelector: {nvidia.com/gpu.memory: '15360'}}",
            "t4x2",
            "h100x8",
        ),
        (
            "{nvidia.com/gpu: 1}",
            "{nodeSelector: {nvidia.com/gpu.family: hopper}}",
            "h200x8",
            "a100x8",
        ),
        (
            "{nvidia.com/gpu: 1}",
            "{nodeSelector: {nvidia.com/gpu.compute.major: '7'}}",
            "v100x1",
            "h100x8",
        ),
        (
            "{nvidia.com/gpu: 4}",
            "{nodeSelector: {accelerator: nvidia-tesla-v100}}",
            "v100x4",
            "v100x1",
        ),
        ("{nvidia.com/gpu: 1}", "{nodeSelector: {accelerator: nvidia}}", "gb10", "mi300x8"),
        (
            "{nvidia.com/gpu: 1}",
            "{nodeSelector: {cloud.google.com/gke-accelerator: nvidia-l4}}",
            "",
            "l40sx4",
        ),
        (
            "{nvidia.com/gpu: 1}",
            "{nodeSelector: {cloud.google.com/gke-accelerator: nvidia-a100-80gb}}",
            "a100x8",
            "a100-40x8",
        ),
        ("{nvidia.com/gpu.type: A100}", "{}", "a100-40x8", "h100x8"),
        ("{nvidia.com/gpu.shared: 1}", "{}", "t4x2", "b580x2"),
        ("{nvidia.com/mig-1g.5gb: 4}", "{}", "a100-mig", "a100-40x8"),
        ("{nvidia.com/mig-3g.20gb: 2}", "{}", "a100-mig", ""),
        ("{nvidia.com/mig-3g.20gb: 3}", "{}", "", "a100-mig"),
        (
            "{nvidia.com/gpu: 4}",
            "{nodeSelector: {cloud.google.com/gke-gpu-partition-size: 1g.5gb}}",
            "a100-mig",
            "a100-40x8",
        ),
        ("{aliyun.com/gpu-mem: 16}", "{}", "v100x1", "t4x2"),
        ("{amd.com/gpu: 8}", "{}", "mi300x8", "h100x8"),
        ("{gpu.intel.com/xe: 2}", "{}", "b580x2", "mi300x8"),
        ("{gpu.intel.com/i915: 1}", "{}", "b580x2", "gaudi3x8"),
        ("{habana.ai/gaudi: 8}", "{}", "gaudi3x8", "b580x2"),
        ("{amd.com/gpu: 1, gpu.intel.com/xe: 1}", "{}", "mixed", "mi300x8"),
        ("{amd.com/gpu: 1, nvidia.com/gpu: 4}", "{}", "mixed", "h100x8"),
    ],
)
def test_the_result_is_placed_on_the_machine_that_the_pod_was_for(
    limits: str, spec: str, profile: str, elsewhere: str
) -> None:
    found = convert(pod(limits, spec), Choice(), product_names())
    assert (found.is_changed, found.left) == (True, ())
    given = [Given(document) for document in found.documents]
    assert check(given, Known()) == []
    if profile:
        answer = fits(profile, found.documents)
        assert (answer.fits, answer.text[: len(profile) + 8]) == (True, f"fits on {profile}"), (
            answer
        )
    if elsewhere:
        assert not fits(elsewhere, found.documents).fits


RTX_PRO, RTX_A = "NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA RTX A6000"


@pytest.mark.parametrize(
    ("label", "product", "other"),
    [
        ("cloud.google.com/gke-accelerator: nvidia-rtx-pro-6000", RTX_PRO, RTX_A),
        ("accelerator: RTX-A6000", RTX_A, RTX_PRO),
        ("accelerator: nvidia-geforce-rtx-4090", "NVIDIA GeForce RTX 4090", RTX_A),
        ("gpu-type: a100-80gb", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB"),
    ],
)
def test_hyphens_of_a_label_stand_for_the_blanks_of_a_name(
    label: str, product: str, other: str
) -> None:
    found = convert(pod("{nvidia.com/gpu: 1}", f"{{nodeSelector: {{{label}}}}}"), Choice(), ())
    assert found.left == ()
    assert [_placed(found.documents, name) for name in (product, other)] == [True, False]


def test_a_name_of_a_gpu_that_is_not_known_stays() -> None:
    label = "{nodeSelector: {accelerator: nvidia-super-gpu}}"
    (one,) = convert(pod("{nvidia.com/gpu: 1}", label), Choice(), ()).left
    assert one.what == "accelerator: nvidia-super-gpu"
    assert one.reason.startswith("no GPU is known by this name: write nvidia.com/gpu.product")


def _placed(documents: Sequence[Object], product: str) -> bool:
    """Whether the search places the pods on a machine with GPUs of this name."""
    added = new_node("t4x2:gpu.nvidia.com", flag="")
    text = msgspec.json.encode(added.slices).replace(b"Tesla T4", product.encode())
    node = msgspec.structs.replace(
        added.node, status=NodeStatus(allocatable={"cpu": "8", "pods": "9"})
    )
    slices = msgspec.json.decode(text, type=tuple[ResourceSlice, ...])
    cluster = ClusterState(nodes=(node,), resource_slices=slices, device_classes=classes())
    asked = tuple({**one, "metadata": {**one["metadata"], "namespace": "ns"}} for one in documents)
    return explain(cluster, ManifestSubject(asked, "ns", "pods"), recorded=True).exit_code == 0


def test_a_gt_of_an_affinity_chooses_the_machine() -> None:
    term = "{matchExpressions: [{key: gpu-memory, operator: Gt, values: ['32000']}, {key: gpu-generation, operator: In, values: [ampere, hopper]}]}"
    spec = "{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [%s]}}}}"
    found = convert(pod("{nvidia.com/gpu: 2}", spec % term), Choice(), product_names())
    fitting = [profile for profile in PROFILES if fits(profile, found.documents).fits]
    assert fitting == ["h100x8", "h200x8", "a100x8", "a100-40x8", "mixed"]


def test_a_label_that_stays_is_no_part_of_the_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, pod("{nvidia.com/gpu: 2}", "{nodeSelector: {gpu-count: '8'}}"))
    assert main(["convert", file, "--profile", "h100x8"]) == 3
    captured = capsys.readouterr()
    template, made = yaml.safe_load_all(captured.out)
    assert template["metadata"] == {"name": "p-gpu"}
    assert made["spec"]["nodeSelector"] == {"gpu-count": "8"}
    assert "# not converted: gpu-count: 8: how many devices" in captured.out
    assert captured.err.splitlines() == [
        "dra-driver: Pod p: not converted: gpu-count: 8: how many devices a node has, no device can say; it stays. A claim for as many devices needs no label",
        "dra-driver: fits on h100x8: the devices fit on 1 of 1 nodes",
    ]


def test_a_machine_that_does_not_have_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, pod("{nvidia.com/gpu: 3}"))
    small = written(tmp_path, {**pod("{nvidia.com/gpu: 1}"), "metadata": {"name": "q"}}, name="q.y")
    for names in ([file], [small, file]):
        assert main(["convert", *names, "--profile", "t4x2"]) == 1
        assert capsys.readouterr().err == (
            "dra-driver: does not fit on t4x2: pod default/p: 3 devices are needed on one node, 2 can be had; "
            "change what it asks for, or name a machine that has it by --profile\n"
        )


def test_pods_that_do_not_fit_on_one_machine_together_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}}
    template = {"spec": {"restartPolicy": "Never", **pod("{nvidia.com/gpu: 4}")["spec"]}}
    spec = {"parallelism": 3, "completions": 3, "template": template}
    assert main(["convert", written(tmp_path, {**job, "spec": spec}), "--profile", "h100x8"]) == 1
    assert capsys.readouterr().err == (
        "dra-driver: does not fit on h100x8: 2 of 3 pods have room together on one such machine; "
        "job default/j needs another one, or ask for less\n"
    )


def test_a_profile_that_there_is_not_ends_it_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, pod("{nvidia.com/gpu: 3}"))
    assert main(["convert", file, "--profile", "t4x3"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(
        "dra-driver: --profile: there is no profile t4x3; did you mean t4x2?"
    )


def test_class_and_driver_are_those_of_the_flags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, pod("{nvidia.com/gpu: 1}", "{nodeSelector: {gpu-generation: hopper}}"))
    flags = ("--class", "nvidia-gpu", "--driver-name", "gpu.dra-driver.dev", "--profile", "h100x8")
    assert main(["convert", file, *flags]) == 0
    captured = capsys.readouterr()
    assert "deviceClassName: nvidia-gpu" in captured.out
    assert 'device.attributes["gpu.dra-driver.dev"].architecture' in captured.out
    assert captured.err == "dra-driver: fits on h100x8: the devices fit on 1 of 1 nodes\n"


def test_other_objects_are_written_as_they_were(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [service, pod("{nvidia.com/gpu: 1}")]}
    assert main(["convert", written(tmp_path, listed)]) == 0
    kinds = [one["kind"] for one in yaml.safe_load_all(capsys.readouterr().out)]
    assert kinds == ["Service", "ResourceClaimTemplate", "Pod"]


def test_standard_input_is_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = yaml.safe_dump(pod("{nvidia.com/gpu: 1}")).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert main(["convert", "-"]) == 0
    assert "resourceClaimTemplateName: p-gpu" in capsys.readouterr().out


BAD = "\x1b]0;x\a\x1b[2J\r\n---\nkind: Injected\n#\x85\u2028\u2029\u202e"
MIG = "nvidia.com/mig-" + BAD.replace("\n", "")  # the end of a line ends the name of a resource
LABEL = "nvidia.com/gpu.driver" + BAD.replace("\n", "")
TERM = {"matchExpressions": [{"key": LABEL, "operator": BAD, "values": [BAD]}]}
PREFERRED = [{"weight": 1, "preference": TERM}]
LEFT: list[tuple[Object, int]] = [
    ({"apiVersion": "x.example/v1", "kind": BAD, BAD: {"limits": {MIG: BAD}}}, 1),
    ({"apiVersion": f"{BAD}/v1", "kind": BAD, "requests": {MIG: 1}}, 1),
    ({"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {MIG: BAD}}}, 1),
    ({"apiVersion": "v1", "kind": "LimitRange", "spec": {"limits": [{"max": {MIG: BAD}}]}}, 1),
    (
        pod(
            json.dumps({MIG: 1, "nvidia.com/gpu": BAD, "amd.com/gpux": BAD, "google.com/tpu": BAD})
        ),
        4,
    ),
    (
        pod(
            "{nvidia.com/gpu: 1}",
            json.dumps(
                {
                    "nodeSelector": {LABEL: BAD, "nvidia.com/gpu.product": BAD, "gpu-count": BAD},
                    "affinity": {
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [TERM, TERM]
                            },
                            "preferredDuringSchedulingIgnoredDuringExecution": PREFERRED,
                        }
                    },
                }
            ),
        ),
        4,
    ),
]


@pytest.mark.parametrize(("document", "number"), LEFT)
def test_what_is_repeated_of_the_input_stays_in_its_comment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], document: Object, number: int
) -> None:
    """The output goes into `kubectl apply -f -`, and to a terminal: no text of a name, amount or kind becomes an object or an escape."""
    document.setdefault("metadata", {})["name"] = BAD
    main(["convert", written(tmp_path, document)])
    captured = capsys.readouterr()
    kinds = {one["kind"] for one in yaml.safe_load_all(captured.out)}
    assert kinds <= {document["kind"], "ResourceClaimTemplate"}
    comments = [one for one in captured.out.split("\n") if one.startswith("# not converted: ")]
    errors = captured.err.removesuffix("\n").split("\n")
    assert (len(comments), len(errors)) == (number, number)
    for one in (*comments, *errors):
        assert one.isprintable()
    for one in errors:
        assert one.startswith("dra-driver: ")
    assert "\x1b" not in captured.out
    assert "\a" not in captured.out


def test_a_text_that_kubectl_would_take_for_a_number_is_written_in_quotes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = ["12345e7", "n", "08", "12:30"]
    one = pod("{nvidia.com/gpu: 1}")
    one["spec"]["containers"][0]["env"] = [{"name": "A", "value": each} for each in values]
    (tmp_path / "pod.json").write_text(json.dumps(one))
    assert main(["convert", str(tmp_path / "pod.json")]) == 0
    out = capsys.readouterr().out
    assert all(f"value: '{each}'\n" in out for each in values)


def test_text_with_direction_marks_is_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a reviewer reads a command in another order than the container runs it."""
    given = pod("{nvidia.com/gpu: 1}")
    given["spec"]["containers"][0]["command"] = ["sh", "-c", "a \u202eb # ü"]
    assert main(["convert", written(tmp_path, given)]) == 0
    made = capsys.readouterr().out
    assert "\u202e" not in made
    *_, converted = yaml.safe_load_all(made)
    assert converted["spec"]["containers"][0]["command"] == ["sh", "-c", "a \u202eb # ü"]


def test_a_file_name_with_a_line_end_begins_no_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad\n::error::x.yaml").write_text("{")
    assert main(["convert", str(tmp_path)]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert [one[:12] for one in errors] == ["dra-driver: "]


def test_nothing_to_convert_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", written(tmp_path, pod("{cpu: 1}")), "--profile", "h100x8"]) == 0
    assert "no pod asks for devices by a resource: nothing is converted" in capsys.readouterr().err
    assert main(["convert", written(tmp_path, pod("{nvidia.com/gpu.shared: 2}"))]) == 1
    assert "shares are no part of a GPU's power" in capsys.readouterr().err


def test_a_label_of_devices_without_a_request_is_told_as_check_tells_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = pod("{cpu: 1}", "{nodeSelector: {nvidia.com/gpu.product: A}}")
    file = written(tmp_path, document)
    assert main(["convert", file]) == 0
    captured = capsys.readouterr()
    assert list(yaml.safe_load_all(captured.out)) == [document]
    told, end = captured.err.splitlines()
    assert told.startswith("dra-driver: Pod p: not converted: nvidia.com/gpu.product: A: ")
    assert end == "dra-driver: no pod asks for devices by a resource: nothing is converted"
    (note,) = [one for one in check([Given(document)], Known()) if one.rule == "node-choice"]
    assert note.action.endswith(told.partition("product: A: ")[2])


def test_files_are_written_into_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = written(tmp_path, pod("{nvidia.com/gpu: 1}"), name="a.yml")
    two = written(tmp_path, pod("{amd.com/gpu: 1}"), name="b.json")
    folder = tmp_path / "out" / "deep"
    assert main(["convert", one, two, "--output-dir", str(folder)]) == 0
    assert sorted(file.name for file in folder.iterdir()) == ["a.yaml", "b.yaml"]
    assert "amd-gpu" in (folder / "b.yaml").read_text()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"wrote {folder}/a.yaml" in captured.err
    assert main(["convert", one, "--output-dir", str(folder)]) == 2
    assert "it exists; choose another name, or give --force" in capsys.readouterr().err
    assert main(["convert", one, "--output-dir", str(folder), "--force"]) == 0
    assert main(["convert", one, one, "--output-dir", str(folder), "--force"]) == 2
    assert "two files would become" in capsys.readouterr().err
    assert main(["convert", one, "--output-dir", one]) == 2
    assert f"cannot make the folder {one}: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "cannot read the manifest"),
        ("- 3", "document 1 is no object: give YAML or JSON of the API"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    assert main(["convert", str(file)]) == 2
    assert said in capsys.readouterr().err


def test_a_bad_file_keeps_no_other_one_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text("- 3\n")
    (tmp_path / "b.yaml").symlink_to("nothing")
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(pod("{nvidia.com/gpu: 1}")))
    os.mkfifo(tmp_path / "d.yaml")
    assert main(["convert", str(tmp_path), "--output-dir", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path}/a.yaml, document 1 is no object" in said
    assert f"cannot read the manifest {tmp_path}/b.yaml: there is no such file" in said
    assert f"{tmp_path}/d.yaml is no regular file: it is not read" in said
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["c.yaml"]


def test_wrong_usage_and_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["convert"])
    assert left.value.code == 64
    assert "give files or directories to convert" in capsys.readouterr().err
    file = written(tmp_path, *[pod("{nvidia.com/gpu: 1}")] * 300)
    assert main(["convert", file, "--timeout", "0"]) == 2
    assert "gave up after 0 s of work (--timeout)" in capsys.readouterr().err


def test_ctrl_c_is_its_own_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object, **_more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dra_driver.cli.inputs.files", interrupted)
    assert main(["convert", written(tmp_path, pod("{cpu: 1}"))]) == 130


def test_the_classes_are_those_that_the_driver_brings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"gpu.nvidia.com", "mig.nvidia.com", "nvidia-gpu", "amd-gpu", "intel-gpu", "gaudi"} <= {
        one.metadata.name for one in classes()
    }
    monkeypatch.setattr(machine, "_class_files", lambda: iter(()))
    classes.cache_clear()
    with pytest.raises(Permanent, match="the folder deviceclasses of dra-driver is not there"):
        classes()
    classes.cache_clear()
