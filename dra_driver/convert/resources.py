# SPDX-License-Identifier: Apache-2.0
"""What does a request of a claim look like that asks for the same as an extended resource of a vendor's plugin?

The plugin gives each container devices of its own, so each amount becomes one request. The class and the driver are those that this driver's
chart installs; both can be chosen.
"""

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from dra_driver.allocator.search import MAX_RESULTS
from dra_driver.convert.kinds import says_a_kind, vendor_of, why_it_stays
from dra_driver.explain.facts.claim_state import MOST_CONSUMERS
from dra_driver.model.memory_amounts import MIB
from dra_driver.model.mig_profiles import profile_of
from dra_driver.model.names import DOMAIN
from dra_driver.model.other_resources import elsewhere
from dra_driver.model.plugin_resources import (
    SHARES_OF_MEMORY,
    is_device_resource,
    is_memory_resource,
    likely_resource,
)
from dra_driver.model.quantity import Quantity

NVIDIA_DRIVER = "gpu.nvidia.com"
_GPU = "nvidia.com/gpu"
_SHARED = ".shared"
_GPU_SHARED = _GPU + _SHARED
_ON_ONE_NODE = (
    f"all pods that use this claim run on one node and take turns on its one GPU, at most {MOST_CONSUMERS} at a time; pods with another claim do "
    "not share it"
)
_NO_SCHEDULER = (
    "with spec.nodeName the scheduler never sees the pod, and only the scheduler gives a claim its devices: leave nodeName out (in a pod that runs, the "
    "scheduler wrote it), and if it must be this node, require it by nodeAffinity with matchFields metadata.name In {}"
)
_OF_CONTAINERS = "the API server refuses it in the resources of a whole pod: ask for it in those of the container that uses it, and convert again; it stays"
_NO_GPU_HAS = MIB.start
"""So many GiB of memory."""
_NANO = 10**9


class Choice(Struct, frozen=True):
    """What the user chose instead of the usual: a class for all requests, and the driver whose attributes the selectors read."""

    device_class: str = ""
    driver: str = ""


class Wanted(Struct, frozen=True):
    """A request: its class, the driver and vendor of its devices, its selectors, and the capacity that a share needs.

    `is_part`: the devices are parts of a GPU. `shared`: the resource was a share of a device, so that all pods of the workload use one claim. `notes` say what differs.
    """

    device_class: str
    driver: str
    vendor: str
    count: int
    selectors: tuple[str, ...] = ()
    capacity: Mapping[str, str] = field(default_factory=dict)
    is_part: bool = False
    shared: bool = False
    notes: tuple[str, ...] = ()


class NotConverted(Struct, frozen=True):
    """Why something stays as it is, and what to do."""

    what: str
    reason: str


class Around(Struct, frozen=True):
    """What the pod and the workload around a container say of its resources.

    `node_name`: the node that the pod names itself, so that no scheduler looks at it.
    `profile`: the pod's nodes offer parts of this profile as nvidia.com/gpu, written as in the name of a resource. `may_be_part`: why it is not known
    which part that is, or whether it is one. `shares`: the condition by which the pod's nodes offer shares of a GPU as nvidia.com/gpu. `not_shared`: why
    the pods of the workload cannot share one claim. Each is "" for a usual pod.
    """

    profile: str = ""
    may_be_part: str = ""
    shares: str = ""
    not_shared: str = ""
    node_name: str = ""

    @property
    def unscheduled(self) -> str:
        """Why no claim of the pod gets devices; "" for a pod that does not name its node."""
        return _NO_SCHEDULER.format(self.node_name) if self.node_name else ""

    def meant_by(self, name: str) -> str:
        """Return the resource that a name means on the nodes of the pod."""
        if self.profile and name in (_GPU, _GPU_SHARED):
            return name.replace(_GPU, f"nvidia.com/mig-{self.profile}")
        return _GPU_SHARED if self.shares and name == _GPU else name

    def against(self, name: str) -> str:
        """Return why no claim can stand for a resource here; "" if one can."""
        if self.node_name:
            return f"{self.unscheduled}; then convert again; it stays"
        reason = self.may_be_part if name in (_GPU, _GPU_SHARED) else ""
        return reason or (self.not_shared if self.meant_by(name) == _GPU_SHARED else "")

    def notes(self, name: str) -> tuple[str, ...]:
        """Return what must be known of a resource that is something else here than its name says."""
        if name == self.meant_by(name) or not self.shares:
            return ()
        return (f"on nodes with {self.shares} {name} is a share of a GPU, and no whole one",)


def answers(
    amounts: Mapping[str, str], around: Around, choice: Choice
) -> dict[str, Wanted | NotConverted]:
    """Return for each resource of devices that a container asks for the request that asks for the same, or why it stays."""
    others = {name: other for name in amounts if (other := elsewhere(name))}
    part = next((name for name, other in others.items() if other.is_part), "")
    if not part:
        amounts = {**amounts, **_one_of_a_kind(amounts)}
    found: dict[str, Wanted | NotConverted] = {}
    for name, amount in amounts.items():
        reason = ""
        if name in others:
            reason = f"it is {others[name].what}, and stays; {others[name].action}"
        elif not is_device_resource(name):
            near = likely_resource(name)
            reason = f"no plugin offers it (did you mean {near}?); it stays" if near else ""
        elif part:
            reason = (
                f"with {part} it is a part of a GPU, and a claim asks for a whole one; it stays"
            )
        else:
            one = wanted(around.meant_by(name), amount, choice)
            if isinstance(one, Wanted):
                found[name] = replace(one, notes=(*around.notes(name), *one.notes))
                reason = around.against(name)
            else:
                reason = one.reason
        if reason:
            found[name] = NotConverted(f"{name}: {amount:.40}", reason)
    return {**found, **_memory_that_stays(amounts, found, choice)}


def of_whole_pod(amounts: Mapping[str, str]) -> list[NotConverted]:
    """Return the resources of devices that a pod asks for as a whole: the API server refuses them."""
    return [
        NotConverted(f"{name}: {amount:.40}", _OF_CONTAINERS)
        for name, amount in amounts.items()
        if is_device_resource(name) or likely_resource(name) or elsewhere(name)
    ]


def _one_of_a_kind(amounts: Mapping[str, str]) -> Mapping[str, str]:
    """Return a device of each vendor of which only a kind of device is named, or its memory: who does that means one."""
    there = {vendor_of(name) for name in amounts if is_device_resource(name)}
    named = {vendor_of(name) for name, amount in amounts.items() if says_a_kind(name, amount)}
    return {f"{vendor}.com/gpu": "1" for vendor in sorted(named - there)}


def _memory_that_stays(
    amounts: Mapping[str, str], found: Mapping[str, Wanted | NotConverted], choice: Choice
) -> dict[str, Wanted | NotConverted]:
    parts = {one.vendor for one in found.values() if isinstance(one, Wanted) and one.is_part}
    left: dict[str, Wanted | NotConverted] = {}
    for name, amount in amounts.items():
        if is_memory_resource(name):
            vendor = vendor_of(name)
            driver = usual(vendor, choice)[1]
            if reason := why_it_stays(name, amount, driver, of_part=vendor in parts):
                left[name] = NotConverted(f"{name}: {amount:.40}", reason)
    return left


def wanted(name: str, amount: str, choice: Choice) -> Wanted | NotConverted:
    """Return the request for an amount of a resource of devices."""
    count = _count(amount)
    problem = count if isinstance(count, str) else _no_claim(name, amount, count)
    if isinstance(count, str) or problem:
        return NotConverted(f"{name}: {amount:.40}", problem)
    if name.startswith("nvidia.com/mig-"):
        return _mig(name, count, choice)
    if name.startswith(("nvidia.com/gpu.shared", "aliyun.com/")):
        return _share(name, count, choice)
    vendor = next((one for prefix, one in _VENDORS.items() if name.startswith(prefix)), "")
    if not vendor:
        reason = "the driver does not publish AMD's GPUs yet, nor parts of them; keep the plugin, or take AMD's own DRA driver"
        return NotConverted(f"{name}: {amount}", reason)
    return _of(vendor, count, choice)


def _count(amount: str) -> int | str:
    """Return the whole number that an amount is, as in 2, 2000m or 1k; else why it is none, as the API server judges it."""
    try:
        nanos = Quantity.parse(amount).nanos
    except ValueError:
        return "the API server refuses it: the amount is no quantity"
    if nanos < 0 or nanos % _NANO:
        return "the API server refuses it: the amount must be a whole number; ask for a share by a claim"
    return nanos // _NANO


def _no_claim(name: str, amount: str, count: int) -> str:
    """Return why no claim asks for so many; "" if one does."""
    if not count:
        return "it asks for no device, so no claim is needed: leave it out"
    if name == SHARES_OF_MEMORY:
        return _more_than_a_gpu_has(amount, count) if count >= _NO_GPU_HAS else ""
    if count > MAX_RESULTS:
        return f"a claim has at most {MAX_RESULTS} devices, and no node has more: ask for fewer, in more pods"
    return ""


def _more_than_a_gpu_has(amount: str, count: int) -> str:
    """Return the question for an amount in GiB that was meant in MiB, or that has a unit."""
    unit = 2**10 if amount.isdecimal() and count in MIB else 2**30
    meant = max(1, (count + unit // 2) // unit)
    question = f" (did you mean {meant}?)" if meant < _NO_GPU_HAS else ""
    return f"it counts GiB, and no GPU has so many: write their number without a unit{question}; it stays"


_VENDORS: Mapping[str, str] = {
    "nvidia.com/gpu": "nvidia",
    "amd.com/gpu": "amd",
    "habana.ai/": "habana",
    "gpu.intel.com/": "intel",
}
_USUAL: Mapping[str, tuple[str, str]] = {
    "nvidia": ("gpu.nvidia.com", NVIDIA_DRIVER),
    "mig": ("mig.nvidia.com", NVIDIA_DRIVER),
    "amd": ("amd-gpu", DOMAIN),
    "intel": ("intel-gpu", DOMAIN),
    "habana": ("gaudi", DOMAIN),
}
"""The class and the driver for each vendor's devices."""
_NOT_PUBLISHED: Mapping[str, str] = {"amd": "AMD", "intel": "Intel", "habana": "Habana"}
"""Vendors whose devices no backend of this driver finds, but that of simulated ones."""


def _of(vendor: str, count: int, choice: Choice, *selectors: str) -> Wanted:
    device_class, driver = usual(vendor, choice)
    maker = "nvidia" if vendor == "mig" else vendor
    notes: list[str] = []
    if not choice.device_class and choice.driver not in ("", _USUAL[vendor][1]):
        notes.append(
            f"the class {device_class} must select devices of {driver}: give another one by --class, or install the chart's with deviceClasses.nvidia.enabled=always"
        )
    if maker in _NOT_PUBLISHED and not choice.device_class:
        notes.append(
            f"the pod waits until a driver publishes {_NOT_PUBLISHED[maker]}'s devices, and the class {device_class} selects them: this driver publishes none of "
            "them yet. With the vendor's own DRA driver, give its class by --class and its name by --driver-name"
        )
    return Wanted(
        device_class,
        driver,
        maker,
        count,
        selectors,
        is_part=vendor == "mig",
        notes=tuple(notes),
    )


def usual(vendor: str, choice: Choice) -> tuple[str, str]:
    """Return the class and the driver for a vendor's devices."""
    device_class, driver = _USUAL[vendor]
    return choice.device_class or device_class, choice.driver or driver


def _mig(name: str, count: int, choice: Choice) -> Wanted | NotConverted:
    near, profile = likely_resource(name), profile_of(name)
    if not profile:
        part = name.removesuffix(_SHARED)
        reason = "it names no profile, which looks like 1g.5gb; it stays"
        if near:
            reason = f"no plugin offers it (did you mean {near}?); it stays"
        elif part != name:
            reason = f"time-shared parts are no claims here: ask for {part}, or let pods use one ResourceClaim for it"
        return NotConverted(f"{name}: {count}", reason)
    attribute = f'device.attributes["{usual("mig", choice)[1]}"].profile'
    one = _of("mig", count, choice, f'{attribute} == "{profile}"')
    note = f"no GPU that is known here has the profile {profile} (did you mean {near}?)"
    return replace(one, notes=(*one.notes, note)) if near else one


def _share(name: str, count: int, choice: Choice) -> Wanted | NotConverted:
    if name == SHARES_OF_MEMORY:
        return _memory(count, choice)
    if name == "aliyun.com/gpu-count":
        reason = (
            "it says over how many GPUs aliyun.com/gpu-mem is spread; write one request for each"
        )
        return NotConverted(f"{name}: {count}", reason)
    if count > 1:
        reason = "shares are no part of a GPU's power: two of them are not more than one; ask for 1"
        return NotConverted(f"{name}: {count}", reason)
    one = _of("nvidia", 1, choice)
    return replace(one, shared=True, notes=(*one.notes, _ON_ONE_NODE))


def _memory(count: int, choice: Choice) -> Wanted:
    note = f"a device that allows several allocations gives a share of {count}Gi; of any other, the claim gets the whole device, if it has so much"
    one = _of("nvidia", 1, choice)
    return replace(one, capacity={"memory": f"{count}Gi"}, notes=(*one.notes, note))
