# SPDX-License-Identifier: Apache-2.0
"""The state file against a dictionary: any sequence of changes, some undone, some across a restart."""

import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dra_driver.errors import Permanent
from dra_driver.model.lease import Hardware
from dra_driver.model.state import Phase, PreparedClaim, PreparedDevice
from dra_driver.node.state import StateStore
from dra_driver.testing.builders import A_POOL, a_ref, a_uid
from tests.support.examples import examples

NAMES = st.sampled_from(["a", "b", "c"])
DEVICES = st.lists(
    st.tuples(st.sampled_from(["gpu-0", "gpu-1"]), st.sampled_from(["", "s1"]), st.booleans()),
    max_size=3,
    unique_by=lambda device: device[:2],
)
ACTIONS = st.one_of(
    st.tuples(st.just("start"), NAMES, DEVICES),
    st.tuples(st.just("prepared"), NAMES),
    st.tuples(st.just("forget"), NAMES),
    st.tuples(st.just("restart")),
)


def a_row(name: str, devices) -> PreparedClaim:
    entries = tuple(
        PreparedDevice(("r",), A_POOL, device, (), "", share, admin)
        for device, share, admin in devices
    )
    return PreparedClaim(a_ref(name), Phase.STARTED, "boot-1", entries, name)


class AbortedError(Exception):
    pass


def apply(store: StateStore, model: dict[str, PreparedClaim], action, *, abort: bool) -> None:
    changed = dict(model)
    verb, name = action[0], action[1]
    with store.transaction("started") as transaction:
        if verb == "start":
            row = a_row(name, action[2])
            taken = {key for other, claim in model.items() if other != name for key in claim.owned}
            mine = [key for key in row.owned if key.share]
            whole = {(key.pool, key.device) for key in (*taken, *row.owned) if not key.share}
            shared = {(key.pool, key.device) for key in (*taken, *mine) if key.share}
            if taken & set(row.owned) or whole & shared:
                expected = True
            else:
                expected = False
                changed[name] = row
            try:
                transaction.start(row)
            except Permanent:
                assert expected
                raise
            assert not expected
        elif verb == "forget":
            transaction.forget(a_uid(name))
            changed.pop(name, None)
        else:
            transaction.set_phase(a_uid(name), Phase.PREPARED)
            if name in changed:
                old = changed[name]
                changed[name] = PreparedClaim(
                    old.ref, Phase.PREPARED, "boot-1", old.devices, old.cdi_spec
                )
        if abort:
            raise AbortedError
    model.clear()
    model.update(changed)


@examples(60)
@given(st.lists(st.tuples(ACTIONS, st.booleans()), max_size=12))
def test_the_file_says_what_a_dictionary_would(actions) -> None:
    model: dict[str, PreparedClaim] = {}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "state.db"
        store = StateStore(path, boot_id="boot-1")
        for action, abort in actions:
            if action[0] == "restart":
                store.close()
                store = StateStore(path, boot_id="boot-1")
                continue
            with suppress(Permanent, AbortedError):
                apply(store, model, action, abort=abort)
            with store.reading() as state:
                assert {claim.ref.name: claim for claim in state.all_claims()} == model
                assert state.owned_devices(A_POOL) == {
                    key.device for claim in model.values() for key in claim.owned
                }
        store.close()


HARDWARE = {
    "gpu-0": Hardware("GPU-0"),
    "left": Hardware("GPU-0", ("s0", "s1")),
    "lower": Hardware("GPU-0", ("s1", "s2")),
    "right": Hardware("GPU-0", ("s3",)),
    "gpu-1": Hardware("GPU-1"),
}
WANTED = st.tuples(st.sampled_from(sorted(HARDWARE)), st.sampled_from(["", "s1", "s2"]))


def excludes(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Whether two owners cannot be at once."""
    if one[0] == other[0]:
        return not (one[1] and other[1]) or one[1] == other[1]
    first, second = HARDWARE[one[0]], HARDWARE[other[0]]
    apart = first.parts and second.parts and not {*first.parts} & {*second.parts}
    return first.parent == second.parent and not apart


@examples(60)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.none() | WANTED), max_size=12), st.booleans())
def test_no_two_claims_ever_own_one_piece_of_hardware(actions, again: bool) -> None:
    """A claim that wants nothing ends."""
    model: dict[str, tuple[str, str]] = {}
    with tempfile.TemporaryDirectory() as directory:
        store = StateStore(Path(directory) / "state.db", boot_id="boot-1")
        with store.transaction("learned") as transaction:
            transaction.learn_hardware(A_POOL, HARDWARE)
        for name, wanted in actions:
            others = [owned for other, owned in model.items() if other != name]
            free = wanted is None or not any(excludes(wanted, owned) for owned in others)
            with suppress(Permanent), store.transaction("started") as transaction:
                if wanted is None:
                    transaction.forget(a_uid(name))
                else:
                    transaction.start(a_row(name, [(*wanted, False)]))
                assert free
                if again:  # each scan says the same
                    transaction.learn_hardware(A_POOL, HARDWARE)
                model.pop(name, None)
                model |= {} if wanted is None else {name: wanted}
            with store.reading() as state:
                owned = {
                    claim.ref.name: (key.device, key.share)
                    for claim in state.all_claims()
                    for key in claim.owned
                }
            assert owned == model
        store.close()
