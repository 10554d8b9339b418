# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path

import pytest

from dra_driver.backends.journal import HardwareJournal
from dra_driver.errors import Permanent
from dra_driver.model.ids import NO_SHARE, ClaimUid, DeviceName, ShareId
from tests.support.hardware import Overridden, Runtime, Seen, Use, Witness, seen

GPU, ONE, TWO = DeviceName("gpu-0"), ClaimUid("one"), ClaimUid("two")
LEFT, RIGHT = ShareId("left"), ShareId("right")


class Story:
    """What the driver and a container runtime do, one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.driver = HardwareJournal(path)
        self.runtime = Runtime(path)

    def configure(self, claim: ClaimUid, share: ShareId = NO_SHARE) -> None:
        self.driver.configured(GPU, claim, share)

    def reset(self, claim: ClaimUid, share: ShareId = NO_SHARE) -> None:
        self.driver.reset(GPU, claim, share)

    def open(self, container: str, claim: ClaimUid, share: ShareId = NO_SHARE) -> None:
        self.runtime.opened(container, [Use(GPU, claim, share)])

    def seen(self) -> Seen:
        return seen(self.path)


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path / "hardware.jsonl")


def test_without_a_journal_nothing_happened(story: Story) -> None:
    assert story.seen() == Seen()


def test_one_claim_after_the_other_is_no_misuse(story: Story) -> None:
    for claim in (ONE, TWO):
        story.configure(claim)
        story.open(f"container of {claim}", claim)
        story.runtime.closed(f"container of {claim}")
        story.reset(claim)
    assert story.seen() == Seen()


def test_a_device_that_is_reset_under_a_container_is_misused(story: Story) -> None:
    story.configure(ONE)
    story.open("a", ONE)
    story.reset(ONE)
    assert story.seen().misuse == ["gpu-0 of claim one was reset while container a had it open"]


def test_a_device_that_is_reset_for_another_claim_under_a_container_is_misused(
    story: Story,
) -> None:
    story.configure(ONE)
    story.open("a", ONE)
    story.reset(TWO)
    assert story.seen() == Seen(
        open={"a": {Use(GPU, ONE)}},
        misuse=["gpu-0 of claim two was reset while container a had gpu-0 of claim one open"],
    )


@pytest.mark.parametrize(
    ("reset", "used", "misused"),
    [
        (RIGHT, LEFT, False),
        (LEFT, LEFT, True),
        (NO_SHARE, LEFT, True),
        (LEFT, NO_SHARE, True),
    ],
)
def test_a_reset_of_one_share_reaches_no_other(
    story: Story, reset: ShareId, used: ShareId, misused: bool
) -> None:
    story.configure(ONE, used)
    story.open("a", ONE, used)
    story.reset(TWO, reset)
    assert len(story.seen().misuse) == misused
    assert (Use(GPU, ONE, used) in story.seen().configured) == (not misused)


def test_a_reset_for_another_claim_undoes_what_was_set_up(story: Story) -> None:
    story.configure(ONE)
    story.reset(TWO)
    assert story.seen() == Seen()
    story.open("a", ONE)
    assert story.seen().misuse == [
        "container a opened gpu-0 of claim one, which was not set up for it"
    ]


def test_a_device_that_is_set_up_for_another_claim_without_a_reset_is_misused(
    story: Story,
) -> None:
    story.configure(ONE)
    story.configure(ONE)  # again, as after a crash
    story.runtime.opened("monitor", [Use(GPU, TWO)], admin=True)
    assert story.seen() == Seen(configured={Use(GPU, ONE)})
    story.configure(TWO)
    assert story.seen() == Seen(
        configured={Use(GPU, TWO)}, overridden=[Overridden(Use(GPU, TWO), Use(GPU, ONE))]
    )
    story.open("a", ONE)  # its settings are gone
    assert len(story.seen().misuse) == 1


def test_a_device_that_is_set_up_or_opened_for_another_claim_is_misused(story: Story) -> None:
    story.configure(ONE)
    story.open("a", ONE)
    story.configure(TWO)
    story.open("b", TWO)
    assert story.seen().misuse == [
        "gpu-0 of claim two was set up while container a had gpu-0 of claim one open",
        "container b opened gpu-0 of claim two while container a had gpu-0 of claim one open",
    ]


def test_a_device_that_nobody_set_up_is_misused(story: Story) -> None:
    story.open("a", ONE)
    assert story.seen().misuse == [
        "container a opened gpu-0 of claim one, which was not set up for it"
    ]


def test_what_another_claim_has_set_up_does_not_count(story: Story) -> None:
    story.configure(TWO)
    story.open("a", ONE)
    assert story.seen().misuse == [
        "container a opened gpu-0 of claim one, which was not set up for it"
    ]


def test_shares_live_side_by_side_but_not_beside_the_whole(story: Story) -> None:
    story.configure(ONE, LEFT)
    story.open("a", ONE, LEFT)
    story.configure(TWO, RIGHT)
    story.open("b", TWO, RIGHT)
    assert story.seen().misuse == []
    story.configure(TWO)
    assert story.seen().misuse == [
        "gpu-0 of claim two was set up while container a had gpu-0 of claim one, share left open"
    ]
    assert [str(one) for one in story.seen().overridden] == [
        "gpu-0 of claim two was set up over what was set up for gpu-0 of claim one, share left"
    ]


def test_one_share_in_two_claims_is_misuse(story: Story) -> None:
    story.configure(ONE, LEFT)
    story.open("a", ONE, LEFT)
    story.configure(TWO, LEFT)
    assert len(story.seen().misuse) == len(story.seen().overridden) == 1


def test_admin_access_looks_on(story: Story) -> None:
    story.configure(ONE)
    story.open("a", ONE)
    story.runtime.opened("monitor", [Use(GPU, TWO)], admin=True)
    story.runtime.closed("a")
    story.reset(ONE)
    assert story.seen() == Seen()


def test_a_reboot_ends_containers_and_settings(story: Story) -> None:
    story.configure(ONE)
    story.open("a", ONE)
    story.runtime.booted()
    story.configure(TWO)
    assert story.seen() == Seen(configured={Use(GPU, TWO)})


def test_other_devices_are_others(story: Story) -> None:
    story.configure(ONE)
    story.open("a", ONE)
    story.driver.configured(DeviceName("gpu-1"), TWO, NO_SHARE)
    assert story.seen().misuse == []


def test_an_unknown_event_is_told(story: Story) -> None:
    story.driver.write("explode")
    with pytest.raises(ValueError, match="explode"):
        story.seen()


def test_a_journal_that_cannot_be_written_fails_the_claim(tmp_path: Path) -> None:
    journal = HardwareJournal(tmp_path / "missing" / "hardware.jsonl")
    with pytest.raises(Permanent, match="cannot write the journal of the simulated hardware"):
        journal.configured(GPU, ONE, NO_SHARE)


def test_lines_are_whole(story: Story) -> None:
    story.configure(ONE, LEFT)
    assert [json.loads(line) for line in story.path.read_text().splitlines()] == [
        {"event": "configure", "device": "gpu-0", "claim": "one", "share": "left"}
    ]


def test_a_witness_reads_on_and_leaves_half_a_line_for_later(story: Story) -> None:
    witness = Witness(story.path)
    story.configure(ONE)
    assert witness.look().configured == {Use(GPU, ONE)}
    whole = story.path.read_bytes()
    story.reset(ONE)
    written = story.path.read_bytes()
    story.path.write_bytes(written[: len(whole) + 5])
    assert witness.look().configured == {Use(GPU, ONE)}
    story.path.write_bytes(written)
    assert witness.look().configured == set()


def test_partitions_of_one_gpu_are_apart_and_the_whole_gpu_is_not(tmp_path: Path) -> None:
    journal = HardwareJournal(tmp_path / "journal")
    left, right = DeviceName("gpu-0-mig-3g-40gb-0"), DeviceName("gpu-0-mig-3g-40gb-4")
    journal.configured(left, ONE, NO_SHARE)
    journal.configured(right, TWO, NO_SHARE)
    assert seen(tmp_path / "journal").overridden == []
    Runtime(tmp_path / "journal").opened("a", [Use(left, ONE)])
    journal.configured(GPU, ClaimUid("three"), NO_SHARE)
    found = seen(tmp_path / "journal")
    assert [one.before for one in found.overridden] == [Use(left, ONE), Use(right, TWO)]
    assert found.misuse == [
        "gpu-0 of claim three was set up while container a had gpu-0-mig-3g-40gb-0 of claim one open"
    ]


def test_the_mode_of_a_gpu_is_the_first_lease_s_to_switch_on_and_the_last_one_s_to_switch_off(
    story: Story,
) -> None:
    for claim, share, first in ((ONE, LEFT, True), (TWO, RIGHT, False)):
        story.driver.mode_on(GPU, claim, share, first=first)
        story.configure(claim, share)
    assert story.seen().modes == {"gpu-0"}
    assert (story.seen().overridden, story.seen().without_mode()) == ([], set())
    story.reset(ONE, LEFT)
    story.reset(TWO, RIGHT)
    assert story.seen().wrong_modes() == [
        "gpu-0 is in the mode for partitions or shares, and none is set up"
    ]
    story.driver.mode_off(GPU, TWO, RIGHT)
    assert story.seen() == Seen()


def test_a_mode_that_is_switched_under_others_is_misuse(story: Story) -> None:
    for claim, share in ((ONE, LEFT), (TWO, RIGHT)):
        story.driver.mode_on(GPU, claim, share, first=True)
        story.configure(claim, share)
    assert [str(one) for one in story.seen().overridden] == [
        "gpu-0 of claim two, share right had the mode switched on under what was set up for gpu-0 of claim one, share left"
    ]
    story.open("a", ONE, LEFT)
    story.reset(TWO, RIGHT)
    story.driver.mode_off(GPU, TWO, RIGHT)
    assert story.seen().misuse == [
        "gpu-0 of claim two, share right had the mode switched off under container a"
    ]
    assert story.seen().without_mode() == {Use(GPU, ONE, LEFT)}
