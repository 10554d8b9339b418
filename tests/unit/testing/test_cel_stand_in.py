# SPDX-License-Identifier: Apache-2.0
"""Does the stand-in answer as Kubernetes does, and say so where it does not know?"""

import subprocess
import sys

import pytest

from dra_driver.testing.cel_stand_in import CannotEvaluate, Selector, SelectorError

DRIVER = "gpu.example.com"
GPU = f'device.attributes["{DRIVER}"]'
DEVICE = {
    "name": "gpu-0",
    "attributes": {
        "model": {"string": "fish"},
        "index": {"int": 3},
        "healthy": {"bool": True},
        "driverVersion": {"version": "1.2.3-rc.1+build"},
        "resource.kubernetes.io/numaNode": {"int": 1},
        f"{DRIVER}/qualified": {"string": "own domain"},
    },
    "capacity": {"memory": {"value": "80Gi"}},
}
MEMORY = f'device.capacity["{DRIVER}"].memory'

TRUE = (
    f'device.driver == "{DRIVER}"',
    f'{GPU}.model == "fish"',
    f'{GPU}["model"].startsWith("fi")',
    f'{GPU}.model.matches("^f.*h$")',
    f'{GPU}.qualified == "own domain"',
    'device.attributes["resource.kubernetes.io"].numaNode == 1',
    f"{GPU}.healthy",
    f"{GPU}.healthy && {GPU}.index + 1 > 3",
    f'{GPU}.model in ["cat", "fish"]',
    f"has({GPU}.model) && !has({GPU}.missing)",
    f'"model" in {GPU} && !("missing" in {GPU})',
    '!("other.example.com" in device.attributes) && !has(device.attributes["other.example.com"].x)',
    f'{GPU}.exists(name, name == "model")',
    f"{GPU}.missing == 1 || true",
    "!device.allowMultipleAllocations",
    f'{MEMORY}.compareTo(quantity("40Gi")) == 1',
    f'{MEMORY}.compareTo(quantity("81920Mi")) == 0',
    f'{MEMORY} == quantity("81920Mi")',
    f'{MEMORY}.isGreaterThan(quantity("79.9Gi")) && {MEMORY}.isLessThan(quantity("0.1Ti"))',
    f'{MEMORY}.add(quantity("1Gi")).sub(1).asInteger() == 86973087743',
    'quantity("1500m").asApproximateFloat() == 1.5 && !quantity("1500m").isInteger()',
    'sign(quantity("-1")) == -1 && sign(quantity("0")) == 0',
    'isQuantity("80Gi") && !isQuantity("80 GB")',
    f'{GPU}.driverVersion == semver("1.2.3-rc.1+other")',
    f'{GPU}.driverVersion.isLessThan(semver("1.2.3"))',
    f'{GPU}.driverVersion.compareTo(semver("1.2.3-beta")) == 1',
    f"{GPU}.driverVersion.major() + {GPU}.driverVersion.minor() + {GPU}.driverVersion.patch() == 6",
    'isSemver("1.2.3") && !isSemver("1.2")',
)
FALSE = (
    'device.driver == "other"',
    f'{MEMORY}.compareTo(quantity("80.5Gi")) >= 0',
    f'device.driver == "other" && {GPU}.missing == 1',
    f"{GPU}.missing == 1 && false",
    f'"{DRIVER}" == "x" ? {GPU}.missing : false',
)
FAILS = {
    f"{GPU}.missing == 1": "no such key: missing",
    'device.attributes["other.example.com"].x == 1': "no such key: x",
    'quantity("80 GB").asInteger() == 1': "80 GB",
    'semver("1.2") == semver("1.2.0")': "1.2",
    'quantity("1.5").asInteger() == 1': "cannot convert",
    f"{GPU}.index": "not true or false",
    "9223372036854775807 + 1 == 0": "overflow",
}
NOT_KNOWN = {
    f'{GPU}.?model.orValue("") == "fish"': "cannot read",
    "cel.bind(x, 1, x == 1)": "function .bind()",
    f'{GPU}.model.lowerAscii() == "fish" || true': "function .lowerAscii()",
    "sets.contains([1], [1])": "name sets",
    'ip("10.0.0.1").family() == 4': "function ip()",
    "type(1) == int": "function type()",
    "device.name == 'gpu-0' || true": "field device.name",
    "gpu.driver == 'x' || true": "name gpu",
    "[1].exists(i, v, true)": "macro .exists()",
    "T{a: 1} == 1 || true": "name T",
    ".device.driver == 'x'": "leading dot",
    f"{GPU}.index == 3.0": "types",
    f"{GPU}.index == 'x'": "types",
    f"{GPU}.healthy == 1": "types",
    f"{GPU}.healthy != 1": "types",
    f"{GPU}.index in ['x', 3]": "types",
    "'abc'[0] == 'a'": "types",
    f'{GPU}.driverVersion == "1.2.3"': "types",
    f'{MEMORY} >= quantity("1")': "types",
    f'{MEMORY}.compareTo(semver("1.0.0")) == 0': "types",
    "quantity(1).isInteger()": "types",
    "true.exists_one(k, k)": "cel-python itself failed",
    'quantity("1").major() == 1': "types",
    'semver("1.0.0").isInteger()': "types",
}


@pytest.mark.parametrize("expression", TRUE)
def test_what_is_true_selects(expression: str) -> None:
    assert Selector(expression).matches(DRIVER, DEVICE) is True


@pytest.mark.parametrize("expression", FALSE)
def test_what_is_false_does_not(expression: str) -> None:
    assert Selector(expression).matches(DRIVER, DEVICE) is False


@pytest.mark.parametrize(("expression", "why"), FAILS.items())
def test_what_fails_in_kubernetes_fails_here_and_names_the_device(
    expression: str, why: str
) -> None:
    with pytest.raises(SelectorError, match="on device gpu-0") as caught:
        Selector(expression).matches(DRIVER, DEVICE)
    assert why in str(caught.value)


@pytest.mark.parametrize(("expression", "why"), NOT_KNOWN.items())
def test_what_is_not_known_is_refused_even_where_or_would_hide_it(
    expression: str, why: str
) -> None:
    with pytest.raises(CannotEvaluate) as caught:
        Selector(expression).matches(DRIVER, DEVICE)
    assert why in str(caught.value)


def test_an_attribute_of_an_unknown_kind_is_refused() -> None:
    device = {"name": "gpu-0", "attributes": {"names": {"strings": ["a"]}}}
    with pytest.raises(CannotEvaluate, match="'strings'"):
        Selector("true").matches(DRIVER, device)


def test_an_expression_beyond_the_limit_of_the_api_is_an_error() -> None:
    with pytest.raises(SelectorError, match="10241 bytes"):
        Selector("1 == 1 && ".ljust(10240) + "1")


def test_without_cel_python_the_error_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['celpy'] = None\n"
        "from dra_driver.testing.cel_stand_in import Selector\n"
        "Selector('true')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        "dra_driver.errors.Fatal: evaluating CEL needs the package cel-python: pip install dra-driver[demo]"
    )


def test_a_selector_shows_its_expression() -> None:
    assert repr(Selector("true")) == "Selector('true')"
