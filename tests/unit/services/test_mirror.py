# SPDX-License-Identifier: Apache-2.0
"""The mirror stays true, whoever is first: the watch or the answer to a write; and it survives every end of a watch."""

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from dra_driver.errors import DriverError, Permanent, Temporary
from dra_driver.kube.base import Expired, NotServed, SliceEvent, SliceList
from dra_driver.model.api.resource_slice import ResourceSliceSpec
from dra_driver.model.events import DriverEvent, PublishFailed, ThreadFailed
from dra_driver.model.slices import CreateSlice, DeleteSlice, StoredSlice, UpdateSlice
from dra_driver.services.mirror import SliceMirror
from dra_driver.testing.builders import A_POOL
from tests.support.api_values import slice_spec
from tests.support.scripted_api import ScriptedApi, Step


def spec(generation: int) -> ResourceSliceSpec:
    return slice_spec(A_POOL, generation, 1, ())


class Mirrored:
    """A mirror, its API server, and how often it told a change. Each request to the server takes `seconds`."""

    def __init__(self, *, expects_claims: bool = True) -> None:
        self.api = ScriptedApi()
        self.now = 0.0
        self.seconds = 10.0
        self.changes = 0
        self.events: list[DriverEvent] = []
        self.mirror = SliceMirror(
            self.api,
            changed=self._changed,
            expects_claims=expects_claims,
            observe=self.events.append,
            clock=self._clock,
        )

    def follow(self, *steps: Step) -> None:
        self.api.follow(self.mirror.watch, *steps)

    def seen(self) -> dict[str, int]:
        return {
            name: stored.spec.pool.generation
            for name, stored in (self.mirror.present() or {}).items()
        }

    def _changed(self) -> None:
        self.changes += 1

    def _clock(self) -> float:
        self.now += self.seconds
        return self.now


@pytest.fixture
def node() -> Mirrored:
    return Mirrored()


def test_before_the_first_list_nothing_is_known(node: Mirrored):
    assert node.mirror.present() is None
    node.follow()
    assert node.mirror.present() == {}


def test_what_others_create_change_and_delete_is_followed(node: Mirrored):
    node.api.put("a", spec(1))
    seen: list[dict[str, int]] = []

    def look() -> None:
        seen.append(node.seen())

    node.follow(
        look,
        lambda: node.api.put("b", spec(2)),
        look,
        lambda: node.api.put("a", spec(3)),
        look,
        lambda: node.api.lose("b"),
        look,
    )
    assert seen == [{"a": 1}, {"a": 1, "b": 2}, {"a": 3, "b": 2}, {"a": 3}]
    assert node.changes == 4


def test_our_own_writes_are_known_at_once_and_are_no_news(node: Mirrored):
    def write() -> None:
        created = node.mirror.write(CreateSlice("a", spec(1)))
        assert created is not None
        assert node.seen() == {"a": 1}
        updated = node.mirror.write(UpdateSlice(created, spec(2)))
        assert updated is not None
        assert node.seen() == {"a": 2}
        node.mirror.write(CreateSlice("b", spec(1)))
        node.mirror.write(DeleteSlice(updated))
        assert node.seen() == {"b": 1}

    node.follow(write, lambda: None)
    assert node.seen() == {"b": 1}


def test_what_was_deleted_while_its_creation_was_answered_stays_deleted(node: Mirrored):
    def deleted_meanwhile() -> None:
        stored = node.api.slices["a"]
        take(node, SliceEvent("ADDED", stored.resource_version, stored))
        take(node, SliceEvent("DELETED", "9", replace(stored, resource_version="9")))

    def write() -> None:
        node.api.on_write = deleted_meanwhile
        node.mirror.write(CreateSlice("a", spec(1)))
        assert node.seen() == {}

    node.follow(write)


def take(node: Mirrored, event: SliceEvent) -> None:
    """What the watch thread does while the writer waits for its answer."""
    node.mirror._take(event)


def test_what_was_changed_while_a_write_was_answered_stays_changed(node: Mirrored):
    def changed_meanwhile() -> None:
        stored = node.api.slices["a"]
        take(node, SliceEvent("MODIFIED", "9", replace(stored, resource_version="9", spec=spec(5))))

    def write() -> None:
        node.api.on_write = changed_meanwhile
        node.mirror.write(CreateSlice("a", spec(1)))
        assert node.seen() == {"a": 5}

    node.follow(write)


def test_an_answer_older_than_the_last_list_is_not_taken(node: Mirrored):
    def listed_meanwhile() -> None:
        node.api.lose("a")
        node.mirror._list()

    def write() -> None:
        node.api.on_write = listed_meanwhile
        node.mirror.write(CreateSlice("a", spec(1)))
        assert node.seen() == {}

    node.follow(write)


def test_a_look_of_the_writers_takes_nothing_back_that_the_watch_told_meanwhile(node: Mirrored):
    node.api.put("gone", spec(1))
    node.api.put("changed", spec(1))
    listed, before = node.api.list_slices, node.changes

    def then_the_watch_tells() -> SliceList:
        found = listed()
        gone, changed = node.api.slices["gone"], node.api.slices["changed"]
        take(node, SliceEvent("DELETED", "7", replace(gone, resource_version="7")))
        take(
            node, SliceEvent("MODIFIED", "8", replace(changed, resource_version="8", spec=spec(2)))
        )
        take(node, SliceEvent("ADDED", "9", StoredSlice("new", "uid-new", "9", spec(3))))
        return found

    def look() -> None:
        nonlocal before
        before = node.changes
        node.api.list_slices = then_the_watch_tells
        node.mirror.look_again()
        node.api.list_slices = listed

    node.follow(look)
    assert node.seen() == {"changed": 2, "new": 3}
    assert node.changes == before + 3  # the look itself wakes nobody


def test_a_look_of_the_writers_finds_what_the_watch_has_not_told_yet(node: Mirrored):
    node.api.put("gone", spec(1))
    node.api.put("changed", spec(1))

    def look() -> None:
        node.api.lose("gone")
        node.api.put("changed", spec(2))
        node.api.put("new", spec(3))
        node.mirror.look_again()
        assert node.seen() == {"changed": 2, "new": 3}

    node.follow(look)


def test_a_look_that_is_older_than_the_list_of_a_new_watch_counts_for_nothing(node: Mirrored):
    node.api.put("gone", spec(1))
    listed = node.api.list_slices

    def then_the_watch_begins_anew() -> SliceList:
        found = listed()
        node.api.list_slices = listed
        node.api.lose("gone")
        node.mirror._list()
        return found

    def look() -> None:
        node.api.list_slices = then_the_watch_begins_anew
        node.mirror.look_again()
        assert node.seen() == {}

    node.follow(look)


def test_the_deletion_of_an_earlier_slice_of_that_name_changes_nothing(node: Mirrored):
    node.api.put("a", spec(1))

    def write() -> None:
        old = node.api.slices["a"]
        node.mirror.write(DeleteSlice(old))
        node.mirror.write(CreateSlice("a", spec(2)))
        before = node.changes
        take(node, SliceEvent("MODIFIED", "1", old))
        take(node, SliceEvent("DELETED", "2", old))
        assert (node.seen(), node.changes) == ({"a": 2}, before)

    node.follow(write)


def test_a_deletion_that_was_answered_late_does_not_remove_the_next_slice(node: Mirrored):
    node.api.put("a", spec(1))

    def made_anew() -> None:
        node.api.on_write = lambda: None
        node.api.put("a", spec(3))
        take(node, SliceEvent("ADDED", "8", replace(node.api.slices["a"], resource_version="8")))

    def write() -> None:
        node.api.on_write = made_anew
        node.mirror.write(DeleteSlice(node.api.slices["a"]))
        assert node.seen() == {"a": 3}

    node.follow(write)


def test_resource_versions_that_are_no_numbers_are_taken_as_they_come(node: Mirrored):
    def write() -> None:
        for version, generation in (("x1", 1), ("x0", 2)):
            stored = StoredSlice("a", "uid", version, spec(generation))
            take(node, SliceEvent("MODIFIED", version, stored))
            assert node.seen() == {"a": generation}
        before = node.changes
        take(node, SliceEvent("MODIFIED", "x0", stored))
        assert node.changes == before

    node.follow(write)


def test_a_watch_that_ends_in_its_time_goes_on_where_it_was(node: Mirrored):
    node.seconds = 300.0
    node.api.put("a", spec(1))
    watch, rounds = node.api.watch_slices, []

    def ended_by_the_server(version, stop):
        rounds.append(version)
        if len(rounds) < 3:
            yield SliceEvent("BOOKMARK", str(100 * len(rounds)), None)
        else:
            yield from watch(version, stop)

    node.api.watch_slices = ended_by_the_server
    node.follow()
    assert rounds == ["1", "100", "200"]
    assert node.api.requests == ["list", "watch 200"]
    assert node.api.pauses == []


def test_after_a_watch_that_the_server_ends_too_soon_everything_is_listed_again(node: Mirrored):
    """It was restarted, perhaps with the data of yesterday: the next watch begins where those are."""
    node.seconds = 0.1
    node.api.put("a", spec(1))
    watch, rounds = node.api.watch_slices, []

    def ended_too_soon(version, stop):
        rounds.append(version)
        if len(rounds) < 3:
            node.api.slices.clear()
            yield SliceEvent("BOOKMARK", "1000", None)
        else:
            yield from watch(version, stop)

    node.api.watch_slices = ended_too_soon
    node.follow(lambda: None)
    assert node.seen() == {}
    assert rounds == ["1", "1", "1"]
    assert node.api.requests == ["list", "list", "list", "watch 1"]
    assert node.api.pauses == [1.0, 2.0]


def test_after_410_everything_is_listed_again(node: Mirrored):
    node.api.fail("watch", Expired("too old"))
    with capture_logs() as logs:
        node.follow(lambda: None)
    assert node.api.requests == ["list", "watch 0", "list", "watch 0"]
    assert node.api.pauses == [1.0]
    assert [line["event"] for line in logs] == ["watch_expired"]
    assert node.events == []


@pytest.mark.parametrize(
    ("error", "pauses"),
    [
        (Temporary("down"), [1.0, 2.0, 5.0, 10.0, 30.0, 30.0]),
        (Temporary("throttled", retry_after_seconds=7.0), [7.0, 7.0, 7.0, 10.0, 30.0, 30.0]),
        (Permanent("forbidden"), [1.0, 2.0, 5.0, 10.0, 30.0, 60.0]),
    ],
)
def test_errors_are_told_and_tried_again_after_growing_times(
    node: Mirrored, error: DriverError, pauses: list[float]
):
    node.api.fail("list", *[error] * 6)
    node.follow(lambda: None)
    assert node.api.pauses == pauses
    assert node.events == [
        PublishFailed(f"cannot follow the slices of this node: {error}", pause) for pause in pauses
    ]


def test_after_a_watch_that_lived_long_the_first_pause_is_short_again(node: Mirrored):
    node.api.fail("list", *[Temporary("down")] * 3)
    node.api.fail("watch", Temporary("cut"), Temporary("cut"))

    def long_ago() -> None:
        node.now += 61

    watch = node.api.watch_slices

    def lives_long(version, stop):
        long_ago()
        yield from watch(version, stop)

    node.api.watch_slices = lives_long
    node.follow(lambda: None)
    assert node.api.pauses == [1.0, 2.0, 5.0, 1.0, 1.0]


def test_a_cluster_without_the_api_is_told_once_and_asked_ever_more_seldom(node: Mirrored):
    node.api.fail("list", *[NotServed("no resource.k8s.io here")] * 6)
    with capture_logs() as logs:
        node.follow(lambda: None)
    assert node.api.pauses == [10.0, 30.0, 60.0, 120.0, 300.0, 300.0]
    assert node.events == [PublishFailed("no resource.k8s.io here", 10.0)]
    assert [(line["event"], line["error"]) for line in logs] == [
        ("resource_api_not_served", "no resource.k8s.io here")
    ]
    node.api.fail("list", NotServed("gone again"))
    node.follow(lambda: None)
    assert node.events[1:] == [PublishFailed("gone again", 10.0)]


def test_a_cluster_without_the_api_is_no_failure_where_the_admin_chose_another_one():
    node = Mirrored(expects_claims=False)
    node.api.fail("list", *[NotServed("no resource.k8s.io here")] * 2)
    with capture_logs() as logs:
        node.follow(lambda: None)
    assert node.events == []
    assert logs == [
        {
            "event": "resource_api_not_served",
            "log_level": "info",
            "error": "no resource.k8s.io here",
            "next_step": "nothing has to be done: the devices are offered by the device plugin API, as the configuration says (path)",
        }
    ]


def test_a_version_that_is_always_too_old_is_listed_ever_more_seldom(node: Mirrored):
    node.api.fail("watch", *[Expired("too old")] * 6)
    node.follow(lambda: None)
    assert node.api.pauses == [1.0, 2.0, 5.0, 10.0, 30.0, 30.0]


def test_watches_that_always_end_at_once_are_begun_ever_more_seldom(node: Mirrored):
    node.seconds = 0.1
    watch, rounds = node.api.watch_slices, []

    def ended_too_soon(version, stop):
        rounds.append(version)
        if len(rounds) == 8:
            yield from watch(version, stop)
        elif len(rounds) == 6:
            node.now += 61  # this one lived

    node.api.watch_slices = ended_too_soon
    node.follow(lambda: None)
    assert node.api.pauses == [1.0, 2.0, 5.0, 10.0, 30.0, 1.0, 2.0]


def test_what_nobody_foresaw_is_counted_said_and_tried_again(node: Mirrored):
    listed, broken = node.api.list_slices, [ZeroDivisionError("by chance")] * 3

    def breaks() -> SliceList:
        if broken:
            raise broken.pop()
        return listed()

    node.api.list_slices = breaks
    with capture_logs() as logs:
        node.follow(lambda: None)
    assert node.api.pauses == [1.0, 2.0, 5.0]
    assert node.events == [
        ThreadFailed("watch", "ZeroDivisionError: by chance", pause) for pause in (1.0, 2.0, 5.0)
    ]
    assert [line["event"] for line in logs] == ["watch_failed_unexpectedly"] * 3
    assert node.mirror.present() == {}


def test_a_stop_during_a_pause_ends_the_watch(node: Mirrored):
    node.api.fail("list", Temporary("down"))
    node.follow()
    assert node.api.requests == ["list"]
