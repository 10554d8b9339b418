# SPDX-License-Identifier: Apache-2.0
"""Which keys does NVIDIA's device plugin have, and what becomes of each? The page docs/reference/nvidia-plugin-config.md is made from here.

A key is a field of the file, a variable, a flag, or several of these; a flag wins over a variable, and a variable over the file, as there. The
keys of `resources` and `sharing` are lists with rules of their own, in `sharing.py`.
"""

from enum import Enum

from msgspec import Struct

TAKE_NVIDIAS = "on nodes that need it take NVIDIA's device plugin"
NO_MPS = (
    "this driver runs no MPS daemon. For containers that take turns on a GPU, write the same under sharing.timeSlicing; on nodes whose pods "
    "need MPS (limits of memory or threads) take NVIDIA's device plugin"
)
_GFD = (
    "GPU Feature Discovery reads it, this driver does not. It writes the same labels itself, so run only one of the two on a node: set nodeLabels "
    "to none while GPU Feature Discovery runs"
)
_CHANNELS = (
    "this driver gives out no IMEX channels; use the ComputeDomains of NVIDIA's DRA driver, or "
    + TAKE_NVIDIAS
)


class Outcome(Enum):
    HONOURED = "honoured"
    NOTHING_TO_DO = "nothing to do"
    REFUSED = "refused"


class Kind(Enum):
    """The type of a value, with the words for a message."""

    TEXT = "a text"
    TRUTH = "true or false"
    TEXTS = "a text or a list of texts"
    NUMBERS = "a list of whole numbers"
    DURATION = "a duration, such as 60s"


class Key(Struct, frozen=True):
    """One key. `words`: what it becomes, why nothing is to do, or what to use instead.

    `allowed` are the only values, and `wrong` is what NVIDIA's plugin says about another one. `quiet` are values that ask for nothing:
    nobody has to be told.
    """

    path: str
    kind: Kind
    outcome: Outcome
    words: str
    variables: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    wrong: str = ""
    quiet: tuple[object, ...] = ()


def _key(
    path: str,
    outcome: Outcome,
    words: str,
    *names: str,
    kind: Kind = Kind.TEXT,
    only: tuple[tuple[str, ...], str] = ((), ""),
    quiet: tuple[object, ...] = (),
) -> Key:
    """A key; of `names` those with dashes in front are flags, the others variables. `only` are the only values, and what is said about others."""
    flags = tuple(name for name in names if name.startswith("--"))
    variables = tuple(name for name in names if not name.startswith("--"))
    return Key(path, kind, outcome, words, variables, flags, *only, quiet)


H, N, R = Outcome.HONOURED, Outcome.NOTHING_TO_DO, Outcome.REFUSED
KEYS: tuple[Key, ...] = (
    _key("version", H, "`v1` or empty is the only version"),
    _key(
        "flags.migStrategy",
        H,
        "`devicePlugin.migStrategy`",
        "MIG_STRATEGY",
        "--mig-strategy",
        only=(("none", "single", "mixed"), "unknown MIG strategy: {}"),
    ),
    _key(
        "flags.failOnInitError",
        N,
        "the driver is always as with false: it offers the devices that work, says what is wrong with the others, and looks again",
        "FAIL_ON_INIT_ERROR",
        "--fail-on-init-error",
        kind=Kind.TRUTH,
        quiet=(False,),
    ),
    _key(
        "flags.mpsRoot",
        N,
        "it is a folder of MPS daemons, and this driver runs none",
        "MPS_ROOT",
        "--mps-root",
    ),
    _key(
        "flags.nvidiaDriverRoot",
        N,
        "the driver looks in the usual places, /run/nvidia/driver among them; `hardware.driverRoot` of the chart, or "
        "`backends.nvidia.driverRoot`, names another one",
        "NVIDIA_DRIVER_ROOT",
        "--driver-root",
        "--nvidia-driver-root",
        quiet=("", "/", "/run/nvidia/driver"),
    ),
    _key(
        "flags.nvidiaDevRoot",
        R,
        "the driver looks for device files below the host's /dev only; where they are elsewhere, take NVIDIA's device plugin",
        "NVIDIA_DEV_ROOT",
        "--dev-root",
        quiet=("", "/"),
    ),
    _key(
        "flags.gdrcopyEnabled",
        R,
        f"this driver passes no GDRCopy device file to containers; {TAKE_NVIDIAS}",
        "GDRCOPY_ENABLED",
        "--gdrcopy-enabled",
        kind=Kind.TRUTH,
        quiet=(False,),
    ),
    _key(
        "flags.gdsEnabled",
        R,
        f"this driver passes no files of GPUDirect Storage to containers; {TAKE_NVIDIAS}",
        "GDS_ENABLED",
        "--gds-enabled",
        kind=Kind.TRUTH,
        quiet=(False,),
    ),
    _key(
        "flags.mofedEnabled",
        R,
        "this driver passes no InfiniBand device files to containers; use the network's own device plugin or DRA driver, or "
        + TAKE_NVIDIAS,
        "MOFED_ENABLED",
        "--mofed-enabled",
        kind=Kind.TRUTH,
        quiet=(False,),
    ),
    _key("flags.useNodeFeatureAPI", N, _GFD, kind=Kind.TRUTH),
    _key(
        "flags.deviceDiscoveryStrategy",
        R,
        f"this driver finds GPUs by NVML only, and no Tegra; {TAKE_NVIDIAS}",
        "DEVICE_DISCOVERY_STRATEGY",
        "--device-discovery-strategy",
        only=(("auto", "nvml", "tegra"), "invalid --device-discovery-strategy option {}"),
        quiet=("auto", "nvml"),
    ),
    _key(
        "flags.plugin.passDeviceSpecs",
        H,
        "always so: device files are in the CDI specs and in the edits",
        "PASS_DEVICE_SPECS",
        "--pass-device-specs",
        kind=Kind.TRUTH,
    ),
    _key(
        "flags.plugin.deviceListStrategy",
        H,
        "`deviceListStrategy`: cdi-cri is `cdi`, cdi-annotations is `cdi-annotations`, envvar and volume-mounts are `edits`, which need no "
        "container runtime of NVIDIA; of several, the first of this order that the kubelet passes on",
        "DEVICE_LIST_STRATEGY",
        "--device-list-strategy",
        kind=Kind.TEXTS,
        only=(
            ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri"),
            "invalid --device-list-strategy option: invalid strategy: {}",
        ),
    ),
    _key(
        "flags.plugin.deviceIDStrategy",
        N,
        "no variable chooses the devices of a container here: it has the files of its own ones only, `NVIDIA_VISIBLE_DEVICES` is `void`, and "
        "`GPU_DEVICE_<N>` has the UUIDs",
        "DEVICE_ID_STRATEGY",
        "--device-id-strategy",
        only=(("uuid", "index"), "invalid --device-id-strategy option: {}"),
        quiet=("uuid",),
    ),
    _key(
        "flags.plugin.cdiAnnotationPrefix",
        R,
        "container runtimes read CDI names from annotations that begin with cdi.k8s.io/ only: remove this key",
        "CDI_ANNOTATION_PREFIX",
        "--cdi-annotation-prefix",
        quiet=("", "cdi.k8s.io/"),
    ),
    _key(
        "flags.plugin.nvidiaCTKPath",
        N,
        "the driver looks for nvidia-cdi-hook on the node itself",
        "NVIDIA_CDI_HOOK_PATH",
        "NVIDIA_CTK_PATH",
        "--nvidia-cdi-hook-path",
        "--nvidia-ctk-path",
    ),
    _key(
        "flags.plugin.containerDriverRoot",
        N,
        "the driver sees the host at `backends.nvidia.hostRoot`, which the chart sets",
        "DRIVER_ROOT_CTR_PATH",
        "CONTAINER_DRIVER_ROOT",
        "--driver-root-ctr-path",
        "--container-driver-root",
    ),
    _key(
        "flags.plugin.sharedDevicesAllocationPolicy",
        H,
        "`devicePlugin.allocationPolicy`",
        "SHARED_DEVICES_ALLOCATION_POLICY",
        "--shared-devices-allocation-policy",
        only=(("distributed", "packed"), "invalid --shared-devices-allocation-policy option: {}"),
    ),
    _key("flags.gfd.oneshot", N, _GFD, kind=Kind.TRUTH),
    _key("flags.gfd.noTimestamp", N, _GFD, kind=Kind.TRUTH),
    _key("flags.gfd.sleepInterval", N, _GFD, kind=Kind.DURATION),
    _key("flags.gfd.outputFile", N, _GFD),
    _key("flags.gfd.machineTypeFile", N, _GFD),
    _key(
        "imex.channelIDs",
        R,
        _CHANNELS,
        "IMEX_CHANNEL_IDS",
        "--imex-channel-ids",
        kind=Kind.NUMBERS,
        quiet=((),),
    ),
    _key(
        "imex.required",
        R,
        _CHANNELS,
        "IMEX_REQUIRED",
        "--imex-required",
        kind=Kind.TRUTH,
        quiet=(False,),
    ),
)
"""The keys of the file that have one value, with their variables and flags."""

OUTSIDE: tuple[Key, ...] = (
    _key(
        "kubeletSocket",
        R,
        "name its folder in `devicePluginsDir`",
        "KUBELET_SOCKET",
        "--kubelet-socket",
        quiet=("", "/var/lib/kubelet/device-plugins/kubelet.sock"),
    ),
    _key(
        "configFile",
        R,
        "name the file, or the folder of the ConfigMap, in `backends.nvidia.devicePlugin.config`",
        "CONFIG_FILE",
        "--config-file",
        quiet=("",),
    ),
    _key(
        "cdiFeatureFlags",
        R,
        "the driver's CDI specs have no such variants: remove it, or take NVIDIA's device plugin",
        "CDI_FEATURE_FLAGS",
        "--cdi-feature-flags",
        kind=Kind.TEXTS,
        quiet=((),),
    ),
    _key(
        "cdiDisableHooks",
        R,
        "hooks cannot be chosen one by one; `deviceListStrategy: edits` passes none",
        "CDI_DISABLE_HOOKS",
        "--cdi-disable-hooks",
        kind=Kind.TEXTS,
        quiet=((),),
    ),
    _key(
        "disableHealthChecks",
        H,
        "numbers: `backends.nvidia.health.ignoredXids`. `all` and `xids` are refused, for a GPU that needs a reset would be given out: name "
        "the numbers",
        "DP_DISABLE_HEALTHCHECKS",
        kind=Kind.TEXTS,
    ),
    _key(
        "enableHealthChecks",
        H,
        "its numbers are taken off those of DP_DISABLE_HEALTHCHECKS. Which other XIDs count is in NVIDIA's catalogue (xids.md)",
        "DP_ENABLE_HEALTHCHECKS",
        kind=Kind.TEXTS,
    ),
)
"""Variables and flags that the file has no key for. The path is this project's word."""

LISTS: tuple[Key, ...] = (
    _key(
        "resources.gpus[].pattern, .name",
        H,
        "the name of the resource of each GPU whose product fits; NVIDIA's plugin reads it and ignores it",
    ),
    _key(
        "resources.mig[].pattern, .name",
        H,
        "the name of the resource of each MIG device whose profile fits; NVIDIA's plugin reads it and ignores it",
    ),
    _key("sharing.timeSlicing.renameByDefault", H, "`rename` is the name with `.shared`"),
    _key(
        "sharing.timeSlicing.failRequestsGreaterThanOne",
        H,
        "`devicePlugin.timeSlicing.*.failRequestsGreaterThanOne`",
    ),
    _key("sharing.timeSlicing.resources[].name", H, "a key of `devicePlugin.timeSlicing`"),
    _key(
        "sharing.timeSlicing.resources[].rename",
        H,
        "`devicePlugin.timeSlicing.*.rename`; NVIDIA's plugin reads it and ignores it",
    ),
    _key(
        "sharing.timeSlicing.resources[].devices",
        H,
        "all, a number, indexes or UUIDs; NVIDIA's plugin reads it and ignores it",
    ),
    _key("sharing.timeSlicing.resources[].replicas", H, "`devicePlugin.timeSlicing.*.replicas`"),
    _key("sharing.mps", R, NO_MPS),
)
"""The keys of the file that are lists, for the page."""
