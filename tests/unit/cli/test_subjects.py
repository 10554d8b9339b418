# SPDX-License-Identifier: Apache-2.0
"""The words of the command line mean what they mean to kubectl."""

import pytest

from dra_driver.cli.subjects import SPELLINGS, Asked, Named, WrongUsage, asked
from dra_driver.explain.subject.labels import parse_selector
from dra_driver.explain.subject.subject import (
    ClaimSubject,
    PendingSubject,
    PodSubject,
    TemplateSubject,
    WorkloadSubject,
)

A, B = Named("Pod", "a"), Named("Pod", "b")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("a", [A]),
        ("pod/a", [A]),
        ("pod a", [A]),
        ("pod/a pod/b", [A, B]),
        ("po a b", [A, B]),
        ("pods a a", [A]),
        ("PODS/a", [A]),
        ("pod/a.yaml", [Named("Pod", "a.yaml")]),
        ("pods.v1/a", [A]),
        ("deploy/a sts/a", [Named("Deployment", "a"), Named("StatefulSet", "a")]),
        ("deployments.apps a", [Named("Deployment", "a")]),
        ("deployment.v1.apps/a", [Named("Deployment", "a")]),
        ("cj/a", [Named("CronJob", "a")]),
        ("jobs.batch/a", [Named("Job", "a")]),
        (
            "rc/a ds/a rs/a",
            [Named(k, "a") for k in ("ReplicationController", "DaemonSet", "ReplicaSet")],
        ),
        ("resourceclaims.v1beta1.resource.k8s.io a", [Named("ResourceClaim", "a")]),
        ("claim/a template/a", [Named("ResourceClaim", "a"), Named("ResourceClaimTemplate", "a")]),
        ("pods", []),
        ("pod", []),
        ("", []),
    ],
)
def test_objects_are_named_as_for_kubectl(words: str, named: list[Named]) -> None:
    assert asked(words.split()).named == tuple(named)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("deploymnt/a", "there is no kind 'deploymnt'; did you mean deployment?"),
        ("pdo a", "there is no kind 'pdo'; did you mean pod?"),
        (
            "deployments.batch/a",
            "there is no kind 'deployments.batch'; did you mean deployments.apps?",
        ),
        ("pods.apps a", "there is no kind 'pods.apps'; did you mean pods?"),
        ("node/n", "'node' cannot be explained; --node NAME explains"),
        ("pytorchjobs/a", "chosen by their labels with -l, and manifests are given with -f"),
        ("12.yaml", "'12.yaml' is a file: give manifests with -f, as in `explain -f 12.yaml`"),
        ("m/12.yaml", "'m/12.yaml' is a file: give manifests with -f"),
        ("a ./deploy", "'./deploy' is a file"),
        ("pod/a b", "give KIND/NAME for each object: 'b' has no kind"),
        ("pod a pod/b", "give KIND/NAME for each object: 'pod' has no kind"),
        ("pod/", "the name of the pod is missing"),
        ("claim", "give the name: claim/NAME"),
        ("deploy", "give the name: deploy/NAME"),
    ],
)
def test_what_cannot_be_meant_is_told_with_what_can(words: str, said: str) -> None:
    with pytest.raises(WrongUsage) as caught:
        asked(words.split())
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("words", "more", "said"),
    [
        (["a"], {"files": True}, "either names or manifests with -f"),
        ([], {"files": True, "labels": "a=b"}, "either -l or manifests with -f"),
        ([], {"files": True, "all_namespaces": True}, "either --all-namespaces or manifests"),
        (["a"], {"labels": "a=b"}, "either names or labels (-l)"),
        (["a"], {"all_namespaces": True}, "give it with -n, without --all-namespaces"),
        ([], {"labels": "a=b=c"}, "is no label selector"),
    ],
)
def test_what_contradicts_itself_is_wrong_usage(words: list[str], more: dict, said: str) -> None:
    with pytest.raises(WrongUsage) as caught:
        asked(words, **more)
    assert said in str(caught.value)


def test_without_a_name_all_pending_pods_are_meant() -> None:
    chosen = asked(["pods"], labels="a=b")
    assert chosen.subjects("ns") == (PendingSubject("ns", parse_selector("a=b")),)
    assert asked([], all_namespaces=True).subjects("ns") == (PendingSubject(""),)
    assert (chosen.is_one, chosen.workloads, chosen.title("ns")) == (False, (), "pending pods")


def test_each_name_is_a_subject_of_the_namespace() -> None:
    chosen = asked(["pod/a", "claim/b", "template/c", "deploy/d", "deploy/e", "job/f"])
    assert chosen.subjects("ns") == (
        PodSubject("ns", "a"),
        ClaimSubject("ns", "b"),
        TemplateSubject("ns", "c"),
        WorkloadSubject("Deployment", "ns", "d"),
        WorkloadSubject("Deployment", "ns", "e"),
        WorkloadSubject("Job", "ns", "f"),
    )
    assert chosen.workloads == ("Deployment", "Job")
    assert chosen.title("ns").startswith("pod ns/a, claim ns/b, template ns/c, deployment ns/d, ")


@pytest.mark.parametrize(
    ("chosen", "is_one"),
    [
        (asked(["pod/a"]), True),
        (asked(["claim/a"]), True),
        (asked(["deploy/a"]), False),
        (asked(["a", "-"][:1]), True),
        (asked(["pod", "a", "b"]), False),
        (Asked(from_files=True), True),
    ],
)
def test_one_pod_or_the_manifests_have_one_report(chosen: Asked, *, is_one: bool) -> None:
    assert chosen.is_one is is_one


def test_short_names_are_kubectls() -> None:
    short = {"po", "deploy", "sts", "ds", "rs", "rc", "cj"}
    assert short <= SPELLINGS.keys()
    assert {"cronjob", "cronjobs", "replicationcontrollers"} <= SPELLINGS.keys()
