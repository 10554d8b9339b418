# SPDX-License-Identifier: Apache-2.0
"""What do quotas, roles, nodes and ConfigMaps bring along from the time of device plugins?"""

import io
import re
from collections.abc import Iterator, Mapping, Sequence

from dra_driver.check.finding import Edit, Finding
from dra_driver.check.given import Given, Known, at, entries, mapping, steps
from dra_driver.explain.subject.manifest_kinds import group_and_version
from dra_driver.model.decoding import Mistake
from dra_driver.model.plugin_resources import is_device_resource
from dra_driver.model.printable import printable
from dra_driver.model.yaml_documents import BadDocument, Path, documents

_RBAC = "rbac.authorization.k8s.io"
_CONFIG_LABEL = "nvidia.com/device-plugin.config"
_LAYOUTS = "mig-configs"
_OF_PLUGIN = ("sharing", "flags", "resources")
_MUST_BE = re.compile(r" must be (.+)$")
_LEAVE_OUT = "leave it out, if nothing else reads it"
_CORRECT = "correct it in this file"


def is_bare_config(content: Mapping[str, object]) -> bool:
    """Return whether a document without kind is a file of NVIDIA's tools: they have only a version."""
    return "kind" not in content and content.get("version") == "v1" and _is_config(content)


def _is_config(content: object) -> bool:
    return isinstance(content, Mapping) and any(one in content for one in (*_OF_PLUGIN, _LAYOUTS))


def object_findings(one: Given, known: Known) -> Iterator[Finding]:
    """Yield what a quota, a role or a configuration of NVIDIA's tools brings along."""
    if is_bare_config(one.content):
        yield from _config(one, (), one.content, known)
        return
    group = group_and_version(one.content)[0]
    match group, one.kind:
        case "", "ResourceQuota":
            yield from _quota(one)
        case "", "ConfigMap":
            for key, content in _configs(one):
                yield from _config(one, ("data", key), content, known)
        case group, "Role" | "ClusterRole" if group == _RBAC:
            yield from _role(one)


def _quota(one: Given) -> Iterator[Finding]:
    hard = mapping(at(one.content, ("spec", "hard")))
    for key in hard:
        name = str(key).removeprefix("limits.")
        if not is_device_resource(name):
            continue
        right = f"requests.{name}"
        path = ("spec", "hard", key)
        edits: tuple[Edit, ...] = ()
        place = one.key(path)
        if place is not None and right not in hard:
            renamed = {right if name == key else name: amount for name, amount in hard.items()}
            spec = {**mapping(one.content["spec"]), "hard": renamed}
            content = {**one.content, "spec": spec}
            edits = (Edit(place.start, place.end, str(key), right, content),)
        yield one.finding(
            "quota-key",
            path,
            f"the key {printable(str(key))} counts nothing: of extended resources a quota counts requests only",
            f"write {printable(right)}; for claims, a quota counts <class>.deviceclass.resource.k8s.io/devices",
            edits=edits,
        )


def _role(one: Given) -> Iterator[Finding]:
    for path, rule in entries(one.content, ("rules",)):
        names = rule.get("resourceNames")
        for index, name in enumerate(names if isinstance(names, list) else ()):
            if is_device_resource(str(name)):
                yield one.finding(
                    "role-names",
                    (*path, "resourceNames", index),
                    f"{printable(str(name))} is no name of an object, and a create has no name: the rule never matches",
                    "limit devices by a ResourceQuota; who may make claims is a rule on resourceclaims of resource.k8s.io",
                )


def _configs(one: Given) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the keys of a ConfigMap that have a configuration of NVIDIA's tools."""
    for key, text in mapping(one.content.get("data")).items():
        if isinstance(text, str):
            try:
                found = [document.content for document in documents(io.BytesIO(text.encode()))]
            except (BadDocument, UnicodeEncodeError):
                continue  # another text; whose it is, is not known
            if len(found) == 1 and _is_config(found[0]) and found[0].get("version") == "v1":
                yield str(key), found[0]


def _config(
    one: Given, path: Path, content: Mapping[str, object], known: Known
) -> Iterator[Finding]:
    layouts = _LAYOUTS in content
    found = (known.read_layouts if layouts else known.read_plugin_config)(content)
    rule = "mig-layout" if layouts else "plugin-config"
    for name, mistakes in ((rule, found.mistakes), ("plugin-config-key", found.refusals)):
        for mistake in mistakes:
            # Below a key of a ConfigMap all is one text, so its place is that of the key.
            message, action = _told(mistake, refused=name == "plugin-config-key")
            yield one.finding(name, path or steps(mistake.path), message, action)
    if found.applied_by:
        yield one.finding("mig-layout-by", path, found.applied_by)


def _told(mistake: Mistake, *, refused: bool) -> tuple[str, str]:
    """Return what was found, and what to do: a mistake says what it must be, and a key that is refused can be left out."""
    told = str(mistake)
    must = _MUST_BE.search(told)
    if must:
        return told, f"write {must[1]}"
    message, _, action = told.rpartition("; ")
    return (message, action) if message else (told, _LEAVE_OUT if refused else _CORRECT)


def label_findings(given: Sequence[Given], known: Known) -> Iterator[Finding]:
    """Yield the labels of nodes that name no configuration, if there is a ConfigMap with configurations."""
    maps = [
        (one, [key for key, content in _configs(one) if _LAYOUTS not in content])
        for one in given
        if one.kind == "ConfigMap"
    ]
    maps = [(one, keys) for one, keys in maps if keys]
    if not maps:
        return
    keys = sorted({key for _, found in maps for key in found})
    for one in given:
        label = at(one.content, ("metadata", "labels", _CONFIG_LABEL))
        if one.kind == "Node" and label is not None and label not in keys:
            yield _no_config(
                one, ("metadata", "labels", _CONFIG_LABEL), str(label), "the node", keys
            )
    for node in known.state.nodes if known.state else ():
        label = (node.metadata.labels or {}).get(_CONFIG_LABEL)
        if label is not None and label not in keys:
            yield _no_config(maps[0][0], ("data",), label, f"node {node.metadata.name}", keys)


def _no_config(one: Given, path: Path, label: str, node: str, keys: Sequence[str]) -> Finding:
    message = (
        f"the label {_CONFIG_LABEL}={printable(label)} of {printable(node)} names no configuration"
    )
    return one.finding(
        "plugin-config-label",
        path,
        message,
        f"the ConfigMap has the keys {', '.join(map(printable, keys))}",
    )
