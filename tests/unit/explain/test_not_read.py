# SPDX-License-Identifier: Apache-2.0
"""What is answered where something could not be read: a gap counts where it could change the answer."""

from typing import Any

import msgspec
import pytest

from dra_driver.errors import Permanent
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.not_read import NODE_RESOURCES, doubts_about_node_resources
from dra_driver.explain.outcome import Report
from dra_driver.explain.remedy import fix
from dra_driver.explain.report import (
    ClaimSubject,
    ManifestSubject,
    PodSubject,
    TemplateSubject,
    explain,
)
from dra_driver.explain.verdict import ChosenDevice, CouldNotTell, NoDevices
from dra_driver.model.api.core import Node, Pod
from dra_driver.model.cluster import ClusterState, NotRead
from tests.e2e import fleet as words
from tests.e2e.fleet import GPU, HOME, devices, request, resource_slice
from tests.unit.explain.clusters import state

ONE = resource_slice(devices(1))
FITS = words.claim(request())
FITS_NOT = words.claim(request(count=2))


def gap(resource: str, name: str = "", **fields: Any) -> NotRead:
    return NotRead(
        **{"resource": resource, "name": name, "reason": "malformed", "message": "m", **fields}
    )


def asked(cluster: ClusterState, *gaps: NotRead, about: Any = (FITS,)) -> Report:
    blind = msgspec.structs.replace(cluster, not_read=gaps)
    return explain(blind, ManifestSubject(tuple(about), "ns", "f.yaml"))


def unknown(report: Report) -> list[str]:
    return [one.what for one in report.verdicts if isinstance(one, CouldNotTell)]


OTHER = "somebody"


@pytest.mark.parametrize(
    ("hidden", "fitting", "not_fitting"),
    [
        (gap("resourceslices", OTHER), 2, 2),
        (gap("resourceslices"), 2, 2),
        (gap("deviceclasses", OTHER), 0, 1),
        (gap("deviceclasses", "gpu"), 0, 1),  # it was given besides
        (gap("nodes", OTHER), 0, 2),
        (gap("resourceclaims", f"ns/{OTHER}"), 2, 1),
        (gap("devicetaintrules"), 2, 1),
        (gap("devicetaintrules", OTHER), 2, 1),
        (gap("pods"), 0, 1),
        (gap("resourceclaimtemplates"), 0, 1),
    ],
)
def test_a_gap_leaves_open_what_it_could_change(
    hidden: NotRead, fitting: int, not_fitting: int
) -> None:
    for about, code in ((FITS, fitting), (FITS_NOT, not_fitting)):
        report = asked(state(ONE), hidden, about=(about,))
        assert (report.exit_code, len(unknown(report))) == (code, code == 2)


@pytest.mark.parametrize("gate", ["DRADeviceTaintRules", "DRADeviceTaints"])
def test_taint_rules_that_do_not_count_need_not_be_read(gate: str) -> None:
    cluster = state(ONE, featureGates={gate: False})
    assert asked(cluster, gap("devicetaintrules")).exit_code == 0


def test_gaps_are_counted_by_kind() -> None:
    hidden = [gap("resourceslices", name) for name in ("a", "b", "c")]
    report = asked(state(ONE), *hidden, gap("resourceclaims", "ns/x"))
    assert unknown(report) == [
        "resourceslices a: m (and 2 more of them)",
        "resourceclaims ns/x: m",
    ]
    assert report.summary == f"could not tell (malformed): {unknown(report)[0]}"


def test_a_class_that_could_not_be_read_is_not_called_missing() -> None:
    cluster = msgspec.structs.replace(state(ONE), device_classes=())
    report = asked(cluster, gap("deviceclasses", "gpu"))
    told = CouldNotTell("malformed", "device class gpu: m")
    assert (report.exit_code, report.claims[0].requests[0].verdicts) == (2, (told,))
    assert unknown(report) == ["deviceclasses gpu: m"]


def test_slices_that_could_not_be_read_are_not_called_missing() -> None:
    verdicts = [
        asked(state(), *hidden).claims[0].requests[0].verdicts
        for hidden in ([], [gap("resourceslices", OTHER)])
    ]
    assert verdicts == [(NoDevices(),), ()]


def test_a_pod_needs_to_know_how_much_of_its_node_is_free() -> None:
    pod = words.pod()
    for hidden in (gap("pods"), gap("pods", f"ns/{OTHER}")):
        report = asked(state(ONE), hidden, about=(FITS, pod))
        assert (report.exit_code, report.outcome) == (2, "could not tell")
        assert unknown(report) == [str(hidden)]
    tainted = words.pod(schedulingGates=[{"name": "g"}])
    assert asked(state(ONE), gap("pods"), about=(FITS, tainted)).exit_code == 3


def test_the_claim_that_is_asked_about_says_itself_that_it_could_not_be_read() -> None:
    hidden = gap("resourceclaims", f"ns/{words.MINE}")
    report = asked(state(ONE), hidden, about=(words.pod(),))
    told = CouldNotTell("malformed", f"resourceclaims ns/{words.MINE}: m")
    assert (report.exit_code, report.claims[0].verdicts) == (2, (told,))
    assert (unknown(report), report.nodes) == ([], ())
    template = gap("resourceclaimtemplates", f"ns/{words.MINE}")
    of = {"resourceClaimTemplateName": words.MINE}
    made = asked(state(ONE), template, about=(words.pod(of=of),))
    assert (made.exit_code, made.claims[0].verdicts[0].what) == (2, str(template))


@pytest.mark.parametrize(
    ("resource", "subject", "message"),
    [
        ("pods", PodSubject("ns", "x"), "cannot read pod ns/x: m"),
        ("resourceclaims", ClaimSubject("ns", "x"), "cannot read resourceclaim ns/x: m"),
        (
            "resourceclaimtemplates",
            TemplateSubject("ns", "x"),
            "cannot read resourceclaimtemplate ns/x: m",
        ),
    ],
)
def test_a_subject_that_could_not_be_read_is_not_called_missing(
    resource: str, subject: Any, message: str
) -> None:
    blind = msgspec.structs.replace(state(), not_read=(gap(resource, "ns/x"),))
    with pytest.raises(Permanent, match=message):
        explain(blind, subject)


@pytest.mark.parametrize(("name", "verb"), [("x", "read"), ("", "find")])
def test_a_node_that_could_not_be_read_is_not_called_missing(name: str, verb: str) -> None:
    blind = msgspec.structs.replace(state(ONE), not_read=(gap("nodes", name),))
    with pytest.raises(Permanent, match=f"cannot {verb} node x: m"):
        explain(blind, ManifestSubject((FITS,), "ns", "f"), node="x")


def test_a_namespace_that_could_not_be_read_may_have_the_label() -> None:
    admin = words.claim(request(adminAccess=True))
    assert asked(state(ONE), gap("namespaces", "ns"), about=(admin,)).exit_code == 2
    assert asked(state(ONE), gap("namespaces", "other"), about=(admin,)).exit_code == 1


def pod_of(quantity: str) -> Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": quantity}}}
    spec = {"nodeName": HOME, "containers": [container]}
    return msgspec.convert({"metadata": {"name": "o", "namespace": "ns"}, "spec": spec}, Pod)


def test_a_quantity_that_is_none_costs_its_object_only() -> None:
    cluster = msgspec.structs.replace(state(ONE), pods=(pod_of("zz"),))
    assert asked(cluster).exit_code == 0
    report = asked(cluster, about=(FITS, words.pod()))
    place = "pods ns/o: spec.containers[c].resources.requests[cpu]: 'zz' is no quantity"
    assert report.exit_code == 2
    assert unknown(report)[0].startswith(place)
    assert report.nodes[0].placement[0].driver == GPU


def test_a_manifest_with_such_a_quantity_is_refused() -> None:
    bad = words.claim(request(capacity={"requests": {"memory": "lots"}}))
    with pytest.raises(Permanent, match=r"requests\[gpu\].*'lots' is no quantity"):
        asked(state(ONE), about=(bad,))


TAKES = {"nodeAllocatableResources": {"cpu": {"overhead": {"perPod": "2"}}}}
POD = (FITS, words.pod(cpu="1"))


@pytest.mark.parametrize(("gates", "code"), [({}, 2), ({NODE_RESOURCES: True}, 2), (None, 0)])
def test_what_devices_take_of_their_node_is_not_counted(
    gates: dict[str, bool] | None, code: int
) -> None:
    taking = resource_slice(devices(1, **TAKES))
    known = {NODE_RESOURCES: False} if gates is None else gates
    cluster = msgspec.structs.replace(state(taking), feature_gates=known)
    nodes = tuple(
        msgspec.convert(
            words.node(name) | {"status": {"allocatable": {"cpu": "4", "pods": "9"}}}, Node
        )
        for name in (HOME, "other")
    )
    report = asked(msgspec.structs.replace(cluster, nodes=nodes), about=POD)
    assert report.exit_code == code
    if code:
        assert NODE_RESOURCES in report.summary
        assert "kubectl describe node" in fix(report.verdicts[0])
    plain = msgspec.structs.replace(
        state(taking, resource_slice(devices(1), pool="other")), nodes=nodes, feature_gates=known
    )
    assert asked(plain, about=POD).exit_code == 0


def test_a_device_that_was_taken_from_the_slices_takes_nothing() -> None:
    gone = ChosenDevice("ns/c", "gpu", GPU, HOME, "gone")
    assert doubts_about_node_resources(Fleet(state(ONE)), [(gone,)]) == ()
    assert doubts_about_node_resources(Fleet(state(ONE)), []) == ()
