# SPDX-License-Identifier: Apache-2.0
"""Do the chart's ClusterRoles for people give what `kubectl dra` reads, and no more?

Without helm: the template is read as text. What helm makes of it is asked in tests/e2e/test_chart_user_roles.py.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.kube.changes import deciding
from dra_driver.kube.cluster import BUDGETS_PATH
from dra_driver.model.api.workload import BETWEEN, PLURALS
from dra_driver.model.cluster import GATES_PATH, ClusterState, NotRead
from dra_driver.overview.rights import CLAIMS, DEVICES, FREE, USAGE, VERSION, gaps_of

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "dra-driver"
TEXT = (CHART / "templates" / "user-roles.yaml").read_text()
READ = {"get", "list", "watch"}
Rules = list[dict[str, Any]]


def included(text: str) -> str:
    """The text with the named parts of the template in place of their includes."""
    parts = re.findall(
        r'define "(dra-driver\.\w+Rules)" -\}\}\n(.*?)\n\{\{- end -\}\}', TEXT, re.DOTALL
    )
    found = dict(parts)

    def part(match: re.Match[str]) -> str:
        return included(found[match[1]])

    return re.sub(r'\{\{-? include "(dra-driver\.\w+Rules)" [^}]*\}\}', part, text)


def role(name: str) -> Rules:
    (body,) = (one for one in TEXT.split("\n---\n") if f'fullname" . }}}}-{name}\n' in one)
    rules = included(body.partition("\nrules:\n")[2])
    lines = [line for line in rules.splitlines() if not line.strip().startswith("{{")]
    # The parts are indented by helm; here each rule begins in the same column.
    flat = [re.sub(r"^ {2}(?=- |# | {2}\w)", "", line) for line in lines]
    loaded: Rules = yaml.safe_load("\n".join(flat))
    return loaded


def rights(name: str) -> set[tuple[str, str]]:
    """What the role allows: verb and resource, or verb and path."""
    return {
        (verb, what)
        for rule in role(name)
        for what in (*rule.get("resources", ()), *rule.get("nonResourceURLs", ()))
        for verb in rule["verbs"]
    }


def test_explain_may_read_and_watch_all_that_is_read() -> None:
    resources = {name for name, _path in deciding(("v1",), tuple(PLURALS), "ns")}
    resources |= {PLURALS[kind][1] for kind in BETWEEN.values()}
    resources |= {"devicetaintrules", BUDGETS_PATH.rpartition("/")[2]}
    expected = {(verb, name) for name in resources for verb in READ} | {("get", GATES_PATH)}
    assert rights("explain") == expected


def test_users_may_read_their_own_namespaces_and_what_the_cluster_offers() -> None:
    namespaced = ("resourceclaims", "resourceclaimtemplates", "pods")
    assert rights("user") == {(verb, name) for name in namespaced for verb in READ}
    whole = ("deviceclasses", "resourceslices")
    assert rights("user-cluster") == {(verb, name) for name in whole for verb in READ}


def test_admins_may_change_what_is_about_devices_and_nothing_else() -> None:
    changes = rights("admin") - rights("explain")
    assert rights("explain") <= rights("admin")
    assert changes == {
        *((verb, "deviceclasses") for verb in ("create", "delete", "patch", "update")),
        *((verb, "devicetaintrules") for verb in ("create", "delete", "patch", "update")),
        *((verb, "resourceclaims") for verb in ("delete", "patch", "update")),
        ("delete", "resourceslices"),
    }


@pytest.mark.parametrize("name", ["user", "user-cluster", "explain", "admin"])
def test_no_role_has_a_wildcard_or_secrets(name: str) -> None:
    assert not {"*", "secrets"} & {part for right in rights(name) for part in right}
    assert "*" not in {group for rule in role(name) for group in rule.get("apiGroups", ())}


@pytest.mark.parametrize("command", [DEVICES, CLAIMS, FREE, USAGE, VERSION])
@pytest.mark.parametrize("namespace", ["", "team"])
def test_the_role_that_is_named_to_a_user_gives_the_right(command: str, namespace: str) -> None:
    resources = (
        "resourceslices",
        "deviceclasses",
        "resourceclaims",
        "pods",
        "nodes",
        "devicetaintrules",
    )
    state = ClusterState(not_read=tuple(NotRead(one, "forbidden") for one in resources))
    gaps = gaps_of(state, command, namespace=namespace)
    assert gaps
    assert [one for one in gaps if (one.verb, one.resource) not in rights(one.role)] == []


def test_they_are_made_unless_somebody_says_no() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values["clusterRoles"] == {"enabled": True}
    served = '(include "dra-driver.resourceApiVersion" .)'
    assert TEXT.count("{{- if and .Values.clusterRoles.enabled " + served + " }}") == 1
    assert TEXT.count("kind: ClusterRole\n") == 4
