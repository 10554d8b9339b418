# SPDX-License-Identifier: Apache-2.0
"""How properties are tried: other work on the machine makes an example slow, not wrong."""

from hypothesis import HealthCheck, settings

from tests.support.examples import MOST

settings.register_profile(
    "beside other work",
    deadline=None,
    max_examples=min(100, MOST),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("beside other work")
