# SPDX-License-Identifier: Apache-2.0
"""The JSON schemas of the config document and of kinds of configuration, for editors and for docs/reference."""

from collections.abc import Mapping
from typing import Any

import msgspec

from dra_driver.backends.base import AUTO
from dra_driver.config.document import KIND, document
from dra_driver.model.config_kind import ConfigKind

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE = "#/$defs/{name}"
Schema = dict[str, Any]


def document_schema(options: Mapping[str, type[msgspec.Struct]]) -> Schema:
    """The schema of the whole config document. `options` are the declared options of backends by name.

    Backends that are not among them may have any options.
    """
    structures = [document(), *options.values()]
    found, definitions = msgspec.json.schema_components(structures, ref_template=_REFERENCE)
    (_, *sections) = found
    body: Schema = dict(definitions.pop(KIND))
    named = {name: _or_null(section) for name, section in zip(options, sections, strict=True)}
    auto = {"description": "It has no options.", "type": ["object", "null"], "maxProperties": 0}
    body["properties"] = body["properties"] | {
        "backends": {
            "description": body["properties"]["backends"]["description"],
            "type": ["object", "null"],
            "properties": {AUTO: auto, **named},
            "additionalProperties": {"type": ["object", "null"]},
        }
    }
    return {"$schema": DIALECT, **body, "$defs": definitions}


def kind_schema(kind: ConfigKind) -> Schema:
    """The schema of `opaque.parameters` of this kind."""
    (_,), definitions = msgspec.json.schema_components([kind.structure], ref_template=_REFERENCE)
    body: Schema = dict(definitions.pop(kind.structure.__name__))
    head = {"apiVersion": {"const": kind.api_version}, "kind": {"const": kind.kind}}
    return {
        "$schema": DIALECT,
        **body,
        "title": kind.kind,
        "properties": head | body["properties"],
        "required": [*head, *body["required"]],
        "additionalProperties": False,
        **({"$defs": definitions} if definitions else {}),
    }


def _or_null(section: Schema) -> Schema:
    return {"anyOf": [section, {"type": "null"}]}
