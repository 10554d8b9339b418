# SPDX-License-Identifier: Apache-2.0
"""Project, package and image have one name each, in dra_driver/__init__.py; and no page tells people to fetch what nobody owns."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from dra_driver import IMAGE, PACKAGE, PROJECT
from hack.release import names

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / PROJECT
HOME = ROOT / "dra_driver" / "__init__.py"
KEPT = {'"dra-driver/record"'}
"""The mark of a record file: files are older than a new name of the project."""
HAS_THE_IMAGE = {
    "dra_driver/__init__.py",
    "hack/kind-demo",  # a hint in words; the image itself has the name of hack/image
    "helm/dra-driver/values.yaml",
}
FETCHES = re.compile(
    r"(?:pip|pip3|pipx|uv|uvx|poetry)\s+(?:tool\s+|pip\s+)?(?:install|add|run)\s+(?P<what>[^\n`]+)"
)


def product() -> list[Path]:
    """The files that people get, without tests."""
    folders = ("dra_driver", "hack", "helm", "docs", "deviceclasses")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    top = (
        *("README.md", "CONTRIBUTING.md", "SECURITY.md", "RELEASE.md", "CHANGELOG.md"),
        *("Makefile", "Dockerfile", ".pre-commit-hooks.yaml"),
    )
    return [
        path
        for path in (*files, *(ROOT / name for name in top))
        if not {"__pycache__", "patches"} & set(path.parts)
        and path.suffix in {"", ".md", ".py", ".yaml", ".tpl", ".json", ".txt", ".sh"}
    ]


def test_package_and_command_have_the_constants() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == PACKAGE
    assert next(iter(project["scripts"])) == PROJECT


def test_the_chart_has_the_constants() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["name"] == PROJECT
    assert yaml.safe_load((CHART / "values.yaml").read_text())["image"]["repository"] == IMAGE


def test_the_dockerfile_starts_the_project() -> None:
    assert f'ENTRYPOINT ["/usr/local/bin/{PROJECT}"]' in (ROOT / "Dockerfile").read_text()


def test_a_container_engine_tags_the_image_with_the_constants() -> None:
    command = [ROOT / "hack" / "image" / "docker-build", f"x@sha256:{'0' * 64}"]
    said = subprocess.run(
        command,
        env={"DOCKER": "echo", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"--tag {IMAGE}:" in said.stdout


def strays(code: str) -> list[str]:
    """Texts that are the name of the project, or begin with it as a name does, and are no prose."""
    if PROJECT not in code:
        return []  # to parse every module takes seven seconds
    tree = ast.parse(code)
    prose = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    name = re.compile(rf"{PROJECT}([/:-].*)? ?", re.DOTALL)
    return [
        ast.unparse(node).replace("'", '"')
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node not in prose
        if isinstance(node.value, str) and name.fullmatch(node.value)
    ]


@pytest.mark.parametrize("code", ['x = "dra-driver"', 'f"dra-driver/{v}"', 'p = "dra-driver: no"'])
def test_the_search_finds_a_name_in_the_code(code: str) -> None:
    assert strays(code)


def test_no_module_writes_the_name_out() -> None:
    found = {
        str(path.relative_to(ROOT)): set(strays(path.read_text())) - KEPT
        for path in (ROOT / "dra_driver").rglob("*.py")
        if path != HOME
    }
    assert {path: names for path, names in found.items() if names} == {}


def test_no_other_file_but_pages_writes_the_name_of_the_image_out() -> None:
    image = re.compile(rf"(?<![\w./-]){re.escape(IMAGE)}(?=[:@\"\s`])")
    found = {str(path.relative_to(ROOT)) for path in product() if image.search(path.read_text())}
    assert {name for name in found if not name.endswith(".md")} == HAS_THE_IMAGE


def fetched(text: str) -> list[str]:
    """What a text tells to install by name from an index, and not from a directory."""
    return [
        found["what"]
        for found in FETCHES.finditer(text)
        if re.search(rf"(?<![\w/.-])({PACKAGE}|dra_driver)(?![\w/.-])", found["what"])
    ]


@pytest.mark.parametrize("tool", ["pip", "pipx", "uv tool", "pip3"])
@pytest.mark.parametrize("package", [PACKAGE, f"'{PACKAGE}[cli]'", "dra_driver"])
def test_the_search_finds_an_installation_by_name(tool: str, package: str) -> None:
    assert fetched(f"{tool} install {package}")


@pytest.mark.parametrize("what", [".", "'.[cli]'", f"./{PACKAGE}", f"dist/{PACKAGE}-1.whl"])
def test_an_installation_from_a_directory_is_fine(what: str) -> None:
    assert not fetched(f"pip{' install '}{what}")


def test_nothing_says_to_install_a_package_by_name() -> None:
    found = {str(path.relative_to(ROOT)): fetched(path.read_text()) for path in product()}
    assert {path: what for path, what in found.items() if what} == {}


# What people copy to fetch something by its name, and the name in it. Places that nobody can own are fine: see `nobodys`.
FETCHED_BY = (
    r"(?:docker|podman|nerdctl|crictl|crane|buildah) pull (?P<what>[^\s`]+)",
    r"helm (?:install|upgrade|pull|show|template)[^\n`]*? (?P<what>oci://[^\s`]+)",
    r"helm repo add \S+ (?P<what>[^\s`]+)",
    r"kubectl krew install (?P<what>[\w/-]+)",
    r"git clone (?:--\S+ )*(?P<what>[^\s`]+)",
    r"repo: (?P<what>[a-z+]+://[^\s`]+)",
    r"(?P<what>https?://[\w.-]*(?:dra-driver|dra_driver)[^\s`\")]*)",
    r"(?P<what>(?:[\w-]+\.)+\w+/(?:dra-driver|dra_driver)[^\s`\")]*)",
)


def nobodys(what: str) -> bool:
    """A place that is kept for documentation, or on this machine."""
    host = re.sub(r"^[a-z+]+://", "", what).partition("/")[0].partition(":")[0]
    return bool(re.search(r"(^|\.)(example(\.(com|org|net))?|invalid|localhost|test)$", host))


def told(text: str) -> set[str]:
    """Names of this project that a text tells people to fetch by, though nobody owns them."""
    found = {one["what"] for pattern in FETCHED_BY for one in re.finditer(pattern, text)}
    ours = re.compile(rf"dra[-_]driver|^{names.KREW_PLUGIN}$")
    ownerless = {what for what in found if ours.search(what) and not nobodys(what)}
    owned = [name.value.partition("://")[2] or name.value for name in names.NAMES if name.owned]
    return {
        what
        for what in ownerless
        if not any((what.partition("://")[2] or what).startswith(name) for name in owned)
    }


@pytest.mark.parametrize(
    "text",
    [
        "docker pull dra-driver/dra-driver:0.1.0",
        "helm install dra oci://ghcr.io/dra-driver/charts/dra-driver",
        "helm repo add dra https://dra-driver.github.io/charts",
        "kubectl krew install dra",
        "git clone https://github.com/dra-driver/dra-driver",
        "  - repo: https://github.com/dra-driver/dra-driver",
        "see https://gpu.dra-driver.dev/docs/operations.md",
        "image: ghcr.io/dra-driver/dra-driver@sha256:00",
    ],
)
def test_the_search_finds_what_people_are_told_to_fetch(text: str) -> None:
    assert told(text)


@pytest.mark.parametrize(
    "text",
    [
        "helm install dra-driver helm/dra-driver --set image.repository=registry.example.com/dra-driver",
        f"  - repo: {names.REPOSITORY}",
        f"helm push dist/dra-driver-0.1.0.tgz {names.CHARTS}",
        "kubectl krew install --manifest=dist/dra.yaml",
        "apiVersion: gpu.dra-driver.dev/v1alpha1",
    ],
)
def test_a_place_that_nobody_can_own_is_fine(text: str) -> None:
    assert not told(text)


def test_nothing_says_to_fetch_by_a_name_that_nobody_owns() -> None:
    found = {str(path.relative_to(ROOT)): told(path.read_text()) for path in product()}
    assert {path: what for path, what in found.items() if what} == {}


def test_the_names_to_secure_are_listed_once_and_the_page_shows_them() -> None:
    page = (ROOT / "RELEASE.md").read_text()
    assert page.endswith(f"<!-- names -->\n{names.table()}")
    values = {name.what: name.value for name in names.NAMES}
    assert values["Python package"] == PACKAGE
    assert values["domain"] == "dra-driver.dev"
    assert len(set(values.values())) >= len(values) - 1  # the project's name is that of its package


@pytest.mark.parametrize("name", [name for name in names.NAMES if not name.owned], ids=repr)
def test_a_place_of_a_release_that_nobody_owns_is_under_example_com(name: names.Name) -> None:
    places = {names.REPOSITORY, names.REGISTRY}
    assert name.value not in places or nobodys(name.value)


def test_what_is_owned_may_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = "https://git.dra-driver.test.io/dra-driver"
    assert ours in told(f"git clone {ours}")
    name = names.Name("host", ours, "REPOSITORY", "ours", "done", owned=True)
    monkeypatch.setattr(names, "NAMES", (name,))
    assert told(f"git clone {ours}") == set()


def test_the_chart_takes_no_image_from_a_public_registry() -> None:
    """The name has no registry, so a runtime must never look for it: anybody may own it on a public one."""
    assert "." not in IMAGE.partition("/")[0]
    policy = yaml.safe_load((CHART / "values.yaml").read_text())["image"]["pullPolicy"]
    assert policy == "auto"
