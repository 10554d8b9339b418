# SPDX-License-Identifier: Apache-2.0
"""This module writes YAML that each reader understands alike: kubectl by its rules, Python and other tools by those of YAML 1.1 or 1.2."""

from collections.abc import Mapping
from typing import Any

import yaml

from dra_driver.model.yaml_scalars import TEXT, resolved, tag_of

_WIDE = 10_000  # an expression stays in its line


class _Dumper(yaml.SafeDumper):
    """Quotes a text that PyYAML would read as text, but kubectl as a number or boolean: n, 08, 12345e7."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        usual: Any = super()
        found = usual.resolve(kind, value, implicit)
        is_plain_text = kind is yaml.ScalarNode and implicit[0] and found == TEXT
        return tag_of(resolved(value)) if is_plain_text else found


def yaml_text(content: Mapping[str, Any], *, is_ascii: bool = False, width: int = _WIDE) -> str:
    """Return the object as YAML, its fields in their order."""
    return yaml.dump(
        content, Dumper=_Dumper, sort_keys=False, width=width, allow_unicode=not is_ascii
    )


def yaml_in_one_line(content: Mapping[str, Any]) -> str:
    """Return the object as YAML of one line, to show in a sentence."""
    text = yaml.dump(content, Dumper=_Dumper, sort_keys=False, default_flow_style=True)
    return " ".join(text.split())
