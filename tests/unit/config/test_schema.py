# SPDX-License-Identifier: Apache-2.0
"""The JSON schemas say what the driver checks."""

import json

import pytest

from dra_driver.backends.simulated import SimulatedOptions
from dra_driver.backends.simulated_config import GPU, GPU_OF_LATER_RELEASES, LABEL
from dra_driver.config.document import document
from dra_driver.config.options import OPTIONS
from dra_driver.config.schema import document_schema, kind_schema
from dra_driver.model.config_kind import ConfigKind

SCHEMA = document_schema({"simulated": SimulatedOptions})


def test_the_document_has_every_field_and_no_other() -> None:
    assert list(SCHEMA["properties"]) == list(document().__struct_fields__)
    assert SCHEMA["additionalProperties"] is False
    assert SCHEMA["required"] == ["apiVersion", "kind"]
    level = SCHEMA["properties"]["logLevel"]
    assert (level["enum"], level["default"]) == (["debug", "info", "warning", "error"], "info")
    texts = {option.key: option.help for option in OPTIONS if option.key}
    assert {key: SCHEMA["properties"][key]["description"] for key in texts} == texts


def test_a_backend_that_declares_its_options_has_a_section() -> None:
    backends = SCHEMA["properties"]["backends"]
    section = {"anyOf": [{"$ref": "#/$defs/SimulatedOptions"}, {"type": "null"}]}
    assert list(backends["properties"]) == ["auto", "simulated"]
    assert backends["properties"]["simulated"] == section
    assert backends["properties"]["auto"]["maxProperties"] == 0
    assert backends["additionalProperties"] == {"type": ["object", "null"]}
    options = SCHEMA["$defs"]["SimulatedOptions"]
    assert list(options["properties"]) == list(SimulatedOptions.__struct_fields__)
    assert options["additionalProperties"] is False


@pytest.mark.parametrize("kind", [LABEL, GPU, GPU_OF_LATER_RELEASES], ids=str)
def test_a_kind_has_its_head_and_its_fields(kind: ConfigKind) -> None:
    schema = kind_schema(kind)
    fields = kind.structure.__struct_fields__
    assert list(schema["properties"]) == ["apiVersion", "kind", *fields]
    assert schema["properties"]["apiVersion"] == {"const": kind.api_version}
    assert (schema["required"], schema["additionalProperties"]) == (["apiVersion", "kind"], False)
    references = {
        part.partition('"')[0] for part in json.dumps(schema).split('"$ref": "#/$defs/')[1:]
    }
    assert references == set(schema.get("$defs", {}))
