// CUDA's built-in vector types, their make_ functions and dim3. Part of the device prelude.
#pragma once

#define R3_VECTOR(name, T, align2, align4)                                                                   \
  struct name##1 { T x; };                                                                                   \
  struct __align__(align2) name##2 { T x, y; };                                                              \
  struct name##3 { T x, y, z; };                                                                             \
  struct __align__(align4) name##4 { T x, y, z, w; };                                                        \
  R3_FN constexpr name##1 make_##name##1(T x) { return {x}; }                                                \
  R3_FN constexpr name##2 make_##name##2(T x, T y) { return {x, y}; }                                        \
  R3_FN constexpr name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                \
  R3_FN constexpr name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
R3_VECTOR(char, signed char, 2, 4)
R3_VECTOR(uchar, unsigned char, 2, 4)
R3_VECTOR(short, short, 4, 8)
R3_VECTOR(ushort, unsigned short, 4, 8)
R3_VECTOR(int, int, 8, 16)
R3_VECTOR(uint, unsigned, 8, 16)
R3_VECTOR(long, long, 16, 16)
R3_VECTOR(ulong, unsigned long, 16, 16)
R3_VECTOR(longlong, long long, 16, 16)
R3_VECTOR(ulonglong, unsigned long long, 16, 16)
R3_VECTOR(float, float, 8, 16)
R3_VECTOR(double, double, 16, 16)
#undef R3_VECTOR

struct dim3 {
  unsigned x, y, z;
  R3_METHOD constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  R3_METHOD constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  R3_METHOD constexpr operator uint3() const { return {x, y, z}; }
};
