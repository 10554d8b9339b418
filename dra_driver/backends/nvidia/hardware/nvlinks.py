# SPDX-License-Identifier: Apache-2.0
"""The NVLinks of a GPU: which are active, and what is at their other ends.

A link comes up after the fabric manager has started, and may go down later. So each look reads the states anew, as further fields of the
one call that it makes in any case. The other end is asked once for each link that has come up, with two calls. A library without
the field is asked for the state of one link in each look, in turn, in place of the compute mode in every second look.
"""

from typing import Any

from dra_driver.backends.nvidia.facts import NvLink
from dra_driver.backends.nvidia.hardware.ask import Asker, text
from dra_driver.backends.nvidia.hardware.values import LINK_COUNT, LINK_STATE, field_values

MOST_LINKS = 36
_ACTIVE = frozenset({1, 2, 3})  # active, asleep to save power, active without traffic
_STATE = "nvmlDeviceGetNvLinkState"


class Links:
    """What is known of the links of one GPU."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._count = 0
        self._by_field = False
        self._looks = 0
        self._active: tuple[NvLink, ...] = ()

    @property
    def active(self) -> tuple[NvLink, ...]:
        """The active links, as the last question found them."""
        return self._active

    @property
    def fields(self) -> tuple[tuple[int, int], ...]:
        """The fields of the states, for the one call of a look."""
        return tuple((LINK_STATE, link) for link in range(self._count)) if self._by_field else ()

    def first(self, handle: Any) -> None:
        """Find out which links there are, which are active, and what is at the other ends of those."""
        self._active = ()
        asker = Asker(self._nvml, "the links")
        asked: list[int | tuple[int, int]] = [LINK_COUNT]
        asked += [(LINK_STATE, link) for link in range(MOST_LINKS)]
        count, *states = field_values(asker, handle, asked)
        self._count = MOST_LINKS if count is None else min(count, MOST_LINKS)
        self._by_field = count is not None and None not in states[: self._count]
        if self._by_field:
            self._ask_ends(handle, _active(states[: self._count]))
        else:
            self._ask_each(handle)

    def told(self, handle: Any, states: list[int | None]) -> None:
        """Take the answers for `fields`. If one is missing, all links stay as they were."""
        if self._by_field and None not in states:
            self._ask_ends(handle, _active(states))

    def ask_in_turn(self, handle: Any) -> bool:
        """Spend the call that a look has left on a link, if it is the turn of one. Return whether it was."""
        self._looks += 1
        if self._by_field or not self._count or self._looks % 2:
            return False
        link = self._looks // 2 % self._count
        state = Asker(self._nvml, f"link {link}").ask(_STATE, handle, link)
        if state is not None and bool(state) != any(one.link == link for one in self._active):
            self._ask_each(
                handle
            )  # if one link has come up or gone down, the others often have too
        return True

    def _ask_each(self, handle: Any) -> None:
        """A library without the fields is asked link by link, up to the first one that does not exist."""
        asker = Asker(self._nvml, "the links")
        states: list[int] = []
        for link in range(self._count):
            state = asker.ask(_STATE, handle, link)
            if state is None:
                break
            states.append(int(bool(state)))
        self._count = len(states)
        self._ask_ends(handle, _active(states))

    def _ask_ends(self, handle: Any, active: list[int]) -> None:
        before = {one.link: one for one in self._active}
        self._active = tuple(before.get(link) or self._end(handle, link) for link in active)

    def _end(self, handle: Any, link: int) -> NvLink:
        # What one link does not answer is no fact about the GPU.
        asker = Asker(self._nvml, f"link {link}")
        remote = asker.ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
        kind = asker.ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
        bus = "" if remote is None else text(remote.busId)
        return NvLink(link=link, remote_pci_bus_id=bus, remote_type=kind)


def _active(states: list[int] | list[int | None]) -> list[int]:
    return [link for link, state in enumerate(states) if state in _ACTIVE]
