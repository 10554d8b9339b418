# SPDX-License-Identifier: Apache-2.0
"""How long did it take to find out what an Event says?"""

from dra_driver.cli.pending_decisions import Spent


def test_time_is_counted_for_the_namespace_of_the_pod_that_is_looked_at() -> None:
    now = iter([0.0, 1.0, 3.0, 7.0, 15.0, 31.0])
    spent = Spent(lambda: next(now))
    for namespace in ("a", "b", "a", "", "a", ""):
        spent.at(namespace)
    assert spent.seconds == {"a": 1.0 + 4.0 + 16.0, "b": 2.0}
