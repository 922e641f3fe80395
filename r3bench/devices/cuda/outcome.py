"""What an error of CUDA's driver means for a candidate: refused, at fault, or the GPU's own trouble."""

from __future__ import annotations

from r3bench.errors import DeviceFault, DeviceUnavailable, LaunchError, R3Error

_OUT_OF_MEMORY = 2
# The numbers are CUresult's.
_FAULTS = {
    700: "touched memory that is not its own",
    702: "ran longer than the driver allows",
    710: "failed an assertion",
    714: "overran its stack or met another hardware error",
    715: "trapped, or executed an illegal instruction",
    716: "accessed memory at an address that its type does not allow",
    717: "used an address of another kind of memory than the instruction takes",
    718: "jumped to an address that is no code",
    719: "failed on the device (a trap, or an access outside of shared or local memory)",
}
_UNFIT = {
    209: "is for another kind of GPU",
    218: "is PTX that the driver's compiler refuses",
    222: "is PTX of a newer version than the driver knows: install a newer driver, or build it for this one",
}
_UNAVAILABLE = {
    3: "the driver is shutting down",
    46: "it is busy or in exclusive use",
    100: "there is no GPU, or CUDA_VISIBLE_DEVICES hides it",
    101: "there is no GPU of that number",
    214: "it met a memory error that could not be corrected (ECC)",
    220: "its link met an error",
    221: "the driver's compiler of PTX is missing; install the driver whole, or r3bench[cuda]",
    226: "it met an error of its hardware that was contained",
    802: "the system is not ready; its fabric manager may not run",
    803: "the driver and CUDA do not fit each other; install a newer driver",
    804: "the driver is too old for this GPU and CUDA; install a newer driver",
    999: "the driver met an unknown error",
}


def failure(what: str, code: int, name: str, call: str, *, lost: bool) -> R3Error:
    """The error to raise for ``what`` (a kernel or a step): by the driver's code, and whether the context was lost."""
    if code in _UNAVAILABLE:
        return DeviceUnavailable(f"the GPU cannot be used: {_UNAVAILABLE[code]} ({name}); see nvidia-smi.")
    if code in _FAULTS:
        return DeviceFault(f"{what} {_FAULTS[code]} ({name})")
    if code in _UNFIT:
        return LaunchError(f"{what}: the code {_UNFIT[code]} ({name} in {call})")
    if code == _OUT_OF_MEMORY:
        return LaunchError(f"out of memory: {what} needs more than the GPU has left ({call})")
    if lost:
        return DeviceFault(f"{what} ended the GPU's context ({name} in {call})")
    return LaunchError(f"{what} was refused by the driver ({name} in {call})")
