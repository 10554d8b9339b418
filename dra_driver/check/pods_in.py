# SPDX-License-Identifier: Apache-2.0
"""Which pods are in an object? Its own, the one of its template, or those of the templates in an object of a kind that is not known here."""

from collections.abc import Iterator
from itertools import islice

from dra_driver.check.given import Given
from dra_driver.check.parts import PodPart, pod_of
from dra_driver.check.unknown_kinds import MOST_TEMPLATES, is_known
from dra_driver.model.pod_templates import pod_templates


def pods_in(one: Given) -> Iterator[PodPart]:
    """Yield the pods of an object; of a kind that is not known here the first MOST_TEMPLATES."""
    pod = pod_of(one)
    if pod is not None:
        yield pod
    elif not is_known(one.content):
        for path, template in islice(pod_templates(one.content), MOST_TEMPLATES):
            yield PodPart(path, template, is_nested=True)
