/* What runs inside a CPU worker around a kernel: the pool that spreads blocks over threads, the fault record, and the
   conversions of half and bfloat16 that code for older processors calls. Compiled when a fork server starts; it includes
   nothing, and calls only syscall and memset of libc. */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;

extern long syscall(long number, ...);
extern void *memset(void *at, int value, u64 bytes);
extern void *memcpy(void *to, const void *from, u64 bytes);

struct launch { u32 grid[3], block[3], shared_bytes, order, threads, every; }; /* every: one of so many blocks runs */
enum { REVERSE = 1 };
typedef int (*run_block)(const u8 *args, const struct launch *launch, const u32 *block_index, u8 *frame);

struct slot { void **at; void *target; };
struct own { void *at; const void *initial; u64 bytes; };
struct binding { const u8 *args; const struct slot *slots; u64 slot_count; };
struct result { u32 status, index, block[3]; };
struct window {
  run_block run;
  const struct binding *bindings;
  const struct own *owns;
  u64 binding_count, own_count, frame_bytes;
  u8 *const *frames;
  struct launch launch;
  u32 poison;
};

enum { POISON_NONE, POISON_LAUNCH, POISON_BLOCK };

/* -- waiting: spin for about a tenth of a millisecond, then sleep in the kernel -------------------------------------- */

#if defined(__x86_64__)
enum { FUTEX = 202 };
static inline void relax(void) { __builtin_ia32_pause(); }
#elif defined(__aarch64__)
enum { FUTEX = 98 };
static inline void relax(void) { __asm__ volatile("yield"); }
#else
#error "the CPU device is built for x86-64 and AArch64"
#endif

enum { SPINS = 4000, FUTEX_WAIT_PRIVATE = 128, FUTEX_WAKE_PRIVATE = 129 };

struct signal_word { _Atomic u32 value, sleepers; };

static void await_change(struct signal_word *word, u32 from) {
  for (int i = 0; i < SPINS; i++) {
    if (word->value != from) return;
    relax();
  }
  word->sleepers++;
  while (word->value == from) syscall(FUTEX, &word->value, FUTEX_WAIT_PRIVATE, from, 0L, 0L, 0L);
  word->sleepers--;
}

static void wake_all(struct signal_word *word) {
  if (word->sleepers) syscall(FUTEX, &word->value, FUTEX_WAKE_PRIVATE, 0x7fffffffL, 0L, 0L, 0L);
}

/* -- one launch ------------------------------------------------------------------------------------------------------ */

static struct {
  run_block run;
  const u8 *args;
  const struct launch *launch;
  u8 *const *frames;
  u64 frame_bytes, blocks, chunk;
  u32 poison;
  u32 failed_block[3];
  _Atomic u32 failure;
  _Atomic u64 next __attribute__((aligned(128)));
} job;

static struct signal_word generation __attribute__((aligned(128)));

/* How many helper threads are in the launch, and CLOSED once no more may come: a helper that the system did not run in
   time is not waited for, so that a busy machine delays a launch no more than it delays the threads that work on it. */
#define CLOSED (1u << 31)
static struct signal_word inside __attribute__((aligned(128))) = {CLOSED, 0};

static void fail(u32 status, const u32 *block) {
  u32 none = 0;
  if (__atomic_compare_exchange_n((u32 *)&job.failure, &none, status, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
    memcpy(job.failed_block, block, sizeof job.failed_block);
  job.next = job.blocks;
}

/* NaN and -1, but large numbers in reverse order: no kernel may count on either. */
static int poison(void) { return job.launch->order == REVERSE ? 0x5c : 0xff; }

static u32 run_one(u64 number, u8 *frame) {
  const u32 *grid = job.launch->grid;
  u64 at = (job.launch->order == REVERSE ? job.blocks - 1 - number : number) * job.launch->every;
  u32 block[3] = {at % grid[0], at / grid[0] % grid[1], at / grid[0] / grid[1]};
  if (job.poison == POISON_BLOCK) memset(frame, poison(), job.frame_bytes);
  u32 status = job.run(job.args, job.launch, block, frame);
  if (status) fail(status, block);
  return status;
}

static void run_blocks(u32 thread) {
  u8 *frame = job.frames[thread];
  if (job.poison == POISON_LAUNCH) memset(frame, poison(), job.frame_bytes);
  for (;;) {
    u64 first = __atomic_fetch_add((u64 *)&job.next, job.chunk, __ATOMIC_SEQ_CST);
    u64 last = first + job.chunk < job.blocks ? first + job.chunk : job.blocks;
    for (u64 number = first; number < last; number++)
      if (run_one(number, frame)) return;
    if (last >= job.blocks) return;
  }
}

static u32 enter(void) {
  u32 now = inside.value;
  while (!(now & CLOSED))
    if (__atomic_compare_exchange_n((u32 *)&inside.value, &now, now + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return 1;
  return 0;
}

/* Helpers that have seen the last change of the generation. */
static _Atomic u32 awake __attribute__((aligned(128)));

/* A helper thread's whole life. */
void r3_serve(u32 thread) {
  u32 seen = 0;
  for (;;) {
    await_change(&generation, seen);
    seen = generation.value;
    awake++;
    if (!enter()) continue;
    run_blocks(thread);
    if (--inside.value == CLOSED) wake_all(&inside);
  }
}

static void run_launch(u32 threads) {
  if (job.blocks == 1) threads = 1;
  job.next = 0;
  if (threads > 1) {
    inside.value = 0;
    generation.value++;
    wake_all(&generation);
  }
  run_blocks(0);
  if (threads == 1) return;
  for (u32 left = inside.value |= CLOSED; left != CLOSED; left = inside.value) await_change(&inside, left);
}

/* Wake the helpers, and wait a little for them: they spin then, and a launch that follows at once finds them running.
   Waking one of a processor that sleeps takes longer than many launches. */
void r3_gather(u32 threads) {
  awake = 0;
  generation.value++;
  wake_all(&generation);
  for (int i = 0; i < SPINS && awake + 1 < threads; i++) relax();
}

/* One launch on each binding in turn; stops at the first that fails. */
void r3_window(const struct window *window, struct result *result) {
  const struct launch *launch = &window->launch;
  u64 all = (u64)launch->grid[0] * launch->grid[1] * launch->grid[2], blocks = (all + launch->every - 1) / launch->every;
  job.run = window->run;
  job.launch = launch;
  job.frames = window->frames;
  job.frame_bytes = window->frame_bytes;
  job.blocks = blocks;
  job.chunk = blocks / (launch->threads * 64) + 1;
  job.poison = window->poison;
  job.failure = 0;
  for (u64 i = 0; i < window->binding_count && !job.failure; i++) {
    const struct binding *binding = &window->bindings[i];
    for (u64 s = 0; s < binding->slot_count; s++) *binding->slots[s].at = binding->slots[s].target;
    for (u64 o = 0; o < window->own_count; o++)
      memcpy(window->owns[o].at, window->owns[o].initial, window->owns[o].bytes);
    job.args = binding->args;
    result->index = i;
    run_launch(launch->threads);
  }
  result->status = job.failure;
  memcpy(result->block, job.failed_block, sizeof result->block);
}

/* -- cold caches: each "block" writes its part of a large buffer ------------------------------------------------------ */

int r3_evict_block(const u8 *args, const struct launch *launch, const u32 *block, u8 *frame) {
  volatile u64 *part = (volatile u64 *)(*(u8 *const *)args + (u64)block[0] * launch->shared_bytes);
  (void)frame;
  for (u64 i = 0; i < launch->shared_bytes / 8; i += 8) part[i]++;
  return 0;
}

/* -- faults: leave the address for the parent, then die of the same signal ---------------------------------------------- */

struct fault { volatile u32 access; volatile u32 signal; volatile u64 address; };
static struct fault *fault_page;

void r3_report_faults_to(struct fault *page) { fault_page = page; }

#if defined(__x86_64__)
enum { MASK_AT = 296 };
#else
enum { MASK_AT = 40 };
#endif

/* The first thread that faults leaves its record; others wait for the end that it brings about: on return its instruction
   runs again with the signal blocked in its context (uc_sigmask), and so kills the process. */
void r3_on_fault(int signal, const u8 *info, u8 *context) {
  static _Atomic u32 claimed;
  if (claimed++)
    for (;;) relax();
#if defined(__x86_64__)
  /* uc_mcontext.gregs[REG_ERR] of a page fault: bit 1 is set for a write. */
  fault_page->access = *(const u64 *)(context + 40 + 19 * 8) & 2 ? 2 : 1;
#endif
  fault_page->address = *(const u64 *)(info + 16);
  fault_page->signal = signal;
  *(u64 *)(context + MASK_AT) |= 1UL << (signal - 1);
}

/* -- the checked build: each access asks first ---------------------------------------------------------------------------- */

enum { FREE, VIOLATION, NOTED, WRITTEN, TEXT = 160 };
enum { OUTSIDE, UNWRITTEN };
struct violation {
  volatile u32 state, wrong; /* OUTSIDE, UNWRITTEN, or how many bytes the address should be a multiple of */
  volatile u64 address, bytes, base, extent;
  volatile u32 thread[3], block[3];
  volatile u8 text[TEXT];
};
/* In the page of the fault record; the parent lists the launch's buffers, the rest of it is the arena's address space.
   Whoever writes the byte at `watched` last is noted. */
struct checks { struct violation first; volatile u64 arena, arena_end, frames, frames_end, watched, count; volatile u64 buffers[][2]; };

static void note(u32 state, u32 wrong, const u8 *address, u64 bytes, const char *text, const u8 *base, u64 extent, const u32 *where) {
  struct violation *to = &((struct checks *)((u8 *)fault_page + 64))->first;
  u32 free = FREE;
  if (state == VIOLATION) {
    if (!__atomic_compare_exchange_n((u32 *)&to->state, &free, VIOLATION, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) && free == VIOLATION)
      for (;;) relax(); /* another thread was first, and ends the process */
  } else if (to->state == VIOLATION) {
    return;
  }
  to->state = state;
  to->wrong = wrong;
  to->address = (u64)address, to->bytes = bytes, to->base = (u64)base, to->extent = extent;
  for (int i = 0; i < 3; i++) to->thread[i] = where[i], to->block[i] = where[3 + i];
  for (int i = 0; i < TEXT - 1 && (to->text[i] = text[i]); i++) {}
}

/* Whether `bytes` bytes at `at` lie in an array, a buffer of the launch, or elsewhere where nobody knows better. */
static u32 is_allowed(const struct checks *known, u64 at, u64 bytes, const u8 *base, u64 extent) {
  if (base) return at >= (u64)base && at + bytes <= (u64)base + extent;
  if (at < known->arena || at >= known->arena_end) return 1;
  for (u64 i = 0; i < known->count; i++)
    if (at >= known->buffers[i][0] && at + bytes <= known->buffers[i][1]) return 1;
  return 0;
}

/* Notes in `written` what the block writes of its shared memory; whether it has written all that is read. */
static u32 is_written(u8 *written, u64 bytes, u32 reads, u32 writes) {
  for (u64 i = 0; reads && i < bytes; i++)
    if (!written[i]) return 0;
  if (writes) memset(written, 1, bytes);
  return 1;
}

/* Called before an access of `bytes` bytes. `base` is the array it must stay in, if the source names one; otherwise an
   address in the arena must lie in a buffer of the launch, and one elsewhere is noted in case it faults. Behind the
   block's shared memory lies a byte for each of its bytes; see lowering/checked.py for the kinds of access. */
void __r3_check(u8 *address, u64 bytes, u32 align, const char *text, const u8 *base, u64 extent, u8 *shared,
                u64 shared_bytes, u32 tx, u32 ty, u32 tz, u32 bx, u32 by, u32 bz) {
  const struct checks *known = (const struct checks *)((u8 *)fault_page + 64);
  u32 where[6] = {tx, ty, tz, bx, by, bz}, wrong = OUTSIDE;
  u32 reads = text[0] == 'r' || text[0] == 'c', writes = text[0] == 'w' || text[0] == 'c';
  u64 at = (u64)address, offset = address - shared;
  if (text[0] == 'p') {
    if (offset < shared_bytes) memset(shared + shared_bytes, 1, shared_bytes);
    return;
  }
  if (at & (align - 1)) {
    wrong = align;
  } else if (is_allowed(known, at, bytes, base, extent)) {
    if (offset >= shared_bytes) {
      if (known->watched - at < bytes && writes) note(WRITTEN, 0, address, bytes, text, base, extent, where);
      if (!base && (at < known->arena || at >= known->arena_end) && (at < known->frames || at >= known->frames_end))
        note(NOTED, 0, address, bytes, text, base, extent, where);
      return;
    }
    u64 inside = bytes < shared_bytes - offset ? bytes : shared_bytes - offset;
    if (is_written(shared + shared_bytes + offset, inside, reads, writes)) return;
    wrong = UNWRITTEN;
    if (!base) base = shared, extent = shared_bytes;
  }
  note(VIOLATION, wrong, address, bytes, text, base, extent, where);
  __builtin_trap();
}

/* -- narrow floats: compiler-rt's names, round to nearest even ------------------------------------------------------------ */

static u64 bits_of(double value) { u64 bits; memcpy(&bits, &value, 8); return bits; }
static float float_of(u32 bits) { float value; memcpy(&value, &bits, 4); return value; }

/* A double narrowed to `exponent` and `mantissa` bits, in the low bits of the answer. */
static u16 narrow(double value, int exponent, int mantissa) {
  u64 bits = bits_of(value), magnitude = bits & ~(1UL << 63);
  u16 sign = (u16)(bits >> 63 << 15), infinity = (u16)(((1 << exponent) - 1) << mantissa);
  if (magnitude > 0x7ffUL << 52) return sign | infinity | 1 << (mantissa - 1) | (u16)(magnitude >> (52 - mantissa) & ((1 << mantissa) - 1));
  int bias = (1 << (exponent - 1)) - 1, power = (int)(magnitude >> 52) - 1023;
  if (power > bias) return sign | infinity;
  u64 significand = (magnitude & (1UL << 52) - 1) | (magnitude >> 52 ? 1UL << 52 : 0);
  int shift = 52 - mantissa + (power < 1 - bias ? 1 - bias - power : 0);
  if (shift > 54) return sign;
  u64 kept = significand >> shift, rest = significand & (1UL << shift) - 1, half = 1UL << (shift - 1);
  kept += rest > half || (rest == half && (kept & 1));
  u64 base = power < 1 - bias ? 0 : (u64)(power + bias - 1) << mantissa;
  return sign | (u16)(base + kept);
}

static float widen_half(u16 bits) {
  u32 sign = (u32)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 1023;
  if (exponent == 31) return float_of(sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0));
  if (exponent) return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
  float value = (float)mantissa * 0x1p-24f;
  return sign ? -value : value;
}

static _Float16 half_of(u16 bits) { _Float16 value; memcpy(&value, &bits, 2); return value; }
static __bf16 bfloat_of(u16 bits) { __bf16 value; memcpy(&value, &bits, 2); return value; }

_Float16 __truncsfhf2(float value) { return half_of(narrow(value, 5, 10)); }
_Float16 __truncdfhf2(double value) { return half_of(narrow(value, 5, 10)); }
__bf16 __truncsfbf2(float value) { return bfloat_of(narrow(value, 8, 7)); }
__bf16 __truncdfbf2(double value) { return bfloat_of(narrow(value, 8, 7)); }
float __extendhfsf2(_Float16 value) { u16 bits; memcpy(&bits, &value, 2); return widen_half(bits); }
