// bfloat16, from CUDA's documentation.
#pragma once

#define R3_T __nv_bfloat16
#define R3_PAIR __nv_bfloat162
#define R3_NATIVE __bf16
#include <r3_small_float.h>
#undef R3_T
#undef R3_PAIR
#undef R3_NATIVE

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

R3_FN float __bfloat162float(__nv_bfloat16 a) { return a; }
R3_FN __nv_bfloat16 __float2bfloat16(float a) { return a; }
R3_FN __nv_bfloat16 __float2bfloat16_rn(float a) { return a; }
R3_FN __nv_bfloat16 __double2bfloat16(double a) { return a; }
R3_FN int __bfloat162int_rz(__nv_bfloat16 a) { return __float2int_rz(a); }
R3_FN int __bfloat162int_rn(__nv_bfloat16 a) { return __float2int_rn(a); }
R3_FN __nv_bfloat16 __int2bfloat16_rn(int a) { return a; }
R3_FN unsigned __bfloat162uint_rz(__nv_bfloat16 a) { return __float2uint_rz(a); }
R3_FN __nv_bfloat16 __uint2bfloat16_rn(unsigned a) { return a; }

R3_FN short __bfloat16_as_short(__nv_bfloat16 a) { return __builtin_bit_cast(short, a); }
R3_FN unsigned short __bfloat16_as_ushort(__nv_bfloat16 a) { return __builtin_bit_cast(unsigned short, a); }
R3_FN __nv_bfloat16 __short_as_bfloat16(short a) { return __builtin_bit_cast(__nv_bfloat16, a); }
R3_FN __nv_bfloat16 __ushort_as_bfloat16(unsigned short a) { return __builtin_bit_cast(__nv_bfloat16, a); }

R3_FN __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return __nv_bfloat162(x, y); }
R3_FN __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return __nv_bfloat162(x, y); }
R3_FN __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return __nv_bfloat162(a, a); }
R3_FN __nv_bfloat162 __float2bfloat162_rn(float a) { return __nv_bfloat162(a, a); }
R3_FN __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return __nv_bfloat162(x, y); }
R3_FN __nv_bfloat162 __float22bfloat162_rn(float2 a) { return __nv_bfloat162(a.x, a.y); }
R3_FN float2 __bfloat1622float2(__nv_bfloat162 a) { return make_float2(a.x, a.y); }
R3_FN __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) { return a.x; }
R3_FN __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) { return a.y; }
R3_FN __nv_bfloat162 __low2bfloat162(__nv_bfloat162 a) { return __nv_bfloat162(a.x, a.x); }
R3_FN __nv_bfloat162 __high2bfloat162(__nv_bfloat162 a) { return __nv_bfloat162(a.y, a.y); }
R3_FN __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 a) { return __nv_bfloat162(a.y, a.x); }
