// Half precision, from CUDA's documentation.
#pragma once

#define R3_T __half
#define R3_PAIR __half2
#define R3_NATIVE _Float16
#include <r3_small_float.h>
#undef R3_T
#undef R3_PAIR
#undef R3_NATIVE

typedef __half half;
typedef __half2 half2;

R3_FN float __half2float(__half a) { return a; }
R3_FN __half __float2half(float a) { return a; }
R3_FN __half __float2half_rn(float a) { return a; }
R3_FN __half __double2half(double a) { return a; }

// To integers toward zero and to nearest, saturating; from integers to nearest.
#define R3_INTEGER(name, T, in_float)                                                       \
  R3_FN T __half2##name##_rz(__half a) { return __float2##in_float##_rz(a); }               \
  R3_FN T __half2##name##_rn(__half a) { return __float2##in_float##_rn(a); }               \
  R3_FN __half __##name##2half_rn(T a) { return a; }
R3_INTEGER(int, int, int)
R3_INTEGER(uint, unsigned, uint)
R3_INTEGER(ll, long long, ll)
R3_INTEGER(ull, unsigned long long, ull)
#undef R3_INTEGER
R3_FN __half __short2half_rn(short a) { return a; }
R3_FN __half __ushort2half_rn(unsigned short a) { return a; }
R3_FN short __half2short_rz(__half a) { return (short)min(max(__float2int_rz(a), -32768), 32767); }
R3_FN unsigned short __half2ushort_rz(__half a) { return (unsigned short)min(__float2uint_rz(a), 65535u); }

R3_FN short __half_as_short(__half a) { return __builtin_bit_cast(short, a); }
R3_FN unsigned short __half_as_ushort(__half a) { return __builtin_bit_cast(unsigned short, a); }
R3_FN __half __short_as_half(short a) { return __builtin_bit_cast(__half, a); }
R3_FN __half __ushort_as_half(unsigned short a) { return __builtin_bit_cast(__half, a); }

R3_FN __half2 make_half2(__half x, __half y) { return __half2(x, y); }
R3_FN __half2 __halves2half2(__half x, __half y) { return __half2(x, y); }
R3_FN __half2 __half2half2(__half a) { return __half2(a, a); }
R3_FN __half2 __float2half2_rn(float a) { return __half2(a, a); }
R3_FN __half2 __floats2half2_rn(float x, float y) { return __half2(x, y); }
R3_FN __half2 __float22half2_rn(float2 a) { return __half2(a.x, a.y); }
R3_FN float2 __half22float2(__half2 a) { return make_float2(a.x, a.y); }
R3_FN __half __low2half(__half2 a) { return a.x; }
R3_FN __half __high2half(__half2 a) { return a.y; }
R3_FN __half2 __low2half2(__half2 a) { return __half2(a.x, a.x); }
R3_FN __half2 __high2half2(__half2 a) { return __half2(a.y, a.y); }
R3_FN __half2 __lows2half2(__half2 a, __half2 b) { return __half2(a.x, b.x); }
R3_FN __half2 __highs2half2(__half2 a, __half2 b) { return __half2(a.y, b.y); }
R3_FN __half2 __lowhigh2highlow(__half2 a) { return __half2(a.y, a.x); }
