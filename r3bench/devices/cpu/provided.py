"""The functions a kernel's object may call: the C library's mathematics, memory copies, narrow floats."""

from __future__ import annotations

_IN_BOTH_PRECISIONS = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1 fabs fdim floor
    fma fmax fmin fmod frexp hypot ilogb j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround
    modf nearbyint nextafter pow remainder remquo rint round roundeven scalbln scalbn sin sincos sinh sqrt tan tanh
    tgamma trunc y0 y1 yn
"""

MATH = frozenset(_IN_BOTH_PRECISIONS.split()) | frozenset(name + "f" for name in _IN_BOTH_PRECISIONS.split())
MEMORY = frozenset({"memcpy", "memmove", "memset", "memcmp"})
# Defined by driver.c; called by code for processors that lack the instructions.
CONVERSIONS = frozenset({"__truncsfhf2", "__truncdfhf2", "__truncsfbf2", "__truncdfbf2", "__extendhfsf2"})
# Defined by blocks.c: whose turn it is among the threads of a block.
TURNS = frozenset({"__r3_run_block", "__r3_frame_bytes", "__r3_apart", "__r3_left_out"})
NAMES = TURNS | MATH | MEMORY | CONVERSIONS
# Defined by driver.c too; for checked builds only.
CHECKS = frozenset({"__r3_check"})

# Not a function: the assembler names it when code is position independent.
IGNORED = frozenset({"_GLOBAL_OFFSET_TABLE_"})
