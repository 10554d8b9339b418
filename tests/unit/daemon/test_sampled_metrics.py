# SPDX-License-Identifier: Apache-2.0
"""Samples in the text format of Prometheus, also while the hardware hangs."""

from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest

from dra_driver.daemon.sampled_metrics import SampledMetrics
from dra_driver.model.ids import DeviceName
from dra_driver.model.usage import DeviceUsage, NodeUsage, UsageSample
from dra_driver.planning.metrics.aliases import SCHEMES
from dra_driver.planning.metrics.families import Place
from dra_driver.testing.builders import A_DRIVER, A_NODE, A_POOL, a_device

PLACE = Place(A_DRIVER, A_POOL, A_NODE)
USAGE = NodeUsage(
    (a_device("gpu-0", attributes={"productName": 'A "quoted" name'}),),
    {DeviceName("gpu-0"): UsageSample(DeviceUsage(temperature_celsius=61.0), 100.0)},
    (),
)


def scrape(now: float, usage: NodeUsage = USAGE, *names: str) -> list[str]:
    registry = CollectorRegistry()
    names = names or ("own",)
    registry.register(SampledMetrics(lambda: usage, clock=lambda: now, place=PLACE, names=names))
    return generate_latest(registry).decode().splitlines()


def test_a_sample_is_a_line_with_labels() -> None:
    assert (
        'dra_driver_device_temperature_celsius{claim="",container="",device="gpu-0",driver="gpu.dra-driver.dev",'
        'namespace="",pod="",product="A \\"quoted\\" name",uuid="uuid-gpu-0"} 61.0'
    ) in scrape(110.0)


def test_a_text_with_odd_characters_costs_nobody_the_scrape() -> None:
    product = 'half \udcff, line\nbreak, \\ and "é"'
    odd = replace(USAGE, devices=(a_device("gpu-0", attributes={"productName": product}),))
    (line,) = [line for line in scrape(110.0, odd) if line.startswith("dra_driver_device_temp")]
    assert 'product="half ?, line\\nbreak, \\\\ and \\"é\\"",' in line


def test_a_thousand_devices_have_a_series_each() -> None:
    devices = tuple(a_device(f"gpu-{number}") for number in range(1000))
    samples = {
        one.name: UsageSample(DeviceUsage(temperature_celsius=61.0), 100.0) for one in devices
    }
    lines = scrape(110.0, NodeUsage(devices, samples, ()), *SCHEMES)
    for name in ("dra_driver_device_temperature_celsius", "DCGM_FI_DEV_GPU_TEMP"):
        assert len([line for line in lines if line.startswith(f"{name}{{")]) == 1000


def test_a_gpu_that_hangs_loses_its_values_and_shows_the_age_of_the_last_ones() -> None:
    lines = scrape(400.0)
    assert not [line for line in lines if line.startswith("dra_driver_device_temperature_celsius{")]
    assert 'dra_driver_device_sample_age_seconds{device="gpu-0"} 300.0' in lines


def test_names_and_meanings_are_there_without_samples() -> None:
    lines = scrape(0.0, NodeUsage())
    assert "# TYPE dra_driver_claim_device_seconds_total counter" in lines
    assert not [line for line in lines if not line.startswith("#")]
