# SPDX-License-Identifier: Apache-2.0
"""PCI addresses are read as sysfs and NVML write them, and name devices."""

import pytest

from dra_driver.errors import Permanent
from dra_driver.model.dns_names import is_label_key
from dra_driver.model.pci import PciAddress
from dra_driver.model.printable import printable


@pytest.mark.parametrize(
    ("text", "address", "name"),
    [
        ("0000:65:00.0", "0000:65:00.0", "gpu-0000-65-00-0"),
        ("00000000:65:00.0", "0000:65:00.0", "gpu-0000-65-00-0"),  # NVML
        ("0000:AF:1F.7", "0000:af:1f.7", "gpu-0000-af-1f-7"),
        ("10000:01:00.0", "10000:01:00.0", "gpu-10000-01-00-0"),  # a domain of Intel VMD
    ],
)
def test_one_address_has_one_text_and_one_name(text: str, address: str, name: str):
    parsed = PciAddress.parse(text)
    assert (str(parsed), parsed.name("gpu")) == (address, name)
    assert PciAddress.parse(str(parsed)) == parsed
    assert is_label_key(name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "65:00.0",
        "0000:65:00",
        "0000:65:00.8",
        "0000:65:20.0",
        "0000:6g:00.0",
        " 0000:65:00.0",
        "x\n",
    ],
)
def test_other_text_is_refused_with_an_example(text: str):
    with pytest.raises(
        Permanent, match=r"is no PCI address; .* for example 0000:65:00.0"
    ) as raised:
        PciAddress.parse(text)
    assert printable(str(raised.value)) == str(raised.value)
