# SPDX-License-Identifier: Apache-2.0
"""When are the resources of the device plugin API planned anew?"""

from threading import Event

from dra_driver.errors import Temporary
from dra_driver.model.ids import PoolName
from dra_driver.model.inventory import Inventory
from dra_driver.services.plugin.serve import PluginInputs, PluginResources


class Planned:
    """Resources whose devices are never known, with a clock that only counts; `happens` is called in each wait."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.planned: list[int] = []  # after how many waits
        self.stop = Event()
        inputs = PluginInputs(
            inventory=self._inventory,
            planned=NotImplemented,
            store=NotImplemented,
            pool=PoolName("node1"),
            here=NotImplemented,
        )
        self.resources = PluginResources(
            inputs, set_resources=lambda _feeds: None, observe=lambda _event: None
        )

    def _inventory(self) -> Inventory:
        self.planned.append(len(self.waits))
        raise Temporary("not scanned yet")

    def run(self, *happens: str) -> None:
        def wait(_event: Event, seconds: float) -> bool:
            self.waits.append(seconds)
            done = len(self.waits) - 1
            if done < len(happens):
                for name in happens[done].split():
                    getattr(self.resources, name)()
            else:
                self.stop.set()
            return False

        self.resources.run(self.stop, wait=wait)


def test_calls_that_follow_each_other_are_planned_for_once_after_their_answers() -> None:
    node = Planned()
    node.run("wake_after_call wake_after_call", "wake_after_call")
    # The last call came while the answers of the first two were on their way.
    assert node.waits == [10.0, 0.02, 10.0]
    assert node.planned == [0, 2]


def test_any_other_change_is_planned_for_at_once() -> None:
    node = Planned()
    node.run("wake")
    assert node.waits == [10.0, 10.0]
    assert node.planned == [0, 1]
