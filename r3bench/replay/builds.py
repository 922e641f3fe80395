"""A variant becomes a binary: the image that the application ran, or what a compiler makes of the source."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from time import perf_counter
from typing import Protocol

from r3bench import remix, store
from r3bench.errors import CandidateFailure
from r3bench.model import Binary, Capture, Target, Variant
from r3bench.remix import BuildRequest
from r3bench.replay.placement import Material
from r3bench.toolchain import Built

_LOADED_BY = {"cubin": "cuda", "fatbin": "cuda", "ptx": "cuda", "hsaco": "hip"}


class Builder(Protocol):
    """What replay needs of a compiler; :class:`r3bench.toolchain.Compiler` is one."""

    def submit(self, request: BuildRequest) -> Future[Built]: ...

    def close(self) -> None: ...


def recorded_image(material: Material, target: Target) -> Built | None:
    """The image that the application itself ran; None where none was recorded, or none for this target."""
    if not image_loads(material.capture, target):
        return None
    begin = perf_counter()
    image = store.image(material.capture)
    assert image is not None
    assert material.capture.image_format is not None
    binary = Binary(target=target, symbol=material.capture.symbol, image=image, format=material.capture.image_format)
    return Built(binary=binary, module=f"image {binary.sha256}", stages=(("image", perf_counter() - begin),))


def image_loads(capture: Capture, target: Target) -> bool:
    """Whether a capture holds an image for this target: PTX and fat binaries are for any GPU, others for one kind."""
    if capture.image_format is None or target.device != _LOADED_BY[capture.image_format]:
        return False
    return capture.image_format in ("ptx", "fatbin") or dict(capture.recorded_on).get("arch") == target.arch


def _image(material: Material, variant: Variant, target: Target) -> Built | None:
    """Machine code that is there already: a variant's own, or for the recorded kernel the application's."""
    if variant.image is not None:
        binary = Binary(target=target, symbol=material.capture.symbol, image=variant.image, format="cubin")
        return Built(binary=binary, module=f"image {binary.sha256}")
    return None if variant.files or variant.configuration else recorded_image(material, target)


def build(
    material: Material,
    variant: Variant,
    target: Target,
    compiler: Builder,
    *,
    checked: bool = False,
    padded: bool = False,
) -> Future[Built]:
    """Start building a variant for a unit; a variant that cannot even be asked for fails in the future too.

    The recorded kernel is the application's own image, where one was recorded that the target can load. ``checked``
    asks for the build that checks every access, which only the CPU device runs, ``padded`` for another binary of equal
    work.
    """
    made = _image(material, variant, target)
    if made is not None:
        ready: Future[Built] = Future()
        ready.set_result(made)
        return ready
    try:
        request = remix.build_request(material.capture, material.texts, material.unit, variant, target)
        return compiler.submit(replace(request, checked=checked, padded=padded))
    except CandidateFailure as failure:
        failed: Future[Built] = Future()
        failed.set_exception(failure)
        return failed
