# SPDX-License-Identifier: Apache-2.0
"""What would the API server refuse? The rules of `explain`, all of them and not only the first, and the limits of resource.k8s.io.

Source: k8s.io/kubernetes pkg/apis/resource/{types.go,validation}.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from dra_driver.cel.versions import LONGEST_EXPRESSION
from dra_driver.check.api_values import REFUSED, value_findings
from dra_driver.check.finding import Finding
from dra_driver.check.given import Given, at, entries, mapping, steps
from dra_driver.check.older_forms import WITHDRAWN, is_older
from dra_driver.check.parts import (
    devices_path,
    expressions,
    is_of_dra,
    is_pod_template,
    pod_of,
    requests,
)
from dra_driver.explain.readable import bad_quantity
from dra_driver.explain.subject.actions import of_type, problem_and_action
from dra_driver.explain.subject.manifest import KINDS
from dra_driver.explain.subject.manifest_checks import refusals
from dra_driver.explain.subject.manifest_kinds import (
    WORKLOADS,
    as_v1,
    group_and_version,
    is_understood,
    kind_refusal,
)
from dra_driver.explain.subject.workloads import template_of, workload_refusals
from dra_driver.model.api.core import Pod
from dra_driver.model.plugin_resources import is_invented_resource
from dra_driver.model.yaml_documents import Path

MOST_ENTRIES = 32
LONGEST_PARAMETERS = 10 * 1024
_PATH = re.compile(r"\b(?:spec|metadata)(?:\.\w+|\[[^\]]+\])*")
_AT = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_NO_FIELD = re.compile(r"has no field|no field ")
_MORE_THAN = re.compile(r"at most \d+ are allowed|has more than \d+")
_DEEPEST = 12
_OLD_VERSIONS = ("v1alpha3",)
_ELSEWHERE = re.compile(
    r"container \S+ uses the claim |container \S+: .* is no name of a resource|spec\.resourceClaims\[\d+\] has no field source"
)
"""What other modules tell: `references`, `api_values` and `older_forms`."""
_NAMES_NOTHING = re.compile(r"spec\.resourceClaims\[(\d+)\] needs one of ")


def api_findings(one: Given, served: Collection[str]) -> Iterator[Finding]:
    """Yield what the API server would refuse in one object. `served` are the versions of resource.k8s.io; empty if not known."""
    group, version = group_and_version(one.content)
    if is_of_dra(one) and one.kind in WITHDRAWN:
        return  # told as an older form
    rewritten = is_of_dra(one) and is_understood(one.content) and is_older(version)
    is_told = rewritten and (not served or "v1" in served)
    problem = "" if is_told else kind_refusal(one.content, served)
    if problem:
        misses_version = one.kind in KINDS and "served" in problem
        rule = "api-version" if misses_version else "api-kind"
        path: Path = ("apiVersion",) if "apiVersion" in one.content else ()
        found, _, action = problem.partition("; ")
        yield one.finding(rule, path, f"{REFUSED}: {found}", action)
        return
    if is_pod_template(one):
        template = mapping(one.content.get("template"))
        # As a pod of this name would be.
        pod = {**template, "metadata": {"name": "p", **mapping(template.get("metadata"))}}
        yield from _decoded(one, {**pod, "apiVersion": "v1", "kind": "Pod"}, Pod, ("template",))
        yield from value_findings(one)
        return
    if not is_understood(one.content):
        return
    if one.kind in WORKLOADS:
        yield from _workload(one)
        yield from value_findings(one)
        return
    content: Any = one.content
    if group and version in ("v1beta1", *_OLD_VERSIONS):
        content = as_v1(content)
    yield from _decoded(one, content, KINDS[one.kind], ())
    yield from _limits(one)
    yield from value_findings(one)


def _workload(one: Given) -> Iterator[Finding]:
    for problem in workload_refusals(one.content):
        yield _refused(one, problem, ())
    pod = pod_of(one)
    if pod is not None:
        yield from _decoded(one, template_of(one.content), Pod, pod.path)


def _decoded(one: Given, content: Any, kind: type[Any], base: Path) -> Iterator[Finding]:
    try:
        written = msgspec.json.encode(_without_invented(content, _DEEPEST))
        found = msgspec.json.decode(written, type=kind)
    except (msgspec.MsgspecError, UnicodeEncodeError, TypeError, RecursionError) as error:
        yield _malformed(one, str(error), base)
        return
    problem = bad_quantity(found)
    if problem:
        # The rules compare quantities, so they can be asked only once all can be read.
        yield _refused(one, problem, base)
        return
    for problem in refusals(msgspec.json.decode(written), found):
        if not (_ELSEWHERE.match(problem) or _has_source(content, problem)):
            yield _refused(one, problem, base)


def _has_source(pod: object, problem: str) -> bool:
    """Return whether an entry only seems to name no claim: it names it in the older form, which `older_forms` tells."""
    found = _NAMES_NOTHING.match(problem)
    entry = at(pod, ("spec", "resourceClaims", int(found[1]))) if found else None
    return bool(mapping(mapping(entry).get("source")))


def _without_invented(content: Any, levels: int) -> Any:
    """Return the object without resources that are told for themselves: their amounts are none, and would hide all other mistakes."""
    if isinstance(content, list):
        return [_without_invented(one, levels) for one in content]
    if not isinstance(content, Mapping) or not levels:
        return content
    return {
        key: {name: each for name, each in value.items() if not is_invented_resource(str(name))}
        if key in ("limits", "requests") and isinstance(value, Mapping)
        else _without_invented(value, levels - 1)
        for key, value in content.items()
    }


def _malformed(one: Given, error: str, base: Path) -> Finding:
    found = _AT.search(error)
    path = (*base, *steps(found["path"])) if found else base
    message = f"{REFUSED}: {_AT.sub('', error)}"
    return one.finding("api-malformed", path, message, of_type(error))


def _refused(one: Given, told: str, base: Path) -> Finding:
    problem, action = problem_and_action(told)
    found = _PATH.search(problem)
    text = found[0] if found else ""
    # The path is that of the pod, or of its template in a workload.
    is_whole = base and text.startswith(f"{_text(base)}.")
    inner = steps(text, one.content if is_whole or not base else at(one.content, base))
    path = inner if is_whole else (*base, *inner)
    path = _there(one, _without_exactly(one, path), problem)
    rule = "api-value"
    if _NO_FIELD.search(problem):
        rule = "api-field"
    elif _MORE_THAN.search(problem):
        rule = "api-limit"
    return one.finding(rule, path, f"{REFUSED}: {problem}", action)


def _text(path: Path) -> str:
    return ".".join(map(str, path))


def _without_exactly(one: Given, path: Path) -> Path:
    """Return the path in the object as it was written: a request of an older version has no `exactly`."""
    for place, step in enumerate(path):
        if step == "exactly" and "exactly" not in mapping(at(one.content, path[:place])):
            return path[:place] + path[place + 1 :]
    return path


def _there(one: Given, path: Path, problem: str) -> Path:
    """Return the path, with the unknown field that the message names, so that the finding is in its line."""
    named = re.search(r" has no field ([^ ]+)", problem)
    if named and named[1] in mapping(at(one.content, path)):
        return (*path, named[1])
    return path


def _limits(one: Given) -> Iterator[Finding]:
    if is_of_dra(one) and one.kind == "DeviceClass":
        for field in ("selectors", "config"):
            yield from _too_many(one, ("spec", field), MOST_ENTRIES)
        yield from _parameters(one, ("spec", "config"))
    devices = devices_path(one)
    if devices is not None:
        for field in ("constraints", "config"):
            yield from _too_many(one, (*devices, field), MOST_ENTRIES)
            for place, _ in entries(one.content, (*devices, field)):
                yield from _too_many(one, (*place, "requests"), MOST_ENTRIES)
        yield from _parameters(one, (*devices, "config"))
    for request in requests(one):
        for field in ("selectors", "derivedAttributes"):
            yield from _too_many(one, (*request.path, field), MOST_ENTRIES)
    for expression in expressions(one):
        length = len(expression.text.encode(errors="surrogatepass"))
        if length > LONGEST_EXPRESSION:
            yield _too_long(one, expression.path, length, LONGEST_EXPRESSION)


def _too_many(one: Given, path: Path, most: int) -> Iterator[Finding]:
    found = at(one.content, path)
    if isinstance(found, list) and len(found) > most:
        message = f"{REFUSED}: {path[-1]} has {len(found)} entries, at most {most} are allowed"
        yield one.finding("api-limit", path, message, "remove some, or write two objects")


def _too_long(one: Given, path: Path, length: int, most: int) -> Finding:
    message = f"{REFUSED}: {path[-1]} has {length:,} bytes, at most {most:,} are allowed"
    return one.finding("api-limit", path, message, "write it shorter")


def _parameters(one: Given, path: Path) -> Iterator[Finding]:
    for place, entry in entries(one.content, path):
        opaque = mapping(entry.get("opaque"))
        inner = (*place, "opaque", "parameters")
        parameters = opaque.get("parameters")
        if not opaque:
            yield one.finding(
                "api-value",
                place,
                f"{REFUSED}: it has no opaque",
                "write opaque, with driver and parameters",
            )
        elif not isinstance(parameters, Mapping):
            message = f"{REFUSED}: parameters must be a mapping"
            yield one.finding(
                "api-value", inner, message, "write apiVersion, kind and their fields"
            )
        elif (length := _length(parameters)) > LONGEST_PARAMETERS:
            yield _too_long(one, inner, length, LONGEST_PARAMETERS)


def _length(value: object) -> int:
    try:
        return len(msgspec.json.encode(value))
    except (TypeError, msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return 0  # told as malformed
