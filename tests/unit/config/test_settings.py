# SPDX-License-Identifier: Apache-2.0
"""Settings: which source wins, and what is said about a wrong one."""

from pathlib import Path

import pytest

from dra_driver.config.options import OPTIONS
from dra_driver.config.settings import (
    BackendSettings,
    KubeletSettings,
    LogSettings,
    NodeSettings,
    NodeWriteSettings,
    Settings,
    load,
)
from dra_driver.errors import Fatal

NODE = {"node_name": "node-1"}


def from_file(tmp_path: Path, text: str, flags=NODE, environment=None) -> Settings:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return load(flags, environment or {}, path)


def options(settings: Settings) -> dict[str, object]:
    """The options of the only backend."""
    (backend,) = settings.backends
    return dict(backend.options)


def test_everything_but_the_node_name_has_a_default() -> None:
    assert load(NODE, {}) == Settings(
        node=NodeSettings("node-1", "gpu.dra-driver.dev", Path("/proc/sys/kernel/random/boot_id")),
        kubelet=KubeletSettings(
            Path("/var/lib/kubelet/plugins"),
            Path("/var/lib/kubelet/plugins_registry"),
            Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
        ),
        backends=(BackendSettings("auto"),),
        log=LogSettings("info", "json"),
        kubeconfig=None,
        cdi_dir=Path("/var/run/cdi"),
        state_dir=Path("/var/lib/kubelet/plugins/gpu.dra-driver.dev"),
        cgroup_root=Path("/sys/fs/cgroup"),
        release_proof="cgroups",
        http_address=("", 9410),
    )


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    text = "log_level: error\nlog_format: console\ncdi_dir: /file\n"
    environment = {"DRA_DRIVER_LOG_LEVEL": "debug", "DRA_DRIVER_CDI_DIR": "/environment"}
    settings = from_file(tmp_path, text, NODE | {"log_level": "warning"}, environment)
    assert settings.log == LogSettings("warning", "console")
    assert settings.cdi_dir == Path("/environment")


def test_names_have_variables_that_others_know() -> None:
    settings = load({}, {"NODE_NAME": "n2", "KUBECONFIG": "/k"})
    assert (settings.node.name, settings.kubeconfig) == ("n2", Path("/k"))


UID = "bd405a89-8b9d-4dc8-852c-f04c0af683d6"
LONG = "d" * 55


@pytest.mark.parametrize(
    ("driver", "uid", "endpoint", "registration"),
    [
        ("gpu.dra-driver.dev", "", "dra.sock", "gpu.dra-driver.dev-reg.sock"),
        (
            "gpu.dra-driver.dev",
            UID,
            f"dra-{UID}.sock",
            f"gpu.dra-driver.dev-{UID}-reg.sock",
        ),
        # With the whole UID these paths were longer than a socket's may be.
        (LONG, UID, "dra-f4b9e370.sock", f"{LONG}-f4b9e370-reg.sock"),
    ],
)
def test_two_pods_of_one_node_have_sockets_of_different_names(
    driver: str, uid: str, endpoint: str, registration: str
) -> None:
    settings = load(NODE | {"driver_name": driver}, {"POD_UID": uid})
    paths = (settings.kubelet.endpoint(driver), settings.kubelet.registration(driver))
    assert [path.name for path in paths] == [endpoint, registration]
    assert all(len(str(path)) <= 107 for path in paths)


def test_every_option_has_a_flag_and_a_variable_of_its_own() -> None:
    assert len({option.flag for option in OPTIONS}) == len(OPTIONS)
    assert len({option.variable for option in OPTIONS}) == len(OPTIONS)


def test_the_help_shows_which_values_an_option_takes() -> None:
    shown = {option.flag: option.metavar for option in OPTIONS}
    assert shown["--path"] == "{auto,dra,device-plugin}"
    assert shown["--cdi-dir"] == shown["--kubeconfig"] == "PATH"
    assert shown["--backend-option"] == "KEY=VALUE"
    assert shown["--node-name"] == "VALUE"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", None),
        (":0", ("", 0)),
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_an_address_is_host_and_port_or_nothing(text: str, address) -> None:
    assert load(NODE | {"http_address": text}, {}).http_address == address


@pytest.mark.parametrize(
    "text",
    ["backend_option: {a: 1, b: x=y}", "backend_option: [a=1, b=x=y]"],
)
def test_backend_options_come_as_a_mapping_or_a_list(tmp_path: Path, text: str) -> None:
    settings = from_file(tmp_path, f"{text}\nbackend: mine\n")
    assert settings.backends == (BackendSettings("mine", {"a": "1", "b": "x=y"}),)


def test_backend_options_come_from_every_source(tmp_path: Path) -> None:
    variable = {"DRA_DRIVER_BACKEND_OPTION": "a=1,b=2"}
    own = {"backend": "mine"}
    assert options(load(NODE | own, variable)) == {"a": "1", "b": "2"}
    assert options(load(NODE | own, {"DRA_DRIVER_BACKEND_OPTION": ""})) == {}
    assert options(load(NODE | own | {"backend_option": ["c=3"]}, variable)) == {"c": "3"}
    assert options(from_file(tmp_path, "backend_option: a=1", NODE | own)) == {"a": "1"}


def test_the_simulated_backend_is_told_profile_and_faults_unless_its_options_say() -> None:
    chosen = {"backend": "simulated", "simulated_profile": "mixed", "simulated_faults": "/f"}
    assert options(load(NODE | chosen, {})) == {"profile": "mixed", "faults": "/f"}
    option = {"backend_option": ["profile=example"]}
    assert options(load(NODE | chosen | option, {})) == {"profile": "example", "faults": "/f"}


@pytest.mark.parametrize("flag", ["simulated_profile", "simulated_faults"])
def test_a_flag_for_simulated_devices_is_refused_without_them(flag: str) -> None:
    shown = flag.replace("_", "-")
    with pytest.raises(
        Fatal, match=f"--{shown} works only with simulated devices: add --backend simulated"
    ):
        load(NODE | {flag: "x"}, {})
    # The chart and a config file may have a profile ready for whoever switches the backend on.
    assert options(load(NODE, {"DRA_DRIVER_SIMULATED_PROFILE": "mixed"})) == {}


def test_the_state_may_live_elsewhere() -> None:
    assert load(NODE | {"state_dir": "/state"}, {}).state_dir == Path("/state")


def test_an_empty_value_in_the_file_is_no_value(tmp_path: Path) -> None:
    settings = from_file(tmp_path, "kubeconfig:\nlog_level: null\n")
    assert (settings.kubeconfig, settings.log.level) == (None, "info")


def test_a_file_of_the_older_form_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    assert from_file(tmp_path, "log_level: debug").notes == (
        (
            f"config file {path} has the older form, a flat mapping of option names; the next version reads only documents with "
            "apiVersion config.dra-driver.dev/v1alpha1 and kind DriverConfig (docs/reference/config.md)"
        ),
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({}, "--backend-option a is for a backend, and none is named: name one with --backend"),
        (
            {"backend": "auto"},
            "--backend-option a is for a backend, and none is named: name one with --backend",
        ),
    ],
)
def test_options_need_a_backend_that_takes_them(flags: dict[str, str], said: str) -> None:
    with pytest.raises(Fatal) as caught:
        load(NODE | flags | {"backend_option": ["a=1"]}, {})
    assert str(caught.value) == said


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert from_file(tmp_path, "") == load(NODE, {})


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            {},
            "no node name: give --node-name or set NODE_NAME (in a pod: from spec.nodeName through the downward API)",
        ),
        (
            {"node_name": "Node_1"},
            "flag --node-name is 'Node_1': must be a lower-case DNS name of at most 253 characters",
        ),
        (
            NODE | {"driver_name": "a" * 64},
            f"flag --driver-name is '{'a' * 64}': must be a lower-case DNS name of at most 63 characters",
        ),
        (
            NODE | {"driver_name": "../x"},
            "flag --driver-name is '../x': must be a lower-case DNS name of at most 63 characters",
        ),
        (NODE | {"cdi_dir": "run/cdi"}, "flag --cdi-dir is 'run/cdi': must be an absolute path"),
        (
            NODE | {"log_level": "loud"},
            "flag --log-level is 'loud': must be one of debug, info, warning, error",
        ),
        (
            NODE | {"release_proof": "time"},
            "flag --release-proof is 'time': must be one of cgroups, unprepare",
        ),
        (
            NODE | {"cgroup_root": "cgroup"},
            "flag --cgroup-root is 'cgroup': must be an absolute path",
        ),
        (
            NODE | {"http_address": "80"},
            "flag --http-address is '80': must be HOST:PORT, :PORT for every address, or empty for none",
        ),
        (
            NODE | {"http_address": ":65536"},
            "flag --http-address is ':65536': must be HOST:PORT, :PORT for every address, or empty for none",
        ),
        (
            NODE | {"http_address": ":8²"},
            "flag --http-address is ':8²': must be HOST:PORT, :PORT for every address, or empty for none",
        ),
        (
            NODE | {"pod_uid": "../x"},
            "flag --pod-uid is '../x': must be a pod's metadata.uid",
        ),
        (NODE | {"backend_option": ["x"]}, "flag --backend-option is ['x']: must be KEY=VALUE"),
        (NODE | {"backend_option": ["=x"]}, "flag --backend-option is ['=x']: must be KEY=VALUE"),
        (
            NODE | {"plugins_dir": "/" + "p" * 100},
            (
                f"socket path /{'p' * 100}/gpu.dra-driver.dev/dra.sock is longer than 107 bytes; "
                "shorten --driver-name, --plugins-dir or --registry-dir"
            ),
        ),
    ],
)
def test_a_wrong_flag_is_named_with_what_it_must_be(flags, message: str) -> None:
    with pytest.raises(Fatal) as caught:
        load(flags, {})
    assert str(caught.value) == message


def test_a_wrong_variable_and_a_wrong_key_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        Fatal,
        match=r"^environment variable DRA_DRIVER_LOG_FORMAT is 'xml': must be one of json, console$",
    ):
        load(NODE, {"DRA_DRIVER_LOG_FORMAT": "xml"})
    with pytest.raises(
        Fatal, match=r"config.yaml, key log_format is 'xml': must be one of json, console$"
    ):
        from_file(tmp_path, "log_format: xml")
    with pytest.raises(Fatal, match=r"config.yaml, key backend_option is 5: must be KEY=VALUE$"):
        from_file(tmp_path, "backend_option: 5")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            None,
            r"cannot read config file .*No such file.*; correct --config, or the file \(docs/reference/config.md shows one\)$",
        ),
        (b"\xff\xfe\xff", "cannot read config file "),
        (b"a: [", "cannot read config file "),
        (b"- a", "must be a YAML mapping, not a list: docs/reference/config.md shows one"),
        (
            b"node-name: x\n1: y",
            "has unknown keys: 1, node-name; it has neither apiVersion nor kind, so it is read in the older form",
        ),
    ],
)
def test_a_file_that_is_no_config_file_is_named(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "config.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Fatal, match=message) as caught:
        load(NODE, {}, path)
    assert str(path) in str(caught.value)


def test_what_is_written_about_the_node_is_chosen(tmp_path: Path) -> None:
    flags = {
        "node_labels": "patch",
        "node_label_aliases": "accelerator=vendor,example.com/memory=memory-mib",
        "nfd_features_dir": str(tmp_path),
        "node_condition": "write",
        "startup_taint": "startup-taint.cluster-autoscaler.kubernetes.io/gpu",
    }
    assert load(NODE | flags, {}).about_node == NodeWriteSettings(
        labels="patch",
        aliases=(("accelerator", "vendor"), ("example.com/memory", "memory-mib")),
        features_dir=tmp_path,
        condition="write",
        startup_taint="startup-taint.cluster-autoscaler.kubernetes.io/gpu",
    )


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("node_labels", "yes", "must be one of none, nfd, patch"),
        (
            "metrics_names",
            "own,gcgm",
            "must be NAME,… with names of own, dcgm, duty-cycle, opentelemetry; 'gcgm' is none",
        ),
        ("node_label_aliases", "accelerator", "must be KEY=VALUE"),
        ("node_label_aliases", "accelerator=brand", "with a fact of vendor, product, model"),
        ("node_label_aliases", "kubernetes.io/arch=vendor", "belong to Kubernetes"),
        ("node_label_aliases", "a=vendor,a=count", "must have each label once"),
        ("startup_taint", "node.kubernetes.io/not-ready", "belong to Kubernetes"),
        ("startup_taint", "a b", "must be the key of a taint"),
    ],
)
def test_what_must_not_be_written_is_refused(option: str, value: str, said: str) -> None:
    with pytest.raises(Fatal, match=said):
        load(NODE | {option: value}, {})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("own", ("own",)),
        ("dcgm, own,dcgm", ("dcgm", "own")),
        ("duty-cycle,opentelemetry", ("duty-cycle", "opentelemetry")),
    ],
)
def test_the_names_of_metrics_are_a_list(text: str, names: tuple[str, ...]) -> None:
    assert load({"node_name": "n", "metrics_names": text}, {}).metrics_names == names
    assert load({"node_name": "n"}, {"DRA_DRIVER_METRICS_NAMES": text}).metrics_names == names


def test_devices_are_measured_under_own_names_if_nobody_chooses() -> None:
    assert load({"node_name": "n"}, {}).metrics_names == ("own",)
