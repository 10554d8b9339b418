# SPDX-License-Identifier: Apache-2.0
"""Find a backend by its name among the installed packages (entry points of group `dra_driver.backends`)."""

from importlib.metadata import entry_points

from dra_driver.backends.base import ENTRY_POINT_GROUP, Backend, BackendContext, BackendFactory
from dra_driver.errors import DriverError, Fatal


def load_backend(name: str, context: BackendContext) -> Backend:
    """Make the backend of this name. Raises Fatal, naming what is installed, when there is none or it cannot be made."""
    found = {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in found:
        raise Fatal(
            f"no backend {name!r} is installed; installed are: {', '.join(sorted(found)) or 'none'}; choose with --backend"
        )
    try:
        factory: BackendFactory = found[name].load()
        return factory(context)
    except DriverError:
        raise
    except Exception as error:
        raise Fatal(
            f"backend {name!r} ({found[name].value}) cannot be made: {type(error).__name__}: {error}; "
            f"check its installation and its --backend-option values"
        ) from error
