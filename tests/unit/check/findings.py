# SPDX-License-Identifier: Apache-2.0
"""Findings about a YAML text, for tests."""

import io

from dra_driver.check.check import check, objects_of
from dra_driver.check.finding import Finding
from dra_driver.check.given import Given, Known
from dra_driver.model.yaml_documents import documents

NOTHING = Known()


def given(text: str, file: str = "a.yaml") -> list[Given]:
    """The objects of a text, with their places."""
    return [
        one
        for number, document in enumerate(documents(io.BytesIO(text.encode()), with_places=True), 1)
        for one in objects_of(document.content, file, number, document.places)
    ]


def found(text: str, known: Known = NOTHING) -> list[Finding]:
    """The findings about a text."""
    return check(given(text), known)


def brief(text: str, known: Known = NOTHING) -> list[str]:
    """Line, rule and message of each finding."""
    return [f"{one.line} {one.rule}: {one.message}" for one in found(text, known)]


def rules(text: str, known: Known = NOTHING) -> list[str]:
    """The rules of the findings."""
    return [one.rule for one in found(text, known)]


def claim(body: str, *, name: str = "c") -> str:
    """A claim with one request; `body` are the lines below `exactly`, not indented."""
    lines = "".join(f"          {line}\n" for line in body.splitlines())
    return (
        "apiVersion: resource.k8s.io/v1\n"
        "kind: ResourceClaim\n"
        f"metadata: {{name: {name}}}\n"
        "spec:\n"
        "  devices:\n"
        "    requests:\n"
        "      - name: gpu\n"
        f"        exactly:\n{lines}"
    )


def selector(expression: str, style: str = "") -> str:
    """A claim whose request has one selector."""
    written = f"'{expression}'" if style == "'" else expression
    return claim(
        f"deviceClassName: gpu.nvidia.com\nselectors:\n  - cel:\n      expression: {written}"
    )


def pod(container: str = "", spec: str = "", metadata: str = "name: p") -> str:
    """A pod with one container; `container` are its fields and `spec` those of the pod, in flow style or one a line."""
    more = "".join(f"  {line}\n" for line in spec.splitlines())
    fields = "".join(f"      {line}\n" for line in container.splitlines())
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{{metadata}}}\nspec:\n{more}"
        f"  containers:\n    - name: main\n{fields}"
    )
