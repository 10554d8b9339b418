# SPDX-License-Identifier: Apache-2.0
"""The values of the chart of NVIDIA's device plugin, and what is the same here. For the page docs/reference/nvidia-plugin-config.md."""

from msgspec import Struct


class HelmValue(Struct, frozen=True):
    """A value of NVIDIA's chart. `ours` are values of this project's chart, `words` say the rest; one of the two may be empty."""

    name: str
    ours: tuple[str, ...] = ()
    words: str = ""


_NO = "refused: see the key of the file"
_OTHER = "install it with a chart of its own"
VALUES: tuple[HelmValue, ...] = (
    HelmValue("config.name", ("devicePlugin.nvidiaConfigMap.name",)),
    HelmValue(
        "config.map",
        ("devicePlugin.nvidiaConfigMap.name",),
        "a ConfigMap with the same keys; or `devicePlugin.timeSlicing` and the values beside it",
    ),
    HelmValue("config.default", ("devicePlugin.nvidiaConfigMap.default",)),
    HelmValue("config.fallbackStrategies", ("devicePlugin.nvidiaConfigMap.fallbackStrategies",)),
    HelmValue(
        "compatWithCPUManager",
        (),
        "always so, and without a privileged driver: device files are in the CDI specs and in the edits",
    ),
    HelmValue("migStrategy", ("devicePlugin.migStrategy",)),
    HelmValue("failOnInitError", (), "nothing to do: see the key of the file"),
    HelmValue(
        "deviceListStrategy",
        ("devicePlugin.deviceListStrategy",),
        "in other words: see the key of the file",
    ),
    HelmValue("deviceIDStrategy", (), "the key of the file, or the variable in `extraEnv`"),
    HelmValue("nvidiaDriverRoot", ("hardware.driverRoot",)),
    HelmValue("gdrcopyEnabled", (), _NO),
    HelmValue("gdsEnabled", (), _NO),
    HelmValue("mofedEnabled", (), _NO),
    HelmValue("deviceDiscoveryStrategy", (), "auto and nvml: nothing to do. tegra is refused"),
    HelmValue("nameOverride", ("fullnameOverride",)),
    HelmValue("fullnameOverride", ("fullnameOverride",)),
    HelmValue("namespaceOverride", (), "`helm install --namespace`"),
    HelmValue(
        "selectorLabelsOverride",
        (),
        "nothing to do: the labels of the selector are the chart's own; `podLabels` adds others",
    ),
    HelmValue("allowDefaultNamespace", ("allowDefaultNamespace",)),
    HelmValue("imagePullSecrets", ("imagePullSecrets",)),
    HelmValue("image", ("image.repository", "image.tag", "image.digest", "image.pullPolicy")),
    HelmValue("updateStrategy", ("updateStrategy.surge", "updateStrategy.nodesAtOnce")),
    HelmValue("podAnnotations", ("podAnnotations",)),
    HelmValue(
        "podSecurityContext",
        ("seLinuxOptions", "appArmorProfile"),
        "the rest is fixed: the driver needs it, and no more",
    ),
    HelmValue(
        "securityContext",
        ("seLinuxOptions", "appArmorProfile"),
        "the rest is fixed: the driver needs it, and no more",
    ),
    HelmValue("resources", ("resources", "hardware.resources")),
    HelmValue("nodeSelector", ("nodeSelector",)),
    HelmValue("affinity", ("affinity", "onlyGpuNodes")),
    HelmValue("tolerations", ("tolerations",)),
    HelmValue("priorityClassName", ("priorityClassName",)),
    HelmValue("runtimeClassName", (), "nothing to do: the driver's pod needs no runtime of NVIDIA"),
    HelmValue("devicePlugin.enabled", ("path",)),
    HelmValue("gfd", (), f"GPU Feature Discovery: {_OTHER}"),
    HelmValue("nfd", (), f"Node Feature Discovery: {_OTHER}"),
    HelmValue("mps.root", (), "refused: this driver runs no MPS daemon"),
    HelmValue("mps.enableHostPID", (), "refused: this driver runs no MPS daemon"),
    HelmValue(
        "cdi.nvidiaHookPath",
        (),
        "nothing to do: the driver looks for nvidia-cdi-hook on the node itself",
    ),
    HelmValue("cdi.featureFlags", (), "refused: the driver's CDI specs have no such variants"),
)
