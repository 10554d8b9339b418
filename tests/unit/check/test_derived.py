# SPDX-License-Identifier: Apache-2.0
"""Derived attributes of claims, as Kubernetes 1.37 has them."""

import pytest

from dra_driver.check.api import MOST_ENTRIES
from dra_driver.check.derived import derived_findings
from dra_driver.check.given import Given, Known
from dra_driver.check.selectors import environment
from tests.unit.check.findings import brief

REFUSED = "the API server would refuse it: "
HEAD = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec:
  devices:
    requests:
      - name: gpu
        exactly:
          deviceClassName: gpu
          derivedAttributes:
"""
MATCH = "    constraints: [{matchAttribute: a.example/pci}]\n"


def claim(*attributes: str, constraints: str = MATCH) -> str:
    return HEAD + "".join(f"            - {{{one}}}\n" for one in attributes) + constraints


@pytest.mark.parametrize(
    "constraints",
    [
        MATCH,
        "    constraints: [{requests: [gpu], distinctAttribute: a.example/pci}]\n",
        "    constraints: [{requests: [other], matchAttribute: a.example/x}, {requests: [], matchAttribute: a.example/pci}]\n",
        "    constraints: [{requests: [gpu], matchAttribute: a.example/x, distinctAttribute: a.example/pci}]\n",
    ],
)
def test_an_attribute_that_a_constraint_compares(constraints: str) -> None:
    found = brief(claim("name: a.example/pci, expression: device.driver", constraints=constraints))
    assert [one for one in found if "derive" in one or "constraint compares" in one] == []


@pytest.mark.parametrize(
    ("attributes", "constraints", "found"),
    [
        (
            ["name: a.example/pci, expression: device.driver"],
            "",
            f"11 api-value: {REFUSED}no constraint compares a.example/pci of this request",
        ),
        (
            ["name: a.example/pci, expression: device.driver"],
            "      - name: nic\n        exactly: {deviceClassName: net}\n    constraints: [{requests: [nic], matchAttribute: a.example/pci}]\n",
            f"11 api-value: {REFUSED}no constraint compares a.example/pci of this request",
        ),
        (
            ["name: a.example/pci, expression: device.driver"] * 2,
            MATCH,
            f"12 api-value: {REFUSED}a.example/pci is derived twice for one request",
        ),
        (
            ["name: pci, expression: device.driver"],
            MATCH,
            f"11 api-value: {REFUSED}'pci' is no name of an attribute",
        ),
        (
            ["expression: device.driver"],
            MATCH,
            f"11 api-value: {REFUSED}a derived attribute has no name",
        ),
        (
            ["name: a.example/pci"],
            MATCH,
            f"11 api-value: {REFUSED}a derived attribute has no expression",
        ),
        (
            ["name: 7, expression: device.driver"],
            MATCH,
            f"11 api-malformed: {REFUSED}Expected `str`, got `int`",
        ),
    ],
)
def test_what_the_api_server_refuses(attributes: list[str], constraints: str, found: str) -> None:
    assert [one for one in brief(claim(*attributes, constraints=constraints)) if "api-" in one] == [
        found
    ]


def test_a_constraint_about_a_request_is_about_its_alternatives() -> None:
    def alternatives(about: str) -> list[str]:
        return brief(
            f"""\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: c}}
spec:
  spec:
    devices:
      requests:
        - name: gpu
          firstAvailable:
            - name: big
              deviceClassName: gpu
              derivedAttributes: [{{name: a.example/pci, expression: device.driver}}]
            - {{name: small, deviceClassName: gpu}}
      constraints: [{{requests: [{about}], matchAttribute: a.example/pci}}]
"""
        )

    refused = f"12 api-value: {REFUSED}no constraint compares a.example/pci of this request"
    assert refused not in alternatives("gpu")
    assert refused not in alternatives("gpu/big")
    assert refused in alternatives("gpu/small")


def expensive(loops: int) -> str:
    """A bool whose estimated cost is about 14 times as high with each loop more."""
    inner = 'device.driver.matches("a")'
    for number in range(loops):
        inner = f"[1,2,3,4,5,6,7,8,9,10].all(v{number}, {inner})"
    return inner


def test_the_cost_of_each_and_of_all_together_is_limited() -> None:
    def costs(loops: int, number: int) -> list[str]:
        names = [f"a.example/x{each}" for each in range(number)]
        written = [f"name: {name}, expression: '{expensive(loops)}'" for name in names]
        match = ", ".join(f"{{matchAttribute: {name}}}" for name in names)
        found = brief(claim(*written, constraints=f"    constraints: [{match}]\n"))
        return [line.partition(" for the expression")[0] for line in found if "cel-cost" in line]

    assert costs(4, 7) == []
    assert costs(4, 8) == [
        f"5 cel-cost: {REFUSED}the derived attributes of a claim have an estimated cost of 1,084,408 together, and at most 1,000,000 is allowed"
    ]
    assert costs(5, 1) == ["11 cel-cost: the API server estimates a cost of 1,355,551"]


def test_an_expression_that_does_not_compile_has_no_cost() -> None:
    found = brief(claim("name: a.example/pci, expression: device.drive"))
    assert [line for line in found if "cel-cost" in line] == []


def test_attributes_past_the_maximum_are_told_by_their_number_only() -> None:
    written = [f"name: a.example/x{one}, expression: device.driver" for one in range(99)]
    found = [one for one in brief(claim(*written)) if "api-" in one]
    too_many, *others = found
    assert too_many.endswith(
        f"derivedAttributes has 99 entries, at most {MOST_ENTRIES} are allowed"
    )
    assert len(others) == MOST_ENTRIES


class Compared(str):
    """A name that counts how often one is compared with another."""

    __slots__ = ()
    number = 0

    def __eq__(self, other: object) -> bool:
        Compared.number += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_each_constraint_is_looked_at_once() -> None:
    """Also one past the maximum: what it compares is not told as compared by none."""
    names = [Compared(f"a.example/x{one}") for one in range(MOST_ENTRIES)]
    constraints = [
        *({"matchAttribute": Compared(f"a.example/y{one}")} for one in range(1000)),
        *({"requests": ["gpu"], "distinctAttribute": Compared(one)} for one in names),
    ]
    derived = [{"name": one, "expression": "device.driver"} for one in names]
    content = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "gpu",
                        "exactly": {"deviceClassName": "gpu", "derivedAttributes": derived},
                    }
                ],
                "constraints": constraints,
            }
        },
    }
    Compared.number = 0
    assert list(derived_findings(Given(content), environment(Known()))) == []
    assert Compared.number <= len(constraints)
