# SPDX-License-Identifier: Apache-2.0
"""What does helm make of `pendingEvents`? That its rights suffice is asked of a real cluster in test_pending_events.py."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dra_driver.cli.main import parser
from hack.testbed.onenode import helm
from tests.e2e import rendering
from tests.e2e.discovery_server import pages, serving
from tests.e2e.rendering import Object, of_kind

pytestmark = pytest.mark.real

NAME = "dra-driver-pending-events"
ON = "pendingEvents: {enabled: true, after: 60}"


@pytest.fixture
def render(tmp_path: Path) -> Any:
    return partial(rendering.render, tmp_path)


def own(objects: list[Object]) -> list[Object]:
    return [one for one in objects if one["metadata"]["name"] == NAME]


def test_it_is_off_by_default_and_where_there_are_no_claims_or_the_driver_is_removed(
    render: Any,
) -> None:
    assert own(render()) == []
    assert own(render("--kube-version", "1.30.14", values=ON)) == []
    assert own(render(values=f"{ON}\ncleanup: {{enabled: true}}")) == []


@pytest.mark.parametrize("enabled", [True, False])
def test_the_notes_say_that_it_has_no_effect_without_claims(tmp_path: Path, enabled: bool) -> None:
    with serving(pages("1.31.14", [], {})) as url:
        asking = ("--dry-run=server", "--disable-openapi-validation", "--kube-apiserver", url)
        chosen = ("--set", f"pendingEvents.enabled={str(enabled).lower()}", "--namespace", "dra")
        ended = helm.helm("install", "blue", str(helm.CHART), *asking, *chosen, home=tmp_path)
    notes = ended.stdout.rpartition("NOTES:\n")[2]
    assert "Is it running?" in notes, ended.stderr
    assert ("pendingEvents.enabled has no effect" in notes) is enabled


def test_it_reads_what_explain_reads_and_writes_events_only(render: Any) -> None:
    (role,) = of_kind(own(render(values=ON)), "ClusterRole")
    verbs = {
        resource: rule["verbs"] for rule in role["rules"] for resource in rule.get("resources", ())
    }
    assert verbs.pop("events") == ["list", "create", "patch"]
    assert set(map(tuple, verbs.values())) == {("list",)}
    assert verbs.keys() == {
        *("deviceclasses", "devicetaintrules", "resourceclaims", "resourceclaimtemplates"),
        *("resourceslices", "namespaces", "nodes", "pods"),
    }


def test_its_pod_is_nobody_and_the_program_takes_its_arguments(render: Any) -> None:
    (deployment,) = of_kind(own(render(values=ON)), "Deployment")
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    spec = deployment["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == NAME
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert "volumes" not in spec
    (container,) = spec["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    chosen = parser("pending-events").parse_args(container["args"])
    assert (chosen.after, chosen.http_address) == (60.0, ("", 9410))


def test_the_drivers_service_does_not_take_its_pod_for_one_of_the_drivers(render: Any) -> None:
    objects = render(values=ON)
    (deployment,) = of_kind(own(objects), "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for service in of_kind(objects, "Service"):
        assert not service["spec"]["selector"].items() <= labels.items()


def test_its_metrics_are_scraped_where_the_drivers_are(render: Any) -> None:
    assert of_kind(own(render(values=ON)), "PodMonitor") == []
    more = "metrics: {serviceMonitor: {enabled: true, labels: {release: prometheus}}}"
    served = ("--api-versions", "monitoring.coreos.com/v1")
    objects = render(*served, values=f"{ON}\n{more}\nnetworkPolicy: {{enabled: true}}")
    (monitor,) = of_kind(own(objects), "PodMonitor")
    (deployment,) = of_kind(own(objects), "Deployment")
    pod = deployment["spec"]["template"]
    labels = pod["metadata"]["labels"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (container,) = pod["spec"]["containers"]
    assert endpoint["port"] in {one["name"] for one in container["ports"]}
    (policy,) = of_kind(objects, "NetworkPolicy")
    (chosen,) = policy["spec"]["podSelector"]["matchExpressions"]
    assert labels[chosen["key"]] in chosen["values"]


@pytest.mark.parametrize("where", ["platform: openshift", "openshift: {securityContextConstraints: true}"])  # fmt: skip
def test_openshift_chooses_its_user(render: Any, where: str) -> None:
    """The constraints that every pod there falls under refuse a user that is none of the namespace's."""

    def user(*words: str, values: str) -> Any:
        (pods,) = of_kind(own(render(*words, values=values)), "Deployment")
        return pods["spec"]["template"]["spec"]["securityContext"]

    plain = user(values=ON)
    assert (plain.pop("runAsUser"), plain.pop("runAsGroup")) == (65534, 65534)
    assert plain["runAsNonRoot"] is True
    served = ("--api-versions", "security.openshift.io/v1")
    assert user(*served, values=f"{ON}\n{where}") == plain
