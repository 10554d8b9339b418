# SPDX-License-Identifier: Apache-2.0
"""For each member of the verdict union: how a pod comes to it, and the same pod where nothing is in the way.

`given` stands in the cluster first (its pods are placed already); `subject` is what is explained, before it is applied and
after. The fleet of tests/e2e/fleet.py is always there: three nodes, on each of them devices of two other drivers.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from dra_driver.explain import verdict
from tests.e2e.fleet import (
    CLASS,
    FLEET,
    GPU,
    HOME,
    MINE,
    OBJECT,
    claim,
    device,
    device_class,
    devices,
    node,
    pod,
    request,
    resource_slice,
    template,
    user,
)

NO_DEVICES = r"cannot allocate all claims"
GIVEN_BACK = r"deallocation of ResourceClaim completed"
FITS, NOT, UNKNOWN, OTHER = 0, 1, 2, 3  # exit codes
WAITS = "nothing yet"  # the pod has its devices, and the scheduler waits for somebody else
SILENT = "nothing at all"  # the scheduler does not even look at the pod


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster and a pod in it. `says` is the class of the scheduler's message, "" for a pod that is placed."""

    given: Sequence[OBJECT] = (resource_slice(devices(1)),)
    subject: Sequence[OBJECT] = field(default_factory=lambda: user(MINE))
    says: str = ""
    refused: str = ""  # what the API server answers to the subject, where it does not take it
    exit_code: int = FITS
    before: int | None = None  # the exit code before the subject is applied, where it differs
    only_after: bool = False  # before, nobody can know
    only_before: bool = False  # after, it is over or nobody can know
    other_drivers: bool = True  # publish devices as well
    without_right: str = ""  # whoever explains may not list these
    quick: bool = False  # to be played with every change, although the pod is placed: no other test asks the scheduler this


@dataclass(frozen=True, slots=True)
class Pair:
    """The same pod twice."""

    member: type
    placed: Case
    pending: Case
    title: str = ""  # of a further pair of the same member

    @property
    def name(self) -> str:
        """A name of its own."""
        return self.member.__name__ + self.title


def gpus(*listed: OBJECT, count: int = 1, pool: str = HOME) -> list[OBJECT]:
    """The GPUs of a node."""
    return [resource_slice(listed or devices(count), pool=pool)]


def pending(case: Case, **changes: object) -> Case:
    """The case with something in the way of the devices."""
    return dataclasses.replace(case, **{"says": NO_DEVICES, "exit_code": NOT, **changes})  # type: ignore[arg-type]  # names of fields


def pair(member: type, placed: Case | None = None, /, **changes: object) -> Pair:
    """A case, and the same with changes that keep the devices from being taken."""
    placed = placed or Case()
    return Pair(member, placed, pending(placed, **changes))


def other(member: type, placed: Case, says: str, /, **changes: object) -> Pair:
    """A case, and the same with changes that keep the pod from a node although devices fit."""
    return pair(member, placed, says=says, exit_code=OTHER, **changes)


# Devices and their selectors

MEMORY = f'device.capacity["{GPU}"].memory.compareTo(quantity("80Gi")) >= 0'
BIG = [claim(request(cel=MEMORY)), pod()]
SMALL = device("gpu-1", memory="40Gi")


def modelled(name: str) -> list[OBJECT]:
    """A pod that wants a model."""
    return [claim(request(cel=f'device.attributes["{GPU}"].model == "{name}"')), pod()]


def with_attribute(name: str) -> list[OBJECT]:
    """A pod whose selector takes an attribute for granted."""
    return [claim(request(cel=f'device.attributes["{GPU}"].{name} == 0')), pod()]


def tainted(effect: str) -> list[OBJECT]:
    """A GPU with a taint."""
    taint = {"key": f"{GPU}/xid", "value": "79", "effect": effect}
    return gpus(device("gpu-0", taints=[taint]))


SELECTORS = (
    pair(
        verdict.SelectorFalse,
        Case(given=gpus(device("gpu-0"), SMALL), subject=BIG),
        given=[*gpus(device("gpu-0"), SMALL), *user("holder")],
    ),
    pair(verdict.SelectorNeverMatches, Case(subject=modelled("H100")), subject=modelled("H10O")),
    pair(
        verdict.SelectorError,
        Case(subject=with_attribute("numa")),
        subject=with_attribute("nuna"),
        says=r"CEL runtime error: no such key: nuna",
    ),
    pair(
        verdict.CompileError,
        Case(subject=modelled("H100")),
        subject=[claim(request(cel="device.model == 'H100'")), pod()],
        says="",
        refused=r"undefined field 'model'",
    ),
)

# What stands in the way of single devices


def shared(**more: object) -> OBJECT:
    """A GPU that several claims share."""
    return device("gpu-0", allowMultipleAllocations=True, **more)


def portion(memory: str, name: str = MINE) -> list[OBJECT]:
    """A pod that wants a part of a GPU."""
    wanted = {"requests": {"memory": memory}}
    return [claim(request(capacity=wanted), name=name), pod(name)]


def partitions(slices: int = 2) -> list[OBJECT]:
    """A GPU in two partitions, each of which needs all of its memory slices."""
    counters = {"slices": {"value": "1"}}
    consumed = [{"counterSet": "card", "counters": counters}]
    whole = resource_slice(name="counters", slices=slices)
    whole["spec"]["sharedCounters"] = [{"name": "card", "counters": counters}]
    parts = [device(f"part-{number}", consumesCounters=consumed) for number in range(2)]
    return [whole, resource_slice(parts, slices=slices)]


def selected(zone: str) -> list[OBJECT]:
    """GPUs that are reached from the nodes of a zone; a node is in zone "here"."""
    wanted = {"key": "zone", "operator": "In", "values": [zone]}
    term = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    reached = resource_slice(devices(1), pool="network", nodeSelector=term)
    return [node("zoned-0", labels={"zone": "here"}), reached]


def twice(second: str) -> list[OBJECT]:
    """A pool of two slices, with gpu-0 in the first."""
    return [
        resource_slice(devices(1), slices=2),
        resource_slice([device(second)], name="second", slices=2),
    ]


DEVICES = (
    pair(verdict.Tainted, Case(given=tainted("None")), given=tainted("NoSchedule")),
    pair(verdict.HeldByClaim, given=[*gpus(), *user("holder")]),
    pair(
        verdict.CapacityTooSmall,
        Case(given=gpus(shared()), subject=portion("80Gi")),
        subject=portion("100Gi"),
    ),
    pair(
        verdict.CapacityConsumed,
        Case(given=gpus(shared()), subject=portion("50Gi")),
        given=[*gpus(shared()), *portion("40Gi", "holder")],
    ),
    pair(
        verdict.CountersUsedUp,
        Case(given=partitions()),
        given=[*partitions(), *user("holder")],
    ),
    pair(verdict.NodeNotSelected, Case(given=selected("here")), given=selected("nowhere")),
    pair(
        verdict.PoolIncomplete,
        Case(given=[*partitions()]),
        given=[resource_slice(devices(1), slices=2)],
    ),
    pair(
        verdict.PoolInvalid,
        Case(given=twice("gpu-1")),
        given=twice("gpu-0"),
        says=r"cannot allocate all claims|invalid resource pools were encountered",
    ),
)

# Requests and claims as a whole


def everywhere(count: int) -> list[OBJECT]:
    """As many GPUs on each node of the fleet: the scheduler has a choice."""
    return [resource_slice(devices(count), pool=name) for name in FLEET]


ADMIN = [claim(request(adminAccess=True)), pod()]
TWO = [request("left"), request("right")]


def together(attribute: str) -> list[OBJECT]:
    """A pod of two GPUs that have an attribute in common."""
    constraint = {"requests": ["left", "right"], "matchAttribute": attribute}
    return [claim(*TWO, constraints=[constraint]), pod()]


def counted(*counts: int) -> list[OBJECT]:
    """A pod of a claim with several requests."""
    return [claim(*(request(f"r{count}", count=count) for count in counts)), pod()]


def derived(*, attribute: str) -> list[OBJECT]:
    """A pod of two GPUs, of which a computed attribute has to agree; alpha, and off here."""
    computed = {"name": f"{GPU}/big", "expression": "true"}
    wanted = [request(name, derivedAttributes=[computed]) for name in ("left", "right")]
    constraint = {"requests": ["left", "right"], "matchAttribute": attribute}
    return [claim(*wanted, constraints=[constraint]), pod()]


REQUESTS = (
    pair(
        verdict.ConstraintConflict,
        Case(
            given=gpus(device("gpu-0"), device("gpu-1")),
            subject=together(f"{GPU}/numa"),
        ),
        given=gpus(device("gpu-0", numa=0), device("gpu-1", numa=1)),
    ),
    pair(
        verdict.ClassMissing,
        subject=[claim(request(deviceClassName="nope")), pod()],
        says=r"device class nope does not exist",
    ),
    pair(
        verdict.FeatureOff,
        Case(given=gpus(count=2), subject=together(f"{GPU}/model")),
        subject=derived(attribute=f"{GPU}/big"),
        only_before=True,
    ),
    pair(
        verdict.AdminAccessNotAllowed,
        subject=ADMIN,
        says="",
        refused=r"admin access to devices requires the .*admin-access: true. label",
    ),
    pair(
        verdict.TooManyDevices,
        Case(given=gpus(count=40), subject=counted(16, 15)),
        subject=counted(20, 19),
        says=r"exceeds the claim limit of 32",
    ),
    pair(
        verdict.AllUnsatisfied,
        Case(given=gpus(count=2), subject=[claim(request(allocationMode="All")), pod()]),
        given=[*gpus(count=2), *user("holder")],
    ),
    pair(
        verdict.NotEnoughDevices,
        Case(given=everywhere(4), subject=counted(4)),
        given=everywhere(2),
    ),
    pair(
        verdict.DriverPublishesNothing,
        given=[*gpus(), device_class("nobody", expression='device.driver == "nobody.example.com"')],
        subject=[claim(request(deviceClassName="nobody")), pod()],
    ),
    pair(verdict.NoDevices, given=[], other_drivers=False),
)

ATTACHED, BROKEN = f"{GPU}/attached", f"{GPU}/broken"
BOUND = device("gpu-0", bindingConditions=[ATTACHED], bindingFailureConditions=[BROKEN])


def allocated(*, broken: bool = False, ready: bool = True) -> OBJECT:
    """A claim that has its device for long, with what a controller says about it."""
    made = claim()
    chosen = {"driver": GPU, "pool": HOME, "device": "gpu-0"}
    result = {
        **chosen,
        "request": "gpu",
        "bindingConditions": [ATTACHED],
        "bindingFailureConditions": [BROKEN],
    }
    condition = {
        "type": BROKEN if broken else ATTACHED,
        "status": "True" if ready else "False",
        "reason": "Said",
        "message": "no cable" if broken else "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    here = {"key": "metadata.name", "operator": "In", "values": [HOME]}
    made["status"] = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
            "allocationTimestamp": "2026-01-01T00:00:00Z",
        },
        "devices": [{**chosen, "conditions": [condition]}],
    }
    return made


def crowded(consumers: int) -> OBJECT:
    """A claim that others use already, or nobody."""
    made = allocated()
    del made["status"]["devices"]
    for name in ("bindingConditions", "bindingFailureConditions"):
        del made["status"]["allocation"]["devices"]["results"][0][name]
    made["status"]["reservedFor"] = [
        {"apiGroup": "example.com", "resource": "jobs", "name": f"job-{n}", "uid": f"uid-{n}"}
        for n in range(consumers)
    ]
    return made


FROM_TEMPLATE = [pod(of={"resourceClaimTemplateName": MINE})]
ELSEWHERE = [*gpus(), claim(name="both"), pod("first", of={"resourceClaimName": "both"})]
SECOND = {"resourceClaimName": "both"}

CLAIMS = (
    pair(
        verdict.BindingConditionsPending,
        given=gpus(BOUND),
        says=WAITS,
        exit_code=OTHER,
        before=FITS,
        only_after=True,
    ),
    pair(
        verdict.BindingFailed,
        Case(given=[*gpus(BOUND), allocated()], subject=[pod()]),
        given=[*gpus(BOUND), allocated(broken=True)],
        says=GIVEN_BACK,
        exit_code=FITS,
        only_before=True,
    ),
    pair(
        verdict.BindingTimedOut,
        Case(given=[*gpus(BOUND), allocated()], subject=[pod()]),
        given=[*gpus(BOUND), allocated(ready=False)],
        says=GIVEN_BACK,
        exit_code=FITS,
        only_before=True,
    ),
    pair(
        verdict.ClaimMissing,
        subject=[pod()],
        says=SILENT,
    ),
    pair(
        verdict.TemplateMissing,
        Case(subject=[template(), *FROM_TEMPLATE]),
        subject=FROM_TEMPLATE,
        says=r'resource claim template "mine": .*not found',
    ),
    pair(
        verdict.ClaimReservedForOthers,
        Case(given=[*gpus(), crowded(255)], subject=[pod()]),
        given=[*gpus(), crowded(256)],
        says=r"resourceclaim in use|status\.reservedFor: Too many: 257: must have at most 256",
    ),
    pair(
        verdict.ClaimAllocatedElsewhere,
        Case(
            given=ELSEWHERE, subject=[pod(of=SECOND, nodeSelector={"kubernetes.io/hostname": HOME})]
        ),
        subject=[pod(of=SECOND, nodeSelector={"kubernetes.io/hostname": FLEET[2]})],
        says=r"resourceclaim not available on the node",
    ),
)

# What else keeps a pod from a node

EXTRA = "extra-0"
ANYWHERE = Case(given=[node(EXTRA), *gpus(pool=EXTRA)])
CROWD = {"app": "crowd"}
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": CROWD}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}


def extra(**spec: object) -> list[OBJECT]:
    """A node of its own with a GPU."""
    return [node(EXTRA, **spec), *gpus(pool=EXTRA)]


def crowd() -> OBJECT:
    """A pod without devices that others stay away from."""
    made = pod("crowd", nodeName=EXTRA)
    made["metadata"]["labels"] = CROWD
    made["spec"]["containers"][0]["resources"] = {}
    del made["spec"]["resourceClaims"]
    return made


PODS = (
    other(
        verdict.Fits,
        ANYWHERE,
        r"were unschedulable",
        given=extra(unschedulable=True),
    ),
    other(
        verdict.NodeSelectorMismatch,
        ANYWHERE,
        r"didn't match Pod's node affinity/selector",
        subject=[claim(), pod(nodeSelector={"zone": "nowhere"})],
    ),
    other(
        verdict.NodeTainted,
        ANYWHERE,
        r"untolerated taint",
        given=extra(taints=[{"key": "gpu", "value": "only", "effect": "NoSchedule"}]),
    ),
    other(
        verdict.NodeUnschedulable,
        ANYWHERE,
        r"were unschedulable",
        given=extra(unschedulable=True),
    ),
    other(
        verdict.NodeResources,
        ANYWHERE,
        r"Insufficient cpu",
        subject=[claim(), pod(cpu="1000")],
    ),
    other(
        verdict.SchedulingGated,
        ANYWHERE,
        r"non-empty scheduling gates",
        subject=[claim(), pod(schedulingGates=[{"name": "example.com/queue"}])],
    ),
    other(
        verdict.OtherCondition,
        Case(given=[*extra(), crowd()]),
        r"didn't match pod anti-affinity rules",
        subject=[claim(), pod(affinity=APART)],
        before=FITS,
        only_after=True,
    ),
    pair(
        verdict.CouldNotTell,
        given=[*gpus(), *user("holder")],
        exit_code=UNKNOWN,
        without_right="resourceslices",
    ),
)

# The same in other ways: claims made from templates, devices as an extended resource, several claims

EXTENDED = f"{GPU}/whole"


def resource(name: str) -> list[OBJECT]:
    """A pod that asks for one of an extended resource and mentions no claim."""
    made = pod()
    del made["spec"]["resourceClaims"]
    made["spec"]["containers"][0]["resources"] = {"limits": {name: "1"}}
    return [made]


def mapped(*given: OBJECT) -> list[OBJECT]:
    """With a class that stands for an extended resource."""
    made = device_class("extended")
    made["spec"]["extendedResourceName"] = EXTENDED
    return [made, *gpus(), *given]


def of_two_claims() -> list[OBJECT]:
    """A pod of two claims of one GPU each."""
    made = pod()
    also = {"name": "also", "resourceClaimName": "also"}
    made["spec"]["resourceClaims"].append(also)
    made["spec"]["containers"][0]["resources"]["claims"].append({"name": "also"})
    return [claim(), claim(name="also"), made]


AWAY = {"kubernetes.io/hostname": FLEET[2]}


def kept(consumers: int) -> list[OBJECT]:
    """GPUs on two nodes, and a claim that has the one of HOME."""
    return [*gpus(), *gpus(pool=FLEET[2]), crowded(consumers)]


def neighbour(cpu: str, has: str, *conditions: OBJECT) -> list[OBJECT]:
    """A node with a GPU, and a pod there whose container has another amount of cpu than its spec says."""
    made = crowd()
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    told = {"allocatedResources": {"cpu": has}, "resources": {"requests": {"cpu": has}}}
    container = {"name": "main", "image": "", "imageID": "", "ready": True, "restartCount": 0}
    made["status"] = {"containerStatuses": [{**container, **told}], "conditions": list(conditions)}
    return [*extra(), made]


NEVER = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
LATER = {**NEVER, "reason": "Deferred"}
NEEDS_FIVE = [claim(), pod(cpu="5")]

FURTHER = (
    pair(
        verdict.HeldByClaim,
        Case(given=everywhere(1), subject=[template(), *FROM_TEMPLATE]),
        given=[*gpus(), *user("holder")],
    ),
    pair(
        verdict.HeldByClaim,
        Case(given=mapped(), subject=resource(EXTENDED)),
        given=mapped(*user("holder")),
        says=f"cannot allocate all claims|Insufficient {EXTENDED}",
    ),
    pair(
        verdict.HeldByClaim,
        Case(given=gpus(), subject=resource(f"deviceclass.resource.kubernetes.io/{CLASS}")),
        given=[*gpus(), *user("holder")],
        says="cannot allocate all claims|Insufficient deviceclass",
    ),
    pair(
        verdict.ConstraintConflict,
        Case(given=[*gpus(count=2), *gpus(pool=FLEET[0])], subject=of_two_claims()),
        given=[*gpus(), *gpus(pool=FLEET[0])],
    ),
    # The scheduler deallocates a claim that is in the way and used by nobody, and the pod gets another device.
    pair(
        verdict.ClaimAllocatedElsewhere,
        Case(given=kept(0), subject=[pod(nodeSelector=AWAY)], quick=True),
        given=kept(1),
        says=r"resourceclaim not available on the node",
    ),
    # What a pod is resized to in place counts, and what it still has; a resize that the kubelet refused for good does not.
    other(
        verdict.NodeResources,
        Case(given=neighbour("1", "2"), subject=NEEDS_FIVE),
        r"Insufficient cpu",
        given=neighbour("1", "6"),
    ),
    other(
        verdict.NodeResources,
        Case(given=neighbour("6", "1", NEVER), subject=NEEDS_FIVE, quick=True),
        r"Insufficient cpu",
        given=neighbour("6", "1", LATER),
    ),
)
TITLES = (
    "OfTemplate",
    "OfExtendedResource",
    "OfImplicitResource",
    "OfTwoClaims",
    "UsedByNobody",
    "OfAGrownPod",
    "OfAPodThatCannotGrow",
)

PAIRS = (*PODS[:1], *SELECTORS, *DEVICES, *REQUESTS, *CLAIMS, *PODS[1:])
MORE_PAIRS = tuple(
    dataclasses.replace(pair, title=title) for pair, title in zip(FURTHER, TITLES, strict=True)
)
CLASSES = (device_class(CLASS),)
