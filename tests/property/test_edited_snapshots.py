# SPDX-License-Identifier: Apache-2.0
"""However a snapshot is edited by hand or cut short: it is refused with its name, or what can be read is published."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dra_driver.backends import recording
from dra_driver.backends.base import BackendContext
from dra_driver.backends.recorded import RecordedBackend, RecordedOptions
from dra_driver.errors import DriverError, Fatal
from dra_driver.model.ids import ClaimUid
from dra_driver.model.lease import Lease
from dra_driver.planning.scanned import as_scanned
from dra_driver.planning.slices import plan_pool

Json = Any
RECORDINGS = {
    name: json.loads(recording.encode(recording.named(name))) for name in ("t4x2", "h100-mig")
}
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 0.5]),
    st.sampled_from(["", "x" * 100, "GPU-1", "\0", "../..", "00000000:FF:1F.7", "ä"]),
    st.just([]),
    st.just({}),
)
Path_ = tuple[str | int, ...]


def places(value: Json, path: Path_ = ()) -> Iterator[Path_]:
    """The path of every value."""
    if path:
        yield path
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, one in inner:
        yield from places(one, (*path, key))


PLACES = {
    name: [path for path in places(one) if path[0] == "facts"] for name, one in RECORDINGS.items()
}


@st.composite
def edited(draw: st.DrawFn) -> Json:
    name = draw(st.sampled_from(sorted(RECORDINGS)))
    document = json.loads(json.dumps(RECORDINGS[name]))
    for path in draw(st.lists(st.sampled_from(PLACES[name]), min_size=1, max_size=4)):
        value = document
        try:
            for key in path[:-1]:
                value = value[key]
            if draw(st.booleans()) or isinstance(value, list):
                value[path[-1]] = draw(ODD)
            else:
                value.pop(path[-1], None)
        except (KeyError, IndexError, TypeError, AttributeError):
            continue  # an earlier edit removed the place
    return document


def refusal_of(act: Callable[[], object]) -> str:
    """Why it was refused; empty if it was not."""
    try:
        act()
    except DriverError as error:
        return str(error) or "no reason was given"
    return ""


def play(file: Path) -> None:
    context = BackendContext("node-1", RecordedOptions(file=str(file)))
    if refusal := refusal_of(lambda: RecordedBackend(context)):
        assert str(file) in refusal
        return
    backend = RecordedBackend(context)
    found = as_scanned(backend.scan())
    plan = plan_pool(found, kept=(), driver="gpu.example.com")
    for device in plan.devices:
        lease = Lease(ClaimUid("0c7a52d5-55a0-4d1b-9a3a-0d5f3f6f0001"), "gpu", device)
        assert refusal_of(partial(backend.configure, lease)) != "no reason was given"
        backend.in_use(device)
        backend.reset(lease)


@given(document=edited())
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_an_edited_snapshot_is_refused_or_played(tmp_path: Path, document: Json) -> None:
    file = tmp_path / "node.json"
    file.write_text(json.dumps(document))
    play(file)


@pytest.mark.parametrize("name", sorted(RECORDINGS))
@given(part=st.floats(0, 1))
@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_snapshot_that_was_cut_short_is_refused(tmp_path: Path, name: str, part: float) -> None:
    whole = json.dumps(RECORDINGS[name]).encode()
    file = tmp_path / "node.json"
    file.write_bytes(whole[: int(part * (len(whole) - 1))])
    with pytest.raises(Fatal, match=r"node\.json"):
        RecordedBackend(BackendContext("node-1", RecordedOptions(file=str(file))))
