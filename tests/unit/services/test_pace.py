# SPDX-License-Identifier: Apache-2.0
"""Pauses after errors: they grow, and no news talk them away for ever."""

from dra_driver.errors import Permanent, Temporary
from dra_driver.kube.base import NotServed
from dra_driver.services.pace import QUICK_TRIES, SLOW_SECONDS, Backoff, delay_after


def test_an_error_that_may_pass_is_tried_again_soon_whoever_must_act():
    assert [delay_after(Temporary("x"), tries) for tries in range(6)] == [1, 2, 5, 10, 30, 30]
    assert [delay_after(Permanent("x"), tries) for tries in range(7)] == [1, 2, 5, 10, 30, 60, 60]
    assert [delay_after(ValueError(), tries) for tries in range(6)] == [1, 2, 5, 10, 30, 30]
    assert delay_after(NotServed("x"), 0) == 10


def test_the_server_may_ask_for_more_time_and_not_for_less():
    assert delay_after(Temporary("x", retry_after_seconds=77.0), 0) == 77
    assert delay_after(Temporary("x", retry_after_seconds=0.1), 3) == 10


def test_before_the_pause_is_over_only_news_allow_a_try():
    backoff = Backoff()
    assert backoff.allows(100.0, news=False)
    assert backoff.failed(Temporary("x"), 100.0) == 1.0
    assert not backoff.allows(100.9, news=False)
    assert backoff.allows(100.9, news=True)
    assert backoff.allows(101.0, news=False)
    assert (backoff.left(100.25), backoff.left(200.0)) == (0.75, 0.0)


def test_after_ten_tries_in_a_row_not_even_news_do_and_each_pause_is_long():
    backoff = Backoff()
    backoff.failed(Temporary("x"), 100.0)
    for _ in range(QUICK_TRIES - 2):
        backoff.tried()
        assert backoff.allows(100.0, news=True)
    assert backoff.failed(Temporary("x"), 100.0) == SLOW_SECONDS
    assert not backoff.allows(104.9, news=True)
    assert backoff.allows(105.0, news=False)
    assert backoff.tries_at_once(3) == 1


def test_tries_that_follow_each_other_count_too():
    backoff = Backoff()
    assert backoff.tries_at_once(3) == 3
    for _ in range(8):
        backoff.tried()
    assert backoff.tries_at_once(3) == 2


def test_a_pause_that_news_cut_short_is_no_reason_for_a_longer_one():
    backoff = Backoff()
    assert [backoff.failed(Temporary("x"), 100.0) for _ in range(4)] == [1, 2, 2, 2]
    assert backoff.failed(Temporary("x"), 102.0) == 2
    assert backoff.failed(Temporary("x"), 104.0) == 5


def test_a_success_ends_it():
    backoff = Backoff()
    for _ in range(20):
        backoff.failed(Temporary("x"), 100.0)
    backoff.succeeded()
    assert backoff.allows(100.0, news=False)
    assert backoff.failed(Temporary("x"), 100.0) == 1.0
