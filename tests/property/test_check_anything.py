# SPDX-License-Identifier: Apache-2.0
"""Whatever stands in a manifest: `check` has an answer, `convert` too, and --fix changes nothing that it does not promise."""

import copy
import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.backends.nvidia.config import KINDS
from dra_driver.check.check import check, fixable, objects_of
from dra_driver.check.fixing import fix
from dra_driver.check.given import Given, Known
from dra_driver.convert.convert import convert
from dra_driver.convert.resources import Choice
from dra_driver.model.yaml_documents import documents
from tests.unit.check.test_rules import CASES

ROOT = Path(__file__).resolve().parents[2]
KNOWN = Known(kinds=KINDS)
JUNK: tuple[Any, ...] = (
    *(None, 3, -1, 2.5, True, "", "x", "a/b", "[", "nvidia.com/gpu", "1" * 500, "\x00\u202e"),
    *(10**30, [], {}, [1], [None], [{}], {"a": 1}, {1: 2}, {"nvidia.com/gpu": []}, {"name": 3}),
)
ROUNDS = 1500


def manifests() -> list[dict[str, Any]]:
    texts = [text for text, _ in CASES.values()]
    texts += [file.read_text() for file in sorted((ROOT / "deviceclasses").rglob("*.yaml"))]
    found = [one for text in texts for one in yaml.safe_load_all(text)]
    return [one for one in found if isinstance(one, dict)]


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner: Any = ()
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
    for step, one in inner:
        yield from paths(one, (*path, step))


def spoilt(document: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    made = copy.deepcopy(document)
    for _ in range(dice.randint(1, 3)):
        *outer, last = dice.choice([path for path in paths(made) if path])
        inner: Any = made
        for step in outer:
            inner = inner[step]
        inner[last] = copy.deepcopy(dice.choice(JUNK))
    return made


@pytest.mark.parametrize("seed", range(3))
def test_every_manifest_has_an_answer(seed: int) -> None:
    dice = random.Random(seed)
    known = manifests()
    for _ in range(ROUNDS):
        document = spoilt(dice.choice(known), dice)
        before = repr(document)
        for finding in check([Given(document)], KNOWN):
            assert finding.message
        convert(document, Choice(), ("NVIDIA H100 80GB HBM3",))
        assert repr(document) == before


def objects(text: str) -> list[Given]:
    stream = io.BytesIO(text.encode())
    return [
        one
        for number, document in enumerate(documents(stream, with_places=True), 1)
        for one in objects_of(document.content, "a.yaml", number, document.places)
    ]


@pytest.mark.parametrize("flow", [None, True], ids=["block", "brackets"])
def test_fix_promises_what_it_does(flow: bool | None) -> None:
    dice = random.Random(7)
    known = [one for one in manifests() if "resource.k8s.io/v1" in str(one.get("apiVersion"))]
    corrected = 0
    for _ in range(300):
        document = copy.deepcopy(dice.choice(known))
        document["apiVersion"] = (
            f"resource.k8s.io/{dice.choice(('v1alpha3', 'v1beta1', 'v1beta2'))}"
        )
        requests = document.get("spec", {}).get("devices", {}).get("requests", [])
        for request in requests if isinstance(requests, list) else ():
            if "v1beta2" not in document["apiVersion"] and isinstance(request.get("exactly"), dict):
                request.update(request.pop("exactly"))
        text = "# before\n" + yaml.safe_dump(document, sort_keys=False, default_flow_style=flow)
        result = fix(text, lambda now: list(fixable(objects(now), KNOWN)))
        corrected += len(result.corrected)
        assert result.text.startswith("# before\n")
        assert not any(one.edits for one in fixable(objects(result.text), KNOWN)) or result.left
    assert corrected > 200
