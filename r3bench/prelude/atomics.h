// Atomic functions. Relaxed order, as in CUDA; the plain name is device-wide. Part of the device prelude.
#pragma once

namespace r3 {
// T itself, where it may be an operand of the given kind of operation; no type, and so no overload, otherwise.
template <class T> struct atomic_word;
template <class T> struct atomic_count;
template <class T> struct atomic_number;
template <class T> struct atomic_bits;
#define R3_OPERAND(T, kind) \
  template <> struct atomic_##kind<T> { typedef T type; };
#define R3_INTEGER(T) R3_OPERAND(T, word) R3_OPERAND(T, number) R3_OPERAND(T, bits)
R3_INTEGER(int)
R3_INTEGER(unsigned)
R3_INTEGER(long long)
R3_INTEGER(unsigned long long)
R3_OPERAND(unsigned, count)
R3_OPERAND(unsigned short, bits)
R3_OPERAND(float, number)
R3_OPERAND(double, number)
#undef R3_INTEGER

template <int Size> struct bits_of;
template <> struct bits_of<4> { typedef unsigned type; };
template <> struct bits_of<8> { typedef unsigned long type; };
}  // namespace r3

#define R3_ATOMIC(name, kind, op, suffix, scope)                                                             \
  template <class T> R3_FN T atomic##name##suffix(T* address, typename r3::atomic_##kind<T>::type value) {   \
    return __scoped_atomic_##op(address, value, __ATOMIC_RELAXED, scope);                                    \
  }
#define R3_SCOPE(suffix, scope)                                                                              \
  R3_ATOMIC(Add, number, fetch_add, suffix, scope)                                                           \
  R3_ATOMIC(Sub, word, fetch_sub, suffix, scope)                                                             \
  R3_ATOMIC(Min, word, fetch_min, suffix, scope)                                                             \
  R3_ATOMIC(Max, word, fetch_max, suffix, scope)                                                             \
  R3_ATOMIC(And, word, fetch_and, suffix, scope)                                                             \
  R3_ATOMIC(Or, word, fetch_or, suffix, scope)                                                               \
  R3_ATOMIC(Xor, word, fetch_xor, suffix, scope)                                                             \
  R3_ATOMIC(Inc, count, fetch_uinc, suffix, scope)                                                           \
  R3_ATOMIC(Dec, count, fetch_udec, suffix, scope)                                                           \
  template <class T> R3_FN T atomicExch##suffix(T* address, typename r3::atomic_number<T>::type value) {     \
    typedef typename r3::bits_of<sizeof(T)>::type bits;                                                      \
    return __builtin_bit_cast(T, __scoped_atomic_exchange_n((bits*)address, __builtin_bit_cast(bits, value), \
                                                            __ATOMIC_RELAXED, scope));                       \
  }                                                                                                          \
  template <class T>                                                                                         \
  R3_FN T atomicCAS##suffix(T* address, typename r3::atomic_bits<T>::type compare,                           \
                            typename r3::atomic_bits<T>::type value) {                                       \
    __scoped_atomic_compare_exchange_n(address, &compare, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED,  \
                                       scope);                                                               \
    return compare;                                                                                          \
  }
R3_SCOPE(, __MEMORY_SCOPE_DEVICE)
R3_SCOPE(_block, __MEMORY_SCOPE_WRKGRP)
R3_SCOPE(_system, __MEMORY_SCOPE_SYSTEM)
#undef R3_SCOPE
#undef R3_ATOMIC
