// Barriers, fences, warp collectives, clocks. Part of the device prelude.
#pragma once

// __syncthreads() itself is a builtin of the compiler.
R3_FN int __syncthreads_count(int predicate) { return __nvvm_bar0_popc(predicate); }
R3_FN int __syncthreads_and(int predicate) { return __nvvm_bar0_and(predicate); }
R3_FN int __syncthreads_or(int predicate) { return __nvvm_bar0_or(predicate); }
R3_FN void __syncwarp(unsigned mask = 0xffffffffu) { __nvvm_bar_warp_sync(mask); }
R3_FN void __threadfence() { __nvvm_membar_gl(); }
R3_FN void __threadfence_block() { __nvvm_membar_cta(); }
R3_FN void __threadfence_system() { __nvvm_membar_sys(); }

R3_FN int __all_sync(unsigned mask, int predicate) { return __nvvm_vote_all_sync(mask, predicate); }
R3_FN int __any_sync(unsigned mask, int predicate) { return __nvvm_vote_any_sync(mask, predicate); }
R3_FN int __uni_sync(unsigned mask, int predicate) { return __nvvm_vote_uni_sync(mask, predicate); }
R3_FN unsigned __ballot_sync(unsigned mask, int predicate) { return __nvvm_vote_ballot_sync(mask, predicate); }
R3_FN unsigned __activemask() { return __nvvm_activemask(); }

namespace r3 {
template <class T> struct shuffled { static constexpr bool value = __is_arithmetic(T); };

// The bits of a value of 1 to 8 bytes as one or two words, for instructions that move words.
template <class T> R3_FN unsigned word(T value) {
  unsigned w = 0;
  __builtin_memcpy(&w, &value, sizeof(T));
  return w;
}
template <class T> R3_FN T from_word(unsigned w) {
  T value;
  __builtin_memcpy(&value, &w, sizeof(T));
  return value;
}
}  // namespace r3

// The last argument of shfl.sync: clamp and segment mask, as the PTX manual defines them.
#define R3_SHUFFLE(name, op, Lane, clamp)                                                                    \
  template <class T> R3_FN T name(unsigned mask, T value, Lane lane, int width = 32) {                       \
    static_assert(r3::shuffled<T>::value, #name " moves arithmetic types only");                             \
    int control = ((32 - width) << 8) | clamp;                                                               \
    if constexpr (sizeof(T) <= 4) {                                                                          \
      return r3::from_word<T>(__nvvm_shfl_sync_##op##_i32(mask, r3::word(value), lane, control));            \
    } else {                                                                                                 \
      unsigned long bits = __builtin_bit_cast(unsigned long, value);                                         \
      unsigned long low = (unsigned)__nvvm_shfl_sync_##op##_i32(mask, (int)bits, lane, control);             \
      unsigned long high = (unsigned)__nvvm_shfl_sync_##op##_i32(mask, (int)(bits >> 32), lane, control);    \
      return __builtin_bit_cast(T, high << 32 | low);                                                        \
    }                                                                                                        \
  }
R3_SHUFFLE(__shfl_sync, idx, int, 0x1f)
R3_SHUFFLE(__shfl_up_sync, up, unsigned, 0)
R3_SHUFFLE(__shfl_down_sync, down, unsigned, 0x1f)
R3_SHUFFLE(__shfl_xor_sync, bfly, int, 0x1f)
#undef R3_SHUFFLE

template <class T> R3_FN unsigned __match_any_sync(unsigned mask, T value) {
  static_assert(__is_arithmetic(T), "__match_any_sync compares arithmetic types only");
  if constexpr (sizeof(T) <= 4) return __nvvm_match_any_sync_i32(mask, r3::word(value));
  else return __nvvm_match_any_sync_i64(mask, __builtin_bit_cast(long, value));
}
template <class T> R3_FN unsigned __match_all_sync(unsigned mask, T value, int* all) {
  static_assert(__is_arithmetic(T), "__match_all_sync compares arithmetic types only");
  if constexpr (sizeof(T) <= 4) return __nvvm_match_all_sync_i32p(mask, r3::word(value), all);
  else return __nvvm_match_all_sync_i64p(mask, __builtin_bit_cast(long, value), all);
}

R3_FN int __reduce_add_sync(unsigned mask, int value) { return __nvvm_redux_sync_add(value, mask); }
R3_FN int __reduce_min_sync(unsigned mask, int value) { return __nvvm_redux_sync_min(value, mask); }
R3_FN int __reduce_max_sync(unsigned mask, int value) { return __nvvm_redux_sync_max(value, mask); }
R3_FN unsigned __reduce_add_sync(unsigned mask, unsigned value) { return __nvvm_redux_sync_add(value, mask); }
R3_FN unsigned __reduce_min_sync(unsigned mask, unsigned value) { return __nvvm_redux_sync_umin(value, mask); }
R3_FN unsigned __reduce_max_sync(unsigned mask, unsigned value) { return __nvvm_redux_sync_umax(value, mask); }
R3_FN unsigned __reduce_and_sync(unsigned mask, unsigned value) { return __nvvm_redux_sync_and(value, mask); }
R3_FN unsigned __reduce_or_sync(unsigned mask, unsigned value) { return __nvvm_redux_sync_or(value, mask); }
R3_FN unsigned __reduce_xor_sync(unsigned mask, unsigned value) { return __nvvm_redux_sync_xor(value, mask); }

R3_FN int clock() { return __nvvm_read_ptx_sreg_clock(); }
R3_FN long long clock64() { return __nvvm_read_ptx_sreg_clock64(); }
R3_FN unsigned long long __globaltimer() { return __nvvm_read_ptx_sreg_globaltimer(); }
R3_FN void __nanosleep(unsigned ns) { __nvvm_nanosleep(ns); }
R3_FN void __trap() { __builtin_trap(); }

extern "C" __host__ __device__ int printf(const char*, ...);
extern "C" __host__ __device__ __attribute__((noreturn, nothrow)) void __assertfail(
    const char* expression, const char* file, unsigned line, const char* function, size_t char_size);
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define assert(condition) \
  ((condition) ? (void)0 : __assertfail(#condition, __FILE__, __LINE__, __PRETTY_FUNCTION__, sizeof(char)))
#endif
