# SPDX-License-Identifier: Apache-2.0
"""What does a person see, what does it mean, and what to do? One row for each member of `dra_driver.explain.verdict`.

The table in docs/pending.md is generated from these rows, and `dra-driver explain` quotes the fix.
"""

from collections.abc import Collection, Mapping

from msgspec import Struct

from dra_driver.explain import verdict
from dra_driver.explain.names import first_names
from dra_driver.explain.verdicts.claim import (
    BEING_DELETED,
    NOT_MADE_YET,
    OF_ANOTHER_GROUP,
    OF_ANOTHER_POD,
)
from dra_driver.explain.verdicts.general import BUG, GATE_UNKNOWN, NOT_COUNTED
from dra_driver.explain.verdicts.pod import (
    LISTS_NONE,
    NAMED_IN_VAIN,
    NAMED_NODE,
    NAMED_REFUSED,
    NAMED_UNFIT,
    NO_SUCH_NODE,
    STARTS_WITHOUT,
)
from dra_driver.explain.verdicts.request import ALL_AT_ONCE, APART, ONLY_ONCE, SHARED, TOO_FEW
from dra_driver.model.admin_access import ADMIN_ACCESS_LABEL, OLD_ADMIN_ACCESS_LABEL
from dra_driver.model.plugin_resources import is_converted
from dra_driver.model.resource_names import DEVICE_CLASS_PREFIX, may_be_devices


class Row(Struct, frozen=True):
    """One row of the table."""

    symptom: str
    meaning: str
    fix: str


_TOLERATE = "add a toleration to the pod (`spec.tolerations`; not the one in the claim)"

_INSTALL_CLASSES = "install the driver's DeviceClasses (`kubectl get deviceclasses`)"


def _labels(label: str) -> str:
    return f'an admin labels the namespace `{label}: "true"`, or the request does without'


ROWS: Mapping[type, Row] = {
    verdict.Fits: Row(
        "the pod runs, or `explain` says that the devices fit",
        "the scheduler finds devices for every request on at least one node",
        "nothing to do; a pod that is still pending is held by something else, which `explain` names if it can see it",
    ),
    verdict.SelectorFalse: Row(
        "`cannot allocate all claims`; some other devices match",
        "the selector of the class or of the request answered false for these devices, for the values shown",
        "relax that part of the selector, or use a node that has such devices",
    ),
    verdict.SelectorNeverMatches: Row(
        "`cannot allocate all claims` on every node, for ever",
        "no device that any driver publishes can match the selector: a typo in an attribute, a domain, a driver's name or a value, or conditions that no device meets at once",
        "compare the selector with what is published (`explain` shows it), and correct the claim, the template or the class",
    ),
    verdict.SelectorError: Row(
        "`CEL runtime error: no such key: …` in the pod's events; no node is tried any more",
        "a selector failed for one device, most often because that device lacks an attribute; the scheduler gives up on the whole pod",
        'correct the name if it is mistyped; else guard the access: `has(device.attributes["domain"].name) && …`, or check `device.driver` first in the selector',
    ),
    verdict.CompileError: Row(
        "`CEL compile error` in the pod's events, or the API server refuses the claim",
        "the scheduler cannot compile a selector: a typo, or a function that this Kubernetes version does not have",
        "correct the expression at the column shown; from 1.37 on stored expressions are not checked again when a claim is updated",
    ),
    verdict.Tainted: Row(
        "`cannot allocate all claims`; the devices are there and idle",
        "the driver or an admin's DeviceTaintRule put a NoSchedule or NoExecute taint on the device, most often because it is unhealthy",
        "repair what the taint says, remove the DeviceTaintRule, or add a toleration to the request",
    ),
    verdict.HeldByClaim: Row(
        "`cannot allocate all claims`, or `Insufficient …` for an extended resource; matching devices are all in use",
        "the device is allocated to another claim until no pod uses that claim any more",
        "wait, end the pods that use that claim, or add nodes",
    ),
    verdict.CapacityTooSmall: Row(
        "`cannot allocate all claims`; the request has `capacity.requests`",
        "the device is smaller than what is asked for, its request policy does not allow that amount, or it has no capacity of exactly that name",
        "ask for less, or write the capacity's name as the driver publishes it: with or without its domain, to the letter",
    ),
    verdict.CapacityConsumed: Row(
        "`cannot allocate all claims`; the device can be shared (`allowMultipleAllocations`)",
        "other claims consume so much of the capacity that the rest is too small",
        "ask for less, or wait until one of the claims named there ends",
    ),
    verdict.CountersUsedUp: Row(
        "`cannot allocate all claims`; the device is a partition (for example MIG) and itself not in use",
        "the shared counters of the physical device (memory slices, multiprocessors) are used up by other partitions, or those are of "
        "another compatibility group",
        "wait until one of the claims named there ends, or ask for a smaller partition",
    ),
    verdict.ConstraintConflict: Row(
        "`cannot allocate all claims`; every request alone would fit",
        "the requests can be served one by one but not together: a constraint (matchAttribute, distinctAttribute) excludes every combination",
        "drop one of the parts named there; a constraint on an attribute that a device lacks never holds for that device",
    ),
    verdict.NodeNotSelected: Row(
        "`cannot allocate all claims` on some nodes; the device is for other nodes",
        "the slice or the device is for another node: its nodeName or nodeSelector does not match",
        "check the labels that the slice's nodeSelector asks for, and that the node named there exists",
    ),
    verdict.PoolIncomplete: Row(
        "`cannot allocate all claims`, or `… resource pool … is currently being updated`",
        "the driver has not (yet) written all slices of the pool; until it has, the scheduler takes no device of it",
        "wait a moment; if it lasts, the driver is down or fails to write: look at its log and at its ResourceSlices",
    ),
    verdict.PoolInvalid: Row(
        "`invalid resource pools were encountered`, or `… resource pool … is currently invalid`",
        "the driver publishes a pool that contradicts itself: a device name twice, or counters that no slice defines",
        "report it to the driver's makers; restarting the driver may write the pool anew",
    ),
    verdict.ClassMissing: Row(
        "`request …: device class … does not exist`",
        "the claim names a DeviceClass that does not exist",
        f"correct `deviceClassName`, or {_INSTALL_CLASSES}",
    ),
    verdict.FeatureOff: Row(
        "`… the feature is disabled`, or a device is passed over without a word",
        "the claim or the device needs a feature gate that is off in this cluster or that its release does not have",
        "switch the gate on in the API server, the scheduler and the kubelets, or write the claim without it",
    ),
    verdict.AdminAccessNotAllowed: Row(
        "the claim is refused, or the pod's claim is never created: `admin access to devices requires the … label`",
        "a request with `adminAccess: true` in a namespace that an admin did not label for it",
        f"{_labels(ADMIN_ACCESS_LABEL)} (in 1.33 the label is `{OLD_ADMIN_ACCESS_LABEL}`)",
    ),
    verdict.TooManyDevices: Row(
        "`… exceeds the claim limit of 32 …`",
        "one claim can hold 32 devices; the requests of the claim together ask for more",
        "spread the devices over several claims of the pod, or ask for fewer",
    ),
    verdict.AllUnsatisfied: Row(
        "`cannot allocate all claims`; the request has `allocationMode: All`",
        "All means every matching device of a node: it fails where one is in use, and where none matches",
        "free the devices named there, ask for a count instead, or accept that only nodes fit on which all matching devices are free",
    ),
    verdict.NotEnoughDevices: Row(
        "`cannot allocate all claims`; some devices would do",
        "devices of one claim come from one node (or from network-attached pools), and no node has that many free ones that match",
        "ask for fewer, or free devices on one node; `explain` shows what holds the others",
    ),
    verdict.DriverPublishesNothing: Row(
        "`cannot allocate all claims` on every node; the class selects by `device.driver`",
        "the driver that the class or the selector names has not published a single ResourceSlice",
        "is the driver installed, and do its pods run on the nodes with devices? (`kubectl get resourceslices`)",
    ),
    verdict.NoDevices: Row(
        "`cannot allocate all claims` on every node; `kubectl get resourceslices` is empty",
        "no DRA driver publishes any device",
        "install a driver, and check that its pods run and may write ResourceSlices",
    ),
    verdict.BindingConditionsPending: Row(
        "the claim is allocated, the pod is not bound, no FailedScheduling event",
        "the device has bindingConditions, and the scheduler waits until they are True in the claim's status: up to its bindingTimeout, 10 minutes by default",
        "look at the controller that prepares the device (for example one that attaches it to the node)",
    ),
    verdict.BindingFailed: Row(
        "only an event: `device binding failed`; then the claim loses its devices, and the scheduler tries again",
        "a binding failure condition of the device is True, so the scheduler gives the device back and starts anew; "
        "a claim that other pods use keeps its devices",
        "look at the message of the condition, and at the controller that set it; end the other pods that use the claim",
    ),
    verdict.BindingTimedOut: Row(
        "only an event: `device binding timeout`; then the claim loses its devices, and the scheduler tries again",
        "the binding conditions of the device were not True within the scheduler's bindingTimeout, so it gives the device back and starts "
        "anew; a claim that other pods use keeps its devices",
        "look at the controller that prepares the device: does it run, and how long does it need? end the other pods that use the claim",
    ),
    verdict.ClaimMissing: Row(
        "the pod is `Pending`, with no condition and no event: the scheduler does not try it",
        "the claim that the pod refers to is not there, is being deleted, or was made for another pod",
        "create the claim, or correct `resourceClaimName` in the pod; if the claim is made from a template: see the pod's events",
    ),
    verdict.TemplateMissing: Row(
        "only an event `FailedResourceClaimCreation`, from the resource claim controller: `resource claim template … not found`",
        "the pod refers to a ResourceClaimTemplate that does not exist in its namespace, so no claim is made and the scheduler does not try the pod",
        "create the template in the pod's namespace, or correct `resourceClaimTemplateName`",
    ),
    verdict.ClaimReservedForOthers: Row(
        "`status.reservedFor: Too many: 257: must have at most 256 items` in an event, again and again",
        "256 users share this claim already; the scheduler finds out only when it binds the pod (PreBind)",
        "end some of the pods that use it, or use a second claim",
    ),
    verdict.ClaimAllocatedElsewhere: Row(
        "`resourceclaim not available on the node`",
        "the claim is allocated already, with devices that only the nodes named there can use, and the pod may not or cannot go there; "
        "a claim that nobody else uses is deallocated by the scheduler itself",
        "let the pod go to that node, or end the other pods that use the claim: then the scheduler deallocates it by itself and tries again",
    ),
    verdict.NodeSelectorMismatch: Row(
        "`node(s) didn't match Pod's node affinity/selector`",
        "the devices fit, but the pod itself does not want to run on that node",
        "correct the pod's nodeSelector or affinity, or the node's labels",
    ),
    verdict.NodeTainted: Row(
        "`node(s) had untolerated taint(s)`",
        "the devices fit, but the node repels the pod: GPU nodes are often tainted so that other pods stay away",
        f"{_TOLERATE}, after a question to the admin if its effect is NoExecute; of a node that is ill or goes away, as its taint says, use another one",
    ),
    verdict.NodeUnschedulable: Row(
        "`node(s) were unschedulable`",
        "the devices fit, but the node is cordoned (spec.unschedulable)",
        "`kubectl uncordon` the node when its maintenance is over",
    ),
    verdict.NodeResources: Row(
        "`Insufficient cpu`, `Insufficient memory`, `Too many pods`",
        "the devices fit, but the node has not enough of something else left for the pod; or, for an extended resource, a device plugin has too few devices left there",
        "lower the pod's requests, end other pods on that node, or use a larger node",
    ),
    verdict.SchedulingGated: Row(
        "status `SchedulingGated`",
        "the scheduler does not try the pod until its scheduling gates are removed",
        "look for the controller that owns the gate (a queue such as Kueue, a quota)",
    ),
    verdict.OtherCondition: Row(
        "`explain` finds that everything fits, and quotes the scheduler",
        "something else holds the pod: pod affinity, topology spread, volumes, quota, a scheduler that does not run",
        "follow the scheduler's message in the pod's PodScheduled condition",
    ),
    verdict.CouldNotTell: Row(
        "`explain` ends with exit code 2",
        "something that decides could not be read: a right is missing, an object is malformed, or the search took too long",
        "give the right that is named there (`get` and `list`), or correct the object",
    ),
}

POD_OVER = "the scheduler does not place this pod any more"
NO_NODES = verdict.OtherCondition("the cluster has no nodes", "")
_UNFIT = (
    "the node is ill, starts, is being emptied or goes away, as its taint says, and a pod would fail or be ended there: use another "
    "node, or wait until the taint is gone"
)
_KEPT_FREE = (
    "an admin keeps other pods off this node, and ends those that run there: ask whether this pod may tolerate the taint, or use "
    "another node"
)
_OWN = "the pod needs this claim as well, so it stays: free other devices where the claim has its own, or ask for fewer"
_PLUGIN = "ask for fewer, end pods that use them on that node, or use a node that has more"
_COUNT_AT_ONCE = (
    "ask for a count that can be had at once, or for devices that do not share counters or capacity"
)
_ANEW = "leave nodeName out, and create the pod anew if it exists: the scheduler takes a node"
_BY_WORDS: Mapping[type, Mapping[str, str]] = {
    verdict.OtherCondition: {
        NO_NODES.condition: "add a node",
        NAMED_UNFIT: f"{_ANEW} where the devices fit",
        NAMED_REFUSED: f"{_ANEW} when the pod can use its claims",
        LISTS_NONE: "delete the pod if it exists: it is or will be refused",
        STARTS_WITHOUT: "delete the pod if it exists: it may run already, without its devices",
        NAMED_IN_VAIN: f"{_ANEW} that can use the devices; if it must be this node, give the pod another claim",
        NO_SUCH_NODE: f"{_ANEW} that exists",
        POD_OVER: "create the pod anew; a Deployment or a Job does that by itself",
    },
    verdict.CouldNotTell: {
        "forbidden": "give the right that is named there (`get` and `list`)",
        "malformed": "correct the object that is named there",
        "timeout": "give the search more time (`--timeout`)",
        BUG: "report it with what is on standard error and, if you can, with a file of `dra-driver record`; other pods have their own "
        "answers, and about this one, `--node` asks for one node after the other",
        NOT_COUNTED: "compare what the pod and its devices take together with what the node has left (`kubectl describe node`)",
        GATE_UNKNOWN: "look for the gate in the flags of kube-scheduler, or give the right to read the API server's /metrics",
    },
    verdict.ClaimMissing: {
        NOT_MADE_YET: "wait a moment; if the claim is still not made, `kubectl describe pod` shows in the pod's events why not, or the "
        "controller (kube-controller-manager) does not run",
        BEING_DELETED: "wait until it is gone, and create it again if nobody else does; its pods keep it until they have ended, and "
        "whoever set a finalizer must take it away",
        OF_ANOTHER_POD: "delete this claim (`kubectl delete resourceclaim`), and the controller makes one for this pod",
        OF_ANOTHER_GROUP: "leave the claim, other pods may run with it; create the pod anew, with the pod group in spec.schedulingGroup that it should be of",
    },
    verdict.ConstraintConflict: {
        TOO_FEW: "drop one of the requests named there, ask for fewer devices, or add nodes that have more",
        SHARED: _COUNT_AT_ONCE,
        ONLY_ONCE: "write a request for each share",
        APART: "ask for fewer devices, or add nodes that have more; for several shares of one device leave out distinctAttribute, and "
        "write a request for each share",
    },
    verdict.AllUnsatisfied: {ALL_AT_ONCE: _COUNT_AT_ONCE},
}
"""What to do about a reason with these words in its `condition`, `cause` or `detail`, where its row would not be right."""
_FOR_EXTENDED: Mapping[type, str] = {
    verdict.Tainted: "repair what the taint says, remove the DeviceTaintRule, or write a ResourceClaim in place of the extended "
    "resource: only its requests can tolerate a device's taint",
    verdict.TooManyDevices: "write several ResourceClaims in place of the extended resource, or ask for fewer",
    verdict.CapacityConsumed: "wait until one of the claims named there ends, or write a ResourceClaim in place of the extended "
    "resource: only its requests can ask for less",
}
"""What to do if the claim is the one that the scheduler writes for extended resources."""


def fix(
    reason: verdict.Verdict,
    *,
    own: Collection[str] = (),
    of_scheduler: bool = False,
    besides: str = "",
    unfit: bool = False,
    is_one_of: bool = False,
) -> str:
    """Return what to do about the reason.

    `own` are the claims that the subject itself needs. `of_scheduler`: the reason is about a claim that the scheduler writes for
    extended resources, so nobody can edit it. `besides` is what else keeps the pod off the nodes where a claim has the devices;
    `unfit`: these nodes are ill or go away. `is_one_of`: it is about one of several requests.
    """
    if isinstance(reason, verdict.HeldByClaim) and reason.claim in own:
        return _OWN
    if isinstance(reason, verdict.HeldByClaim) and besides:
        then = "use other nodes, or add some" if unfit else "change that too, or add nodes"
        return f"to end the pods that use that claim is not enough: {besides}; {then}"
    if isinstance(reason, verdict.NodeResources) and may_be_devices(reason.resource):
        return _PLUGIN
    if isinstance(reason, verdict.NodeTainted):
        kept = _KEPT_FREE if reason.ends_pods else _TOLERATE
        return _UNFIT if reason.is_unfit else kept
    if isinstance(reason, verdict.NotEnoughDevices) and reason.matching:
        fewer = ", fewer if others need the same devices" if is_one_of else ""
        return (
            f"ask for at most {reason.matching} in this request{fewer}, or add nodes that have more"
        )
    extended = _FOR_EXTENDED.get(type(reason), "") if of_scheduler else ""
    return _by_fields(reason) or extended or ROWS[type(reason)].fix


def _by_fields(reason: verdict.Verdict) -> str:
    """Return what to do if the fields of the reason tell a special case; "" for all other cases."""
    if isinstance(reason, verdict.OtherCondition) and reason.condition == NAMED_NODE:
        # The label kubernetes.io/hostname may be another name than that of the node.
        return f"leave nodeName out; if it must be this node, require it by nodeAffinity with matchFields metadata.name In {reason.message}"
    return _by_words(reason) or _instead(reason) or _of_selector(reason) or _by_other_fields(reason)


def _by_words(reason: verdict.Verdict) -> str:
    match reason:
        case (
            verdict.OtherCondition(condition=words)
            | verdict.CouldNotTell(cause=words)
            | verdict.ClaimMissing(detail=words)
            | verdict.ConstraintConflict(detail=words)
            | verdict.AllUnsatisfied(detail=words)
        ):
            return _BY_WORDS[type(reason)].get(words.partition(", kept by")[0], "")
        case _:
            return ""


def _instead(reason: verdict.Verdict) -> str:
    """Return which object of the missing one's name there is: one of the other kind, or in another namespace; "" if there is none."""
    match reason:
        case verdict.ClaimMissing(is_template=True):
            return "there is a ResourceClaimTemplate of this name: write resourceClaimTemplateName in the pod"
        case verdict.TemplateMissing(is_claim=True):
            return "there is a ResourceClaim of this name: write resourceClaimName in the pod"
        case (
            verdict.ClaimMissing(claim=name, namespaces=(_, *_) as others)
            | verdict.TemplateMissing(template=name, namespaces=(_, *_) as others)
        ):
            where = f"namespace{'s' if len(others) > 1 else ''} {first_names(others)}"
            own = name.partition("/")[0]
            return f"there is one in the {where}, and a pod uses those of its own namespace: create it in {own} too"
        case _:
            return ""


def _of_selector(reason: verdict.Verdict) -> str:
    match reason:
        case verdict.SelectorError(message=message) if not message.startswith("no such key"):
            return "correct the condition, by what is said there to write; has(…) is no help, because nothing is missing"
        case verdict.SelectorNeverMatches(nodes=(_, *_)):
            return (
                "other nodes may have such devices: let the pod go there (without `--node`, `explain` looks at all nodes); or compare "
                "the selector with what these nodes publish"
            )
        case _:
            return ""


def _by_other_fields(reason: verdict.Verdict) -> str:
    match reason:
        case verdict.AdminAccessNotAllowed(label=label):
            return _labels(label)
        case verdict.Tainted(rule=rule) if reason.is_broken:
            removed = ", then remove the DeviceTaintRule" if rule else ""
            return f"repair what the taint says{removed}, or add nodes; a pod on this device would fail"
        case verdict.NodeSelectorMismatch() if reason.is_node_name:
            return _ANEW
        case verdict.ClassMissing(resource=resource) if resource:
            return _for_resource(resource)
    return ""


def _for_resource(resource: str) -> str:
    """Return what to do if no class provides an extended resource."""
    if resource.startswith(DEVICE_CLASS_PREFIX):
        return f"correct the resource's name, {DEVICE_CLASS_PREFIX}CLASS, or {_INSTALL_CLASSES}"
    by_convert = ": `dra-driver convert` does it" if is_converted(resource) else ""
    return (
        f"correct the resource's name, or set extendedResourceName: {resource} in a DeviceClass "
        "(`kubectl get deviceclasses`), install a device plugin that offers it, or write a "
        f"claim in place of the resource{by_convert}"
    )


def about(reason: verdict.Verdict, place: str) -> str:
    """Return the object that the fix is about; if the reason names no object, `place`, where the reason was found."""
    match reason:
        case verdict.DriverPublishesNothing(driver=name):
            return f"driver {name}"
        case verdict.PoolIncomplete(pool=name) | verdict.PoolInvalid(pool=name):
            return f"pool {name}"
        case verdict.AdminAccessNotAllowed(namespace=name):
            return f"namespace {name}"
        case verdict.Tainted(rule=name) if name:
            return f"DeviceTaintRule {name}"
    return _claim_of(reason) or _class_of(reason) or place


def _claim_of(reason: verdict.Verdict) -> str:
    match reason:
        case verdict.TemplateMissing(template=name):
            return f"template {name}"
        case (
            verdict.HeldByClaim(claim=name)
            | verdict.BindingConditionsPending(claim=name)
            | verdict.BindingFailed(claim=name)
            | verdict.BindingTimedOut(claim=name)
            | verdict.ClaimMissing(claim=name)
            | verdict.ClaimReservedForOthers(claim=name)
            | verdict.ClaimAllocatedElsewhere(claim=name)
        ):
            return f"claim {name}"
        case verdict.CapacityConsumed(claims=names) | verdict.CountersUsedUp(claims=names) if names:
            return f"{'claim' if len(names) == 1 else 'claims'} {', '.join(names)}"
    return ""


def _class_of(reason: verdict.Verdict) -> str:
    """Return the DeviceClass that is missing, or that has the selector; "" for other reasons."""
    match reason:
        case verdict.ClassMissing(device_class=name) if name:
            return f"device class {name}"
        case (
            verdict.SelectorFalse(source=source)
            | verdict.SelectorNeverMatches(source=source)
            | verdict.SelectorError(source=source)
            | verdict.CompileError(source=source)
        ) if source != "request":
            return f"device {source}"
    return ""


def markdown_table() -> str:
    """Return the rows as Markdown, for docs/pending.md."""
    head = ("| verdict | what you see | what it means | what to do |", "| --- | --- | --- | --- |")
    rows = (
        f"| {member.__name__} | {row.symptom} | {row.meaning} | {row.fix} |"
        for member, row in ((member, ROWS[member]) for member in verdict.members())
    )
    return "\n".join((*head, *rows)) + "\n"
