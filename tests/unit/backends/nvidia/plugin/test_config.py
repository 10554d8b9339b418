# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's configuration: each key is honoured, or told. The sentences for wrong values are those of NVIDIA's plugin."""

import re

import pytest

from dra_driver.backends.nvidia.plugin.config import PluginConfig, ignored_xids, read_config
from dra_driver.backends.nvidia.plugin.keys import KEYS, NO_MPS, OUTSIDE, Kind, Outcome
from dra_driver.backends.nvidia.plugin.sharing import COUNTS
from dra_driver.model.decoding import Mistake
from dra_driver.model.plugin import Strategy
from dra_driver.model.plugin_policy import (
    DeviceChoice,
    MigStrategy,
    PluginPolicy,
    ResourceRule,
    SharingRule,
)

SECOND = "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 4}]}}"
MIG_UUID = "MIG-b1028956-cfa2-0990-bf4a-5da9abb51763"


def read(
    text: str, environment: dict[str, str] | None = None, arguments: list[str] | None = None
) -> PluginConfig:
    config, mistakes = read_config(text.encode(), environment or {}, arguments or [])
    assert mistakes == ()
    assert config is not None
    return config


def wrong(
    text: str, environment: dict[str, str] | None = None, arguments: list[str] | None = None
) -> list[str]:
    config, mistakes = read_config(text.encode(), environment or {}, arguments or [])
    assert config is None
    return list(map(str, mistakes))


def refused(text: str, environment: dict[str, str] | None = None) -> list[str]:
    return list(map(str, read(text, environment).refusals))


# What people bring along


def test_the_time_slicing_of_the_operator_is_honoured() -> None:
    text = """
version: v1
flags:
  migStrategy: none
sharing:
  timeSlicing:
    renameByDefault: false
    failRequestsGreaterThanOne: false
    resources:
    - name: nvidia.com/gpu
      replicas: 4
"""
    rule = SharingRule("nvidia.com/gpu", replicas=4)
    assert read(text) == PluginConfig(PluginPolicy(mig_strategy=MigStrategy.NONE, sharing=(rule,)))


def test_the_environment_of_the_daemonset_is_honoured() -> None:
    environment = {
        "FAIL_ON_INIT_ERROR": "false",
        "DEVICE_LIST_STRATEGY": "envvar",
        "DEVICE_ID_STRATEGY": "uuid",
    }
    assert read("", environment) == PluginConfig(PluginPolicy(strategies=(Strategy.EDITS,)))


# Values


WHOLE = """
flags:
  migStrategy: mixed
  nvidiaDriverRoot: /run/nvidia/driver
  nvidiaDevRoot: /run/nvidia/driver
  plugin:
    passDeviceSpecs: true
    deviceListStrategy: [volume-mounts, envvar, cdi-cri]
    deviceIDStrategy: index
    sharedDevicesAllocationPolicy: packed
resources:
  gpus: [{pattern: "*A100*", name: nvidia.com/a100}]
  mig: [{pattern: 1g.5gb, name: small}]
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - {name: gpu, replicas: 2}
    - {name: nvidia.com/a100, replicas: 3, rename: shared-a100, devices: 2}
    - {name: small, replicas: 4, devices: [0, "0:1", %s]}
""".replace("%s", MIG_UUID)


def test_every_key_that_is_honoured_becomes_a_value() -> None:
    config = read(WHOLE)
    assert config.policy == PluginPolicy(
        mig_strategy=MigStrategy.MIXED,
        sharing=(
            SharingRule(
                "nvidia.com/gpu", replicas=2, rename="nvidia.com/gpu.shared", refuses_several=True
            ),
            SharingRule(
                "nvidia.com/a100",
                replicas=3,
                rename="nvidia.com/shared-a100",
                refuses_several=True,
                devices=DeviceChoice(count=2),
            ),
            SharingRule(
                "nvidia.com/small",
                replicas=4,
                rename="nvidia.com/small.shared",
                refuses_several=True,
                devices=DeviceChoice(named=("0", "0:1", MIG_UUID)),
            ),
        ),
        resources=(
            ResourceRule("*A100*", "nvidia.com/a100"),
            ResourceRule("1g.5gb", "nvidia.com/small", parts=True),
        ),
        strategies=(Strategy.CDI, Strategy.EDITS),
        packed=True,
    )
    assert (config.driver_root, config.refusals) == ("/run/nvidia/driver", ())


def test_what_nvidias_plugin_ignores_is_told() -> None:
    [ids, *ignored] = read(WHOLE).notes
    assert str(ids).startswith(
        "flags.plugin.deviceIDStrategy: 'index': no variable chooses the devices of a container here"
    )
    assert ignored == [
        Mistake(path, COUNTS)
        for path in (
            "resources.gpus[0]",
            "resources.mig[0]",
            "sharing.timeSlicing.resources[1].devices",
            "sharing.timeSlicing.resources[1].rename",
            "sharing.timeSlicing.resources[2].devices",
        )
    ]


def test_what_is_usual_is_not_told() -> None:
    text = """
flags: {failOnInitError: false, gdrcopyEnabled: false, gdsEnabled: false, mofedEnabled: false, deviceDiscoveryStrategy: auto,
  nvidiaDevRoot: /, plugin: {cdiAnnotationPrefix: cdi.k8s.io/, sharedDevicesAllocationPolicy: distributed, passDeviceSpecs: false}}
imex: {channelIDs: [], required: false}
resources:
sharing:
"""
    assert read(text) == PluginConfig(PluginPolicy(packed=False))
    environment = {"CONFIG_FILE": "", "CDI_FEATURE_FLAGS": "", "CDI_DISABLE_HOOKS": ""}
    socket = {"KUBELET_SOCKET": "/var/lib/kubelet/device-plugins/kubelet.sock"}
    assert read("", environment | socket) == PluginConfig()
    assert read("flags:\nversion:\n") == PluginConfig()


def test_a_flag_wins_over_a_variable_and_that_over_the_file() -> None:
    text = "flags: {migStrategy: none}"
    variable = {"MIG_STRATEGY": "single"}
    assert read(text, variable).policy.mig_strategy is MigStrategy.SINGLE
    for arguments in (["--mig-strategy=mixed"], ["-mig-strategy", "mixed"]):
        assert read(text, variable, arguments).policy.mig_strategy is MigStrategy.MIXED
    newer = {"NVIDIA_CTK_PATH": "/old", "NVIDIA_CDI_HOOK_PATH": "/new"}
    (note,) = read("", newer).notes
    assert (note.path, note.found[:6]) == ("NVIDIA_CDI_HOOK_PATH", "'/new'")


def test_a_flag_for_true_or_false_stands_alone() -> None:
    config = read(
        "", {}, ["--gds-enabled", "--device-list-strategy", "cdi-cri,envvar", "--mps-root"]
    )
    assert config.policy.strategies == (Strategy.CDI, Strategy.EDITS)
    assert [one.path for one in config.refusals] == ["--gds-enabled"]
    assert [one.path for one in config.notes] == ["--mps-root"]
    assert read("", {}, ["--gds-enabled=false"]) == PluginConfig()


def test_ignored_xids_are_those_that_are_not_enabled_again() -> None:
    environment = {"DP_DISABLE_HEALTHCHECKS": "31, 43,31,79", "DP_ENABLE_HEALTHCHECKS": "79"}
    assert read("", environment) == PluginConfig(ignored_xids=(31, 43))
    assert ignored_xids(environment) == (31, 43)


# Refusals


@pytest.mark.parametrize("switch", ["gdrcopyEnabled", "gdsEnabled", "mofedEnabled"])
def test_files_that_containers_do_not_get_are_refused(switch: str) -> None:
    (said,) = refused(f"flags: {{{switch}: true}}")
    assert said.startswith(f"flags.{switch}: true: this driver passes no ")
    assert said.endswith("take NVIDIA's device plugin")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}",
            f"sharing.mps: {NO_MPS}",
        ),
        (
            "flags: {deviceDiscoveryStrategy: tegra}",
            "flags.deviceDiscoveryStrategy: 'tegra': this driver finds GPUs by NVML only, and no Tegra; on nodes that need it take NVIDIA's device plugin",
        ),
        (
            "flags: {nvidiaDevRoot: /host}",
            "flags.nvidiaDevRoot: '/host': the driver looks for device files below the host's /dev only; where they are elsewhere, take NVIDIA's device plugin",
        ),
        (
            "flags: {plugin: {cdiAnnotationPrefix: my.cdi/}}",
            "flags.plugin.cdiAnnotationPrefix: 'my.cdi/': container runtimes read CDI names from annotations that begin with cdi.k8s.io/ only: remove this key",
        ),
        (
            "imex: {channelIDs: [0]}",
            "imex.channelIDs: [0]: this driver gives out no IMEX channels; use the ComputeDomains of NVIDIA's DRA driver, or on nodes that need it take NVIDIA's device plugin",
        ),
        (
            "imex: {required: true}",
            "imex.required: true: this driver gives out no IMEX channels; use the ComputeDomains of NVIDIA's DRA driver, or on nodes that need it take NVIDIA's device plugin",
        ),
        (
            "flags: {plugin: {unheard: 1}}",
            "flags.plugin.unheard: unknown key; known are passDeviceSpecs, deviceListStrategy, deviceIDStrategy, cdiAnnotationPrefix, nvidiaCTKPath, containerDriverRoot, sharedDevicesAllocationPolicy",
        ),
        ("health: {}", "health: unknown key; known are version, flags, imex, resources, sharing"),
        ("resources: {cpus: []}", "resources.cpus: unknown key; known are gpus, mig"),
        (
            "sharing: {timeSlicing: {failRequestGreaterThanOne: true, resources: [{name: gpu, replicas: 2}]}}",
            "sharing.timeSlicing.failRequestGreaterThanOne: unknown key; known are renameByDefault, failRequestsGreaterThanOne, resources",
        ),
    ],
)
def test_what_this_driver_does_not_do_is_refused_with_what_to_use(text: str, said: str) -> None:
    assert refused(text) == [said]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "KUBELET_SOCKET",
            "/k/kubelet.sock",
            "'/k/kubelet.sock': name its folder in `devicePluginsDir`",
        ),
        (
            "CONFIG_FILE",
            "/c",
            "'/c': name the file, or the folder of the ConfigMap, in `backends.nvidia.devicePlugin.config`",
        ),
        (
            "CDI_FEATURE_FLAGS",
            "a",
            "['a']: the driver's CDI specs have no such variants: remove it, or take NVIDIA's device plugin",
        ),
        (
            "CDI_DISABLE_HOOKS",
            "a,b",
            "['a', 'b']: hooks cannot be chosen one by one; `deviceListStrategy: edits` passes none",
        ),
        (
            "DP_DISABLE_HEALTHCHECKS",
            "all",
            "'all': not every XID can be ignored, for a GPU that needs a reset would be given out: name the numbers",
        ),
        (
            "DP_DISABLE_HEALTHCHECKS",
            "xids",
            "'xids': not every XID can be ignored, for a GPU that needs a reset would be given out: name the numbers",
        ),
        ("DP_DISABLE_HEALTHCHECKS", "31,x", "'x' must be the number of an XID"),
        ("DP_DISABLE_HEALTHCHECKS", f"31,{'9' * 21}", f"'{'9' * 21}' must be the number of an XID"),
        ("DP_ENABLE_HEALTHCHECKS", "all", "'all' must be the number of an XID"),
    ],
)
def test_a_variable_is_refused_with_what_to_use(name: str, value: str, said: str) -> None:
    assert refused("", {name: value}) == [f"{name}: {said}"]


def test_a_flag_that_nobody_knows_is_told() -> None:
    config = read("", {}, ["--unheard", "--mig-strategy=single"])
    assert config.refusals == (Mistake("--unheard", "unknown flag of NVIDIA's device plugin"),)
    assert config.policy.mig_strategy is MigStrategy.SINGLE


def test_what_is_refused_does_not_cost_the_rest() -> None:
    both = "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}, timeSlicing: {resources: [{name: gpu, replicas: 4}]}}"
    config = read(both)
    assert config.policy.sharing == (SharingRule("nvidia.com/gpu", replicas=4),)
    assert config.refusals == (Mistake("sharing.mps", NO_MPS),)


# Mistakes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version: v2", "version: unknown version: v2; write v1"),
        ("version: 1", "version: 1 must be a text"),
        (
            "flags: {migStrategy: all}",
            "flags.migStrategy: unknown MIG strategy: all; write one of none, single, mixed",
        ),
        ("flags: {migStrategy: [none]}", "flags.migStrategy: ['none'] must be a text"),
        ("flags: {failOnInitError: 'no'}", "flags.failOnInitError: 'no' must be true or false"),
        ("flags: 5", "flags: 5 must be a mapping"),
        (
            "flags: {gfd: {sleepInterval: 60}}",
            "flags.gfd.sleepInterval: 60 must be a duration, such as 60s",
        ),
        (
            "flags: {plugin: {deviceListStrategy: cdi}}",
            "flags.plugin.deviceListStrategy: invalid --device-list-strategy option: invalid strategy: cdi; write one of envvar, volume-mounts, cdi-annotations, cdi-cri",
        ),
        (
            "flags: {plugin: {deviceListStrategy: []}}",
            "flags.plugin.deviceListStrategy: no device list strategy specified; at least one of [cdi-cri cdi-annotations envvar volume-mounts] is required",
        ),
        (
            "flags: {plugin: {deviceListStrategy: [1]}}",
            "flags.plugin.deviceListStrategy: [1] must be a text or a list of texts",
        ),
        (
            "flags: {plugin: {deviceIDStrategy: name}}",
            "flags.plugin.deviceIDStrategy: invalid --device-id-strategy option: name; write one of uuid, index",
        ),
        (
            "flags: {plugin: {sharedDevicesAllocationPolicy: spread}}",
            "flags.plugin.sharedDevicesAllocationPolicy: invalid --shared-devices-allocation-policy option: spread; write one of distributed, packed",
        ),
        (
            "flags: {deviceDiscoveryStrategy: wsl}",
            "flags.deviceDiscoveryStrategy: invalid --device-discovery-strategy option wsl; write one of auto, nvml, tegra",
        ),
        (
            "imex: {channelIDs: [1]}",
            "imex.channelIDs: invalid IMEX config: channelIDs must be [] or [0]; found [1]",
        ),
        ("imex: {channelIDs: 0}", "imex.channelIDs: 0 must be a list of whole numbers"),
        ("imex: {channelIDs: [true]}", "imex.channelIDs: [True] must be a list of whole numbers"),
        ("resources: []", "resources: [] must be a mapping"),
        ("resources: {gpus: {}}", "resources.gpus: {} must be a list"),
        (
            "resources: {gpus: [{name: a}]}",
            "resources.gpus[0].pattern: resources must have a 'pattern' field set",
        ),
        (
            "resources: {mig: [{pattern: a}]}",
            "resources.mig[0].name: resources must have a 'name' field set",
        ),
        (
            "resources: {mig: [{pattern: 1, name: a}]}",
            "resources.mig[0].pattern: 1 must be a text",
        ),
        (
            "resources: {gpus: [{pattern: a, name: A_B}]}",
            "resources.gpus[0].name: incorrect format for resource name 'nvidia.com/A_B': behind nvidia.com/ a lower-case DNS name is due",
        ),
        (
            "resources: {gpus: [{pattern: a, name: amd.com/gpu}]}",
            "resources.gpus[0].name: incorrect format for resource name 'nvidia.com/amd.com/gpu': behind nvidia.com/ a lower-case DNS name is due",
        ),
        (
            f"resources: {{gpus: [{{pattern: a, name: {'x' * 53}}}]}}",
            f"resources.gpus[0].name: fully-qualified resource name must be 63 characters or less: nvidia.com/{'x' * 53}",
        ),
        ("sharing: {timeSlicing: }", "sharing.timeSlicing.resources: no resources specified"),
        ("sharing: {timeSlicing: {}}", "sharing.timeSlicing.resources: no resources specified"),
        (
            "sharing: {timeSlicing: {resources: []}}",
            "sharing.timeSlicing.resources: no resources specified",
        ),
        ("sharing: {timeSlicing: 4}", "sharing.timeSlicing: 4 must be a mapping"),
        (
            "sharing: {timeSlicing: {resources: nvidia.com/gpu}}",
            "sharing.timeSlicing.resources: 'nvidia.com/gpu' must be a list",
        ),
        ("sharing: {mps: {}}", "sharing.mps.resources: no resources specified"),
        (
            SECOND.replace("{name: gpu, ", "{"),
            "sharing.timeSlicing.resources[0].name: no resource name specified",
        ),
        (
            SECOND.replace("name: gpu", "name: 5"),
            "sharing.timeSlicing.resources[0].name: 5 must be a text",
        ),
        (
            SECOND.replace(", replicas: 4", ""),
            "sharing.timeSlicing.resources[0].replicas: no replicas specified",
        ),
        (
            SECOND.replace("4", "0"),
            "sharing.timeSlicing.resources[0].replicas: number of replicas must be >= 2; it is 0",
        ),
        (
            SECOND.replace("4", "1"),
            "sharing.timeSlicing.resources[0].replicas: number of replicas must be >= 2; it is 1",
        ),
        (
            SECOND.replace("4", "1001"),
            "sharing.timeSlicing.resources[0].replicas: number of replicas must be <= 1000; it is 1001",
        ),
        (
            SECOND.replace("4", "'4'"),
            "sharing.timeSlicing.resources[0].replicas: '4' must be a whole number",
        ),
        (
            SECOND.replace("4", "true"),
            "sharing.timeSlicing.resources[0].replicas: True must be a whole number",
        ),
        (
            SECOND.replace("4", "4, rename: -"),
            "sharing.timeSlicing.resources[0].rename: incorrect format for resource name 'nvidia.com/-': behind nvidia.com/ a lower-case DNS name is due",
        ),
        (
            SECOND.replace("4", "4, devices: some"),
            "sharing.timeSlicing.resources[0].devices: devices set as 'some' but the only valid string input is 'all'",
        ),
        (
            SECOND.replace("4", "4, devices: 0"),
            "sharing.timeSlicing.resources[0].devices: devices set as '0' but a count of devices must be > 0",
        ),
        (
            SECOND.replace("4", "4, devices: {}"),
            "sharing.timeSlicing.resources[0].devices: unrecognized type for devices spec: {}",
        ),
        (
            SECOND.replace("4", "4, devices: true"),
            "sharing.timeSlicing.resources[0].devices: unrecognized type for devices spec: True",
        ),
        (
            SECOND.replace("4", "4, devices: [0, GPU-1]"),
            "sharing.timeSlicing.resources[0].devices[1]: unsupported type for device in devices list: 'GPU-1'; write an index (0), an index of a MIG device (\"0:1\"), or a UUID",
        ),
        (
            SECOND.replace("4", "4, devices: [true]"),
            'sharing.timeSlicing.resources[0].devices[0]: unsupported type for device in devices list: True; write an index (0), an index of a MIG device ("0:1"), or a UUID',
        ),
        (
            SECOND.replace("4}", "4}, {name: nvidia.com/gpu, replicas: 2}"),
            "sharing.timeSlicing.resources[1].name: nvidia.com/gpu is there twice: remove one of them",
        ),
        (
            "sharing: {timeSlicing: {renameByDefault: 1, resources: [{name: gpu, replicas: 2}]}}",
            "sharing.timeSlicing.renameByDefault: 1 must be true or false",
        ),
        ("[1]", "[1] must be a mapping"),
        (
            "a: 1\n---\nb: 1",
            "it has several documents, of which NVIDIA's plugin reads one: remove the others",
        ),
        ("a: [", "it is no YAML: line 2, column 1: did not find expected node content"),
        (
            "version: v1\nversion: v1",
            "it is no YAML: line 2, column 1: the key 'version' is there twice; remove one of them",
        ),
        (
            "version: v1\nmig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1}}], b: [{devices: all, mig-enabled: false}]}",
            (
                "mig-configs: this is a layout of MIG devices, a: each GPU 1 x 1g.5gb (and 1 more), and no configuration of the device plugin; this driver makes no "
                "MIG devices, and offers those that are there. The MIG manager of NVIDIA's GPU operator applies this layout to a node with the label "
                "nvidia.com/mig.config=a; by hand: nvidia-smi mig -cgi 1g.5gb -C"
            ),
        ),
        (
            "version: v1\nmig-configs: {a: [{devices: 1, mig-enabled: false}]}",
            "mig-configs.a[0].devices: 1 must be all, or a list of indexes of GPUs",
        ),
    ],
)
def test_a_wrong_value_is_told_with_its_path(text: str, said: str) -> None:
    assert wrong(text) == [said]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("FAIL_ON_INIT_ERROR", "perhaps", "'perhaps' must be true or false"),
        ("MIG_STRATEGY", "", "unknown MIG strategy: ; write one of none, single, mixed"),
        (
            "IMEX_CHANNEL_IDS",
            f"0,{'9' * 21}",
            f"['0', '{'9' * 21}'] must be a list of whole numbers",
        ),
        ("IMEX_CHANNEL_IDS", "x", "['x'] must be a list of whole numbers"),
        (
            "DEVICE_LIST_STRATEGY",
            "",
            "no device list strategy specified; at least one of [cdi-cri cdi-annotations envvar volume-mounts] is required",
        ),
    ],
)
def test_a_wrong_variable_is_told_with_its_name(name: str, value: str, said: str) -> None:
    assert wrong("", {name: value}) == [f"{name}: {said}"]


@pytest.mark.parametrize("name", ["DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS"])
def test_a_number_that_python_does_not_read_is_refused(name: str) -> None:
    (said,) = refused("", {name: "9" * 5000})
    assert said.startswith(f"{name}: '999")
    assert len(said) < 200
    (said,) = wrong("", {"IMEX_CHANNEL_IDS": "9" * 5000})
    assert len(said) < 200


def test_all_mistakes_are_told_at_once() -> None:
    text = "version: v3\nflags: {migStrategy: 1, plugin: {deviceIDStrategy: x}}\nsharing: {timeSlicing: {resources: [{replicas: 0}]}}"
    paths = [one.partition(":")[0] for one in wrong(text, {"GDS_ENABLED": "x"})]
    assert paths == [
        "flags.migStrategy",
        "GDS_ENABLED",
        "sharing.timeSlicing.resources[0].name",
        "sharing.timeSlicing.resources[0].replicas",
        "version",
        "flags.plugin.deviceIDStrategy",
    ]


# The table


@pytest.mark.parametrize("key", [*KEYS, *OUTSIDE], ids=lambda key: key.path)
def test_no_key_is_silently_ignored(key) -> None:
    """A value that asks for something becomes a value, or is told."""
    text = {
        Kind.TEXT: key.allowed[-1] if key.allowed else "v1",
        Kind.TRUTH: "true",
        Kind.TEXTS: key.allowed[-1] if key.allowed else "79",
        Kind.NUMBERS: "0",
        Kind.DURATION: "60s",
    }[key.kind]
    for name in key.variables:
        config = read("", {name: text})
        told = [one.path for one in (*config.refusals, *config.notes)]
        if key.outcome is Outcome.HONOURED:
            always_so = {"flags.plugin.passDeviceSpecs", "enableHealthChecks"}
            assert config != PluginConfig() or key.path in always_so
            assert told == []
        else:
            assert told == [name]
    assert key.words
    assert (not key.wrong) is (not key.allowed)


def test_no_variable_and_no_flag_is_in_the_table_twice() -> None:
    keys = (*KEYS, *OUTSIDE)
    for names in (
        [n for key in keys for n in key.variables],
        [n for key in keys for n in key.flags],
    ):
        assert len(names) == len(set(names))
        assert all(re.fullmatch(r"[A-Z_]+|--[a-z-]+", name) for name in names)
