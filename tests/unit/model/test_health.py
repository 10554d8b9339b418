# SPDX-License-Identifier: Apache-2.0
"""Health messages fit what the kubelet keeps."""

from dra_driver.model.health import UNCHECKED, Health, HealthStatus


def test_a_short_message_stays() -> None:
    assert Health(HealthStatus.HEALTHY, "fine ü").message == "fine ü"


def test_a_long_message_is_cut_at_a_character() -> None:
    message = Health(HealthStatus.UNHEALTHY, "x" + "ü" * 1000).message
    assert message == "x" + "ü" * 499
    assert len(message.encode()) == 999


def test_a_message_that_is_no_text_is_made_one() -> None:
    assert Health(HealthStatus.UNHEALTHY, "a\ud800b").message == "a?b"


def test_a_device_that_nothing_checks_is_unknown_and_says_so() -> None:
    expected = Health(HealthStatus.UNKNOWN, "nothing checks the health of this device")
    assert expected == UNCHECKED
