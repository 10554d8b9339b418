# SPDX-License-Identifier: Apache-2.0
"""The objects that are checked, and what is known besides."""

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from dra_driver.check.finding import Finding
from dra_driver.explain.subject.manifest_kinds import kind_of, name_of
from dra_driver.model.cluster import ClusterState
from dra_driver.model.config_kind import ConfigKind
from dra_driver.model.decoding import Mistake
from dra_driver.model.names import DOMAIN
from dra_driver.model.yaml_documents import NOWHERE, Path, Place, Places, path_text

Object = Mapping[str, Any]
NVIDIA_DRIVER = "gpu.nvidia.com"
"""The name of NVIDIA's own driver, under which this driver can run too."""
_INDEX = re.compile("[0-9]{1,9}")
_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]+)\]")


class Given(Struct, frozen=True):
    """One object of a file. `base` leads to it in its document: an object of a List has its place in there."""

    content: Object
    file: str = "-"
    document: int = 1
    base: Path = ()
    places: Places = NOWHERE

    @property
    def title(self) -> str:
        """Kind and name, for messages."""
        return f"{kind_of(self.content)} {name_of(self.content)}"

    @property
    def kind(self) -> str:
        """The kind, as its author wrote it."""
        return str(self.content.get("kind"))

    def place(self, path: Path) -> Place | None:
        """Return where the value at the path stands, or the nearest value around it; None if no place is known."""
        whole = (*self.base, *path)
        for length in range(len(whole), -1, -1):
            place = self.places.values.get(whole[:length])
            if place is not None:
                # A mapping of a mapping begins in the line of its first key; the key that has it says more.
                key = self.places.keys.get(whole[:length])
                return key if key is not None and place.style == "-" else place
        return None

    def exact(self, path: Path) -> Place | None:
        """Return where exactly this value stands; None if that is not known, as of a value that an alias repeats."""
        place = self.places.values.get((*self.base, *path))
        return None if place is None or place.style == "*" else place

    def key(self, path: Path) -> Place | None:
        """Return where the key of this value stands; None if that is not known."""
        return self.places.keys.get((*self.base, *path))

    def finding(
        self, rule: str, path: Path, message: str, action: str = "", **more: Any
    ) -> Finding:
        """Return a finding about the value at this path."""
        place = self.place(path)
        line, column = (place.line, place.column) if place else (0, 0)
        return Finding(
            rule=rule,
            file=self.file,
            document=self.document,
            line=more.pop("line", line),
            column=more.pop("column", column),
            subject=self.title,
            path=path_text(path),
            message=message,
            action=action,
            **more,
        )


class ReadConfig(Struct, frozen=True):
    """What a configuration of NVIDIA's tools is: its mistakes, what this driver does not do or nobody knows, and who applies it."""

    mistakes: tuple[Mistake, ...] = ()
    refusals: tuple[Mistake, ...] = ()
    applied_by: str = ""


def _not_read(_content: Mapping[str, object]) -> ReadConfig:
    return ReadConfig()


class Known(Struct, frozen=True, kw_only=True):
    """What is known besides the files. Without `state` there is no cluster, and nothing is said of what may be in it.

    `kinds` are the kinds of configuration of the driver. `read_layouts` and `read_plugin_config` read what NVIDIA's tools read. `explain` is
    the command that explains a manifest in this cluster.
    """

    driver: str = DOMAIN
    kinds: tuple[ConfigKind, ...] = ()
    state: ClusterState | None = None
    explain: str = "dra-driver explain"
    read_layouts: Callable[[Mapping[str, object]], ReadConfig] = _not_read
    read_plugin_config: Callable[[Mapping[str, object]], ReadConfig] = _not_read

    @property
    def drivers(self) -> tuple[str, ...]:
        """The names under which this driver may run: each is the domain of its attributes."""
        return tuple(dict.fromkeys((self.driver, DOMAIN, NVIDIA_DRIVER)))

    def is_ours(self, driver: str) -> bool:
        """Return whether it is known that one of these names is this driver's, and not that of NVIDIA's own driver.

        It is by the name that was given, or if all devices of the cluster under the name are this driver's: NVIDIA's have no `vendor`.
        """
        if driver in (self.driver, DOMAIN):
            return True
        slices = self.state.resource_slices if self.state else ()
        devices = [
            device
            for one in slices
            if one.spec.driver == driver
            for device in one.spec.devices or ()
        ]
        return bool(devices) and all("vendor" in (one.attributes or {}) for one in devices)


def steps(text: str, content: object = None) -> Path:
    """Return the path for a text such as spec.requests[0].name.

    With `content` an entry of a list may also be named, as in spec.containers[main].resources.limits[nvidia.com/gpu].
    """
    path: list[Hashable] = []
    for found in _STEP.finditer(text):
        inner = at(content, path)
        step: Hashable = found[1] or found[2]
        if found[2] is not None and _INDEX.fullmatch(found[2]):
            step = int(found[2])
        elif found[2] is not None and isinstance(inner, list):
            names = [mapping(one).get("name") for one in inner]
            step = names.index(found[2]) if found[2] in names else step
        path.append(step)
    return tuple(path)


def mapping(value: object) -> Object:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def at(content: object, path: Sequence[object]) -> Any:
    """Return the value at a path; None if there is none."""
    for step in path:
        if isinstance(content, Mapping):
            content = content.get(step)
        elif isinstance(content, list) and isinstance(step, int) and step < len(content):
            content = content[step]
        else:
            return None
    return content


def entries(content: object, path: Path) -> Iterator[tuple[Path, Object]]:
    """Yield the mappings of a list, each with its path."""
    found = at(content, path)
    for index, one in enumerate(found if isinstance(found, list) else ()):
        if isinstance(one, Mapping):
            yield (*path, index), one


def replaced(content: Any, path: Path, value: object) -> Any:
    """Return a copy with another value at the path, which exists."""
    if not path:
        return value
    first, *rest = path
    if isinstance(content, list):
        return [
            replaced(one, tuple(rest), value) if index == first else one
            for index, one in enumerate(content)
        ]
    return {
        key: replaced(one, tuple(rest), value) if key == first else one
        for key, one in content.items()
    }
