# SPDX-License-Identifier: Apache-2.0
"""Does the chart say what the driver, its settings and its documentation say?

Without helm: the templates are read as text. What helm makes of them is asked in tests/e2e/test_chart_lint.py.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dra_driver import __version__
from dra_driver.backends.nvidia.options import NvidiaOptions
from dra_driver.backends.profiles import PROFILES
from dra_driver.backends.recorded import RecordedOptions
from dra_driver.backends.registry import options_of
from dra_driver.backends.simulated import SimulatedOptions
from dra_driver.cli.main import main
from dra_driver.config.options import CONFIG_VARIABLE, DEFAULT_DRIVER_NAME, OPTIONS
from dra_driver.config.settings import BackendSettings, load
from dra_driver.kube.discovery import WIRES
from dra_driver.model.ids import DriverName, NodeName
from dra_driver.planning.reconcile import NAME_VARIANTS, slice_name

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "dra-driver"
TEMPLATES = sorted((CHART / "templates").iterdir())
PAGE = (ROOT / "docs" / "install.md").read_text()
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = {option.name: option.default for option in OPTIONS}
# Settings that the chart leaves alone, and why.
NOT_SET = {
    "kubeconfig": "the pod's service account",
    "state_dir": "follows plugins_dir and driver_name",
    "boot_id_file": "the kernel's",
    "nfd_features_dir": "Node Feature Discovery has no other",
    "simulated_faults": "for tests, by extraEnv",
    "backend_option": "given as arguments, since a value may have a comma",
}
CDI_DIR = "/var/run/cdi"
Object = dict[str, Any]


def template(name: str) -> str:
    return (CHART / "templates" / name).read_text()


def everything() -> str:
    return "\n".join(path.read_text() for path in TEMPLATES)


# Versions and files


def test_the_charts_version_is_the_drivers() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    assert (chart["name"], chart["apiVersion"]) == ("dra-driver", "v2")


def test_the_chart_ships_the_classes_and_not_the_examples() -> None:
    shipped, classes = CHART / "deviceclasses", ROOT / "deviceclasses"
    # A link; in the source distribution a copy.
    assert {path.name: path.read_bytes() for path in shipped.glob("*.yaml")} == {
        path.name: path.read_bytes() for path in classes.glob("*.yaml")
    }
    assert '.Files.Glob "deviceclasses/*.yaml"' in template("_classes.tpl")
    assert "deviceclasses/examples" in (CHART / ".helmignore").read_text().splitlines()


@pytest.mark.parametrize(
    "path", sorted((ROOT / "deviceclasses").glob("*.yaml")), ids=lambda path: path.stem
)
def test_a_class_has_nothing_that_the_older_api_versions_lack(path: Path) -> None:
    """The template changes the API version and leaves the spec as it is."""
    (document,) = yaml.safe_load_all(path.read_text())
    assert document["spec"].keys() <= {"selectors", "config"}
    assert document["metadata"].keys() == {"name"}


def test_every_file_of_the_chart_has_its_license_line() -> None:
    files = [*TEMPLATES, CHART / "values.yaml", CHART / "Chart.yaml"]
    without = [
        path.name
        for path in files
        if "SPDX-License-Identifier: Apache-2.0" not in path.read_text().splitlines()[0]
    ]
    assert without == ["NOTES.txt"]


# Settings


def test_every_setting_of_the_driver_is_set_or_left_alone_on_purpose() -> None:
    options = {option.variable: option.name for option in OPTIONS}
    named = set(re.findall(r"- name: ([A-Z][A-Z_]+)\b", everything()))
    assert {"HTTPS_PROXY", "NO_PROXY"} <= named
    named -= {"HTTPS_PROXY", "NO_PROXY", CONFIG_VARIABLE, "NVIDIA_VISIBLE_DEVICES"}
    assert named - options.keys() == set()
    unset = {name for variable, name in options.items() if variable not in named}
    assert unset == NOT_SET.keys()
    assert '"--backend-option=%s=%v"' in template("daemonset.yaml")
    assert "--backend-option" in {option.flag for option in OPTIONS}


@pytest.mark.parametrize(
    ("verb", "file"),
    [("run", "daemonset.yaml"), ("cleanup", "cleanup.yaml"), ("hardware", "_hardware.tpl")],
)
def test_the_commands_that_the_pods_run_exist(
    verb: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = template(file)
    assert re.search(rf"args:\n +- {verb}\n", text)
    flags = re.findall(r"(?:^ +- |, )(--[a-z-]+)(?=$|,|\])", text, re.MULTILINE)
    assert (len(flags) > 3) is (verb == "hardware")
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    known = capsys.readouterr().out
    assert [flag for flag in flags if flag not in known] == []


def test_the_config_of_the_pods_is_a_document_that_the_driver_reads(tmp_path: Path) -> None:
    text = template("_helpers.tpl").partition('{{- define "dra-driver.config" -}}\n')[2]
    head = text.partition("  {{- toYaml")[0]
    file = tmp_path / "config.yaml"
    file.write_text(head + "  " + json.dumps(VALUES["backends"]))
    settings = load({"node_name": "node-1"}, {}, file, options_of=options_of)
    assert (settings.backends, settings.notes) == ((BackendSettings("auto"),), ())
    assert "value: /etc/dra-driver/config.yaml" in template("daemonset.yaml")
    assert "  config.yaml: |\n" in template("config.yaml")


def test_the_schema_knows_the_options_of_the_simulated_backend() -> None:
    known = SCHEMA["properties"]["backends"]["properties"]["simulated"]["properties"]
    assert list(known) == list(SimulatedOptions.__struct_fields__)
    assert known["profile"]["enum"] == list(PROFILES)


def test_the_schema_knows_the_options_of_the_other_backends() -> None:
    """hack/generate-docs writes them. The template refuses those that the chart sets itself, and says where."""
    backends = SCHEMA["properties"]["backends"]["properties"]
    of_nvidia = {field.encode_name for field in msgspec.structs.fields(NvidiaOptions)}
    assert set(backends["nvidia"]["properties"]) == of_nvidia
    assert set(re.findall(r"\$name := list (.*) -", template("_hardware.tpl"))[0].split()) <= {
        f'"{name}"' for name in of_nvidia
    }
    assert set(backends["recorded"]["properties"]) == set(RecordedOptions.__struct_fields__)


def test_the_values_defaults_are_the_drivers() -> None:
    kubelet = VALUES["kubeletDir"]
    assert {
        "driver_name": VALUES["driverName"],
        "backend": VALUES["backend"]["name"],
        "simulated_profile": VALUES["simulated"]["profile"],
        "log_level": VALUES["log"]["level"],
        "log_format": VALUES["log"]["format"],
        "plugins_dir": f"{kubelet}/plugins",
        "registry_dir": f"{kubelet}/plugins_registry",
        "pod_resources_socket": f"{kubelet}/pod-resources/kubelet.sock",
        "cdi_dir": VALUES["cdiDir"] or CDI_DIR,
        "cgroup_root": VALUES["cgroupDir"],
        "release_proof": VALUES["releaseProof"],
        "device_status": VALUES["deviceStatus"],
        "device_metadata": VALUES["deviceMetadata"],
        "node_labels": VALUES["nodeLabels"],
        "node_condition": VALUES["nodeCondition"],
        "startup_taint": VALUES["startupTaint"],
        "http_address": f":{VALUES['httpPort']}",
        "path": VALUES["path"],
        "device_plugins_dir": f"{kubelet}/device-plugins",
        "plugin_resources": VALUES["devicePlugin"]["resources"],
        "device_list_strategy": VALUES["devicePlugin"]["deviceListStrategy"],
    }.items() <= DEFAULTS.items()


def test_the_classes_are_rewritten_from_the_name_that_they_have() -> None:
    assert f'replace "{DEFAULT_DRIVER_NAME}" $root.Values.driverName' in template("_classes.tpl")


def test_the_pod_that_waits_after_a_cleanup_has_nothing_that_is_worth_taking() -> None:
    text = template("cleanup.yaml")
    assert "automountServiceAccountToken: false" in text
    cleaning, waiting = text.split("\n      containers:\n")
    assert 'include "dra-driver.cleanupMounts"' in cleaning  # with the token
    waiting = waiting.partition("\n      volumes:\n")[0]
    assert "olumeMounts" not in waiting
    assert "cleanupMounts" not in waiting
    assert "runAsUser: 65534\n            runAsGroup: 65534\n" in waiting
    for file in ("_pod.tpl", "_hardware.tpl"):
        assert "automountServiceAccountToken" not in template(file)


def test_only_the_drivers_own_container_has_the_token() -> None:
    text = template("daemonset.yaml")
    assert "automountServiceAccountToken: false" in text
    assert "- name: token" not in text
    assert text.count('include "dra-driver.driverMounts"') == 1
    mounts = template("_mounts.tpl").partition('define "dra-driver.driverVolumes"')[0]
    assert mounts.count("- name: token  #") == 1
    assert "token" not in re.sub(
        r"\{\{- /\*.*?\*/ -\}\}", "", template("_hardware.tpl"), flags=re.DOTALL
    )


def test_the_page_names_the_settings_and_mounts_of_the_hardware_container_and_why() -> None:
    (container,) = yaml.safe_load(without_actions(template("_hardware.tpl"), "hardwareContainer"))
    settings = rows(PAGE, "setting of `hardware`", "value", "why")
    assert {name.strip("`"): value.strip("`") for name, value, why in settings if why} == {
        name: str(value).lower() for name, value in container["securityContext"].items()
    }
    written = rows(PAGE, "mount of `hardware`", "host path", "access", "why")
    assert {name.strip("`"): access for name, _, access, why in written if why} == {
        mount["name"]: "read" if mount.get("readOnly") else "write"
        for mount in container["volumeMounts"]
    }
    volumes = yaml.safe_load(without_actions(template("_hardware.tpl"), "hardwareVolumes"))
    assert {name.strip("`"): path for name, path, _, _ in written} == {
        volume["name"]: volume.get("hostPath", {}).get("path", "none: a folder of the pod")
        for volume in volumes
    }


def without_actions(text: str, name: str) -> str:
    """A template's body as YAML: lines that are actions only go, and a word stands for each value."""
    body = text.partition(f'define "dra-driver.{name}" -}}}}\n')[2].partition("\n{{- end -}}")[0]
    lines = [line for line in body.splitlines() if not line.strip().startswith("{{-")]
    return re.sub(r"\{\{.*?\}\}", "filled", "\n".join(lines))


def test_openshifts_object_allows_what_the_pods_need_and_no_more() -> None:
    """Its whole schema is in tests/e2e/test_chart_rights.py."""
    lines = [
        re.sub(r"\{\{.*?\}\}", "x", line)
        for line in template("openshift.yaml").splitlines()
        if not line.strip().startswith("{{")
    ]
    found = yaml.safe_load("\n".join(lines))
    allowed = {name for name, value in found.items() if value is True}
    assert allowed == {"allowHostDirVolumePlugin", "readOnlyRootFilesystem"}
    assert found["allowedCapabilities"] == []
    decided = {name for name, value in found.items() if value in ("x", "xxx")}
    assert decided == {"allowPrivilegedContainer", "allowPrivilegeEscalation"}
    assert {"priority", "volumes", "defaultAddCapabilities"} <= found.keys()
    assert len(found["users"]) == 1


def test_the_probes_ask_for_pages_that_the_driver_has() -> None:
    paths = re.findall(r"path: (/[a-z]+)\n +port: http", template("daemonset.yaml"))
    assert paths == ["/livez", "/livez", "/readyz"]


def test_the_network_policy_is_about_all_pods_that_serve_metrics_and_their_port() -> None:
    text = template("networkpolicy.yaml")
    release = 'include "dra-driver.selector" . | nindent 6 }}\n'
    (chosen,) = re.findall(
        r"key: app.kubernetes.io/component\n +operator: In\n +values: \[(.*)\]", text
    )
    assert re.findall(r"matchLabels:\n((?: {6}.*\n)+)", text) == [f"      {{{{- {release}"]
    (port,) = re.findall(r"- port: (\w+)", text)
    names = [path.name for path in (CHART / "templates").glob("*.yaml")]
    serving = [
        one for one in names if f"- name: {port}\n              containerPort:" in template(one)
    ]
    assert sorted(serving) == ["daemonset.yaml", "pending-events.yaml"]
    for name, component in zip(sorted(serving), chosen.split(", "), strict=True):
        assert f"{release}      app.kubernetes.io/component: {component}\n" in template(name)
    assert "policyTypes: [Ingress]" in text  # the driver itself may connect to the API server
    assert VALUES["networkPolicy"] == {"enabled": False, "metricsFrom": []}


@pytest.mark.parametrize(
    ("peer", "taken"),
    [
        ({"podSelector": {}}, True),
        ({"namespaceSelector": {}, "podSelector": {"matchLabels": {"a": "b"}}}, True),
        ({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}, True),
        ({}, False),
        ({"namespace": "monitoring"}, False),
        ({"ipBlock": {"except": []}}, False),
        ("monitoring", False),
    ],
)
def test_the_schema_takes_the_peers_of_a_network_policy(peer: object, taken: bool) -> None:
    part = dict(described(SCHEMA))["networkPolicy.metricsFrom"]
    assert jsonschema_takes(part["items"], peer) is taken


def jsonschema_takes(schema: Object, value: object) -> bool:
    """As far as this schema goes: types, required and known names."""
    if schema["type"] == "array":
        return isinstance(value, list) and all(
            jsonschema_takes(schema["items"], item) for item in value
        )
    if schema["type"] == "string":
        return isinstance(value, str)
    if not isinstance(value, dict) or len(value) < schema.get("minProperties", 0):
        return False
    known = schema.get("properties", {})
    if schema.get("additionalProperties") is False and not value.keys() <= known.keys():
        return False
    return set(schema.get("required", ())) <= value.keys() and all(
        jsonschema_takes(known[name], inner) for name, inner in value.items() if name in known
    )


# Values and their schema


def leaves(values: Object, above: str = "") -> Iterator[str]:
    for key, value in values.items():
        name = f"{above}{key}"
        yield name
        if isinstance(value, dict) and name not in FREE:
            yield from leaves(value, f"{name}.")


# Mappings whose keys the user chooses, or Kubernetes does.
FREE = {
    "backends",
    "backend.options",
    "deviceClasses.extendedResources",
    "devicePlugin.timeSlicing",
    "devicePlugin.paths",
    "serviceAccount.annotations",
    "nodeLabelAliases",
    "nodeSelector",
    "affinity",
    "hardware.resources.requests",
    "hardware.resources.limits",
    "resources.requests",
    "resources.limits",
    "pendingEvents.nodeSelector",
    "pendingEvents.resources.requests",
    "pendingEvents.resources.limits",
    "podAnnotations",
    "podLabels",
    "seLinuxOptions",
    "appArmorProfile",
    "metrics.serviceMonitor.labels",
    "metrics.rules.labels",
}


def described(schema: Object, above: str = "") -> Iterator[tuple[str, Object]]:
    for key, part in schema.get("properties", {}).items():
        name = f"{above}{key}"
        yield name, part
        if name not in FREE:
            yield from described(part, f"{name}.")


def test_schema_and_values_have_the_same_names() -> None:
    assert sorted({name for name, _ in described(SCHEMA)} - {"global"}) == sorted(leaves(VALUES))


def test_the_schema_knows_every_name_and_describes_it() -> None:
    def walk(part: Object, where: str) -> Iterator[str]:
        if "properties" in part and where != "else" and part.get("type") == "object":
            closed = part.get("additionalProperties") is False
            if not closed and "required" not in part:
                yield f"{where} is open"
        for name, inner in part.get("properties", {}).items():
            if "description" not in inner and "const" not in inner:
                yield f"{where}.{name} has no description"
            yield from walk(inner, f"{where}.{name}")
        if isinstance(part.get("items"), dict):
            yield from walk(part["items"], f"{where}[]")

    assert list(walk(SCHEMA, "values")) == []
    assert SCHEMA["additionalProperties"] is False


def test_the_schemas_patterns_can_be_read_and_take_the_defaults() -> None:
    for name, part in described(SCHEMA):
        value: Any = VALUES
        for key in name.split("."):
            value = value.get(key, {}) if isinstance(value, dict) else {}
        if "pattern" in part and isinstance(value, str):
            assert re.search(part["pattern"], value), (name, value)
        if "enum" in part and value != {}:
            assert value in part["enum"], (name, value)


def test_the_choices_are_those_of_the_driver() -> None:
    properties = dict(described(SCHEMA))
    assert properties["simulated.profile"]["enum"] == list(PROFILES)
    for name in ("log.level", "log.format"):
        (option,) = [
            found for found in OPTIONS if found.variable.endswith(name.upper().replace(".", "_"))
        ]
        for choice in properties[name]["enum"]:
            assert option.parse(choice) == choice
        assert all(choice in option.help for choice in properties[name]["enum"])


def test_the_templates_use_every_value_and_no_other() -> None:
    used = set(re.findall(r"\.Values\.([A-Za-z.]+)", everything() + template("NOTES.txt")))
    known = set(leaves(VALUES))
    assert used - known <= {"backends.simulated"}  # a backend that an admin may add
    covered = {name for name in known if any(f"{name}.".startswith(f"{use}.") for use in used)}
    groups = {name for name in known if any(other.startswith(f"{name}.") for other in known)}
    assert known - covered - groups == set()


# Documentation


def rows(text: str, *columns: str) -> list[tuple[str, ...]]:
    """The cells of the table with these columns."""
    head = "| " + " | ".join(columns) + " |\n"
    assert text.count(head) == 1, columns
    body = text.partition(head)[2].partition("\n\n")[0].splitlines()[1:]
    return [tuple(cell.strip() for cell in line.strip("| ").split(" | ")) for line in body]


def test_the_page_names_the_mounts_of_the_templates_and_why() -> None:
    written = {
        name.strip("`"): access
        for name, _, access, why in rows(PAGE, "mount", "host path", "access", "why")
        if why
    }
    mounts = re.findall(
        r"- name: ([a-z-]+)  # \S.*\n +mountPath: .*\n( +readOnly: true\n)?", of_the_driver()
    )
    # The one that can be written to is the one that counts.
    access = {name: "read" for name, read_only in mounts if read_only}
    assert written == access | {name: "write" for name, read_only in mounts if not read_only}
    volumes = re.findall(r"- name: ([a-z-]+)\n +(?:hostPath|projected|configMap):", of_the_driver())
    assert sorted({*volumes, "hardware"}) == sorted(written)


def of_the_driver() -> str:
    """All templates but that of the other container, which has tables of its own."""
    return everything().replace(template("_hardware.tpl"), "")


def test_the_page_names_the_container_security_settings_and_why() -> None:
    written = {
        name.strip("`"): value.replace("`", "")
        for name, value, why in rows(PAGE, "setting", "value", "why")
        if why
    }
    text = template("_pod.tpl").partition('define "dra-driver.securityContext" -}}\n')[2]
    lines = re.sub(r" +#.*", "", text.partition("{{- with")[0])
    context = yaml.safe_load(lines)
    assert written == {
        **{
            name: str(value).lower()
            for name, value in context.items()
            if not isinstance(value, dict)
        },
        "capabilities": f"drop {context['capabilities']['drop'][0]}",
        "seccompProfile": context["seccompProfile"]["type"],
    }


def test_the_page_names_the_rights_of_the_service_account_and_why() -> None:
    written = {
        name.strip("`"): verbs.split(", ")
        for name, verbs, _, why in rows(PAGE, "resource", "verbs", "where", "why")
        if why
    }
    granted = re.findall(r"resources: \[([\w/]+)\]\n +verbs: \[(.*)\]", template("rbac.yaml"))
    assert written == {name: verbs.replace('"', "").split(", ") for name, verbs in granted}


def test_the_page_names_values_that_exist() -> None:
    named = {
        name
        for cell, _ in rows(PAGE, "value", "set it if")
        for name in re.findall(r"`([A-Za-z.]+)`", cell)
    }
    named |= set(re.findall(r"--set ([A-Za-z.]+)=", PAGE))
    named |= set(re.findall(r"`([a-z][A-Za-z]+\.[A-Za-z]+)=", PAGE))
    assert len(named) > 15
    free = {name for name in named if any(name.startswith(f"{above}.") for above in FREE)}
    assert named - free - set(leaves(VALUES)) == set()


@pytest.mark.parametrize("file", ["admission-policy.yaml", "device-status-policy.yaml"])
def test_the_admission_policy_covers_every_version_that_the_driver_speaks(file: str) -> None:
    (listed,) = re.findall(r"apiVersions: \[(.*)\]", template(file))
    assert listed.split(", ") == [wire.version for wire in WIRES]


def policy() -> Any:
    """The admission policy as YAML, with a word in place of each thing that helm fills in."""
    text = re.sub(r"^ *\{\{-.*\}\}\n", "", template("admission-policy.yaml"), flags=re.MULTILINE)
    text = text.replace('{{ printf "%s-" .Values.driverName | quote }}', '"DRIVER-"')
    text = text.replace('{{ printf "00000-%s-" .Values.driverName | quote }}', '"00000-DRIVER-"')
    return next(yaml.safe_load_all(re.sub(r"\{\{.*?\}\}", "FILLED", text)))["spec"]


def test_the_admission_policy_meets_writers_of_every_version_and_fails_closed() -> None:
    spec = policy()
    assert spec["failurePolicy"] == "Fail"
    assert spec["matchConstraints"]["matchPolicy"] == "Equivalent"
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert rule["operations"] == ["CREATE", "UPDATE", "DELETE"]


@pytest.mark.parametrize(
    "field",
    ["spec.driver", "spec.?nodeName", "spec.pool.name", "metadata.?generateName", "metadata.?finalizers", "metadata.?ownerReferences", "variables.fullName"],
)  # fmt: skip
def test_the_admission_policy_pins(field: str) -> None:
    assert [check for check in policy()["validations"] if field in check["expression"]] != []


def test_the_admission_policy_lets_pass_the_names_that_the_driver_gives_and_no_others() -> None:
    variables = {entry["name"]: entry["expression"] for entry in policy()["variables"]}
    (numbered,) = re.findall(r'matches\("(.*?)"\)', variables["numbered"])
    driver, node = DriverName("gpu.example.com"), NodeName("node-1")

    def passes(index: int, variant: int) -> bool:
        return bool(re.match(numbered, slice_name(index, driver, node, variant=variant)))

    slices = 256  # as ADR 4 says
    assert all(
        passes(index, variant) for index in range(slices) for variant in range(NAME_VARIANTS)
    )
    assert not passes(slices, 0)
    assert not passes(0, NAME_VARIANTS)


@pytest.mark.parametrize("length", [190, 210, 230, 253])
def test_the_admission_policy_knows_names_that_are_shortened(length: int) -> None:
    """What its variable `shortened` asks, in Python: CEL of admission is evaluated in tests/e2e only."""
    driver, node = DriverName("d" * 63), NodeName("n" * length)
    name = slice_name(7, driver, node, variant=3)
    full = f"00007.3-{driver}-{node}"
    assert len(full) > 253
    assert re.search(r"-[0-9a-f]{16}$", name)
    assert 200 < len(name) <= 253
    assert full.startswith(name[: len(name) - 17])
