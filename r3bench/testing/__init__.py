"""For tests, ours and other people's: the suite that a back end must pass, and a device without hardware.

A back end is put to the test by a subclass with two fixtures::

    class TestMine(DeviceContract):
        @pytest.fixture
        def device(self): ...           # an open device, closed afterwards
        @pytest.fixture
        def binary_for(self): ...       # a function from a kernel's name in CONTRACT_SOURCE to its Binary
"""

from r3bench.testing.contract import CONTRACT_SOURCE, DeviceContract
from r3bench.testing.fake import FakeDevice, FakeLaunch, Program, fake_binary

__all__ = ["CONTRACT_SOURCE", "DeviceContract", "FakeDevice", "FakeLaunch", "Program", "fake_binary"]
