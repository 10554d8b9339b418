# SPDX-License-Identifier: Apache-2.0
"""Does everything that the pages show work, and everything that they point at exist?"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dra_driver.backends.base import BackendContext
from dra_driver.backends.faults import parse_faults
from dra_driver.backends.profiles import PROFILES
from dra_driver.backends.registry import load_backend
from dra_driver.backends.simulated_config import LABEL, LabelConfig
from dra_driver.cli.main import main
from dra_driver.explain.outcome import (
    Change,
    ClaimReport,
    DeviceGroup,
    NearestMiss,
    NodeGroup,
    Report,
    RequestReport,
)
from dra_driver.explain.verdict import Tainted
from dra_driver.model.claim import OpaqueConfig
from dra_driver.model.cluster import NotRead
from dra_driver.model.ids import DriverName
from dra_driver.planning.config import config_for
from dra_driver.planning.slices import plan_pool
from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.fake_scheduler import FakeScheduler, Placed
from dra_driver.testing.plain_client import PLURALS, PlainClient
from tests.support import starting
from tests.support.api_values import slice_spec

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(
        ROOT / f"{name}.md"
        for name in ("README", "CONTRIBUTING", "RELEASE", "SECURITY", "CHANGELOG")
    ),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "helm" / "dra-driver" / "README.md",
]
DRIVER = DriverName("gpu.dra-driver.dev")
NODE = "node-1"
HANGING_SECONDS = 300
Object = dict[str, Any]


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)


def commands(path: Path) -> Iterator[tuple[list[str], str]]:
    """Each command of the console blocks, with the output shown below it."""
    for block in blocks(path, "console"):
        for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            yield command.split(), output


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text())
    assert [target for target in targets if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_links_into_pages_name_a_heading(path: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]*)\)", path.read_text()):
        text = (path.parent / target if target else path).read_text()
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        names = [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]
        assert anchor in names


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_commands_name_verbs_and_files_that_exist(path: Path) -> None:
    verbs = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words, _output in commands(path):
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= verbs
        named = [word for word in words if word.startswith(("hack/", "deviceclasses/"))]
        assert [word for word in named if not (ROOT / word).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_whoever_is_told_to_install_the_extra_is_told_what_for(path: Path) -> None:
    """A login program needs nothing; people of managed clusters would install 126 MB for it."""
    told = [text for text in path.read_text().split("\n\n") if "[cli]'" in text]
    assert [text for text in told if "`auth-provider`" not in text] == []


def test_the_picture_of_the_rooms_is_that_of_the_import_contracts() -> None:
    script = (sys.executable, ROOT / "hack" / "generate-rooms-picture", "--check")
    assert subprocess.run(script, check=False, timeout=HANGING_SECONDS).returncode == 0


def test_the_places_to_add_something_are_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("## Where do I add …?\n")[2].partition("\n## ")[0]
    named = re.findall(r"[a-z0-9_/-]+/[a-z0-9_./-]+\w", section)
    assert len(set(named)) > 25
    there = [
        path for path in named if (ROOT / path).exists() or (ROOT / "dra_driver" / path).exists()
    ]
    assert [path for path in named if path not in there] == []


def test_the_files_and_tests_that_the_comparison_with_the_helper_names_are_there() -> None:
    page = (ROOT / "docs" / "go-helper.md").read_text()
    named = set(re.findall(r"`([a-z0-9_/]+\.py)`", page))
    assert len(named) > 60
    folders = (ROOT / "dra_driver", ROOT / "tests" / "unit", ROOT / "tests")
    assert [name for name in named if not any((one / name).exists() for one in folders)] == []


def driver_commands() -> list[Any]:
    return [
        pytest.param(words[1:], output, id=" ".join(words[1:]))
        for path in PAGES
        for words, output in commands(path)
        if words[0] == "dra-driver"
    ]


@pytest.mark.parametrize(("arguments", "output"), driver_commands())
def test_commands_of_the_driver_run_and_print_what_is_shown(
    arguments: list[str], output: str
) -> None:
    ended = starting.run("dra_driver", *arguments, timeout=HANGING_SECONDS)
    assert ended.returncode == (1 if arguments[0] == "explain" else 0), ended.stderr
    assert not output or ended.stdout == output


@cache
def said_of_run(option: str) -> str:
    said = starting.run("dra_driver", "run", option, timeout=HANGING_SECONDS)
    assert said.returncode == 0
    return said.stdout


@pytest.mark.parametrize(("path", "option"), [(page, "--help") for page in PAGES], ids=str)
def test_flags_of_the_driver_in_commands_are_known(path: Path, option: str) -> None:
    known = said_of_run(option)
    for words, _output in commands(path):
        if ".venv/bin/dra-driver" in words:
            flags = [word for word in words if word.startswith("--")]
            assert [flag for flag in flags if flag not in known] == []


@cache
def said_of_kubectl(verb: str) -> str:
    program = Path(sys.executable).parent / "kubectl-dra"
    return subprocess.run([program, verb, "--help"], capture_output=True, text=True, check=True).stdout  # fmt: skip


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_verbs_and_flags_of_the_kubectl_plugin_are_known(path: Path) -> None:
    for words, _output in commands(path):
        if words[:2] == ["kubectl", "dra"]:
            flags = [word for word in words[3:] if word.startswith("-")]
            assert [flag for flag in flags if flag not in said_of_kubectl(words[2])] == []


def manifests(path: Path) -> list[Object]:
    loaded = (document for block in blocks(path, "yaml") for document in yaml.safe_load_all(block))
    return [document for document in loaded if document.get("kind") in PLURALS]


def classes_beside(path: Path) -> list[Object]:
    """The chart's DeviceClasses that the page does not show itself."""
    shown = {document["metadata"]["name"] for document in manifests(path)}
    files = sorted((ROOT / "deviceclasses").glob("*.yaml"))
    loaded = [document for file in files for document in yaml.safe_load_all(file.read_text())]
    return [document for document in loaded if document["metadata"]["name"] not in shown]


@pytest.mark.parametrize("path", [page for page in PAGES if manifests(page)], ids=page_id)
def test_pods_that_a_page_shows_get_their_devices(path: Path) -> None:
    backend = load_backend("simulated", BackendContext(NODE, {"profile": "h100x8"}))
    (content,) = plan_pool(backend.scan(), kept=()).slices
    spec = msgspec.to_builtins(
        slice_spec(NODE, 1, 1, content.devices or (), driver=DRIVER, node=NODE)
    )
    with FakeApi() as api, PlainClient(api.url) as client:
        api.put("nodes", {"metadata": {"name": NODE}})
        api.put("resourceslices", {"metadata": {"name": "s"}, "spec": spec})
        for document in [*classes_beside(path), *manifests(path)]:
            client.create(document)
        outcomes = FakeScheduler(client).schedule()
    pods = [document for document in manifests(path) if document["kind"] == "Pod"]
    assert [type(outcome) for outcome in outcomes] == [Placed] * len(pods), outcomes


@pytest.mark.parametrize(("what", "place"), [("cel", 0), ("allocate", 2)])
def test_the_problems_that_are_shown_get_the_answers_that_are_shown(what: str, place: int) -> None:
    problem, answer = blocks(ROOT / "docs" / "conformance.md", "json")[place : place + 2]
    command = (sys.executable, "-m", "dra_driver.testing.conformance", what)
    said = subprocess.run(command, input=problem, capture_output=True, text=True, check=True)
    assert json.loads(said.stdout) == json.loads(answer)


def test_the_document_of_an_explanation_has_the_fields_that_are_listed() -> None:
    text = (ROOT / "docs" / "pending.md").read_text()
    table = text[text.index("## The JSON") :]
    first = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    top = {name for cell in first for name in re.findall(r"`(\w+)", cell)}
    assert top == {field.encode_name for field in msgspec.structs.fields(Report)}
    named = set(re.findall(r"`(\w+)(?:\[\])?`", table))
    inner = (ClaimReport, RequestReport, DeviceGroup, NearestMiss, NodeGroup, Change, NotRead)
    fields = {field.encode_name for kind in inner for field in msgspec.structs.fields(kind)}
    assert fields - named == set()


def test_the_verdict_that_is_shown_is_one() -> None:
    (block,) = blocks(ROOT / "docs" / "pending.md", "json")
    shown = Tainted("gpu.dra-driver.dev/xid=79:NoSchedule")
    assert json.loads(block) == msgspec.to_builtins(shown)


def test_the_configuration_that_is_shown_is_understood() -> None:
    (text,) = [
        block
        for block in blocks(ROOT / "docs" / "deviceclasses.md", "yaml")
        if "DeviceConfig" in block
    ]
    entry = OpaqueConfig(0, "FromClaim", (), DRIVER, yaml.safe_load(text))
    assert config_for("r", [entry], (LABEL,)) == LABEL.config(LabelConfig(label="training run 7"))


def test_the_fault_file_that_is_shown_is_understood() -> None:
    (text,) = blocks(ROOT / "docs" / "try-it.md", "yaml")
    faults = parse_faults(text.encode(), Path("faults.yaml"), ["gpu-0", "gpu-1"])
    assert sorted(faults) == ["gpu-0", "gpu-1"]


def test_the_table_of_attributes_is_the_vocabulary_of_the_profiles() -> None:
    published: dict[str, str] = {}
    for profile in PROFILES.keys() - {"example"}:
        backend = load_backend("simulated", BackendContext(NODE, {"profile": profile}))
        for device in backend.scan().devices:
            for name, value in (device.api.attributes or {}).items():
                (published[name],) = msgspec.to_builtins(value)
            published |= dict.fromkeys(device.api.capacity or {}, "capacity")
    text = (ROOT / "docs" / "deviceclasses.md").read_text()
    table = dict(re.findall(r"^\| `([\w./]+)` \| (\w+) \| `", text, re.MULTILINE))
    assert table == published


def test_the_pages_name_every_profile() -> None:
    text = (ROOT / "docs" / "try-it.md").read_text()
    assert [name for name in PROFILES if f"`{name}`" not in text] == []


def marked(path: Path, mark: str) -> list[str]:
    """The lines of the block after a mark."""
    (found,) = re.findall(
        rf"^<!-- {mark} -->\n```text\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE
    )
    return str(found).splitlines()


def test_the_readme_shows_six_lines_of_the_answer_and_what_the_scheduler_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    (command,) = [words for words, _ in commands(ROOT / "README.md") if "explain" in words]
    ended = starting.run("dra_driver", *command[1:], timeout=HANGING_SECONDS)
    answer = iter(ended.stdout.splitlines())
    shown = marked(ROOT / "README.md", "explain")
    assert len(shown) == 6
    assert [line for line in shown if line not in answer] == []  # in this order
    record = (ROOT / command[command.index("--from") + 1]).read_text()
    (message,) = marked(ROOT / "README.md", "scheduler")
    assert f'"message": "{message}"' in record


def test_the_recorded_cluster_of_the_readme_can_be_asked_about_own_manifests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are in the namespace `default`, as for kubectl."""
    exactly = {"deviceClassName": "gpu.nvidia.com"}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "mine"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(claim))
    record = str(ROOT / "docs" / "pending-record.json")
    assert main(["explain", "-f", str(file), "--from", record]) == 0
    assert "claim default/mine: devices fit" in capsys.readouterr().out
    assert main(["explain", "--from", record]) == 0


def test_the_list_of_decisions_is_whole() -> None:
    folder = ROOT / "docs" / "adr"
    listed = re.findall(r"^- \[(.*)\]\((.*)\)$", (folder / "README.md").read_text(), re.MULTILINE)
    there = {path.name: path.read_text().partition("\n")[0] for path in folder.glob("0*.md")}
    assert {name: f"# {title.replace(': ', '. ', 1)}" for title, name in listed} == there


def test_try_it_shows_what_the_demo_prints() -> None:
    script = ROOT / "hack" / "generate-demo-picture"
    ended = subprocess.run(
        (sys.executable, script, "--check"), capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "")


def test_the_words_that_a_newcomer_meets_are_explained_where_newcomers_land() -> None:
    index = (ROOT / "docs" / "index.md").read_text().partition("## The words of these pages\n")[2]
    words = set(re.findall(r"^\| ([\w ]+) \| \S", index, re.MULTILINE)) - {"word"}
    assert words >= {"DRA", "CEL", "MIG", "XID", "CDI", "claim", "slice", "class"}
    readme = (ROOT / "README.md").read_text()
    for short, long in (
        ("CEL", "Common Expression Language"),
        ("DRA", "Dynamic Resource Allocation"),
    ):
        near = readme[: readme.index(f"{short}") + 60]
        assert long in near, short


def test_pages_name_the_system_that_the_kind_demo_needs() -> None:
    said = "kind.md#on-other-systems-than-debian-12"
    pages = (
        ROOT / "README.md",
        *(ROOT / "docs" / f"{name}.md" for name in ("try-it", "walkthrough")),
    )
    assert [path.name for path in pages if said not in path.read_text()] == []


def test_the_license_is_the_apache_license() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
