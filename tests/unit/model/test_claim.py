# SPDX-License-Identifier: Apache-2.0
"""Claims, results and keys."""

import pytest

from dra_driver.model.claim import ClaimRef, base_request, key_of
from dra_driver.model.ids import ClaimUid, DeviceKey
from dra_driver.testing.builders import A_POOL, a_config, a_ref, a_result


def test_a_claim_is_shown_with_its_uid() -> None:
    assert str(a_ref("wine")) == "default/wine (uid uid-wine)"


@pytest.mark.parametrize(
    ("ref", "text", "word", "of_plugin"),
    [
        (a_ref("wine"), "default/wine (uid uid-wine)", "default/wine", False),
        (ClaimRef("", "", ClaimUid("uid-wine")), "uid uid-wine", "uid-wine", False),
        # No command finds the row of an Allocate call by the name of its resource, which many rows have.
        (
            ClaimRef("device-plugin", "nvidia.com/gpu", ClaimUid("plugin-1")),
            "device-plugin/nvidia.com/gpu (uid plugin-1)",
            "plugin-1",
            True,
        ),
    ],
)
def test_a_row_has_a_word_for_commands(
    ref: ClaimRef, text: str, word: str, *, of_plugin: bool
) -> None:
    assert (str(ref), ref.word, ref.of_plugin) == (text, word, of_plugin)


@pytest.mark.parametrize(("request_name", "base"), [("main", "main"), ("main/sub", "main")])
def test_containers_write_the_base_name(request_name: str, base: str) -> None:
    assert base_request(a_result(request=request_name)) == base


def test_a_result_owns_pool_device_and_share() -> None:
    assert key_of(a_result(share="s")) == DeviceKey(A_POOL, "gpu-0", "s")


@pytest.mark.parametrize(("share", "text"), [("", "node-1/gpu-0"), ("s1", "node-1/gpu-0 share s1")])
def test_a_key_is_shown_with_its_share(share: str, text: str) -> None:
    assert str(DeviceKey(A_POOL, "gpu-0", share)) == text


def test_an_entry_without_requests_covers_all() -> None:
    assert a_config().covers("any/thing")
    assert not a_config(requests=["other"]).covers("any/thing")
