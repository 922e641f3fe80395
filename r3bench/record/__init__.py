"""Record launches of an application's kernels into captures.

::

    session.py      Session: load, launch, choose, save          memory.py     arrays, and pointers into them
    module.py       kernels and variables of a source file       arguments.py  values as an argument block
    variables.py    first values of variables, from the IR
"""

from r3bench.record.memory import DeviceArray, Struct, View
from r3bench.record.module import Module
from r3bench.record.session import Session, VacuousUnit

__all__ = ["DeviceArray", "Module", "Session", "Struct", "VacuousUnit", "View"]
