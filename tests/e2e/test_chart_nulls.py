# SPDX-License-Identifier: Apache-2.0
"""What does a key without a value do in a values file? Helm takes such a key for a wish to remove the chart's own."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e import rendering

pytestmark = pytest.mark.real

CHART = Path(__file__).parents[2] / "helm" / "dra-driver"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def places(values: Mapping[str, Any], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        yield (*before, key)
        if isinstance(value, dict):
            yield from places(value, (*before, key))


def outcome(folder: Path, place: tuple[str, ...]) -> str:
    """Empty if it is rendered; else what is wrong with the refusal, or "refused"."""
    content: Any = None
    for key in reversed(place):
        content = {key: content}
    own = folder / ".".join(place)
    own.mkdir()
    code, _, said = rendering.template(own, values=yaml.safe_dump(content))
    if not code:
        return ""
    return "refused" if f"missing property '{place[-1]}'" in said else said


def test_a_key_without_a_value_is_empty_or_refused_by_its_name(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        found = list(places(VALUES))
        outcomes = dict(zip(found, pool.map(partial(outcome, tmp_path), found), strict=True))
    assert set(outcomes.values()) == {"", "refused"}, outcomes
    lists = [place for place in found if _at(place) in ([], {})]
    assert lists
    assert {outcomes[place] for place in lists if place != ("backends",)} == {""}


def _at(place: tuple[str, ...]) -> object:
    value: Any = VALUES
    for key in place:
        value = value[key]
    return value
