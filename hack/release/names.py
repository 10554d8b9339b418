# SPDX-License-Identifier: Apache-2.0
"""Which names does a release need that somebody must own first, and who owns them?

Each name is one constant: those of the product in `dra_driver`, those of the places where releases go here. A name under example.com is
no name yet: example.com is kept for documentation, so nobody can publish there. Whoever secures a name changes its constant, and here
`owned` to True; from then on tests allow pages to tell people to fetch it. RELEASE.md shows the same table.
"""

from dataclasses import dataclass

from dra_driver import IMAGE, PACKAGE, PROJECT
from dra_driver.model.names import DOMAIN

REPOSITORY = "https://git.example.com/dra-driver"
"""The address of the repository: pre-commit clones it, and releases are downloaded below it."""
REGISTRY = "registry.example.com"
"""The registry of image and chart."""
CHARTS = f"oci://{REGISTRY}/charts"
"""Where the chart is pushed."""
KREW_PLUGIN = "dra"
"""The name of the plugin in an index of Krew: `kubectl dra`."""
ARTIFACT_HUB = PROJECT
"""The name of the chart's repository at Artifact Hub."""


@dataclass(frozen=True, slots=True)
class Name:
    """A name that people fetch by, or that clusters refer to. `constant` is the place in the code where it is written."""

    what: str
    value: str
    constant: str
    known: str
    secure: str
    owned: bool = False


NAMES = (
    Name(
        "domain",
        DOMAIN.partition(".")[2],
        "`dra_driver.model.names.DOMAIN`",
        "not registered by this project. Driver name, API groups, labels and taints end with it; nothing is fetched from it",
        "register the domain; before 1.0, because the names below it never change afterwards",
    ),
    Name(
        "Python package",
        PACKAGE,
        "`dra_driver.PACKAGE`",
        "**belongs to somebody else** in the public index: never tell anybody to install it",
        "choose a free name, register it with trusted publishing of `release.yaml`, and change the constant and `name` in pyproject.toml",
    ),
    Name(
        "host of the repository",
        REPOSITORY,
        "`hack.release.names.REPOSITORY`",
        "no address yet",
        "create the organisation and the repository; switch on private reports of vulnerabilities and branch protection",
    ),
    Name(
        "registry",
        REGISTRY,
        "`hack.release.names.REGISTRY`",
        "no registry yet. The image is `"
        + IMAGE
        + "` without a registry, and the chart never pulls such a name",
        "create an account of the project; only the release workflow may push",
    ),
    Name(
        "Krew plugin",
        KREW_PLUGIN,
        "`hack.release.names.KREW_PLUGIN`",
        "not in the public index as far as known here; a person must look before the first release",
        "open a pull request with `dra.yaml` at the index; until then the manifest is installed from a file",
    ),
    Name(
        "repository at Artifact Hub",
        ARTIFACT_HUB,
        "`hack.release.names.ARTIFACT_HUB`",
        "not registered",
        "register the OCI repository of the chart, and prove that you own it",
    ),
)


def table() -> str:
    """The table of RELEASE.md."""
    lines = [
        "| name | value today | constant | what is known | how to secure it |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {one.what} | `{one.value}` | {one.constant} | {'**owned**; ' if one.owned else ''}{one.known} | {one.secure} |"
        for one in NAMES
    ]
    return "\n".join(lines) + "\n"
