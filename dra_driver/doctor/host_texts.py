# SPDX-License-Identifier: Apache-2.0
"""The texts about the host: GPU driver, device files, container runtime, CDI files."""

from collections.abc import Mapping

from dra_driver.doctor.text import Check, Text

_MOUNT = "run `dra-driver doctor` as root on the node; in a pod mount the host's / and name it with --root"

HOST_CHECKS: Mapping[str, Check] = {
    "gpu-driver": Check(
        "Has each GPU its kernel driver, and are the libraries of the same version there?", _MOUNT
    ),
    "device-files": Check("Are the device files of the GPUs device files?", _MOUNT),
    "other-accelerators": Check(
        "Have accelerators of AMD, Intel and Gaudi their kernel drivers and device files?", _MOUNT
    ),
    "container-runtime": Check(
        "Which container runtime does the kubelet use, and does it read the driver's CDI files?",
        _MOUNT,
    ),
    "cdi-files": Check("Are the folders with CDI files there, and can the files be read?", _MOUNT),
    "imex": Check("Does the host itself run nvidia-imex?", _MOUNT),
}
HOST_TEXTS: Mapping[str, Text] = {
    "gpu-without-driver": Text(
        "gpu-driver",
        "problem",
        "A GPU on the PCI bus has no kernel driver",
        "nobody can use this GPU, and the driver publishes none without its kernel driver",
        "install the vendor's kernel driver, load it, and read the kernel log if it does not take the GPU",
        "modprobe nvidia; dmesg | grep -i -e nvrm -e nvidia | tail -n 20",
    ),
    "gpu-with-nouveau": Text(
        "gpu-driver",
        "problem",
        "The kernel driver nouveau has the GPU",
        "NVIDIA's kernel driver cannot take a GPU that nouveau has",
        "block nouveau, make the initial RAM disk anew (update-initramfs -u or dracut -f), and reboot the node",
        "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' > /etc/modprobe.d/blacklist-nouveau.conf",
    ),
    "gpu-for-virtual-machines": Text(
        "gpu-driver",
        "note",
        "A GPU is bound to another kernel driver, such as vfio-pci",
        "virtual machines can use this GPU; containers cannot, and the driver does not publish it",
        "nothing, if virtual machines shall have it; else give it back to the vendor's driver and reboot",
        "lspci -nnk -s {address}",
    ),
    "driver-installation": Text(
        "gpu-driver",
        "problem",
        "Kernel driver and libraries do not fit together, or one of them is missing",
        "the driver cannot ask the GPUs, or containers would get libraries that do not work",
        "do what the sentence about the finding says; a folder other than the usual ones is named by the option driverRoot",
        "cat /proc/driver/nvidia/version; ls /run/nvidia/driver /home/kubernetes/bin/nvidia",
    ),
    "device-file-is-directory": Text(
        "device-files",
        "problem",
        "A directory stands where a device file belongs",
        "no program can open this device. A pod with a hostPath volume of type DirectoryOrCreate made the directory before the kernel "
        "driver was there",
        "delete that pod, remove the directory, and let nvidia-smi make the device file",
        "rmdir {path} && nvidia-smi -L",
    ),
    "device-file-missing": Text(
        "device-files",
        "note",
        "The kernel driver has a GPU whose device file nobody has made yet",
        "containers with a claim get the device all the same; programs on the host, and pods with a hostPath volume, do not find it",
        "let nvidia-smi make the device files",
        "nvidia-smi -L",
    ),
    "accelerator-without-driver": Text(
        "other-accelerators",
        "warning",
        "An accelerator of another vendor has no kernel driver of this vendor",
        "no DRA driver and no device plugin can offer it to containers",
        "nothing, if virtual machines shall have it or nobody needs it; else load the vendor's kernel driver and read the kernel log",
        "modprobe {driver}; dmesg | tail -n 20",
    ),
    "accelerator-file-missing": Text(
        "other-accelerators",
        "warning",
        "An accelerator of another vendor lacks a device file",
        "containers that are to get it do not start, or do not find it",
        "read what the kernel driver says about the device; udev makes the file anew when the driver finds it",
        "dmesg | tail -n 20; udevadm trigger",
    ),
    "accelerator-file-closed": Text(
        "other-accelerators",
        "note",
        "Only root may open the device file of an accelerator",
        "containers that do not run as root cannot use the device, although they get it",
        "give the file the group that the vendor's udev rules name (render), with the right to read and write",
        "ls -l {path}",
    ),
    "runtime-not-found": Text(
        "container-runtime",
        "warning",
        "No container runtime was found",
        "the sockets are in none of the usual places, so it is not known whether CDI files are read",
        "look which endpoint the kubelet has, and whether its service runs",
        "ps -C kubelet -o args= | tr ' ' '\\n' | grep -A1 container-runtime-endpoint; systemctl status containerd crio cri-docker",
    ),
    "runtime-several": Text(
        "container-runtime",
        "warning",
        "Several container runtimes are there, and it is not known which one the kubelet uses",
        "each has a configuration of its own; only the one that the kubelet uses must read CDI files",
        "look which endpoint the kubelet has; what is said about the other runtime does not count",
        "ps -C kubelet -o args= | tr ' ' '\\n' | grep -A1 container-runtime-endpoint",
    ),
    "runtime-is-docker": Text(
        "container-runtime",
        "warning",
        "The kubelet uses Docker through cri-dockerd",
        "releases of cri-dockerd up to November 2025 do not pass CDI devices on, so a pod with a claim starts without its devices. Docker before 25 does "
        "not know such devices, and before 28.2 only with features.cdi = true in its daemon.json",
        "start a pod with a claim and look for its devices; without them update both, or move the node to containerd or CRI-O; until then let the "
        "driver serve the device plugin API here (path: device-plugin)",
        "docker version; cri-dockerd --version",
    ),
    "runtime-too-old": Text(
        "container-runtime",
        "problem",
        "The container runtime is too old for CDI",
        "containerd before 1.7 does not know CDI devices of the kubelet: pods with a claim start without their devices",
        "install containerd 2, or 1.7 with enable_cdi = true",
        "containerd --version",
    ),
    "runtime-config-broken": Text(
        "container-runtime",
        "warning",
        "A file of the runtime's configuration cannot be read",
        "the runtime does not start with such a file, or ignores it at its next start",
        "correct the file at the named place",
        "containerd config dump > /dev/null",
    ),
    "cdi-off": Text(
        "container-runtime",
        "problem",
        "CDI is switched off in containerd",
        "pods with a claim do not get their devices: containerd ignores the CDI files",
        "set enable_cdi = true in the named section of the file, then restart containerd; running containers go on",
        "grep -n enable_cdi {path}; systemctl restart containerd",
    ),
    "cdi-not-switched-on": Text(
        "container-runtime",
        "problem",
        "containerd 1.7 has CDI switched off by default",
        "nothing in its configuration switches CDI on, so pods with a claim do not get their devices",
        'add enable_cdi = true to [plugins."io.containerd.grpc.v1.cri"] of the configuration, then restart containerd',
        "grep -n -A3 io.containerd.grpc.v1.cri {path}; systemctl restart containerd",
    ),
    "cdi-perhaps-off": Text(
        "container-runtime",
        "warning",
        "It is not known whether CDI is on in containerd",
        "containerd 2 has it on by default, containerd 1.7 off",
        'look at the version; for 1.7 add enable_cdi = true to [plugins."io.containerd.grpc.v1.cri"], then restart containerd',
        "containerd --version; containerd config dump | grep -i -e enable_cdi -e cdi_spec_dirs",
    ),
    "cdi-folder-not-read": Text(
        "container-runtime",
        "problem",
        "The runtime does not look into the folder where the driver writes",
        "containers with a claim fail with `unresolvable CDI devices`",
        "add the folder to cdi_spec_dirs of the runtime and restart it, or set the driver's option cdiDir to a folder that is read",
        "grep -n cdi_spec_dirs {path}",
    ),
    "nvidia-is-default-runtime": Text(
        "container-runtime",
        "warning",
        "NVIDIA's runtime is the default for all pods",
        "a pod without any claim that sets NVIDIA_VISIBLE_DEVICES, as many images do, sees every GPU, also those of claims",
        "make runc (or crun) the default again and restart the runtime; pods with a claim need no other runtime",
        "grep -n -e default_runtime -e default-runtime {path}",
    ),
    "nvidia-runtime-there": Text(
        "container-runtime",
        "note",
        "NVIDIA's runtime can be chosen by a RuntimeClass",
        "pods with this RuntimeClass and NVIDIA_VISIBLE_DEVICES see GPUs without a claim; pods with a claim do not need it",
        "allow the RuntimeClass only to those who may see all GPUs",
        "kubectl get runtimeclasses",
    ),
    "cdi-folder-missing": Text(
        "cdi-files",
        "warning",
        "The folder for the driver's CDI files is missing",
        "the driver makes its files there when a claim is prepared, and fails until the folder can be made",
        "make the folder, or correct the option cdiDir",
        "mkdir -p {path}",
    ),
    "cdi-folder-is-none": Text(
        "cdi-files",
        "problem",
        "Something else stands where the folder for CDI files belongs",
        "no claim can be prepared on this node",
        "move it away, and make the folder",
        "ls -ld {path}",
    ),
    "cdi-file-broken": Text(
        "cdi-files",
        "warning",
        "A CDI file cannot be read",
        "the runtime leaves the file out: containers with a device of it fail with `unresolvable CDI devices`. The driver writes its own "
        "files again by itself",
        "correct or remove the file; the program that wrote it makes it anew",
        "python3 -m json.tool {path}",
    ),
    "imex-on-host": Text(
        "imex",
        "note",
        "nvidia-imex runs on the host",
        "it serves one domain for the whole node; a driver that starts nvidia-imex for each domain cannot use the same port beside it",
        "stop it, if another driver shall manage IMEX domains on this node; otherwise nothing",
        "systemctl disable --now nvidia-imex",
    ),
}
