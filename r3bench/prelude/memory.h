// Loads and stores with cache hints: the hints change speed only. Part of the device prelude.
#pragma once

// Through the read-only path. CUDA has it for types that one instruction loads; each is loaded as a word of its size.
template <class T> R3_FN T __ldg(const T* address) {
  static_assert(alignof(T) == sizeof(T) && sizeof(T) <= 16, "__ldg loads 1, 2, 4, 8 or 16 aligned bytes");
  typedef unsigned four __attribute__((ext_vector_type(4)));
  if constexpr (sizeof(T) == 1) return __builtin_bit_cast(T, __nvvm_ldg_uc((const unsigned char*)address));
  else if constexpr (sizeof(T) == 2) return __builtin_bit_cast(T, __nvvm_ldg_us((const unsigned short*)address));
  else if constexpr (sizeof(T) == 4) return __builtin_bit_cast(T, __nvvm_ldg_ui((const unsigned*)address));
  else if constexpr (sizeof(T) == 8) return __builtin_bit_cast(T, __nvvm_ldg_ul((const unsigned long*)address));
  else return __builtin_bit_cast(T, __nvvm_ldg_ui4((const four*)address));
}
#define R3_LOAD(name) \
  template <class T> R3_FN T name(const T* address) { return *address; }
R3_LOAD(__ldca)
R3_LOAD(__ldcg)
R3_LOAD(__ldcs)
R3_LOAD(__ldlu)
template <class T> R3_FN T __ldcv(const T* address) { return *(const volatile T*)address; }
#undef R3_LOAD
#define R3_STORE(name) \
  template <class T> R3_FN void name(T* address, T value) { *address = value; }
R3_STORE(__stwb)
R3_STORE(__stcg)
R3_STORE(__stcs)
#undef R3_STORE
template <class T> R3_FN void __stwt(T* address, T value) { *(volatile T*)address = value; }

R3_FN bool __isGlobal(const void* p) { return __nvvm_isspacep_global(p); }
R3_FN bool __isShared(const void* p) { return __nvvm_isspacep_shared(p); }
R3_FN bool __isConstant(const void* p) { return __nvvm_isspacep_const(p); }
R3_FN bool __isLocal(const void* p) { return __nvvm_isspacep_local(p); }

R3_FN void* memcpy(void* to, const void* from, size_t count) { return __builtin_memcpy(to, from, count); }
R3_FN void* memset(void* to, int value, size_t count) { return __builtin_memset(to, value, count); }
R3_FN void* memmove(void* to, const void* from, size_t count) { return __builtin_memmove(to, from, count); }

namespace std {
using ::memcpy;
using ::memmove;
using ::memset;
}  // namespace std
