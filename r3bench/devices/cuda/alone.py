"""One launch and nothing else, for a tool to watch: ``python -m r3bench.devices.cuda.alone FOLDER``.

In the folder are ``job.json``, ``image``, and the contents of the buffers by number.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from cuda.bindings import driver as cuda

from r3bench.devices.cuda.driver import CudaError, call
from r3bench.devices.cuda.launches import Launches, Shape
from r3bench.devices.cuda.service import Service
from r3bench.devices.cuda.watched import FAILED


class _Plain(Service):
    """No kernels but the one under test."""

    def __init__(self) -> None:
        self.stream = call(cuda.cuStreamCreate, int(cuda.CUstream_flags.CU_STREAM_DEFAULT))

    def poison_shared_memory(self) -> None:
        """Nothing: the tool would watch that, too."""


def main(folder: Path) -> int:
    """Do what the folder says; open the GPU only, where it names no kernel."""
    job = json.loads((folder / "job.json").read_text())
    call(cuda.cuInit, 0)
    device = call(cuda.cuDeviceGet, job["index"] % int(call(cuda.cuDeviceGetCount)))
    call(cuda.cuCtxSetCurrent, call(cuda.cuDevicePrimaryCtxRetain, device))
    if "symbol" not in job:
        return 0
    copy: Any = _placed(job, folder)
    launches = Launches(_Plain())
    launches.load(0, (folder / "image").read_bytes() + b"\0", job["symbol"], job["options"])
    try:
        launches.once(0, copy, Shape.of(job["launch"]))
    except CudaError as error:
        print(error)
        return FAILED
    return 0


def _placed(job: Mapping[str, Any], folder: Path) -> SimpleNamespace:
    """The unit's buffers, each in an allocation of its size, and arguments that point to them."""
    sizes = {name: nbytes for name, nbytes, _ in job["buffers"]}
    addresses = {name: int(call(cuda.cuMemAlloc, max(1, nbytes))) for name, nbytes in sizes.items()}
    held = {name: np.fromfile(folder / str(number), np.uint8) for number, name in enumerate(sizes)}
    arguments = bytearray.fromhex(job["arguments"])
    for holder, offset, target, displacement in job["pointers"]:
        word = (addresses[target] + displacement).to_bytes(8, "little")
        if holder:
            held[holder][offset : offset + 8] = np.frombuffer(word, np.uint8)
        else:
            arguments[offset : offset + 8] = word
    for name, data in held.items():
        if data.size:
            call(cuda.cuMemcpyHtoD, addresses[name], data.ctypes.data_as(ctypes.c_void_p).value, data.size)
    variables = tuple(name for name, _, variable in job["buffers"] if variable)
    return SimpleNamespace(addresses=addresses, sizes=sizes, arguments=bytes(arguments), variables=variables)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
