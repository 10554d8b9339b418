# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's XID catalogue as data."""

import pytest

from dra_driver.backends.nvidia.xids import ACTIONS, XIDS, Severity, xid


@pytest.mark.parametrize("code", [8, 11, 13, 25, 31, 32, 43, 45, 63, 68, 69, 94, 137, 154])
def test_errors_of_applications_and_messages_are_only_counted(code: int):
    assert xid(code).severity is Severity.FINE


@pytest.mark.parametrize(
    ("code", "action", "severity"),
    [
        (46, "RESET_GPU", Severity.RESET),
        (48, "WORKFLOW_XID_48", Severity.RESET),
        (54, "CHECK_MECHANICALS", Severity.SERVICE),
        (74, "WORKFLOW_NVLINK_ERR", Severity.RESET),
        (79, "RESTART_BM", Severity.REBOOT),
        (92, "IGNORE", Severity.WATCHED),
        (94, "RESTART_APP", Severity.FINE),
        (95, "RESET_GPU", Severity.RESET),
        (109, "RESET_GPU", Severity.RESET),
        (142, "CONTACT_SUPPORT", Severity.SERVICE),
        (145, "WORKFLOW_NVLINK5_ERR", Severity.RESET),
        (148, "WORKFLOW_NVLINK5_ERR", Severity.WATCHED),
        (151, "RESTART_VM", Severity.REBOOT),
        (171, "", Severity.WATCHED),
    ],
)
def test_the_catalogues_immediate_action_decides(code: int, action: str, severity: Severity):
    found = xid(code)
    assert (found.code, found.action, found.severity) == (code, action, severity)
    assert found.name
    assert found.advice


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (39, "ROBUST_CHANNEL_CE0_ERROR"),
        (85, "ROBUST_CHANNEL_CE9_ERROR"),
        (135, "ROBUST_CHANNEL_CE19_ERROR"),
        (68, "ROBUST_CHANNEL_NVDEC0_ERROR"),
        (98, "ROBUST_CHANNEL_NVDEC7_ERROR"),
        (105, "ROBUST_CHANNEL_NVJPG7_ERROR"),
        (139, "ROBUST_CHANNEL_OFA1_ERROR"),
    ],
)
def test_engines_are_numbered_as_in_the_catalogue(code: int, name: str):
    assert xid(code).name == name


@pytest.mark.parametrize("code", [0, 5, 59, 173, 4711])
def test_an_unknown_code_is_taken_for_a_reason_to_reset(code: int):
    assert code not in XIDS
    assert (xid(code).code, xid(code).severity) == (code, Severity.RESET)


def test_a_fault_without_a_recommended_action_has_advice_all_the_same():
    assert "nvidia-smi --gpu-reset" in xid(169).advice


def test_every_code_is_in_the_table_once_and_has_an_action_of_the_table():
    assert [known.code for known in XIDS.values()] == sorted(XIDS)
    assert {known.action for known in XIDS.values()} <= set(ACTIONS)
    assert len({known.name for known in XIDS.values()}) == len(XIDS)
