# SPDX-License-Identifier: Apache-2.0
"""Does `check` call an error what the API server refuses, and nothing else? tests/contract/test_manifests.py asks the server itself."""

import pytest

from tests.support.sent_manifests import SENT, Sent
from tests.unit.check.findings import found


@pytest.mark.parametrize("sent", SENT.values(), ids=SENT)
def test_an_error_is_what_the_api_server_refuses(sent: Sent) -> None:
    errors = [one.message for one in found(sent.text) if one.severity == "error"]
    assert bool(errors) is sent.refused, errors
    assert all(len(message) < 400 for message in errors)
