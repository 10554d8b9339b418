# SPDX-License-Identifier: Apache-2.0
"""`dra-driver check`: what it reads, prints and corrects, and what the exit code says."""

import io
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dra_driver.cli import check_fix as command
from dra_driver.cli.main import kubectl, main
from dra_driver.model.api.meta import ObjectMeta
from dra_driver.model.api.resource_claim import DeviceClass
from dra_driver.model.api.resource_slice import ResourceSlice
from dra_driver.model.cluster import ClusterState, NotRead, encode
from dra_driver.testing.fake_api import FakeApi
from tests.e2e import fleet as words
from tests.unit.check.findings import claim, pod

WARNED = claim("deviceClassName: gpu.nvida.com")
OLD = WARNED.replace("/v1\n", "/v1beta2\n")
CLEAN = claim("deviceClassName: gpu")


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)


def file(text: str, name: str = "a.yaml") -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return name


def stdin(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_a_clean_file_is_zero_and_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", file(CLEAN)]) == 0
    assert capsys.readouterr() == ("1 file: nothing found\n", "")


def test_the_text_has_place_rule_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", file(WARNED)]) == 0
    assert capsys.readouterr().out == (
        "a.yaml:9:28: warning: ResourceClaim c: DeviceClass gpu.nvida.com is not in the files, and no known class has this name [ref-class]\n"
        "    did you mean gpu.nvidia.com?\n"
        "1 file: 1 warning\n"
    )


def test_an_expression_is_shown_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    text = claim("deviceClassName: gpu\nselectors: [{cel: {expression: 'true && x'}}]")
    assert main(["check", file(text)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "a.yaml:10:51: error: ResourceClaim c: the expression does not compile: undeclared reference to 'x'"
    )
    assert lines[1:3] == ["     | true && x", "     | ........^"]
    assert lines[-1] == "1 file: 1 error"


@pytest.mark.parametrize(
    ("text", "flags", "code"),
    [
        (CLEAN, (), 0),
        (WARNED, (), 0),
        (WARNED, ("--strict",), 1),
        (pod("resources: {limits: {nvidia.com/gpu: 1}}"), ("--strict",), 0),
        ("a: b\n", (), 0),
        ("kind: Pod\nmetadata: {}\n", (), 1),
        ("a: [\n", (), 1),
        ("", (), 0),
    ],
    ids=["clean", "warning", "strict", "note", "values", "error", "no-yaml", "empty"],
)
def test_exit_codes(text: str, flags: tuple[str, ...], code: int) -> None:
    assert main(["check", file(text), *flags]) == code


@pytest.mark.parametrize("text", ["", "# later\n", "---\n---\n"])
@pytest.mark.parametrize("words", [[], ["--fix"]])
def test_a_file_with_nothing_in_it_is_told(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    words: list[str],
) -> None:
    said = "note: the file: it is empty or has only comments: nothing is checked [not-checked]"
    assert main(["check", *words, file(text), file(CLEAN, "b.yaml")]) == 0
    assert capsys.readouterr().out == f"a.yaml: {said}\n2 files: 1 note\n"
    stdin(monkeypatch, text.encode())
    assert main(["check", *words, "-"]) == 0
    assert f"-: {said}\n" in "".join(capsys.readouterr())


def test_a_file_that_cannot_be_read_is_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "nope.yaml"]) == 2
    assert capsys.readouterr().out == "0 files: nothing is checked; 1 file not looked into\n"
    assert main(["check", "nope.yaml", file(CLEAN)]) == 2
    assert capsys.readouterr().out == "1 file: nothing found; 1 file not looked into\n"
    assert main(["check", "nope.yaml", "a.yaml", "-o", "json"]) == 2
    (other,) = json.loads(capsys.readouterr().out)["unchecked"]
    reason = "cannot read the manifest nope.yaml: there is no such file"
    assert other == {"file": "nope.yaml", "reason": reason}


def test_a_file_that_is_no_yaml_is_told_and_the_others_are_checked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = CLEAN + "---\na: 1\na: 2\n"
    assert main(["check", file(bad), file(WARNED, "b.yaml")]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "a.yaml:12:1: error: the file: the key 'a' is there twice; remove one of them [yaml]",
        "    correct it; what follows in this file is not checked",
        "b.yaml:9:28: warning: ResourceClaim c: DeviceClass gpu.nvida.com is not in the files, and no known class has this name [ref-class]",
        "    did you mean gpu.nvidia.com?",
        "2 files: 1 error, 1 warning",
    ]


def test_what_is_no_manifest_is_no_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    names = [
        file("replicas: 1\n---\nimage: x\n"),
        file("apiVersion: v2\nname: chart\n", "Chart.yaml"),
        file("{{- if .Values.a }}\nkind: Pod\n{{- end }}\n", "t.yaml"),
        file(f"a: 1\n---\n{WARNED}", "b.yaml"),
    ]
    assert main(["check", *names]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "a.yaml: note: the file: no object of Kubernetes, which has apiVersion and kind: it is not checked [not-checked]",
        "Chart.yaml: note: the file: no object of Kubernetes, which has apiVersion and kind: it is not checked [not-checked]",
        "t.yaml: note: the file: a template with {{…}} is no YAML: it is not checked [not-checked]",
        "    render it first: `helm template … | dra-driver check -`",
        "b.yaml: note: the file: no object of Kubernetes, which has apiVersion and kind: it is not checked [not-checked]",
        "b.yaml:11:28: warning: ResourceClaim c: DeviceClass gpu.nvida.com is not in the files, and no known class has this name [ref-class]",
        "    did you mean gpu.nvidia.com?",
        "4 files: 1 warning, 4 notes",
    ]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a: {{ .Values.a }}\nb: [\n", "not-checked"),
        ("a:\n  - {{ .Values.a }}\n", "not-checked"),
        ("a: '{{ .Values.a }}'\nb: [\n", "yaml"),
        ("a: [\n# {{\n", "yaml"),
    ],
)
def test_only_what_is_a_template_is_one(
    capsys: pytest.CaptureFixture[str], text: str, rule: str
) -> None:
    assert main(["check", file(text)]) == (1 if rule == "yaml" else 0)
    assert f"[{rule}]" in capsys.readouterr().out


def test_directories_are_read_as_kubectl_does(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("d/a.yaml", "d/b.json", "d/c.txt", "d/deep/e.yml"):
        file(json.dumps(yaml.safe_load(WARNED)), name)
    assert main(["check", "-f", "d", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["file"] for one in document["findings"]] == ["d/a.yaml", "d/b.json"]
    assert main(["check", "-R", "d", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["file"] for one in document["findings"]] == ["d/a.yaml", "d/b.json", "d/deep/e.yml"]
    assert document["files"] == 3


def test_a_bad_file_keeps_no_other_one_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b.yaml").symlink_to("nothing")
    (tmp_path / "c.yaml").write_text("kind: Pod\nmetadata: {name: p}\n")
    os.mkfifo(tmp_path / "d.yaml")
    assert main(["check", str(tmp_path)]) == 2
    out, said = capsys.readouterr()
    assert "it has no apiVersion" in out
    assert f"cannot read the manifest {tmp_path}/b.yaml: there is no such file" in said
    assert f"{tmp_path}/d.yaml is no regular file: it is not read" in said


def test_standard_input_is_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin(monkeypatch, WARNED.encode())
    assert main(["check", "-"]) == 0
    assert capsys.readouterr().out.startswith("-:9:28: warning: ")


def test_kubectl_has_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert kubectl(["check", file(CLEAN)]) == 0
    assert capsys.readouterr().out == "1 file: nothing found\n"


def test_documents_and_sarif(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", file(WARNED), "-o", "yaml"]) == 0
    document = yaml.safe_load(capsys.readouterr().out)
    assert (document["kind"], document["warnings"]) == ("Check", 1)
    assert main(["check", file(WARNED), "-o", "sarif"]) == 0
    log = json.loads(capsys.readouterr().out)
    assert log["version"] == "2.1.0"
    (result,) = log["runs"][0]["results"]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert (result["ruleId"], region) == ("ref-class", {"startLine": 9, "startColumn": 28})


def test_hostile_names_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            [
                "check",
                file('apiVersion: a\\x1b/v1\nkind: "K\\e[31m"\nmetadata: {name: "\\u202e"}\n'),
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give files or directories to check, or - for standard input"),
        (("--fix", "-", "a.yaml"), "--fix writes standard input to standard output: give - alone"),
    ],
)
def test_wrong_usage_is_64(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["check", *arguments])
    assert left.value.code == 64
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("none.yaml",), "cannot read the manifest none.yaml: there is no such file"),
        (("a.yaml", "--from", "none"), "cannot read the record none: there is no such file"),
        (("a.yaml", "--kubeconfig", "none"), "none"),
        (("a.yaml", "--timeout", "0"), "gave up after 0 s of work (--timeout)"),
    ],
)
def test_what_cannot_be_read_is_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    file(CLEAN + f"---\n{CLEAN}" * 400)
    assert main(["check", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_explain_is_named_with_what_was_checked(capsys: pytest.CaptureFixture[str]) -> None:
    made = words.resource_slice([words.device("gpu-0")])
    slices = (msgspec.convert(made, ResourceSlice),)
    Path("my record.json").write_bytes(encode(ClusterState(resource_slices=slices)))
    asked = file(yaml.safe_dump(words.claim(words.request(cel="1 == 2"))))
    assert main(["check", asked, "--from", "my record.json"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"`dra-driver explain --from 'my record.json' -f {asked}` says for each" in said


def test_a_record_says_what_is_in_the_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    state = ClusterState(device_classes=(DeviceClass(metadata=ObjectMeta(name="gpux")),))
    Path("record.json").write_bytes(encode(state))
    assert main(["check", file(CLEAN), "--from", "record.json"]) == 0
    assert (
        "there is no DeviceClass gpu, neither in the files nor in the cluster"
        in capsys.readouterr().out
    )


def test_what_of_the_cluster_was_not_read_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    gaps = tuple(
        NotRead(resource=name, reason="forbidden", message="not allowed")
        for name in ("resourceslices", "pods")
    )
    Path("record.json").write_bytes(encode(ClusterState(not_read=gaps)))
    assert main(["check", file("kind: Pod\nspec: {}\n"), "--from", "record.json"]) == 1
    assert main(["check", file("a: 1\n"), "--from", "record.json"]) == 2
    said = "dra-driver: could not be read: resourceslices: not allowed\n"
    assert capsys.readouterr().err == said * 2


def test_a_cluster_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeApi() as api:
        api.put("deviceclasses", {"metadata": {"name": "gpux"}, "spec": {}})
        api.kubeconfig(Path("config"))
        assert main(["check", file(CLEAN), "--kubeconfig", "config"]) == 0
    assert "did you mean gpux?" in capsys.readouterr().out


def test_configurations_are_read_by_the_readers_of_the_driver(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plugin = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 1}]}}\nflags: {nope: 1}\n"
    layout = "version: v1\nmig-configs:\n  all-1g.5gb: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}]\n"
    bad = layout.replace("7}", "x}")
    assert (
        main(["check", file(plugin), file(layout, "b.yaml"), file(bad, "c.yaml"), "-o", "json"])
        == 1
    )
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [(one["file"], one["rule"]) for one in found] == [
        ("a.yaml", "plugin-config"),
        ("b.yaml", "mig-layout-by"),
        ("c.yaml", "mig-layout"),
    ]
    assert "nvidia-smi mig" in found[1]["message"]
    ok = plugin.replace("replicas: 1", "replicas: 4")
    assert main(["check", file(ok), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [(one["rule"], one["message"][:11]) for one in found] == [
        ("plugin-config-key", "flags.nope:")
    ]


def test_fix_rewrites_the_file_and_shows_what_it_changed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = file(f"# first\n{OLD}# last\n")
    os.chmod(name, 0o640)  # noqa: PTH101  the mode stays
    assert main(["check", "--fix", name]) == 0
    assert Path(name).read_text() == f"# first\n{WARNED}# last\n"
    assert Path(name).stat().st_mode & 0o777 == 0o640
    captured = capsys.readouterr()
    assert captured.out.splitlines()[0] == (
        "a.yaml:2:13: fixed: resource.k8s.io/v1beta2 is an older form [old-version]"
    )
    assert captured.out.splitlines()[-1] == "1 file: 1 warning; 1 fixed"
    assert captured.err.splitlines() == [
        "dra-driver: a.yaml is changed:",
        "--- a.yaml",
        "+++ a.yaml (fixed)",
        "@@ -1,3 +1,3 @@",
        " # first",
        "-apiVersion: resource.k8s.io/v1beta2",
        "+apiVersion: resource.k8s.io/v1",
        " kind: ResourceClaim",
    ]


def test_fix_keeps_line_ends_and_the_mark_of_the_byte_order() -> None:
    before, after = (text.replace("\n", "\r\n").encode("utf-8-sig") for text in (OLD, WARNED))
    name = Path(file(""))
    name.write_bytes(before)
    assert main(["check", "--fix", str(name)]) == 0
    assert name.read_bytes() == after


def test_fix_leaves_what_is_right_or_no_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    names = [file(CLEAN), file("a: [\n", "b.yaml")]
    Path("c.yaml").write_bytes(b"\xff\xfea\0")
    before = {name: Path(name).read_bytes() for name in (*names, "c.yaml")}
    assert main(["check", "--fix", *names, "c.yaml"]) == 1
    assert {name: Path(name).read_bytes() for name in before} == before
    assert "is changed" not in capsys.readouterr().err


def test_fix_says_what_it_left(capsys: pytest.CaptureFixture[str]) -> None:
    text = claim(
        'deviceClassName: gpu\nselectors:\n  - cel:\n      expression: |\n        device.attributes["memory"]\n          > 8000'
    )
    assert main(["check", "--fix", file(text)]) == 0
    assert Path("a.yaml").read_text() == text
    assert (
        "the changed text would not have the right meaning, so it is left"
        in capsys.readouterr().err
    )


def test_fix_of_standard_input_goes_to_standard_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin(monkeypatch, f"# é\n{OLD}".encode())
    assert main(["check", "--fix", "-", "--strict"]) == 1
    captured = capsys.readouterr()
    assert captured.out == f"# é\n{WARNED}"
    assert "dra-driver: -:2:13: fixed: resource.k8s.io/v1beta2" in captured.err
    assert captured.err.endswith("1 file: 1 warning; 1 fixed\n")
    stdin(monkeypatch, b"a: [\n")
    assert main(["check", "--fix", "-"]) == 1
    captured = capsys.readouterr()
    assert captured.out == "a: [\n"
    assert "[yaml]" in captured.err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff", "standard input is no UTF-8"),
        (b"#" * 101, "standard input has more than 100 bytes"),
    ],
)
def test_standard_input_that_cannot_be_corrected_is_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, content: bytes, said: str
) -> None:
    monkeypatch.setattr(command, "LARGEST_FIXED", 100)
    stdin(monkeypatch, content)
    assert main(["check", "--fix", "-"]) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fchmod", full)
        assert main(["check", "--fix", file(OLD)]) == 2
    assert (Path("a.yaml").read_text(), [one.name for one in Path().iterdir()]) == (OLD, ["a.yaml"])
    assert (
        "cannot write a.yaml: No space left on device; nothing in it was corrected"
        in capsys.readouterr().err
    )
    monkeypatch.setattr(command, "LARGEST_FIXED", 10)
    assert main(["check", "--fix", "a.yaml"]) == 0


def test_an_alias_bomb_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40))]
    assert main(["check", file("\n".join(lines))]) == 1
    assert (
        "a document of more than 150,000 values (aliases count) [yaml]" in capsys.readouterr().out
    )


def test_a_file_of_64_mib_is_a_finding_and_needs_little_memory(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Path("big.yaml").open("wb") as big:
        big.write(b"a: |\n")
        big.writelines(b" " + b"x" * (2**20 - 2) + b"\n" for _ in range(64))
    tracemalloc.start()
    assert main(["check", "big.yaml"]) == 1
    assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    tracemalloc.stop()
    assert "one value is longer than 6,291,456 bytes [yaml]" in capsys.readouterr().out


def test_ctrl_c_is_its_own_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: Any, **_more: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dra_driver.cli.inputs.files", interrupted)
    assert main(["check", file(CLEAN)]) == 130
