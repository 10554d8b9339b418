# SPDX-License-Identifier: Apache-2.0
"""Judge the kubelet's side of the node, and what the driver itself has written there."""

from collections.abc import Collection, Iterator, Sequence

from dra_driver.doctor.findings import NO_NODE, NOT_ASKED, Finding, finding, fine, unknown
from dra_driver.model.host import KubeletConfig, KubeletOnHost, OwnWord, Place, PlaceKind
from dra_driver.model.quotes import quoted
from dra_driver.model.state import Phase, PreparedClaim, Unknown
from dra_driver.planning.neighbours import vendor_of

GATES = (
    "DynamicResourceAllocation",
    "KubeletPodResourcesDynamicResources",
    "ResourceHealthStatus",
)
"""Feature gates of the kubelet that the driver needs for all that it does, if the release has them."""


LONGEST_SAMPLE_AGE_SECONDS = 60.0
"""A driver measures every 15 s, and shows no older measurement."""


def judge_no_node() -> Iterator[Finding]:
    """Yield that the machine has nothing of a node: what a node needs is then no fault of this machine."""
    found = "no kubelet runs here, and neither its folders nor those of the driver are there"
    yield finding(NO_NODE, "this machine", found)


def judge_kubelet(
    host: KubeletOnHost, folders: Sequence[Place], config: KubeletConfig
) -> Iterator[Finding]:
    """Yield what is found about the kubelet's folders, the gates that its configuration sets, and its pod-resources socket."""
    for sentence in config.unreadable:
        path, _, why = sentence.partition(": ")
        yield unknown("kubelet", path, why)
    for gate in GATES:
        is_on, path = config.gates.get(gate, (True, ""))
        if not is_on:
            yield finding("kubelet-gate-off", gate, f"{path} has it as false", gate=gate, path=path)
    bad = [one for one in folders if one.kind is not PlaceKind.FOLDER]
    for place in bad:
        if place.kind is PlaceKind.UNREADABLE:
            yield unknown("kubelet", place.path, place.why)
        else:
            yield finding(
                "kubelet-folder-missing",
                place.path,
                f"{place.kind.value} is there",
                path=place.path,
            )
    path = host.pod_resources
    if path in host.closed:
        yield unknown("kubelet", path, host.unanswered)
    elif host.resources is None:
        yield finding("kubelet-silent", path, host.unanswered, path=path)
    elif not bad:
        yield fine("kubelet", host.pod_resources, "the kubelet answers, and its folders are there")


def judge_driver(host: KubeletOnHost, at_work: Sequence[str]) -> Iterator[Finding]:
    """Yield what is found about the driver's processes; `at_work` has a sentence for each."""
    for other in host.foreign:
        yield finding("driver-name-taken", other, "it answers the kubelet under this driver's name")
    for path in host.deaf:
        yield finding("socket-without-driver", path, "nobody listens on it")
    hidden = [path for path in host.closed if path != host.pod_resources]
    if host.listening:
        yield fine("driver", " ".join(host.listening), "; ".join(at_work) or "somebody listens")
    elif hidden:
        yield unknown("driver", " ".join(hidden), "this user may not connect to it")
    elif at_work:
        yield finding("driver-without-registration", "registration socket", "; ".join(at_work))
    else:
        said = "no process of this driver runs"
        yield finding("driver-not-listening", "registration socket", said)


def judge_unasked_probes(port: int) -> Iterator[Finding]:
    """Yield that nobody was asked: on the host, any pod with a hostPort can listen where the driver's address would be."""
    found = "who listens there may be any pod with this hostPort, so it was not asked"
    yield finding(NOT_ASKED, f"port {port}", found)


def judge_probes(told: OwnWord, *, in_pod: bool) -> Iterator[Finding]:
    """Yield what the running driver says of itself. `in_pod`: this process is in the driver's own pod, so the driver must answer.

    What was answered is quoted: if the driver does not listen there, somebody else may, with advice of his own.
    """
    if told.unanswered:
        name = "driver-silent" if in_pod else NOT_ASKED
        yield finding(name, told.address, told.unanswered)
        return
    if told.livez:
        yield finding("driver-not-alive", f"{told.address}/livez", _said("; ".join(told.livez)))
    if told.readyz:
        yield finding("driver-not-ready", f"{told.address}/readyz", _said("; ".join(told.readyz)))
    ages = sorted(told.sample_ages.items())
    old = [f"{name} for {age:.0f} s" for name, age in ages if age > LONGEST_SAMPLE_AGE_SECONDS]
    if old:
        yield finding("devices-not-measured", told.address, _said(", ".join(old)))
    if told.vanished:
        yield finding("devices-gone", told.address, _said(", ".join(told.vanished)))
    if not (told.livez or told.readyz or old or told.vanished):
        yield fine("probes", told.address, "whoever listens there says ok to /livez and /readyz")


def _said(text: str) -> str:
    return f"whoever listens there says {quoted(text)}"


def judge_plugins(host: KubeletOnHost, own: Collection[str]) -> Iterator[Finding]:
    """Yield the device plugins beside this driver; `own` are the resources that it serves itself."""
    if host.resources is None:
        yield unknown("device-plugins", host.pod_resources, host.unanswered)
        return
    beside = {
        name: count
        for name, count in sorted(host.resources.items())
        if vendor_of(name) and name not in own
    }
    for name, count in beside.items():
        yield finding("device-plugin-beside", name, f"a device plugin offers {count}")
    if not beside:
        yield fine("device-plugins", host.pod_resources, "no device plugin offers accelerators")


def judge_state(
    path: str, claims: Sequence[PreparedClaim] | str | Unknown, aside: Sequence[str]
) -> Iterator[Finding]:
    """Yield what is found about the state file. `claims` is a sentence if it cannot be read, `aside` are damaged files."""
    if isinstance(claims, Unknown):
        yield unknown("state-file", path, claims.reason)
    elif isinstance(claims, str):
        yield finding("state-unreadable", path, claims, path=path)
    else:
        yield fine("state-file", path, f"claims recorded: {len(claims)}")
    for one in aside:
        yield finding("state-set-aside", one, "a damaged state file", path=one)


def judge_held(path: str, claims: Sequence[PreparedClaim] | str | Unknown) -> Iterator[Finding]:
    """Yield each claim whose devices are held, or that is reserved and not prepared."""
    if isinstance(claims, str | Unknown):
        yield unknown(
            "held-devices", path, claims.reason if isinstance(claims, Unknown) else claims
        )
        return
    good = 0
    for row in claims:
        devices = ", ".join(sorted({one.device for one in row.devices}))
        if row.held is not None:
            said = f"{devices} since {row.held.since}: {row.held.reason}"
            yield finding("device-held", f"claim {row.ref.word}", said, claim=row.ref.word)
        elif row.phase is Phase.STARTED:
            yield finding(
                "claim-half-prepared",
                f"claim {row.ref.word}",
                f"{devices} are reserved",
                namespace=row.ref.namespace,
            )
        else:
            good += 1
    if good == len(claims):
        yield fine("held-devices", path, f"prepared claims: {good}; no device is held")


def judge_cgroups(root: str, blind: str) -> Iterator[Finding]:
    """Yield whether cgroups can prove that a pod has ended; `blind` says why not."""
    yield (
        finding("cgroups-blind", root, blind)
        if blind
        else fine("cgroups", root, "the kubelet's cgroups are there")
    )
