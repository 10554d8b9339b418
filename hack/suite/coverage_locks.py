# SPDX-License-Identifier: Apache-2.0
"""A plugin of coverage: a signal never leaves its lock taken.

coverage takes and releases the lock of its data in two methods written in Python. A signal handler runs between two steps of
Python code. If it raises inside such a method, as --timeout of `dra-driver explain` does, nobody releases the lock, and every
thread of the process waits for it without end (coverage 7.17; like its issue 1310). The methods of the lock itself are written
in C: no handler runs inside them.
"""

from collections.abc import Callable

import coverage.collector
from coverage.plugin_support import Plugins
from coverage.types import TConfigurable


def coverage_init(_plugins: Plugins, _options: TConfigurable) -> None:
    """Called by coverage at each start, before it makes a collector."""
    for name, method in (("lock_data", "acquire"), ("unlock_data", "release")):
        setattr(coverage.collector.Collector, name, property(_of_the_lock(method)))


def _of_the_lock(method: str) -> Callable[[coverage.collector.Collector], Callable[[], object]]:
    return lambda collector: getattr(collector.data_lock, method)
