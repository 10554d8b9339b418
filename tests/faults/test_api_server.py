# SPDX-License-Identifier: Apache-2.0
"""The API server is gone, slow, or talks nonsense: what pods see before, during and after."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from dra_driver.errors import Permanent, Temporary
from dra_driver.model.plan import Refusal
from dra_driver.testing.builders import a_claim, a_result
from dra_driver.testing.fake_api import Answer, CutWatch, Hold, Reset, WatchLine, refusal
from dra_driver.testing.fake_kubelet import KubeletError
from dra_driver.testing.stage import DRIVER, wait_for
from tests.faults.bed import Bed
from tests.support.local_node import LocalNode, ManualClock

GARBAGE = Answer(200, {"Content-Type": "application/json"}, b'{"kind": "Resour')
NO_JSON = Answer(200, {"Content-Type": "text/html"}, b"<html>login</html>")
PASSING = {
    "429": refusal(429),
    "429 with Retry-After": refusal(429, retry_after=1),
    "500": refusal(500),
    "503": refusal(503),
    "reset": Reset(),
    "garbage": GARBAGE,
    "no JSON": NO_JSON,
}


def test_a_passing_trouble_costs_a_claim_nothing(bed: Bed) -> None:
    bed.start_registered()
    wait_for(bed.slices, "the slices")
    for index, trouble in enumerate(PASSING.values()):
        claim = bed.claim(f"c{index}", [f"gpu-{index}"])
        bed.api.faults.add(trouble, verb="get", resource="resourceclaims")
        assert bed.kubelet.prepare(DRIVER, [claim], pod=f"default/p{index}")[claim.uid]


@pytest.mark.parametrize("verb", ["list", "create", "watch"])
@pytest.mark.parametrize("trouble", ["429", "garbage"])
def test_a_passing_trouble_delays_the_slices_and_no_claim(
    bed: Bed, trouble: str, verb: str
) -> None:
    bed.api.faults.add(PASSING[trouble], verb=verb, resource="resourceslices")
    bed.start_registered()
    claim = bed.claim("one", ["gpu-0"])
    assert bed.kubelet.prepare(DRIVER, [claim])[claim.uid]
    bed.settles()


def test_who_may_not_read_claims_is_told_so_and_nothing_is_left(bed: Bed) -> None:
    bed.start_registered()
    wait_for(bed.slices, "the slices")
    claim = bed.claim("one", ["gpu-0"])
    # Longer than what passes by itself.
    bed.api.faults.add(refusal(403), verb="get", resource="resourceclaims", times=1000)
    with pytest.raises(KubeletError, match=r"cannot read claim default/one .*cannot do this"):
        bed.kubelet.prepare(DRIVER, [claim])
    assert (bed.rows(), bed.cdi_files()) == ({}, {})
    bed.api.faults.clear()
    # The right is given: the kubelet's next try succeeds, without a restart.
    assert bed.kubelet.prepare(DRIVER, [claim])[claim.uid]


@pytest.mark.parametrize(
    "trouble",
    [
        CutWatch(clean=True),
        CutWatch(clean=False),
        WatchLine(b"nonsense\n"),
    ],
    ids=["half a line, clean", "half a line, reset", "nonsense"],
)
def test_half_a_watch_hides_nothing(bed: Bed, trouble: CutWatch | WatchLine) -> None:
    bed.api.faults.add(trouble, verb="watch", resource="resourceslices", times=2)
    bed.start_registered()
    (found,) = wait_for(bed.slices, "the slice")
    wait_for(
        lambda: len([one for one in bed.api.requests if one.verb == "watch"]) > 2, "a whole watch"
    )
    bed.api.remove("resourceslices", found["metadata"]["name"])
    wait_for(bed.slices, "the slice again")


def test_an_outage_stops_no_running_pod_and_ends_by_itself(bed: Bed) -> None:
    """Before: prepared. During: answered, released, devices vanish. After: new claims, slices as the hardware is."""
    running, ending, later = (bed.claim(f"c{index}", [f"gpu-{index}"]) for index in range(3))
    bed.start_registered()
    wait_for(bed.slices, "the slices")
    for claim in (running, ending):
        bed.kubelet.prepare(DRIVER, [claim], pod=f"default/{claim.name}")
    known = {running.uid: bed.running_claim(running.uid)}
    port = bed.stop_api()

    bed.kubelet.restart()
    assert bed.kubelet.prepare(DRIVER, [running], pod=f"default/{running.name}")[running.uid]
    bed.kubelet.unprepare(DRIVER, [ending], pod=f"default/{ending.name}")
    bed.vanish("gpu-7")
    # Others may have joined the claim; who did is asked when there is somebody to ask.
    held = frozenset({running.uid, ending.uid})
    assert bed.wrong(slices=None, running=known, living=held) == []
    assert bed.claims()[ending.uid].held is not None

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(bed.kubelet.prepare, DRIVER, [later], pod="default/later")
        bed.start_api(port)  # somewhere in the call's 35 s
        assert call.result()[later.uid]
    wait_for(
        lambda: [len(found["spec"]["devices"]) for found in bed.slices()] == [7], "the withdrawal"
    )
    bed.settles(running=known)
    assert ending.uid not in bed.claims()


def test_a_driver_that_starts_in_an_outage_repairs_and_releases_without_the_api_server(
    bed: Bed,
) -> None:
    running, ending = bed.claim("one", ["gpu-0"]), bed.claim("two", ["gpu-1"])
    bed.start_registered()
    wait_for(bed.slices, "the slices")
    for claim in (running, ending):
        bed.kubelet.prepare(DRIVER, [claim], pod=f"default/{claim.name}")
    known = {running.uid: bed.running_claim(running.uid)}
    port = bed.stop_api()
    bed.kill()
    for path in bed.cdi_dir.iterdir():
        path.unlink()
    bed.start_registered()
    bed.kubelet.unprepare(DRIVER, [ending], pod="default/two")
    held = frozenset({running.uid, ending.uid})
    assert bed.wrong(slices=None, running=known, living=held) == []
    bed.start_api(port)
    bed.settles(running=known)


def test_a_slow_api_server_delays_only_who_needs_it(bed: Bed) -> None:
    prepared, waiting = bed.claim("one", ["gpu-0"]), bed.claim("two", ["gpu-1"])
    bed.start_registered()
    wait_for(bed.slices, "the slices")
    bed.kubelet.prepare(DRIVER, [prepared], pod="default/one")
    slow = Event()
    bed.api.faults.add(Hold(slow), verb="get", resource="resourceclaims")
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(bed.kubelet.prepare, DRIVER, [waiting], pod="default/two")
        wait_for(
            lambda: (
                [one.verb for one in bed.api.requests if one.resource == "resourceclaims"].count(
                    "get"
                )
                == 2
            ),
            "the slow request",
        )
        bed.kubelet.unprepare(DRIVER, [prepared], pod="default/one")
        assert not call.done()
        slow.set()
        assert call.result()[waiting.uid]


# A minute of outage, on a clock of its own.


def test_a_minute_without_api_server_refuses_one_call_and_leaves_nothing(tmp_path) -> None:
    clock = ManualClock()
    node = LocalNode(tmp_path, clock=clock)
    running, new = node.add(a_claim("old"), a_claim("new", results=[a_result("gpu-1")]))
    answer = node.prepare(running)
    before = node.disk()
    back = clock.now + 60

    def fetch(ref):
        if clock.now < back:
            raise Temporary("no answer")
        return node.stored(ref)

    node.fetch = fetch
    begun = clock.now
    assert node.prepare(running) == answer
    refused = node.prepare(new)[new.uid]
    assert isinstance(refused, Refusal)
    assert refused.reason == "cannot read claim default/new (uid uid-new): no answer"
    assert clock.now - begun <= 35
    assert node.disk() == before
    clock.sleep(60)  # the kubelet tries again once a minute
    assert not isinstance(node.prepare(new)[new.uid], Refusal)
    assert node.violations() == []
    node.close()


@pytest.mark.parametrize("error", [Temporary("no answer"), Permanent("forbidden")])
def test_nothing_is_released_while_nobody_can_say_that_a_claim_is_gone(tmp_path, error) -> None:
    node = LocalNode(tmp_path, clock=ManualClock())
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    before = node.disk()

    def fetch(_ref):
        raise error

    node.fetch = fetch
    (open_question,) = node.sweep()
    assert str(error) in open_question
    assert node.disk() == before
    node.close()
