// What the worker itself runs on the GPU: copies in one launch for many buffers, comparison, poison.
// service.ptx beside this file is made from it; tests/device/test_cuda_service.py makes it anew and compares.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

typedef u64 Vector __attribute__((ext_vector_type(2)));

struct Chunk {
  u8 *to;
  const u8 *from;
  u64 nbytes;
};

struct Word {
  u8 *at;
  u64 value;
};

__device__ bool aligned(const void *a, const void *b) { return (((u64)a | (u64)b) & 15) == 0; }

// One block a chunk.
extern "C" __global__ void r3_copy(const Chunk *chunks) {
  Chunk c = chunks[blockIdx.x];
  u64 done = 0;
  if (aligned(c.to, c.from)) {
    u64 n = c.nbytes / 16;
    Vector *to = (Vector *)c.to;
    const Vector *from = (const Vector *)c.from;
    u64 step = blockDim.x, i = threadIdx.x;
    for (; i + 3 * step < n; i += 4 * step) {
      Vector a = from[i], b = from[i + step], d = from[i + 2 * step], e = from[i + 3 * step];
      to[i] = a;
      to[i + step] = b;
      to[i + 2 * step] = d;
      to[i + 3 * step] = e;
    }
    for (; i < n; i += step) to[i] = from[i];
    done = n * 16;
  }
  for (u64 i = done + threadIdx.x; i < c.nbytes; i += blockDim.x) c.to[i] = c.from[i];
}

// Pointers that a relocated copy needs; a packed struct may hold them at any byte.
extern "C" __global__ void r3_patch(const Word *words, u32 count) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    for (int k = 0; k < 8; k++) words[i].at[k] = (u8)(words[i].value >> (8 * k));
}

// The order of r3bench.devices.cuda.wire.TYPES.
enum Type { U8, U16, U32, U64, I8, I16, I32, I64, F16, BF16, F32, F64 };

struct Piece {
  const u8 *expected;
  const u8 *actual;
  u64 nbytes;
  u64 first;  // number of the piece's first element within its buffer
  u32 row;
  u32 type;
  u32 tolerant;
  u32 pad;
  double atol, rtol, least, ulp;  // least: the part of the limit that is the same for every element
};

struct Row {
  u64 count, first, error, place;  // error: the largest, as the bits of a double; place: its first element
};

__device__ double real(u32 type, u64 bits) {
  if (type == F64) return __longlong_as_double((long long)bits);
  if (type == F32) return (double)__uint_as_float((u32)bits);
  if (type == BF16) return (double)__uint_as_float((u32)bits << 16);
  u64 sign = (bits & 0x8000) << 48, exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  if (exponent == 31) return __longlong_as_double((long long)(sign | 0x7ff0000000000000ull | mantissa << 42));
  if (exponent) return __longlong_as_double((long long)(sign | (exponent + 1008) << 52 | mantissa << 42));
  double tiny = (double)mantissa * 5.9604644775390625e-08;  // 2^-24
  return sign ? -tiny : tiny;
}

__device__ bool is_finite(double x) { return x - x == 0; }

__device__ double distance(u32 type, u64 wanted, u64 got) {
  if (type >= F16) {
    double a = real(type, wanted), b = real(type, got);
    if (a == b || (a != a && b != b)) return 0;
    if (!is_finite(a) || !is_finite(b)) return __longlong_as_double(0x7ff0000000000000ll);
    return a > b ? a - b : b - a;
  }
  if (type >= I8) {
    int shift = 64 - (8 << (type - I8));
    long long a = (long long)(wanted << shift) >> shift, b = (long long)(got << shift) >> shift;
    return (double)(a > b ? (u64)a - (u64)b : (u64)b - (u64)a);
  }
  return (double)(wanted > got ? wanted - got : got - wanted);
}

__device__ double larger(double a, double b) { return a > b ? a : b; }

// One unit in the last place of a number of this size, in this type.
__device__ double spacing(u32 type, double size) {
  int smallest = type == F64 ? -1022 : type == F16 ? -14 : -126;
  int mantissa = type == F64 ? 52 : type == F32 ? 23 : type == F16 ? 10 : 7;
  int exponent = smallest;
  if (size > 0) {
    exponent = (int)((u64)__double_as_longlong(size) >> 52) - 1023;
    exponent = exponent > smallest ? exponent : smallest;
  }
  exponent -= mantissa;
  long long bits = exponent >= -1022 ? (long long)(exponent + 1023) << 52 : 1ll << (exponent + 1074);
  return __longlong_as_double(bits);
}

__device__ double limit(const Piece &p, u64 wanted) {
  double value = real(p.type, wanted);
  double size = is_finite(value) ? (value < 0 ? -value : value) : 0;
  double most = larger(larger(p.atol, p.rtol * size), p.least);
  return p.ulp > 0 ? larger(most, p.ulp * spacing(p.type, size)) : most;
}

struct Found {
  u64 count, first, error, place;
};

__device__ void look(const Piece &p, u64 wanted, u64 got, u64 at, bool again, u64 worst, Found &found) {
  if (wanted == got) return;
  double error = distance(p.type, wanted, got);
  if (p.tolerant && !(error > limit(p, wanted))) return;
  u64 bits = (u64)__double_as_longlong(error);
  if (again) {
    if (bits == worst && at < found.place) found.place = at;
    return;
  }
  found.count++;
  if (at < found.first) found.first = at;
  if (bits > found.error) found.error = bits;
}

__device__ u64 element(const u8 *bytes, u32 size) {
  if (size == 8) return *(const u64 *)bytes;
  if (size == 4) return *(const u32 *)bytes;
  if (size == 2) return *(const u16 *)bytes;
  return *bytes;
}

// The elements in 16 bytes of each side; rolled, since this code is compiled anew on every machine.
__device__ void look_at_vector(const Piece &p, Vector wanted, Vector got, u64 at, u32 size, bool again, u64 worst,
                               Found &found) {
  u32 width = 8 * size, per = 16 / size;
  u64 mask = ~0ull >> (64 - width);
#pragma unroll 1
  for (u32 k = 0; k < per; k++) {
    bool high = k >= per / 2;
    u32 shift = (high ? k - per / 2 : k) * width;
    u64 a = high ? wanted.y : wanted.x, b = high ? got.y : got.x;
    look(p, (a >> shift) & mask, (b >> shift) & mask, at + k, again, worst, found);
  }
}

// One block a piece. The first run counts; the run with again != 0 finds where the largest error is.
extern "C" __global__ void r3_compare(const Piece *pieces, Row *rows, u32 again) {
  Piece p = pieces[blockIdx.x];
  u64 worst = rows[p.row].error;
  if (again && !rows[p.row].count) return;
  u32 size = p.type >= F16 ? (p.type == F64 ? 8 : p.type == F32 ? 4 : 2) : 1u << (p.type & 3);
  Found found = {0, ~0ull, 0, ~0ull};
  u64 done = 0;
  if (aligned(p.expected, p.actual)) {
    u64 n = p.nbytes / 16, step = blockDim.x;
    const Vector *expected = (const Vector *)p.expected, *actual = (const Vector *)p.actual;
    for (u64 i = threadIdx.x; i < n; i += 4 * step) {
      Vector wanted[4], got[4];
      for (int k = 0; k < 4; k++) {
        u64 at = i + k * step < n ? i + k * step : i;
        wanted[k] = expected[at];
        got[k] = actual[at];
      }
      u64 differ = 0;
      for (int k = 0; k < 4; k++) differ |= (wanted[k].x ^ got[k].x) | (wanted[k].y ^ got[k].y);
      if (differ == 0) continue;
#pragma unroll 1
      for (u64 at = i; at < n && at < i + 4 * step; at += step)
        look_at_vector(p, expected[at], actual[at], p.first + at * (16 / size), size, again, worst, found);
    }
    done = n * 16;
  }
  for (u64 at = done + threadIdx.x * size; at + size <= p.nbytes; at += blockDim.x * size)
    look(p, element(p.expected + at, size), element(p.actual + at, size), p.first + at / size, again, worst, found);
  Row *row = &rows[p.row];
  if (found.count) {
    atomicAdd(&row->count, found.count);
    atomicMin(&row->first, found.first);
    atomicMax(&row->error, found.error);
  }
  if (found.place != ~0ull) atomicMin(&row->place, found.place);
}

// Every block fills its own shared memory, where a kernel that reads there without writing finds it.
extern "C" __global__ void r3_poison(u32 words, u32 value) {
  extern __shared__ u32 shared[];
  for (u32 i = threadIdx.x; i < words; i += blockDim.x) ((volatile u32 *)shared)[i] = value;
}

extern "C" __global__ void r3_nothing() {}
