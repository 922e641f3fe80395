// Integer intrinsics, casts between numbers and between bit patterns. Part of the device prelude.
#pragma once

R3_PURE int __popc(unsigned) R3_IS("llvm.ctpop.i32");
R3_FN int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
R3_FN int __clz(int x) { return __builtin_clzg((unsigned)x, 32); }
R3_FN int __clzll(long long x) { return __builtin_clzg((unsigned long long)x, 64); }
R3_FN int __ffs(int x) { return __builtin_ffs(x); }
R3_FN int __ffsll(long long x) { return __builtin_ffsll(x); }
R3_PURE unsigned __brev(unsigned) R3_IS("llvm.bitreverse.i32");
R3_PURE unsigned long long __brevll(unsigned long long) R3_IS("llvm.bitreverse.i64");
R3_FN unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  return __nvvm_prmt(x, y, selector & 0x7777);
}

R3_FN int __mulhi(int x, int y) { return (long long)x * y >> 32; }
R3_FN unsigned __umulhi(unsigned x, unsigned y) { return (unsigned long long)x * y >> 32; }
R3_FN long long __mul64hi(long long x, long long y) { return (__int128)x * y >> 64; }
R3_FN unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (unsigned __int128)x * y >> 64;
}
R3_FN int __mul24(int x, int y) { return (int)((unsigned)((x << 8) >> 8) * (unsigned)((y << 8) >> 8)); }
R3_FN unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffff) * (y & 0xffffff); }
R3_FN unsigned __sad(int x, int y, unsigned z) {
  return z + (x < y ? (unsigned)y - (unsigned)x : (unsigned)x - (unsigned)y);
}
R3_FN unsigned __usad(unsigned x, unsigned y, unsigned z) { return z + (x < y ? y - x : x - y); }
R3_FN int __hadd(int x, int y) { return (int)(((long long)x + y) >> 1); }
R3_FN int __rhadd(int x, int y) { return (int)(((long long)x + y + 1) >> 1); }
R3_FN unsigned __uhadd(unsigned x, unsigned y) { return ((unsigned long long)x + y) >> 1; }
R3_FN unsigned __urhadd(unsigned x, unsigned y) { return ((unsigned long long)x + y + 1) >> 1; }

R3_FN unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
  return __builtin_elementwise_fshl(high, low, n);
}
R3_FN unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n) {
  return __builtin_elementwise_fshr(high, low, n);
}
R3_FN unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned n) {
  return n >= 32 ? low : __builtin_elementwise_fshl(high, low, n);
}
R3_FN unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned n) {
  return n >= 32 ? high : __builtin_elementwise_fshr(high, low, n);
}

// Dot products of packed bytes (dp4a) and of two 16-bit by two 8-bit numbers (dp2a).
#define R3_BYTE(T, word, i) ((int)(T)((word) >> (8 * (i))))
#define R3_DOT(T, Word, Byte, Half)                                                                          \
  R3_FN T __dp4a(Word a, Word b, T c) {                                                                      \
    for (int i = 0; i < 4; ++i) c += R3_BYTE(Byte, a, i) * R3_BYTE(Byte, b, i);                              \
    return c;                                                                                                \
  }                                                                                                          \
  R3_FN T __dp2a_lo(Word a, Word b, T c) {                                                                   \
    return c + (Half)a * R3_BYTE(Byte, b, 0) + (Half)(a >> 16) * R3_BYTE(Byte, b, 1);                        \
  }                                                                                                          \
  R3_FN T __dp2a_hi(Word a, Word b, T c) {                                                                   \
    return c + (Half)a * R3_BYTE(Byte, b, 2) + (Half)(a >> 16) * R3_BYTE(Byte, b, 3);                        \
  }
R3_DOT(int, int, signed char, short)
R3_DOT(unsigned, unsigned, unsigned char, unsigned short)
#undef R3_DOT
#undef R3_BYTE

// Number to number with a rounding mode, saturating.
#define R3_CAST(To, From, name) R3_PURE To __##name(From) R3_IS("__nv_" #name);
#define R3_CAST4(To, From, name)                                                                             \
  R3_CAST(To, From, name##_rn) R3_CAST(To, From, name##_rz)                                                  \
  R3_CAST(To, From, name##_ru) R3_CAST(To, From, name##_rd)
R3_CAST4(int, float, float2int)
R3_CAST4(unsigned, float, float2uint)
R3_CAST4(long long, float, float2ll)
R3_CAST4(unsigned long long, float, float2ull)
R3_CAST4(int, double, double2int)
R3_CAST4(unsigned, double, double2uint)
R3_CAST4(long long, double, double2ll)
R3_CAST4(unsigned long long, double, double2ull)
R3_CAST4(float, double, double2float)
R3_CAST4(float, int, int2float)
R3_CAST4(float, unsigned, uint2float)
R3_CAST4(float, long long, ll2float)
R3_CAST4(float, unsigned long long, ull2float)
R3_CAST4(double, long long, ll2double)
R3_CAST4(double, unsigned long long, ull2double)
R3_CAST(double, int, int2double_rn)
R3_CAST(double, unsigned, uint2double_rn)
#undef R3_CAST4
#undef R3_CAST

R3_FN int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
R3_FN unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
R3_FN float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
R3_FN float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
R3_FN long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
R3_FN double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
R3_FN int __double2hiint(double x) { return (int)(__builtin_bit_cast(unsigned long long, x) >> 32); }
R3_FN int __double2loint(double x) { return (int)__builtin_bit_cast(unsigned long long, x); }
R3_FN double __hiloint2double(int high, int low) {
  return __builtin_bit_cast(double, (unsigned long long)(unsigned)high << 32 | (unsigned)low);
}
