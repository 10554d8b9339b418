# SPDX-License-Identifier: Apache-2.0
"""What does `dra-driver doctor` look at, and what does each finding mean? docs/troubleshooting.md is made of this table."""

import string
from collections.abc import Iterator, Mapping

from dra_driver.doctor.cluster_texts import CLUSTER_CHECKS, CLUSTER_TEXTS
from dra_driver.doctor.host_texts import HOST_CHECKS, HOST_TEXTS
from dra_driver.doctor.kubelet_texts import KUBELET_CHECKS, KUBELET_TEXTS
from dra_driver.doctor.text import Check, Text

CHECKS: Mapping[str, Check] = {**HOST_CHECKS, **KUBELET_CHECKS, **CLUSTER_CHECKS}
"""All checks, in the order in which they are shown."""
TEXTS: Mapping[str, Text] = {**HOST_TEXTS, **KUBELET_TEXTS, **CLUSTER_TEXTS}


def sections() -> str:
    """Return a section for each check, and in it one for each finding, as Markdown."""
    return "\n".join(_sections())


def _sections() -> Iterator[str]:
    for name, check in CHECKS.items():
        yield f"## {name}\n\n{check.question} If it could not be looked at: {check.to_look}.\n"
        for found, text in TEXTS.items():
            if text.check == name:
                yield f"### {found}\n\n{text.title} ({text.severity}).\n"
                yield f"{_sentence(text.meaning)} What to do: {text.next_step}.\n"
                yield f"```sh\n{text.command.format_map(_gaps(text))}\n```\n"


def gaps(text: Text) -> frozenset[str]:
    """Return the names of the gaps in the command."""
    return frozenset(name for _, name, _, _ in string.Formatter().parse(text.command) if name)


def _gaps(text: Text) -> Mapping[str, str]:
    return {name: name.upper() for name in gaps(text)}


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
