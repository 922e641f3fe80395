// CUDA's math functions in float and double, with and without f suffix, also in std::. Part of the device prelude.
// Operations that IEEE 754 defines exactly become LLVM intrinsics, all others libdevice calls.
#pragma once

#define M_E 2.71828182845904523536
#define M_LOG2E 1.44269504088896340736
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VAL __builtin_huge_val()
#define HUGE_VALF __builtin_huge_valf()
#define CUDART_INF_F __builtin_inff()
#define CUDART_INF __builtin_inf()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_NAN __builtin_nan("")
#define CUDART_PI_F 3.141592654f
#define CUDART_PI 3.1415926535897931e+0

namespace r3 {
// float for float and no type, and so no overload, for any other type: integers then convert to double, as in C++.
template <class T> struct single {};
template <> struct single<float> {
  typedef float type;
  typedef int as_int;
  typedef long as_long;
  typedef long long as_long_long;
};
}  // namespace r3

// name(double), name(float) and namef(float), as the callees of_double and of_float.
#define R3_MATH1_AS(name, of_double, of_float)                                                                              \
  R3_PURE double name(double) R3_IS(of_double);                                                                      \
  R3_PURE float name##f(float) R3_IS(of_float);                                                                     \
  template <class T> R3_PURE typename r3::single<T>::type name(T) R3_IS(of_float);                                  \
  R3_STD(name)
#define R3_MATH2_AS(name, of_double, of_float)                                                                              \
  R3_PURE double name(double, double) R3_IS(of_double);                                                              \
  R3_PURE float name##f(float, float) R3_IS(of_float);                                                              \
  template <class T> R3_PURE typename r3::single<T>::type name(T, T) R3_IS(of_float);                               \
  R3_STD(name)
#define R3_STD(name) namespace std { using ::name; using ::name##f; }

#define R3_EXACT1(name, op) R3_MATH1_AS(name, "llvm." #op ".f64", "llvm." #op ".f32")
#define R3_EXACT2(name, op) R3_MATH2_AS(name, "llvm." #op ".f64", "llvm." #op ".f32")
#define R3_MATH1(name) R3_MATH1_AS(name, "__nv_" #name, "__nv_" #name "f")
#define R3_MATH2(name) R3_MATH2_AS(name, "__nv_" #name, "__nv_" #name "f")
// Functions with an approximation for float, which --use_fast_math takes.
#ifdef R3_FAST_MATH
#define R3_FLOAT(name) "__nv_fast_" #name
#else
#define R3_FLOAT(name) "__nv_" #name
#endif
#define R3_FAST1(name)                                                                                       \
  R3_MATH1_AS(name, "__nv_" #name, R3_FLOAT(name##f))                                                        \
  R3_PURE float __##name##f(float) R3_IS("__nv_fast_" #name "f");

R3_EXACT1(sqrt, sqrt) R3_EXACT1(fabs, fabs) R3_EXACT1(floor, floor) R3_EXACT1(ceil, ceil) R3_EXACT1(trunc, trunc)
R3_EXACT1(round, round) R3_EXACT1(rint, rint) R3_EXACT1(nearbyint, nearbyint)
R3_EXACT2(fmin, minnum) R3_EXACT2(fmax, maxnum) R3_EXACT2(copysign, copysign)

R3_FAST1(exp) R3_FAST1(exp10) R3_FAST1(log) R3_FAST1(log2) R3_FAST1(log10) R3_FAST1(sin) R3_FAST1(cos) R3_FAST1(tan)
R3_MATH1(exp2) R3_MATH1(expm1) R3_MATH1(log1p) R3_MATH1(logb)
R3_MATH1(sinpi) R3_MATH1(cospi) R3_MATH1(asin) R3_MATH1(acos) R3_MATH1(atan)
R3_MATH1(sinh) R3_MATH1(cosh) R3_MATH1(tanh) R3_MATH1(asinh) R3_MATH1(acosh) R3_MATH1(atanh)
R3_MATH1(cbrt) R3_MATH1(rsqrt) R3_MATH1(rcbrt)
R3_MATH1(erf) R3_MATH1(erfc) R3_MATH1(erfinv) R3_MATH1(erfcinv) R3_MATH1(erfcx)
R3_MATH1(normcdf) R3_MATH1(normcdfinv) R3_MATH1(tgamma) R3_MATH1(lgamma)
R3_MATH1(j0) R3_MATH1(j1) R3_MATH1(y0) R3_MATH1(y1) R3_MATH1(cyl_bessel_i0) R3_MATH1(cyl_bessel_i1)
R3_MATH2(fmod) R3_MATH2(remainder) R3_MATH2(atan2) R3_MATH2(hypot) R3_MATH2(rhypot) R3_MATH2(fdim) R3_MATH2(nextafter)
R3_MATH2_AS(pow, "__nv_pow", R3_FLOAT(powf))
R3_PURE float __powf(float, float) R3_IS("__nv_fast_powf");
R3_PURE float __tanhf(float) R3_IS("__nv_fast_tanhf");
R3_PURE float __fdividef(float, float) R3_IS("__nv_fast_fdividef");
R3_PURE float __saturatef(float) R3_IS("__nv_saturatef");
R3_PURE float __frsqrt_rn(float) R3_IS("__nv_frsqrt_rn");

R3_PURE double fma(double, double, double) R3_IS("llvm.fma.f64");
R3_PURE float fma(float, float, float) R3_IS("llvm.fma.f32");
R3_PURE float fmaf(float, float, float) R3_IS("llvm.fma.f32");

// Functions with an integer result, argument or output.
#define R3_TO_INTEGER(name, T, as, callee)                                                                   \
  R3_PURE T name(double) R3_IS("__nv_" #callee);                                                             \
  R3_PURE T name##f(float) R3_IS("__nv_" #callee "f");                                                       \
  template <class F> R3_PURE typename r3::single<F>::as name(F) R3_IS("__nv_" #callee "f");                  \
  R3_STD(name)
R3_TO_INTEGER(ilogb, int, as_int, ilogb)
R3_TO_INTEGER(lrint, long, as_long, llrint)
R3_TO_INTEGER(llrint, long long, as_long_long, llrint)
R3_TO_INTEGER(lround, long, as_long, llround)
R3_TO_INTEGER(llround, long long, as_long_long, llround)
#undef R3_TO_INTEGER

#define R3_PAIR(kind, R, name, callee, D, F)                                                                 \
  kind R name D R3_IS("__nv_" #callee);                                                                      \
  kind R3_SINGLE_##R name F R3_IS("__nv_" #callee "f");                                                      \
  kind R3_SINGLE_##R name##f F R3_IS("__nv_" #callee "f");                                                   \
  R3_STD(name)
#define R3_SINGLE_double float
#define R3_SINGLE_void void
#define R3_WRITES __host__ __device__ __attribute__((nothrow))
R3_PAIR(R3_PURE, double, ldexp, ldexp, (double, int), (float, int))
R3_PAIR(R3_PURE, double, scalbn, scalbn, (double, int), (float, int))
R3_PAIR(R3_PURE, double, jn, jn, (int, double), (int, float))
R3_PAIR(R3_PURE, double, yn, yn, (int, double), (int, float))
R3_PAIR(R3_PURE, double, norm3d, norm3d, (double, double, double), (float, float, float))
R3_PAIR(R3_PURE, double, rnorm3d, rnorm3d, (double, double, double), (float, float, float))
R3_PAIR(R3_PURE, double, norm4d, norm4d, (double, double, double, double), (float, float, float, float))
R3_PAIR(R3_PURE, double, rnorm4d, rnorm4d, (double, double, double, double), (float, float, float, float))
R3_PAIR(R3_WRITES, double, norm, norm, (int, const double*), (int, const float*))
R3_PAIR(R3_WRITES, double, rnorm, rnorm, (int, const double*), (int, const float*))
R3_PAIR(R3_WRITES, double, frexp, frexp, (double, int*), (float, int*))
R3_PAIR(R3_WRITES, double, modf, modf, (double, double*), (float, float*))
R3_PAIR(R3_WRITES, double, remquo, remquo, (double, double, int*), (float, float, int*))
R3_PAIR(R3_WRITES, void, sincospi, sincospi, (double, double*, double*), (float, float*, float*))
R3_WRITES void sincos(double, double*, double*) R3_IS("__nv_sincos");
R3_WRITES void sincos(float, float*, float*) R3_IS(R3_FLOAT(sincosf));
R3_WRITES void sincosf(float, float*, float*) R3_IS(R3_FLOAT(sincosf));
R3_WRITES void __sincosf(float, float*, float*) R3_IS("__nv_fast_sincosf");
#undef R3_PAIR
R3_FN double scalbln(double x, long n) { return scalbn(x, n > 9999 ? 9999 : n < -9999 ? -9999 : (int)n); }
R3_FN float scalblnf(float x, long n) { return scalbnf(x, n > 9999 ? 9999 : n < -9999 ? -9999 : (int)n); }
R3_FN double fdivide(double x, double y) { return x / y; }
#ifdef R3_FAST_MATH
R3_PURE float fdividef(float, float) R3_IS("__nv_fast_fdividef");
#else
R3_FN float fdividef(float x, float y) { return x / y; }
#endif

// Arithmetic with a rounding mode. Sums and products to nearest are the plain operations, never fused.
#define R3_ALONE(T, name, symbol) \
  R3_FN T name(T x, T y) { _Pragma("clang fp contract(off)") return x symbol y; }
R3_ALONE(float, __fadd_rn, +)
R3_ALONE(float, __fsub_rn, -)
R3_ALONE(float, __fmul_rn, *)
R3_ALONE(double, __dadd_rn, +)
R3_ALONE(double, __dsub_rn, -)
R3_ALONE(double, __dmul_rn, *)
#undef R3_ALONE
R3_PURE float __fmaf_rn(float, float, float) R3_IS("llvm.fma.f32");
R3_PURE double __fma_rn(double, double, double) R3_IS("llvm.fma.f64");

#define R3_ROUNDED(T, name, parameters) R3_PURE T __##name parameters R3_IS("__nv_" #name);
#define R3_ROUNDED_PAIR(op, mode) \
  R3_ROUNDED(double, d##op##_##mode, (double, double)) R3_ROUNDED(float, f##op##_##mode, (float, float))
#define R3_QUOTIENTS(mode)                                                                                   \
  R3_ROUNDED_PAIR(div, mode)                                                                                 \
  R3_ROUNDED(double, drcp_##mode, (double)) R3_ROUNDED(float, frcp_##mode, (float))                          \
  R3_ROUNDED(double, dsqrt_##mode, (double)) R3_ROUNDED(float, fsqrt_##mode, (float))
#define R3_DIRECTED(mode)                                                                                    \
  R3_ROUNDED_PAIR(add, mode) R3_ROUNDED_PAIR(sub, mode) R3_ROUNDED_PAIR(mul, mode) R3_QUOTIENTS(mode)        \
  R3_ROUNDED(double, fma_##mode, (double, double, double)) R3_ROUNDED(float, fmaf_##mode, (float, float, float))
R3_QUOTIENTS(rn)
R3_DIRECTED(rz)
R3_DIRECTED(ru)
R3_DIRECTED(rd)
#undef R3_DIRECTED
#undef R3_QUOTIENTS
#undef R3_ROUNDED_PAIR
#undef R3_ROUNDED

// Classification.
#define R3_CLASS(name)                                                                                       \
  template <class T> R3_FN bool name(T x) { return __builtin_##name((decltype(x + 0.0f))x); }                \
  namespace std { using ::name; }
R3_CLASS(isnan)
R3_CLASS(isinf)
R3_CLASS(isfinite)
R3_CLASS(isnormal)
R3_CLASS(signbit)
#undef R3_CLASS
R3_FN double nan(const char*) { return __builtin_nan(""); }
R3_FN float nanf(const char*) { return __builtin_nanf(""); }

// abs, min, max. Integers of two types meet in their common type, float and double in double; one of each kind is
// refused, as in CUDA.
R3_FN int abs(int x) { return x < 0 ? -x : x; }
R3_FN long abs(long x) { return x < 0 ? -x : x; }
R3_FN long long abs(long long x) { return x < 0 ? -x : x; }
R3_PURE double abs(double) R3_IS("llvm.fabs.f64");
R3_PURE float abs(float) R3_IS("llvm.fabs.f32");
R3_FN long labs(long x) { return abs(x); }
R3_FN long long llabs(long long x) { return abs(x); }

namespace r3 {
template <class T, class U, bool = __is_integral(T) && __is_integral(U),
          bool = __is_floating_point(T) && __is_floating_point(U)>
struct common {};
template <class T, class U> struct common<T, U, true, false> { typedef decltype(T() + U()) type; };
template <class T, class U> struct common<T, U, false, true> { typedef decltype(T() + U()) type; };
}  // namespace r3
#define R3_SELECT(name, keep_first, of_floats)                                                               \
  template <class T, class U> R3_FN constexpr typename r3::common<T, U>::type name(T a, U b) {               \
    typedef typename r3::common<T, U>::type C;                                                               \
    C x = (C)a, y = (C)b;                                                                                    \
    if constexpr (__is_integral(C)) return keep_first ? x : y;                                               \
    else if constexpr (sizeof(C) == 4) return __builtin_##of_floats##f(x, y);                                \
    else return __builtin_##of_floats(x, y);                                                                 \
  }
R3_SELECT(min, x <= y, fmin)
R3_SELECT(max, x >= y, fmax)
#undef R3_SELECT
R3_FN unsigned umin(unsigned x, unsigned y) { return x < y ? x : y; }
R3_FN unsigned umax(unsigned x, unsigned y) { return x < y ? y : x; }
R3_FN long long llmin(long long x, long long y) { return x < y ? x : y; }
R3_FN long long llmax(long long x, long long y) { return x < y ? y : x; }
R3_FN unsigned long long ullmin(unsigned long long x, unsigned long long y) { return x < y ? x : y; }
R3_FN unsigned long long ullmax(unsigned long long x, unsigned long long y) { return x < y ? y : x; }

namespace std {
using ::abs;
using ::fma;
using ::fmaf;
using ::labs;
using ::llabs;
using ::max;
using ::min;
using ::scalbln;
using ::scalblnf;
}  // namespace std
