"""Which devices there are, and which one is opened."""

from __future__ import annotations

import pytest

from r3bench.devices import open_device, survey
from r3bench.errors import DeviceUnavailable


def test_survey_names_every_kind_and_what_to_do() -> None:
    found = {status.name: status for status in survey()}
    assert list(found) == ["cuda", "hip", "cpu"]
    assert found["cpu"].usable
    assert not found["hip"].usable
    for status in found.values():
        assert status.detail
        assert status.usable or status.remedy


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hip", "device hip cannot be used: the HIP device is not part of this version"),
        ("abacus", "there is no device 'abacus'; choose auto, cuda, cpu\\."),
    ],
)
def test_devices_that_cannot_be_used(name: str, message: str) -> None:
    with pytest.raises(DeviceUnavailable, match=message):
        open_device(name)


@pytest.mark.skipif(survey()[0].usable, reason="a CUDA device is here, and auto takes it first")
def test_auto_is_the_best_usable() -> None:
    device = open_device("auto", threads=1)
    assert device.name == "cpu"
    device.close()
