"""Whether there is a CUDA device to use, without touching CUDA."""

from __future__ import annotations

import importlib.util
import os
import sys

from r3bench.devices.cuda import nvml

SLICE = "MIG-"  # begins the UUID of one
_PACKAGES = "pip install 'r3bench[cuda]'"


def missing() -> tuple[str, str] | None:
    """Why no CUDA device can be used here and what to do about it; None if one can."""
    if sys.platform != "linux":
        return f"the CUDA device does not run on {sys.platform}", "use Linux"
    try:
        with nvml.opened() as library:
            names = library.names()
    except OSError as error:
        return f"no NVIDIA driver is here ({error})", "install one, or use --r3-device cpu"
    if not names:
        return "the driver finds no GPU", "see nvidia-smi, or use --r3-device cpu"
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return "CUDA_VISIBLE_DEVICES hides every GPU", "set it to a GPU's number, or unset it"
    if not _importable("cuda.bindings"):
        return "the package cuda-bindings is not installed", _PACKAGES
    return None


def description() -> str:
    """The GPUs and the driver of this machine."""
    with nvml.opened() as library:
        return f"{', '.join(library.names())}, driver {library.driver()}"


def visible() -> list[str]:
    """The GPUs to use here, and in place of one that is cut into MIG slices its slices, each as CUDA_VISIBLE_DEVICES
    would name it alone; empty where none can be used."""
    if missing():
        return []
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "").strip()
    with nvml.opened() as library:
        slices = library.slices()
        names = [name.strip() for name in given.split(",")] if given else map(str, range(len(library.names())))
        return [device for name in names for device in slices.get(name, [name])]


def environment(index: int) -> dict[str, str]:
    """What a process needs in its environment for its GPU number ``index``: CUDA shows it one MIG slice, the first."""
    names = visible()
    slices = any(name.startswith(SLICE) for name in names)
    return {"CUDA_VISIBLE_DEVICES": names[index % len(names)]} if slices else {}


def default_index() -> int:
    """Which of the visible GPUs to use: worker N of pytest-xdist takes number N, counted around."""
    number = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return int(number) if number.isdigit() else 0


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
