# SPDX-License-Identifier: Apache-2.0
"""Pod templates are found wherever they are in an object."""

from typing import Any

from dra_driver.model.pod_templates import pod_templates

TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "c"}]}}


def test_a_template_is_what_has_containers_in_its_spec() -> None:
    content = {
        "spec": {
            "groups": [{"template": TEMPLATE}, 7],
            "head": {"template": TEMPLATE, "other": {"spec": {"containers": []}}},
            "predictor": {"containers": [{"name": "c"}]},
        }
    }
    assert list(pod_templates(content)) == [
        (("spec", "groups", 0, "template"), TEMPLATE),
        (("spec", "head", "template"), TEMPLATE),
    ]


def test_a_template_in_a_template_is_a_part_of_it() -> None:
    assert list(pod_templates({**TEMPLATE, "inner": TEMPLATE})) == [
        ((), {**TEMPLATE, "inner": TEMPLATE})
    ]


def test_what_is_nested_too_deeply_is_not_looked_at() -> None:
    assert list(pod_templates({"a": TEMPLATE}, levels=2))
    assert list(pod_templates({"a": TEMPLATE}, levels=1)) == []
