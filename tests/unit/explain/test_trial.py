# SPDX-License-Identifier: Apache-2.0
"""The allocator's answers and errors become values."""

from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.trial import TrialResult, try_on
from tests.e2e.fleet import device, devices, request, resource_slice
from tests.unit.explain.clusters import claim, state


def never() -> bool:
    return False


def test_the_allocators_answers_become_values() -> None:
    fleet = Fleet(state(resource_slice(devices(1))))
    here = fleet.state.nodes[0]
    assert try_on(fleet.allocator, here, [claim()], never).fits
    assert try_on(fleet.allocator, here, [claim(request(count=2))], never) == TrialResult()
    missing = try_on(fleet.allocator, here, [claim(request(deviceClassName="x"))], never)
    assert (missing.fits, missing.fatal, "device class x" in missing.error) == (False, True, True)
    stopped = try_on(fleet.allocator, here, [claim(request(count=2))], lambda: True)
    assert stopped == TrialResult(error="the search took too long", cancelled=True)
    twice = Fleet(state(resource_slice([device("x"), device("x")])))
    broken = try_on(twice.allocator, here, [claim()], never)
    assert broken == TrialResult(error="invalid resource pools were encountered")
