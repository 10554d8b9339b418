# SPDX-License-Identifier: Apache-2.0
"""The texts about what the API server says of a node."""

from collections.abc import Mapping

from dra_driver.doctor.text import Check, Text

_RIGHTS = (
    "give a kubeconfig whose user may read these objects (--kubeconfig), and name the node (--node)"
)

CLUSTER_CHECKS: Mapping[str, Check] = {
    "api": Check(
        "Does the API server answer, and which versions of claims does it serve?", _RIGHTS
    ),
    "versions": Check("Which version has the kubelet of this node?", _RIGHTS),
    "kept-fields": Check(
        "Which fields of the driver's slices does the API server keep? A dry run asks it.",
        "run it with the driver's own rights: in its pod, or with its kubeconfig",
    ),
    "rights": Check(
        "Has the driver the rights that it needs? Those of a setting are asked for where the setting is given, as in the driver's pod.",
        "run it in the driver's pod, or name the account with --service-account NAMESPACE/NAME",
    ),
    "slices": Check("Has the driver published the devices of this node?", _RIGHTS),
    "other-drivers": Check("Do other drivers publish devices of this node?", _RIGHTS),
    "stale-capacity": Check(
        "Are there extended resources in the Node's status that nobody serves?", _RIGHTS
    ),
    "privileged-pods": Check("Which pods of this node see every GPU without a claim?", _RIGHTS),
}
CLUSTER_TEXTS: Mapping[str, Text] = {
    "api-silent": Text(
        "api",
        "problem",
        "The API server does not answer",
        "the driver cannot read claims; prepared claims go on, and no new one is prepared",
        "do what the sentence about the finding says",
        "kubectl get --raw /version",
    ),
    "claims-not-served": Text(
        "api",
        "warning",
        "The API server serves no claims",
        "it has no version of resource.k8s.io that the driver speaks, so devices are offered by the device plugin API only",
        "for claims use Kubernetes 1.34 or later, or switch DynamicResourceAllocation on (1.32 and 1.33)",
        "kubectl api-versions | grep resource.k8s.io",
    ),
    "kubelet-too-old": Text(
        "versions",
        "problem",
        "The kubelet of this node is too old for claims",
        "kubelets before 1.32 do not register this driver for claims, and the driver was told to offer devices by claims only",
        "update the kubelet, or let the driver serve the device plugin API here (path: auto, or device-plugin)",
        "kubectl get node {node} -o wide",
    ),
    "kubelet-without-claims": Text(
        "versions",
        "note",
        "The kubelet of this node serves no claims",
        "kubelets before 1.32 do not register this driver for claims, so it offers the devices of this node by the device plugin API only",
        "nothing; an update of the kubelet to 1.34 or later brings claims",
        "kubectl get node {node} -o wide",
    ),
    "kubelet-does-not-list-claims": Text(
        "versions",
        "note",
        "The kubelet does not list the claims of pods",
        "kubelets before 1.34 do not say which pod uses which claim, so the driver keeps devices longer in doubtful cases",
        "nothing; an update to 1.34 or later makes it better",
        "kubectl get node {node} -o wide",
    ),
    "node-not-found": Text(
        "versions",
        "problem",
        "There is no Node of this name",
        "the driver publishes its slices under the name of a Node that does not exist",
        "give the driver the name of the Node (--node-name; in a pod spec.nodeName)",
        "kubectl get nodes",
    ),
    "field-dropped": Text(
        "kept-fields",
        "warning",
        "The API server drops fields that the driver publishes",
        "a feature gate is off or the release does not have it: devices that need the field are withheld, or published without it "
        "(docs/reference/fields.md)",
        "switch the feature gate on in kube-apiserver and kube-scheduler, or do without what it brings",
        "kubectl get --raw /metrics | grep kubernetes_feature_enabled | grep {gate}",
    ),
    "right-missing": Text(
        "rights",
        "problem",
        "A right is missing",
        "the driver cannot do its work at the API server",
        "install the chart's ClusterRole and its binding again",
        "kubectl auth can-i {verb} {resource} --as {account}",
    ),
    "setting-right-missing": Text(
        "rights",
        "problem",
        "A right that a setting needs is missing",
        "the driver cannot write what the setting asks for: labels, the condition or the startup taint of its Node, or the status of claims. While a startup taint "
        "stays, no pod comes to the node",
        "set the chart's value of this setting (nodeLabels, nodeCondition, startupTaint, deviceStatus), which brings the right, or take the setting back",
        "kubectl auth can-i {verb} {resource} --subresource={subresource} --as {account}",
    ),
    "slices-missing": Text(
        "slices",
        "problem",
        "The driver has published no ResourceSlice for this node",
        "an installed driver publishes one even without devices, once it has scanned: it does not run here, has another name, may not write, or its hardware hangs",
        "look at the driver's pod on this node and its log; `dra-driver doctor` in this pod shows what it waits for",
        "kubectl get pods -A -o wide --field-selector spec.nodeName={node}",
    ),
    "slices-incomplete": Text(
        "slices",
        "warning",
        "The driver's pool is not complete",
        "the scheduler uses no device of a pool with missing slices",
        "wait a minute: the driver writes them again; then look who deletes them",
        "kubectl get resourceslices --field-selector spec.nodeName={node}",
    ),
    "no-devices-published": Text(
        "slices",
        "warning",
        "The driver runs and publishes no device of this node",
        "it found no hardware, withholds all devices, or offers them by the device plugin API, because the kubelet did not register it for claims",
        "ask the driver what it finds; its log says by `path_chosen` which API it uses",
        "kubectl exec -n NAMESPACE POD -- dra-driver devices",
    ),
    "devices-ill": Text(
        "slices",
        "warning",
        "Devices are ill, gone, or in use without a claim",
        "no new claim gets them; a pod that has one keeps it, and may fail",
        "ask the driver on the node what it found, and do what docs/operations.md says under DRADeviceUnhealthy or DRADeviceNotClean; a device that is gone "
        "is not listed any more: read the kernel log of the node (dmesg)",
        "kubectl exec -n NAMESPACE POD --container driver -- dra-driver devices",
    ),
    "devices-tainted": Text(
        "slices",
        "note",
        "Devices are published with a taint",
        "the scheduler gives them only to claims that tolerate the taint, if its effect is not None",
        "look up the taint in docs/reference/names.md; the Events of the Node say more, for an hour",
        "kubectl get events -n default --field-selector involvedObject.name={node}",
    ),
    "published-twice": Text(
        "other-drivers",
        "problem",
        "Two drivers publish the same hardware",
        "the scheduler does not know that they are the same, and gives them to two pods",
        "remove one of the two drivers from this node",
        "kubectl get resourceslices --field-selector spec.nodeName={node}",
    ),
    "other-driver": Text(
        "other-drivers",
        "note",
        "Another driver publishes devices of this node",
        "it does no harm if its hardware is other hardware",
        "nothing, if you know it",
        "kubectl get resourceslices --field-selector spec.nodeName={node}",
    ),
    "stale-capacity": Text(
        "stale-capacity",
        "warning",
        "An extended resource is in the Node's status, and nobody serves it",
        "pods that ask for it come here and fail, and a DeviceClass with this extendedResourceName is not used on this node",
        "remove it from the status",
        "kubectl patch node {node} --subresource=status --type=json -p {patch}",
    ),
    "capacity-of-plugin": Text(
        "stale-capacity",
        "note",
        "An extended resource of accelerators is in the Node's status",
        "a device plugin serves it, or somebody wrote it; a DeviceClass with this extendedResourceName is not used on this node",
        "see who serves it, and what the move to DRA needs",
        "kubectl dra migration --node {node}",
    ),
    "node-pods-see-every-gpu": Text(
        "privileged-pods",
        "note",
        "Pods of a DaemonSet, or of the node itself, see every GPU",
        "they are privileged or mount /dev, as parts of a node often must; if one of them computes on GPUs, nobody counts that",
        "nothing, if you know them",
        "kubectl get daemonsets -A -o wide",
    ),
    "pod-sees-every-gpu": Text(
        "privileged-pods",
        "warning",
        "A pod sees every GPU without a claim",
        "it is privileged or mounts /dev: it can use devices that claims have given to other pods, and nobody counts that",
        "let it ask for devices by a claim, and take the privilege away; programs that watch GPUs can have admin access",
        "kubectl get pod -n {namespace} {pod} -o yaml",
    ),
}
