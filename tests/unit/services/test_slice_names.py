# SPDX-License-Identifier: Apache-2.0
"""A name that somebody else has is looked at, told on the Node and evaded; which one was taken instead is found again."""

import pytest

from dra_driver.errors import DriverError
from dra_driver.kube.base import Conflict, Invalid, NameTaken
from dra_driver.model.events import NameEvaded, PublishFailed, SliceLost
from dra_driver.model.slices import SliceHolder
from dra_driver.planning.reconcile import NAME_VARIANTS, slice_name
from dra_driver.services.slice_names import SliceNames
from dra_driver.testing.builders import A_DRIVER, A_NODE
from tests.support.publishing_node import FIRST, SECOND, Node, spec

INSTEAD = slice_name(0, A_DRIVER, A_NODE, variant=1)
FOUND = "a slice of driver gpu.dra-driver.dev for node node-2, pool node-2, UID uid-7, created 2026-01-02T03:04:05Z"


def a_stranger(name: str = FIRST) -> SliceHolder:
    return SliceHolder(name, "uid-7", A_DRIVER, "node-2", "node-2", "2026-01-02T03:04:05Z")


def taken(*names: str) -> Node:
    node = Node(0, 1)
    node.api.strangers = {name: a_stranger(name) for name in names}
    return node


def test_a_taken_name_is_looked_at_told_and_evaded_in_one_go():
    node = taken(FIRST)
    node.follow(node.step)
    assert node.stored() == {INSTEAD: spec(0, 1)}
    assert node.api.requests[2:] == [
        f"create {FIRST}",
        "list",
        f"get {FIRST}",
        f"create {INSTEAD}",
        "event",
    ]
    assert node.told(NameEvaded) == [NameEvaded(FIRST, FOUND, INSTEAD)]
    (event,) = node.api.node_events
    assert (event.type, event.reason) == ("Warning", "SliceNameTaken")
    assert event.message == (
        f"the name {FIRST} of this node's ResourceSlice belongs to somebody else: {FOUND}; this node publishes under {INSTEAD} "
        f"instead. Find out who made it (kubectl get resourceslice {FIRST} -o yaml) and delete it"
    )
    assert node.publisher.published_once.is_set()


def test_the_name_that_was_taken_instead_is_found_again_after_a_restart():
    node = taken(FIRST)
    node.follow(node.step)
    node.api.strangers.clear()
    node.restarted()
    node.follow(node.step, node.has(0))
    assert node.stored() == {INSTEAD: spec(0)}
    assert node.writes() == [f"create {FIRST}", f"create {INSTEAD}", f"update {INSTEAD}"]


def test_the_name_that_was_taken_instead_is_kept_when_the_slice_is_lost():
    node = taken(FIRST)
    node.follow(node.step, lambda: node.api.lose(INSTEAD), node.step, node.after(1))
    assert node.stored() == {INSTEAD: spec(0, 1)}
    assert node.writes() == [f"create {FIRST}", f"create {INSTEAD}", f"create {INSTEAD}"]
    assert node.told(SliceLost) == [SliceLost(INSTEAD, pytest.approx(0.2))]


def test_only_the_slice_whose_name_is_taken_has_another():
    node = Node(*range(65))
    node.api.strangers = {SECOND: a_stranger(SECOND)}
    node.follow(node.step)
    assert list(node.stored()) == [FIRST, slice_name(1, A_DRIVER, A_NODE, variant=1)]
    assert {content.pool.resource_slice_count for content in node.stored().values()} == {2}


def test_a_name_that_is_ours_after_all_is_not_evaded():
    """The answer to its creation was lost, so it is there and we do not know."""
    node = Node(0)

    def lost() -> None:
        node.api.on_write = lambda: None
        raise NameTaken("exists", name=FIRST)

    node.api.on_write = lost
    node.follow(node.step)
    assert node.stored() == {FIRST: spec(0)}
    assert node.told(NameEvaded) == []
    assert f"get {FIRST}" not in node.api.requests


def test_a_name_that_became_ours_since_we_looked_is_not_evaded():
    node = taken(FIRST)
    ours = SliceHolder(FIRST, "uid-8", A_DRIVER, A_NODE, A_NODE, "")
    node.api.strangers[FIRST] = ours
    node.follow(node.step)
    assert node.told(NameEvaded) == []
    node.api.strangers.clear()
    node.follow(node.after(1))
    assert node.stored() == {FIRST: spec(0, 1)}


def test_a_name_that_is_free_again_when_it_is_looked_at_is_tried_again():
    node = Node(0)
    node.api.fail("create", NameTaken("exists", name=FIRST))
    node.follow(node.step)
    assert node.stored() == {FIRST: spec(0)}
    assert node.told(NameEvaded) == []


@pytest.mark.parametrize("error", [Invalid("forbidden"), Conflict("odd")])
def test_a_holder_that_cannot_be_looked_at_is_evaded_all_the_same(error: DriverError):
    node = taken(FIRST)
    node.api.fail("get", error)
    node.follow(node.step)
    assert node.stored() == {INSTEAD: spec(0, 1)}
    assert node.told(NameEvaded) == [
        NameEvaded(FIRST, f"it could not be looked at: {error}", INSTEAD)
    ]


def test_when_every_name_is_taken_it_is_tried_ever_more_seldom_and_each_holder_told_once():
    names = [slice_name(0, A_DRIVER, A_NODE, variant=variant) for variant in range(NAME_VARIANTS)]
    node = taken(*names)
    for _ in range(2):
        node.follow(node.step, *[node.after(60)] * 10)
    assert set(node.writes()) == {f"create {name}" for name in names}
    assert len(node.api.node_events) == NAME_VARIANTS
    assert node.told(PublishFailed)[-1].delay_seconds == 30.0
    node.api.strangers.clear()
    node.follow(node.after(60))
    assert [list(content.devices) for content in node.stored().values()] == [
        list(spec(0, 1).devices)
    ]


def test_after_the_last_name_comes_the_first_again():
    names = SliceNames(A_DRIVER, A_NODE)
    tried = [names.choose(1, ())[0]]
    for _ in range(NAME_VARIANTS):
        tried.append(names.evade(tried[-1], names.choose(1, ())))
    assert tried[0] == tried[-1] == FIRST
    assert len(set(tried)) == NAME_VARIANTS


def test_of_two_slices_of_ours_with_one_index_the_first_name_stays():
    assert SliceNames(A_DRIVER, A_NODE).choose(1, {FIRST, INSTEAD}) == (FIRST,)
