# SPDX-License-Identifier: Apache-2.0
"""The texts about the kubelet and the driver's own files on the node."""

from collections.abc import Mapping

from dra_driver.doctor.text import Check, Text

_ROOT = "run `dra-driver doctor` as root on the node, or in the driver's pod"

KUBELET_CHECKS: Mapping[str, Check] = {
    "kubelet": Check("Are the kubelet's folders and sockets there, and does it answer?", _ROOT),
    "driver": Check("Does a process of this driver listen for the kubelet, and no other?", _ROOT),
    "probes": Check(
        "What does the running driver say of itself (/livez, /readyz, and the age of its measurements)?",
        "run it in the driver's pod, or name the driver's address with --http-address",
    ),
    "device-plugins": Check(
        "Do device plugins on this node offer accelerators too?",
        f"{_ROOT}; the kubelet must answer on its pod-resources socket",
    ),
    "state-file": Check("Can the driver's record of prepared claims be read?", _ROOT),
    "held-devices": Check("Which devices does the driver hold for claims that have ended?", _ROOT),
    "cgroups": Check(
        "Can the driver see whether the containers of a pod have ended?",
        "mount the node's /sys/fs/cgroup, and name its place with --cgroup-root",
    ),
    "disk": Check("Is there space where the driver writes?", _ROOT),
}
KUBELET_TEXTS: Mapping[str, Text] = {
    "perhaps-no-node": Text(
        "kubelet",
        "warning",
        "The machine has no kubelet: it may be no node",
        "what a node needs (container runtime, kubelet, driver, disk) was not looked at, for its absence is no fault of a machine that is no node",
        "from here, ask about a node of a cluster by --node, or about a recorded one by --from; else run it on the node. If a kubelet with another root "
        "directory belongs to this machine, name its folders with pluginsDir, registryDir and podResourcesSocket",
        "kubectl dra doctor --node NODE; dra-driver doctor --from FILE --node NODE",
    ),
    "kubelet-folder-missing": Text(
        "kubelet",
        "problem",
        "A folder of the kubelet is missing",
        "no kubelet runs here, or it has another root directory (--root-dir): it does not find the driver",
        "name the kubelet's folders with the options pluginsDir, registryDir and podResourcesSocket",
        "ps -C kubelet -o args= | tr ' ' '\\n' | grep root-dir; ls -ld {path}",
    ),
    "kubelet-silent": Text(
        "kubelet",
        "warning",
        "The kubelet does not answer on its pod-resources socket",
        "the driver cannot ask which pods use a device: it keeps the devices of ended claims until it can",
        "see whether the kubelet runs, and whether the socket is mounted into the driver's pod",
        "systemctl status kubelet; ls -l {path}",
    ),
    "kubelet-gate-off": Text(
        "kubelet",
        "warning",
        "A feature gate of the kubelet is switched off",
        "without DynamicResourceAllocation no claim is prepared here; without KubeletPodResourcesDynamicResources the kubelet does not say "
        "which pod uses which claim; without ResourceHealthStatus the status of pods does not show that a device is ill",
        "take the gate out of featureGates (of --feature-gates, if the file has arguments), or set it to true, and restart the kubelet",
        "grep -an {gate} {path}; systemctl restart kubelet",
    ),
    "driver-not-listening": Text(
        "driver",
        "problem",
        "No process of this driver listens for the kubelet",
        "pods with a claim for devices of this node stay in ContainerCreating",
        "look at the driver's pod of this node and its log; after an uninstallation remove what is left",
        "kubectl get pods -A -o wide -l app.kubernetes.io/name=dra-driver; dra-driver cleanup --dry-run",
    ),
    "driver-without-registration": Text(
        "driver",
        "note",
        "A process of this driver runs and does not listen for claims",
        "on a node that serves the device plugin API this is right; else it is starting, or stands by during an update",
        "if pods with a claim wait here, read the log of the driver's pod",
        "kubectl get pods -A -o wide -l app.kubernetes.io/name=dra-driver",
    ),
    "socket-without-driver": Text(
        "driver",
        "warning",
        "A socket of an ended driver process is left",
        "the kubelet takes it for a driver that does not answer; a running driver removes such sockets",
        "start the driver, or remove what an uninstalled one has left",
        "dra-driver cleanup --dry-run",
    ),
    "driver-name-taken": Text(
        "driver",
        "problem",
        "Another program has registered under this driver's name",
        "the kubelet sends claims to either of them, and the driver refuses to start beside it",
        "remove the other program from this node, or give one of the two another name (driverName)",
        "kubectl get pods -A -o wide --field-selector spec.nodeName=$(hostname)",
    ),
    "driver-silent": Text(
        "probes",
        "problem",
        "The driver does not answer on its HTTP port",
        "it starts or ends just now, or it hangs; the kubelet's probes get no answer either, and restart it",
        "look whether the pod restarts; if the driver hangs, let it write where its threads are (docs/operations.md)",
        "kubectl get pods -A -o wide -l app.kubernetes.io/name=dra-driver",
    ),
    "probes-out-of-reach": Text(
        "probes",
        "note",
        "The driver's probes cannot be asked from here",
        "a driver in a pod has a network of its own, so what it says of itself, and whether its hardware hangs, was not looked at",
        "ask in the driver's pod of this node; a driver without a pod: give its --http-address",
        "kubectl exec -n NAMESPACE POD --container driver -- dra-driver doctor",
    ),
    "driver-not-alive": Text(
        "probes",
        "problem",
        "The driver says that only a restart helps it",
        "its sockets do not answer, or its calls are stuck; the kubelet restarts it after some failed probes",
        "read its log; after the restart it is the previous one",
        "kubectl logs -n NAMESPACE POD --container driver --previous",
    ),
    "driver-not-ready": Text(
        "probes",
        "problem",
        "The driver says that it is not ready",
        "it starts, or it waits for what the sentence names: the kubelet, its hardware (which hangs, if no scan succeeds for long), or the API server; new pods with a "
        "claim do not start on this node",
        "if it is so for more than a minute, read its log, that of the container hardware, and the kernel log of the node (dmesg)",
        "kubectl logs -n NAMESPACE POD --all-containers --tail 100",
    ),
    "devices-not-measured": Text(
        "probes",
        "warning",
        "Devices have not been measured for a minute",
        "their hardware hangs, or their backend fails; what is published and said of their health is as old",
        "read the kernel log of the node (dmesg) and the log of the container hardware; a GPU that hangs for good needs a reset or a reboot "
        "(docs/operations.md, DRADeviceNotMeasured)",
        "kubectl logs -n NAMESPACE POD --all-containers --tail 100",
    ),
    "devices-gone": Text(
        "probes",
        "warning",
        "The driver had devices that it does not find any more",
        "they fell off the bus, their kernel driver is not loaded, or they were taken away; a name that is present too belongs to another device "
        "now. A claim that has one keeps it, and its pod fails",
        "look for device_gone in the log of the driver, which has the UUID, and read the kernel log of the node (dmesg); drain the node and restart "
        "it; if a device was taken away on purpose, delete the driver's pod: the next one forgets it (docs/operations.md, DRADeviceUnhealthy)",
        "kubectl logs -n NAMESPACE POD --container driver | grep device_gone",
    ),
    "device-plugin-beside": Text(
        "device-plugins",
        "note",
        "A device plugin offers accelerators on this node",
        "if it offers devices of this driver too, the driver keeps them from its own users while the plugin runs",
        "move the node to DRA, or divide it between both (devicePlugin.foreign)",
        "kubectl dra migration",
    ),
    "state-unreadable": Text(
        "state-file",
        "problem",
        "The state file cannot be read",
        "nobody can see which claims are prepared here; a running driver sets a damaged file aside and builds it anew",
        "do what the sentence about the finding says; keep the file",
        "ls -l {path}*",
    ),
    "state-set-aside": Text(
        "state-file",
        "note",
        "A damaged state file was set aside",
        "the driver has built the state anew from CDI files and the kubelet's answers",
        "look for the cause (disk, power), attach the file to a bug report, then remove it",
        "ls -l {path}",
    ),
    "device-held": Text(
        "held-devices",
        "warning",
        "Devices of an ended claim are held",
        "no other pod gets them until it is proven that the containers of the claim have ended",
        "end the containers that the reason names; if you know that they have ended, release the devices",
        "dra-driver release {claim}",
    ),
    "claim-half-prepared": Text(
        "held-devices",
        "note",
        "A claim is reserved and not prepared",
        "the kubelet prepares it just now, or its last try failed: then the pod's events say why",
        "if it stays so, read the events of the pod",
        "kubectl get events -n {namespace} --sort-by=.lastTimestamp | tail",
    ),
    "cgroups-blind": Text(
        "cgroups",
        "warning",
        "The cgroups of pods cannot be read",
        "without them there is no proof that containers have ended, and the devices of ended claims stay held",
        "mount the node's /sys/fs/cgroup into the driver's pod, or name its place with --cgroup-root",
        "ls -d /sys/fs/cgroup/kubepods*",
    ),
    "disk-full": Text(
        "disk",
        "problem",
        "The disk is full",
        "the driver cannot record a claim, so no pod with a claim starts on this node",
        "free space or files (inodes)",
        "df -h {path}; df -i {path}",
    ),
    "disk-nearly-full": Text(
        "disk",
        "warning",
        "The disk is nearly full",
        "soon no claim can be prepared here; the kubelet evicts pods too",
        "free space",
        "df -h {path}",
    ),
    "disk-read-only": Text(
        "disk",
        "problem",
        "The file system is read-only",
        "the driver cannot record a claim, so no pod with a claim starts on this node",
        "mount it writable; a kernel makes a file system read-only after an error of the disk",
        "dmesg | grep -i -e remount -e 'I/O error' | tail; findmnt -T {path}",
    ),
}
