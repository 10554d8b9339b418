# SPDX-License-Identifier: Apache-2.0
"""A metric with its series, and what a table of names has for each metric of a device."""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from msgspec import Struct

from dra_driver.model.device import AllocatableDevice, plain
from dra_driver.model.ids import DriverName, NodeName, PoolName
from dra_driver.model.usage import DeviceUsage, Holder

Kind = Literal["gauge", "counter"]
Labels = Mapping[str, str]
Series = tuple[Labels, float]
MIB = 1024 * 1024
HERTZ_OF_MHZ = 1_000_000
PERCENT = 100.0


class Family(Struct, frozen=True):
    """One metric. A counter's name is written without `_total`, which the text format adds."""

    name: str
    kind: Kind
    help: str
    series: tuple[Series, ...] = ()

    @property
    def exposed(self) -> str:
        """The name of its series."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


class Place(Struct, frozen=True):
    """Where the devices are, for labels."""

    driver: DriverName
    pool: PoolName
    node: NodeName


class Measured(Struct, frozen=True):
    """A device with what was measured on it not long ago, and who has it: what all of its holders have in common."""

    device: AllocatableDevice
    usage: DeviceUsage
    holder: Holder

    def said(self, attribute: str) -> str:
        """Return an attribute of the device as text; empty if it has none."""
        return said(self.device, attribute)


Values = Callable[[DeviceUsage], Iterable[Series]]
LabelsOf = Callable[[Measured, Place], Labels]


class Measure(Struct, frozen=True):
    """One line in a table of names: `values` are the series of one device, with their own labels."""

    name: str
    kind: Kind
    help: str
    values: Values


def measured_families(
    measures: Iterable[Measure],
    measured: Iterable[Measured],
    labels: LabelsOf,
    place: Place,
) -> tuple[Family, ...]:
    """Return the metrics of a table for these devices. The labels of a table are the same for each of its series."""
    found = [(labels(one, place), one.usage) for one in measured]
    return tuple(
        Family(
            measure.name,
            measure.kind,
            measure.help,
            tuple(
                ({**common, **own}, value)
                for common, usage in found
                for own, value in measure.values(usage)
            ),
        )
        for measure in measures
    )


def said(device: AllocatableDevice, attribute: str) -> str:
    """Return an attribute of a device as text; empty if it has none."""
    found = plain((device.api.attributes or {}).get(attribute))
    return "" if found is None or isinstance(found, list) else str(found)


def number(value: float | None, factor: float = 1.0) -> tuple[Series, ...]:
    """One series without labels of its own; none if there is no value."""
    return () if value is None else (({}, value * factor),)


def each(label: str, values: Mapping[str, float]) -> tuple[Series, ...]:
    """A series for each name."""
    return tuple(({label: name}, float(value)) for name, value in sorted(values.items()))
