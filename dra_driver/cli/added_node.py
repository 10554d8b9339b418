# SPDX-License-Identifier: Apache-2.0
"""Which node does `dra-driver explain --add-node` add, or `convert --profile` ask about? One of the machines that the simulated backend knows, with the slices it would have."""

import msgspec

from dra_driver.backends.base import BackendContext
from dra_driver.backends.profiles import PROFILES
from dra_driver.backends.simulated import WITHOUT_FAULT_FILE
from dra_driver.backends.simulated_machine import machine_of
from dra_driver.cel.reasons.similar import meant
from dra_driver.errors import Permanent
from dra_driver.explain.subject.subject import NewNode
from dra_driver.model.api.core import Node
from dra_driver.model.api.meta import ObjectMeta
from dra_driver.model.api.resource_slice import ResourcePool, ResourceSlice
from dra_driver.model.names import DOMAIN
from dra_driver.planning.slices import plan_pool

NAME = "a-new-node"


def known_profile(name: str, *, flag: str) -> None:
    """Raise Permanent if there is no such profile. `flag` is the one that names it."""
    if name not in PROFILES:
        near = meant(name, list(PROFILES)) or f"these are known: {', '.join(PROFILES)}"
        raise Permanent(f"{flag}: there is no profile {name}; {near}")


def new_node(text: str, *, flag: str = "--add-node") -> NewNode:
    """Return the node for "PROFILE" or "PROFILE:DRIVER". Raises Permanent if there is no such profile, as `known_profile`."""
    profile, _, driver = text.partition(":")
    driver = driver or DOMAIN
    known_profile(profile, flag=flag)
    context = BackendContext(NAME, driver_name=driver)
    inventory = machine_of(PROFILES[profile], context, WITHOUT_FAULT_FILE)
    contents = plan_pool(inventory, kept=(), driver=driver).slices
    pool = ResourcePool(name=NAME, generation=1, resource_slice_count=len(contents))
    slices = tuple(
        ResourceSlice(
            metadata=ObjectMeta(name=f"{NAME}-{number}"),
            spec=msgspec.structs.replace(content, driver=driver, pool=pool, node_name=NAME),
        )
        for number, content in enumerate(contents)
    )
    return NewNode(profile, Node(metadata=ObjectMeta(name=NAME)), slices)
