// A 16-bit floating-point type and its pair, with the functions CUDA has under the same names for half and bfloat16.
// Included once per type with R3_T (its name), R3_PAIR (its pair's name) and R3_NATIVE (the compiler's own type).
// No include guard.

struct R3_T {
  R3_NATIVE r3_value;
  R3_T() = default;
#define R3_FROM(From) \
  R3_METHOD constexpr R3_T(From x) : r3_value((R3_NATIVE)x) {}
#define R3_TO(To) \
  R3_METHOD constexpr operator To() const { return (To)r3_value; }
#define R3_BOTH(T) R3_FROM(T) R3_TO(T)
  R3_FROM(R3_NATIVE)
  R3_BOTH(float)
  R3_FROM(double)
  R3_BOTH(short)
  R3_BOTH(unsigned short)
  R3_BOTH(int)
  R3_BOTH(unsigned)
  R3_BOTH(long)
  R3_BOTH(unsigned long)
  R3_BOTH(long long)
  R3_BOTH(unsigned long long)
#undef R3_BOTH
#undef R3_TO
#undef R3_FROM
  R3_METHOD constexpr operator bool() const { return r3_value != (R3_NATIVE)0.0f; }
};
struct __align__(4) R3_PAIR {
  R3_T x, y;
  R3_PAIR() = default;
  R3_METHOD constexpr R3_PAIR(R3_T x, R3_T y) : x(x), y(y) {}
};
namespace r3 {
template <> struct shuffled<R3_T> { static constexpr bool value = true; };
template <> struct shuffled<R3_PAIR> { static constexpr bool value = true; };
}  // namespace r3

// One operation on the scalar and, member by member, on the pair.
#define R3_UNARY(name, name2, expression)                                                  \
  R3_FN R3_T name(R3_T a) { return R3_T(expression); }                                     \
  R3_FN R3_PAIR name2(R3_PAIR a) { return R3_PAIR(name(a.x), name(a.y)); }
#define R3_BINARY(name, name2, expression)                                                 \
  R3_FN R3_T name(R3_T a, R3_T b) { return R3_T(expression); }                             \
  R3_FN R3_PAIR name2(R3_PAIR a, R3_PAIR b) { return R3_PAIR(name(a.x, b.x), name(a.y, b.y)); }
#define R3_TERNARY(name, name2, expression)                                                \
  R3_FN R3_T name(R3_T a, R3_T b, R3_T c) { return R3_T(expression); }                     \
  R3_FN R3_PAIR name2(R3_PAIR a, R3_PAIR b, R3_PAIR c) { return R3_PAIR(name(a.x, b.x, c.x), name(a.y, b.y, c.y)); }
#define R3_A (float)a.r3_value
#define R3_B (float)b.r3_value
#define R3_C (float)c.r3_value
#define R3_UNIT(x) __builtin_fminf(__builtin_fmaxf((float)(x), 0.0f), 1.0f)

R3_BINARY(__hadd, __hadd2, (R3_NATIVE)(a.r3_value + b.r3_value))
R3_BINARY(__hsub, __hsub2, (R3_NATIVE)(a.r3_value - b.r3_value))
R3_BINARY(__hmul, __hmul2, (R3_NATIVE)(a.r3_value * b.r3_value))
R3_BINARY(__hdiv, __h2div, R3_A / R3_B)
// The _rn forms are never fused with another operation.
#define R3_ALONE(name, name2, symbol)                                                       \
  R3_FN R3_T name(R3_T a, R3_T b) {                                                        \
    _Pragma("clang fp contract(off)") return R3_T((R3_NATIVE)(a.r3_value symbol b.r3_value)); \
  }                                                                                        \
  R3_FN R3_PAIR name2(R3_PAIR a, R3_PAIR b) { return R3_PAIR(name(a.x, b.x), name(a.y, b.y)); }
R3_ALONE(__hadd_rn, __hadd2_rn, +)
R3_ALONE(__hsub_rn, __hsub2_rn, -)
R3_ALONE(__hmul_rn, __hmul2_rn, *)
#undef R3_ALONE
R3_BINARY(__hadd_sat, __hadd2_sat, R3_UNIT(__hadd(a, b).r3_value))
R3_BINARY(__hsub_sat, __hsub2_sat, R3_UNIT(__hsub(a, b).r3_value))
R3_BINARY(__hmul_sat, __hmul2_sat, R3_UNIT(__hmul(a, b).r3_value))
R3_TERNARY(__hfma, __hfma2, __builtin_elementwise_fma(a.r3_value, b.r3_value, c.r3_value))
R3_TERNARY(__hfma_sat, __hfma2_sat, R3_UNIT(__hfma(a, b, c).r3_value))
R3_TERNARY(__hfma_relu, __hfma2_relu, __builtin_fmaxf((float)__hfma(a, b, c).r3_value, 0.0f))
R3_UNARY(__hneg, __hneg2, -a.r3_value)
R3_UNARY(__habs, __habs2, __builtin_fabsf(R3_A))
R3_BINARY(__hmin, __hmin2, __builtin_fminf(R3_A, R3_B))
R3_BINARY(__hmax, __hmax2, __builtin_fmaxf(R3_A, R3_B))
R3_BINARY(__hmin_nan, __hmin2_nan, R3_A != R3_A || R3_B != R3_B ? __builtin_nanf("") : __builtin_fminf(R3_A, R3_B))
R3_BINARY(__hmax_nan, __hmax2_nan, R3_A != R3_A || R3_B != R3_B ? __builtin_nanf("") : __builtin_fmaxf(R3_A, R3_B))

R3_UNARY(hsqrt, h2sqrt, sqrtf(R3_A))
R3_UNARY(hrsqrt, h2rsqrt, rsqrtf(R3_A))
R3_UNARY(hrcp, h2rcp, 1.0f / R3_A)
R3_UNARY(hexp, h2exp, expf(R3_A))
R3_UNARY(hexp2, h2exp2, exp2f(R3_A))
R3_UNARY(hexp10, h2exp10, exp10f(R3_A))
R3_UNARY(hlog, h2log, logf(R3_A))
R3_UNARY(hlog2, h2log2, log2f(R3_A))
R3_UNARY(hlog10, h2log10, log10f(R3_A))
R3_UNARY(hsin, h2sin, sinf(R3_A))
R3_UNARY(hcos, h2cos, cosf(R3_A))
R3_UNARY(htanh, h2tanh, tanhf(R3_A))
R3_UNARY(hfloor, h2floor, floorf(R3_A))
R3_UNARY(hceil, h2ceil, ceilf(R3_A))
R3_UNARY(htrunc, h2trunc, truncf(R3_A))
R3_UNARY(hrint, h2rint, rintf(R3_A))
#undef R3_UNARY
#undef R3_BINARY
#undef R3_TERNARY
#undef R3_UNIT

// Comparisons: ordered, and the u forms that hold where a number is missing; of pairs as 1 or 0, or of both at once.
#define R3_COMPARE(op, symbol)                                                                                   \
  R3_FN bool __h##op(R3_T a, R3_T b) { return (R3_A < R3_B || R3_A >= R3_B) && R3_A symbol R3_B; }               \
  R3_FN bool __h##op##u(R3_T a, R3_T b) { return !(R3_A < R3_B || R3_A >= R3_B) || R3_A symbol R3_B; }           \
  R3_FN R3_PAIR __h##op##2(R3_PAIR a, R3_PAIR b) { return R3_PAIR(R3_T(__h##op(a.x, b.x)), R3_T(__h##op(a.y, b.y))); } \
  R3_FN bool __hb##op##2(R3_PAIR a, R3_PAIR b) { return __h##op(a.x, b.x) && __h##op(a.y, b.y); }                \
  R3_FN bool operator symbol(R3_PAIR a, R3_PAIR b) { return __hb##op##2(a, b); }
R3_COMPARE(eq, ==)
R3_COMPARE(lt, <)
R3_COMPARE(le, <=)
R3_COMPARE(gt, >)
R3_COMPARE(ge, >=)
R3_COMPARE(ne, !=)
#undef R3_COMPARE
R3_FN bool __hisnan(R3_T a) { return __builtin_isnan(R3_A); }
R3_FN int __hisinf(R3_T a) { return __builtin_isinf(R3_A) ? (R3_A > 0 ? 1 : -1) : 0; }

#define R3_OPERATOR(symbol, name, name2)                                                                         \
  R3_FN R3_T operator symbol(R3_T a, R3_T b) { return name(a, b); }                                              \
  R3_FN R3_T& operator symbol##=(R3_T& a, R3_T b) { return a = name(a, b); }                                     \
  R3_FN R3_PAIR operator symbol(R3_PAIR a, R3_PAIR b) { return name2(a, b); }                                    \
  R3_FN R3_PAIR& operator symbol##=(R3_PAIR& a, R3_PAIR b) { return a = name2(a, b); }
R3_OPERATOR(+, __hadd, __hadd2)
R3_OPERATOR(-, __hsub, __hsub2)
R3_OPERATOR(*, __hmul, __hmul2)
R3_OPERATOR(/, __hdiv, __h2div)
#undef R3_OPERATOR
R3_FN R3_T operator-(R3_T a) { return __hneg(a); }
R3_FN R3_T operator+(R3_T a) { return a; }
R3_FN R3_PAIR operator-(R3_PAIR a) { return __hneg2(a); }
R3_FN R3_T& operator++(R3_T& a) { return a = __hadd(a, R3_T(1.0f)); }
R3_FN R3_T& operator--(R3_T& a) { return a = __hsub(a, R3_T(1.0f)); }
#define R3_RELATION(symbol) \
  R3_FN bool operator symbol(R3_T a, R3_T b) { return R3_A symbol R3_B; }
R3_RELATION(==)
R3_RELATION(!=)
R3_RELATION(<)
R3_RELATION(<=)
R3_RELATION(>)
R3_RELATION(>=)
#undef R3_RELATION
#undef R3_A
#undef R3_B
#undef R3_C

R3_FN float __low2float(R3_PAIR a) { return a.x; }
R3_FN float __high2float(R3_PAIR a) { return a.y; }

// Atomic additions; of a pair one member after the other, as CUDA promises no more.
#define R3_ATOMIC(suffix, scope)                                                                                 \
  R3_FN R3_T atomicAdd##suffix(R3_T* address, R3_T value) {                                                      \
    return R3_T(__scoped_atomic_fetch_add(&address->r3_value, value.r3_value, __ATOMIC_RELAXED, scope));         \
  }                                                                                                              \
  R3_FN R3_PAIR atomicAdd##suffix(R3_PAIR* address, R3_PAIR value) {                                             \
    R3_T x = atomicAdd##suffix(&address->x, value.x);                                                            \
    return R3_PAIR(x, atomicAdd##suffix(&address->y, value.y));                                                  \
  }
R3_ATOMIC(, __MEMORY_SCOPE_DEVICE)
R3_ATOMIC(_block, __MEMORY_SCOPE_WRKGRP)
R3_ATOMIC(_system, __MEMORY_SCOPE_SYSTEM)
#undef R3_ATOMIC
