# SPDX-License-Identifier: Apache-2.0
"""Every value is one that the API server takes, and every key that is refused has its reason."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.planning.label_text import label_key_problem, label_value, taint_key_problem

# The rule of the API server for values (k8s.io/apimachinery/pkg/util/validation).
VALID = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")


@pytest.mark.parametrize(
    ("text", "suffix", "value"),
    [
        ("NVIDIA H100 80GB HBM3", "", "NVIDIA-H100-80GB-HBM3"),
        ("Tesla T4", "-SHARED", "Tesla-T4-SHARED"),
        ("NVIDIA A100-SXM4-40GB", "-MIG-1g.5gb", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"),
        ("  two   blanks ", "", "two-blanks"),
        ("Intel(R) Arc™ B580", "", "IntelR-Arc-B580"),
        ("-_.edges._-", "", "edges"),
        ("グラフィックス", "", ""),
        ("", "-SHARED", "SHARED"),
        ("x" * 80, "", "x" * 63),
        ("x" * 80, "-SHARED", "x" * 56 + "-SHARED"),
        ("a" * 55 + " bcd", "-SHARED", "a" * 55 + "-SHARED"),
        ("GPU", "-" + "y" * 80, "y" * 63),
    ],
)
def test_a_name_becomes_a_value(text: str, suffix: str, value: str) -> None:
    assert label_value(text, suffix) == value


@given(st.text(max_size=90), st.sampled_from(["", "-SHARED", "-MIG-1g.5gb-SHARED"]))
def test_whatever_a_device_is_called_the_value_is_valid(text: str, suffix: str) -> None:
    value = label_value(text, suffix)
    assert VALID.fullmatch(value)
    assert len(value) <= 63


@pytest.mark.parametrize("key", ["accelerator", "gpu-memory", "example.com/gpu", "a", "A.b_c-9"])
def test_keys_of_the_clusters_own_are_taken(key: str) -> None:
    assert label_key_problem(key) == ""


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("", "the name in a key has"),
        ("-a", "the name in a key has"),
        ("x" * 64, "the name in a key has"),
        ("example.com/", "the name in a key has"),
        ("Example.com/gpu", "the part of a key before the slash"),
        ("/gpu", "the part of a key before the slash"),
        (f"{'x' * 254}/gpu", "the part of a key before the slash"),
        ("kubernetes.io/gpu", "belong to Kubernetes"),
        ("node-role.kubernetes.io/gpu", "belong to Kubernetes"),
        ("k8s.io/gpu", "belong to Kubernetes"),
    ],
)
def test_other_keys_are_refused_with_the_reason(key: str, said: str) -> None:
    assert said in label_key_problem(key)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("example.com/startup", ""),
        ("startup-taint.cluster-autoscaler.kubernetes.io/gpu", ""),
        ("readiness.k8s.io/gpu", ""),
        ("startup", ""),
        ("", "the name in a key has"),
        ("node.kubernetes.io/not-ready", "belong to Kubernetes"),
    ],
)
def test_a_startup_taint_is_none_that_kubernetes_sets_itself(key: str, said: str) -> None:
    assert said in taint_key_problem(key)
    assert bool(said) is bool(taint_key_problem(key))
