# SPDX-License-Identifier: Apache-2.0
"""How does a report name an object of the API?"""

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from dra_driver.model.api.meta import ObjectMeta
from dra_driver.model.printable import CUT, without_middle

_Named = TypeVar("_Named")
SHOWN_NAMES = 4
LONGEST_FINALIZER = 100
LONGEST_CONDITION = 300
LONGEST_FOUND = 1000


def full_name(metadata: ObjectMeta) -> str:
    """Return the name as "namespace/name"."""
    return f"{metadata.namespace}/{metadata.name}"


def first_names(named: Sequence[_Named], of: str = "", name: Callable[[_Named], str] = str) -> str:
    """Return the names of the first SHOWN_NAMES and, if there are more, how many there are."""
    shown = ", ".join(map(name, named[:SHOWN_NAMES]))
    if len(named) <= SHOWN_NAMES:
        return shown
    many = f"{len(named):,} {of}".rstrip()
    return f"{shown}, … ({many})"


def shown_finalizers(metadata: ObjectMeta) -> tuple[str, ...]:
    """Return the first finalizers of the object and, if there are more, how many there are.

    Whoever may write the object may give it a MiB of them, and every pod that waits for its devices has them in its answer.
    """
    finalizers = metadata.finalizers or ()
    shown = [
        one if len(one) <= LONGEST_FINALIZER else f"{one[:LONGEST_FINALIZER]}{CUT}"
        for one in finalizers[:SHOWN_NAMES]
    ]
    if len(finalizers) > SHOWN_NAMES:
        shown.append(f"{CUT} ({len(finalizers):,} finalizers)")
    return tuple(shown)


def condition(part: str) -> str:
    """Return the condition of a selector as a sentence has it. It may have 10 KiB, and be false for the devices of thousands of pods."""
    return without_middle(part, LONGEST_CONDITION)


def values_found(found: str) -> str:
    """Return what devices have instead as a sentence has it: names and values, or a condition that is false."""
    return without_middle(found, LONGEST_FOUND)


def existing_classes(names: Collection[str]) -> str:
    """Return which DeviceClasses the cluster has, for who named another one."""
    return f"the cluster has {first_names(sorted(names)) or 'no DeviceClass'}"
