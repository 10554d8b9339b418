# SPDX-License-Identifier: Apache-2.0
"""The config document: each mistake is told, all at once, and flags still win."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dra_driver.backends.registry import options_of
from dra_driver.backends.simulated import SimulatedOptions
from dra_driver.config.document import document
from dra_driver.config.options import OPTIONS
from dra_driver.config.settings import BackendSettings, LogSettings, Settings, load
from dra_driver.errors import Fatal
from dra_driver.model.decoding import decode

HEAD = "apiVersion: config.dra-driver.dev/v1alpha1\nkind: DriverConfig\n"
NODE = {"node_name": "node-1"}


def read(
    tmp_path: Path,
    text: str,
    flags: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
    head: str = HEAD,
) -> Settings:
    path = tmp_path / "config.yaml"
    path.write_text(head + text)
    return load(NODE | (flags or {}), environment or {}, path, options_of=options_of)


def refusal(tmp_path: Path, text: str, head: str = HEAD) -> str:
    with pytest.raises(Fatal) as caught:
        read(tmp_path, text, head=head)
    said = str(caught.value)
    before, after = f"config file {tmp_path / 'config.yaml'} has ", ". Correct the file"
    assert said.startswith(before)
    return said.removeprefix(before).partition(after)[0]


def test_an_empty_document_changes_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "") == load(NODE, {})
    assert read(tmp_path, "backends:\n") == load(NODE, {})


def test_the_document_has_settings_and_backends_in_their_order(tmp_path: Path) -> None:
    text = """
cdiDir: /cdi
logLevel: debug
httpAddress: ""
backends:
  simulated: {profile: mixed, major: 61}
  auto:
  acme: {root: /sys, level: 3}
"""
    settings = read(tmp_path, text)
    assert settings.backends == (
        BackendSettings("simulated", {"profile": "mixed", "major": 61}),
        BackendSettings("auto"),
        BackendSettings("acme", {"root": "/sys", "level": 3}),
    )
    assert (settings.cdi_dir, settings.http_address) == (Path("/cdi"), None)
    assert (settings.log, settings.notes) == (LogSettings("debug", "json"), ())


def test_flags_and_variables_win_over_the_document(tmp_path: Path) -> None:
    text = "logLevel: error\nlogFormat: console\nbackends: {simulated: {profile: mixed, major: 61}}"
    variables = {"DRA_DRIVER_LOG_LEVEL": "debug"}
    settings = read(tmp_path, text, {"log_format": "json"}, variables)
    assert settings.log == LogSettings("debug", "json")
    # Another choice of backend leaves the document's out, and keeps what the document says of the chosen one.
    assert read(tmp_path, text, {"backend": "auto"}).backends == (BackendSettings("auto"),)
    chosen = read(tmp_path, text, {"backend": "simulated", "backend_option": ["profile=example"]})
    assert chosen.backends == (BackendSettings("simulated", {"profile": "example", "major": 61}),)
    assert read(tmp_path, text, {"simulated_profile": "example"}) == chosen.__class__(
        **{name: getattr(read(tmp_path, text), name) for name in ("node", "kubelet", "log")},
        **{
            name: getattr(chosen, name)
            for name in ("backends", "kubeconfig", "cdi_dir", "state_dir", "cgroup_root")
        },
        release_proof="cgroups",
        http_address=("", 9410),
    )


def test_an_option_without_a_backend_needs_one_named_backend(tmp_path: Path) -> None:
    option = {"backend_option": ["a=1"]}
    one = read(tmp_path, "backends: {auto: {}, acme: {b: 2}}", option)
    assert one.backends[1] == BackendSettings("acme", {"b": 2, "a": "1"})
    with pytest.raises(Fatal, match="is for a backend, and acme, other are chosen: name one with"):
        read(tmp_path, "backends: {acme: {}, other: {}}", option)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "cdi_dir: /x",
            "a mistake: cdi_dir: unknown field; known are apiVersion, kind, driverName",
        ),
        ("nodeName: node-1", "a mistake: nodeName: unknown field; known are "),
        ("cdiDir: x", "a mistake: cdiDir: 'x' must be an absolute path"),
        ("cdiDir: 5", "a mistake: cdiDir: 5 must be a text (The directory in which "),
        ("cdiDir:", "a mistake: cdiDir: None must be a text ("),
        (
            "logLevel: loud",
            "a mistake: logLevel: 'loud' must be one of debug, info, warning, error (",
        ),
        ("backends: [simulated]", "a mistake: backends: ['simulated'] must be a mapping"),
        ("backends: {simulated: 5}", "a mistake: backends.simulated: 5 must be "),
        (
            "backends: {simulated: {profil: mixed}}",
            "a mistake: backends.simulated.profil: unknown field; known are profile, faults, major, journal",
        ),
        (
            "backends: {simulated: {major: '61'}}",
            "a mistake: backends.simulated.major: '61' must be one of 60, 61,",
        ),
        (
            "backends: {auto: {profile: mixed}}",
            "a mistake: backends.auto: has no options; give a backend its options under its own name",
        ),
        (
            "cdiDir: x\nbackends: {simulated: {major: 5, profile: x}}",
            "3 mistakes: cdiDir: 'x' must be an absolute path; backends.simulated.major: 5 must be one of 60,",
        ),
    ],
)
def test_a_mistake_is_told_with_its_path(tmp_path: Path, text: str, said: str) -> None:
    assert refusal(tmp_path, text).startswith(said)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (
            "kind: DriverConfig\n",
            "a mistake: apiVersion: missing; it must be config.dra-driver.dev/v1alpha1",
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\n",
            "2 mistakes: apiVersion: 'v1' must be config.dra-driver.dev/v1alpha1; kind: 'ConfigMap' must be DriverConfig",
        ),
    ],
)
def test_another_version_is_refused(tmp_path: Path, head: str, said: str) -> None:
    assert refusal(tmp_path, "", head=head) == said


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    for text in ("backends: {a: {}, a: {}}", "cdiDir: /a\ncdiDir: /b"):
        with pytest.raises(Fatal, match=r"cannot read config file .* stands twice; remove one"):
            read(tmp_path, text)


def test_options_of_an_unknown_backend_are_left_to_the_registry(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(HEAD + "backends: {simulated: {profil: x}, acme: {x: y}}")
    settings = load(NODE, {}, path)  # a command that uses no backend
    assert [backend.name for backend in settings.backends] == ["simulated", "acme"]
    assert options_of("acme") is None
    assert options_of("simulated") is SimulatedOptions


def test_each_field_has_the_default_of_its_option() -> None:
    found, mistakes = decode(
        {"apiVersion": "config.dra-driver.dev/v1alpha1", "kind": "DriverConfig"}, document()
    )
    assert mistakes == ()
    defaults = {option.key: option.default for option in OPTIONS if option.key}
    fields = msgspec.structs.asdict(found) if found else {}
    assert fields["backends"] == {"auto": None}
    assert {key: fields[key] for key in defaults} == defaults
    assert {"nodeName", "podUid", "backend"} & fields.keys() == set()
