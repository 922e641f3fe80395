/* How the threads of one block take turns on one thread of the processor. A kernel's code is cut where threads wait: at
   barriers and warp collectives. Its object holds the pieces, and a table (struct kernel) that says what each place is.

   Forward, the block goes from place to place together, as long as all threads are at the same one; once they part, warps
   go on one after the other. In the orders for verification each thread goes as far as it gets before it must wait. */

typedef unsigned char u8;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long u64;
typedef long s64;

extern void *memcpy(void *to, const void *from, u64 bytes);
extern void *memset(void *at, int value, u64 bytes);

struct launch { u32 grid[3], block[3], shared_bytes, order, threads, every; };
enum order { FORWARD, REVERSE, SEPARATE };

/* A box of threads, from `first` up to `end` on each axis. */
struct box { u32 first[3], end[3]; };

/* What a kernel's code knows of the block it runs; lowering/signature.py has the same fields. */
struct block {
  const struct kernel *kernel;
  const u8 *arguments;
  u8 *shared, *cells, *once, *context;
  u64 padded; /* threads, in whole warps */
  u32 threads, size[3], index[3], grid[3], dynamic_shared, static_shared, order;
  u32 alone, all_bits; /* alone: on the one thread that runs all blocks; all_bits: a word whose value LLVM does not see */
};

/* Runs part of a row of threads from a place to where they wait next, and returns the AND and, in the high half, the OR
   of those places. `in` is what all threads share that wait at the place; what those share that wait at place k is left
   in the k-th part of `out`. */
typedef u64 (*region)(const struct block *, const u8 *in, u8 *out, u32 first, u32 end, u32 y, u32 z);

/* Offsets of the context's arrays in bytes per thread, ABSENT for those a kernel does not need. */
struct kernel {
  const region *regions;
  const u8 *operations; /* both by place */
  u32 places; /* with the start, number 0 */
  u32 static_shared, context_bytes, once_bytes; /* once_bytes: of one part of what threads share */
  u32 checked; /* behind shared memory lies a byte for each of its bytes: whether the block has written there */
  u32 strict; /* a checked build: CUDA leaves it open what becomes of a warp whose lanes wait at different barriers */
  u32 own, state, predicate, barrier, count, mask, value, high, lane, clamp, result, flag;
};

#define ONCE __attribute__((noinline)) /* in the code: fork servers compile this when they start */

enum { ABSENT = 0xffffffff };
enum { END = -1, ASSERTED = -2, TRAPPED = -4 };
enum { FINE, DEADLOCK, ASSERTION, TRAP, DIVERGED, PARTED = -1 };
enum operation {
  BARRIER, ACTIVE, SYNC, SHUFFLE_INDEX, SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR, ALL, ANY, UNIFORM, BALLOT, MATCH_ANY,
  MATCH_ALL, ADD, AND, OR, XOR, MIN, MAX, UNSIGNED_MIN, UNSIGNED_MAX,
  /* Added to a collective: its lanes are those that are at its place, whatever its mask says. */
  HERE = 64,
  /* Places at which nothing is waited for: behind a loop that was cut, and in front of each of its steps. */
  MEET = 254, STEP = 255
};
enum { ALIGN = 128, CELLS_BYTES = 128, WARPS = 32, THREADS = 32 * WARPS };

static u64 up(u64 bytes) { return (bytes + ALIGN - 1) & ~(u64)(ALIGN - 1); }
static u32 whole_warps(const u32 *size) { return (size[0] * size[1] * size[2] + 31) & ~31u; }
static u64 once_bytes(const struct kernel *k) { return up(2 * (u64)k->places * k->once_bytes); }

static u64 shared_bytes(const struct kernel *k, const struct launch *l) { return (u64)k->static_shared + l->shared_bytes; }
static u64 noted_bytes(const struct kernel *k, const struct launch *l) { return k->checked ? shared_bytes(k, l) : 0; }

/* The frame: shared memory, cells of barriers, what all threads share, what each has of its own. */
u64 __r3_frame_bytes(const struct kernel *k, const struct launch *l) {
  return ALIGN + up(shared_bytes(k, l) + noted_bytes(k, l)) + CELLS_BYTES + once_bytes(k) +
         (u64)whole_warps(l->block) * k->context_bytes;
}

static u32 *array(const struct block *b, u32 offset) { return (u32 *)(b->context + b->padded * offset); }
static u8 *own(const struct block *b, u32 thread) {
  return b->context + b->padded * b->kernel->own + (u64)thread * b->kernel->once_bytes;
}

static int code(s32 place) { return place == END ? FINE : place == ASSERTED ? ASSERTION : TRAP; }

/* -- running -------------------------------------------------------------------------------------------------------- */

static struct box whole_block(const struct block *b) { return (struct box){{0, 0, 0}, {b->size[0], b->size[1], b->size[2]}}; }

static struct box one_thread(const struct block *b, u32 t) {
  u32 x = t % b->size[0], y = t / b->size[0] % b->size[1], z = t / b->size[0] / b->size[1];
  return (struct box){{x, y, z}, {x + 1, y + 1, z + 1}};
}

/* The states of a row's threads, all of which went the same way: a region may leave them unsaid. */
static ONCE void say(const struct block *b, const struct box *box, u32 row, s32 way) {
  u32 y = box->first[1] + row % (box->end[1] - box->first[1]), z = box->first[2] + row / (box->end[1] - box->first[1]);
  s32 *state = (s32 *)array(b, b->kernel->state) + (z * b->size[1] + y) * b->size[0];
  for (u32 x = box->first[0]; x < box->end[0]; x++) state[x] = way;
}

/* For a region that cannot run part of a row together: one thread after the other. */
u64 __r3_apart(const struct block *b, const u8 *in, u8 *out, u32 first, u32 end, u32 y, u32 z, region region) {
  const u32 offset = b->kernel->state;
  s32 *state = offset == ABSENT ? 0 : (s32 *)array(b, offset) + (z * b->size[1] + y) * b->size[0];
  u32 all = ~0u, any = 0;
  for (u32 x = first; x < end; x++) {
    u64 ways = region(b, in, out, x, x + 1, y, z);
    all &= (u32)ways, any |= (u32)(ways >> 32);
    if (state) state[x] = (s32)ways;
  }
  return (u64)any << 32 | all;
}

/* For a region that leaves threads out of part of a row that starts at thread `row`: they end, those from `low` up to
   `high`, in steps, go to the place `way`. */
void __r3_left_out(const struct block *b, u32 row, u32 first, u32 end, u32 low, u32 high, u32 step, s32 way) {
  s32 *state = (s32 *)array(b, b->kernel->state) + row;
  for (u32 x = first; x < end; x++) state[x] = END;
  for (u32 x = low; x < high; x += step) state[x] = way;
}

static ONCE u64 run_rows(const struct block *b, s32 place, const struct box *box, const u8 *in, u8 *out) {
  const region region = b->kernel->regions[place];
  u32 all = ~0u, any = 0, rows = 0;
  u64 went[THREADS];
  for (u32 z = box->first[2]; z < box->end[2]; z++)
    for (u32 y = box->first[1]; y < box->end[1]; y++) {
      u64 ways = went[rows++] = region(b, in, out, box->first[0], box->end[0], y, z);
      all &= (u32)ways, any |= (u32)(ways >> 32);
    }
  if (all != any && b->kernel->state != ABSENT)
    for (u32 row = 0; row < rows; row++)
      if ((s32)went[row] == (s32)(went[row] >> 32)) say(b, box, row, (s32)went[row]);
  return (u64)any << 32 | all;
}

static inline u64 run(const struct block *b, s32 place, const struct box *box, const u8 *in, u8 *out) {
  if (box->end[1] - box->first[1] == 1 && box->end[2] - box->first[2] == 1)
    return b->kernel->regions[place](b, in, out, box->first[0], box->end[0], box->first[1], box->first[2]);
  return run_rows(b, place, box, in, out);
}

/* Give each of some threads what those share that wait where it does. */
static ONCE void spread(const struct block *b, const u8 *shared, u32 first, u32 count) {
  const struct kernel *k = b->kernel;
  const s32 *state = (const s32 *)array(b, k->state);
  if (k->once_bytes)
    for (u32 t = first; t < first + count; t++)
      if (state[t] >= 0) memcpy(own(b, t), shared + (u64)state[t] * k->once_bytes, k->once_bytes);
}

static ONCE int alike(const struct block *b, u32 first, u32 count) {
  const u32 words = b->kernel->once_bytes / 4, *all = (const u32 *)own(b, first);
  u32 different = 0;
  if (words)
    for (u32 i = words; i < count * words; i++) different |= all[i] ^ all[i - words];
  return !different;
}

/* One thread on from its place, through all whose operation is at least `stop`. */
static ONCE s32 run_thread(const struct block *b, s32 place, u32 t, u32 stop) {
  const struct kernel *k = b->kernel;
  struct box one = one_thread(b, t);
  do {
    place = (s32)run(b, place, &one, k->once_bytes ? own(b, t) : 0, b->once);
    if (place >= 0 && k->once_bytes) memcpy(own(b, t), b->once + (u64)place * k->once_bytes, k->once_bytes);
  } while (place >= 0 && k->operations[place] >= stop);
  return place;
}

/* -- collectives ------------------------------------------------------------------------------------------------------ */

/* Words of a warp's lanes; null pointers where the kernel has no such array. */
struct lanes { const u32 *mask, *value, *high, *lane, *clamp; u32 *result, *flag; };

static u32 *part(const struct block *b, u32 offset, u32 at) { return offset == ABSENT ? 0 : array(b, offset) + at; }

static struct lanes lanes_of(const struct block *b, u32 warp) {
  const struct kernel *k = b->kernel;
  u32 at = 32 * warp;
  return (struct lanes){part(b, k->mask, at), part(b, k->value, at), part(b, k->high, at), part(b, k->lane, at),
                        part(b, k->clamp, at), part(b, k->result, at), part(b, k->flag, at)};
}

/* The lanes `by` behind others. */
static struct lanes moved(struct lanes l, u32 by) {
  l.mask += by, l.value += by, l.result += by;
  if (l.high) l.high += by;
  if (l.lane) l.lane += by, l.clamp += by;
  if (l.flag) l.flag += by;
  return l;
}

static ONCE void put(u32 *to, u32 group, u32 value) {
  if (group == ~0u)
    for (u32 i = 0; i < 32; i++) to[i] = value;
  else
    for (u32 i = 0; i < 32; i++) to[i] = group >> i & 1 ? value : to[i];
}

static void answer(const struct lanes *l, u32 group, u32 value) { put(l->result, group, value); }

/* PTX's shfl: a lane outside its segment, or one that takes no part, gives the caller's own value back. */
static ONCE void shuffle(const struct lanes *l, u32 group, u32 operation) {
  u32 from[32], fits[32];
  for (u32 i = 0; i < 32; i++) {
    s32 by = l->lane[i] & 31, segment = l->clamp[i] >> 8 & 31, least = i & segment;
    s32 most = least | ((s32)l->clamp[i] & 31 & ~segment);
    s32 j = operation == SHUFFLE_UP ? (s32)i - by : operation == SHUFFLE_DOWN ? (s32)i + by
          : operation == SHUFFLE_XOR ? (s32)i ^ by : least | (by & ~segment);
    fits[i] = operation == SHUFFLE_UP ? j >= least : j <= most;
    u32 there = fits[i] & group >> (j & 31);
    from[i] = there & 1 ? (u32)j & 31 : i;
  }
  for (u32 i = 0; i < 32; i++) from[i] = l->value[from[i]];
  for (u32 i = 0; i < 32; i++) l->result[i] = group >> i & 1 ? from[i] : l->result[i];
  for (u32 i = 0; i < 32 && l->flag; i++) l->flag[i] = group >> i & 1 ? fits[i] : l->flag[i];
}

static ONCE u32 votes(const struct lanes *l, u32 group) {
  u32 found = 0;
  for (u32 i = 0; i < 32; i++) found |= (l->value[i] & 1) << i;
  return found & group;
}

static ONCE u32 reduced(const struct lanes *l, u32 group, u32 operation) {
  u32 sum = l->value[__builtin_ctz(group)];
  for (u32 left = group & (group - 1); left; left &= left - 1) {
    u32 value = l->value[__builtin_ctz(left)];
    switch (operation) {
      case ADD: sum += value; break;
      case AND: sum &= value; break;
      case OR: sum |= value; break;
      case XOR: sum ^= value; break;
      case MIN: sum = (s32)value < (s32)sum ? value : sum; break;
      case MAX: sum = (s32)value > (s32)sum ? value : sum; break;
      case UNSIGNED_MIN: sum = value < sum ? value : sum; break;
      default: sum = value > sum ? value : sum;
    }
  }
  return sum;
}

static ONCE u32 at_same(const u32 *values, u32 value) {
  u32 found = 0;
  for (u32 i = 0; i < 32; i++) found |= (u32)(values[i] == value) << i;
  return found;
}

static ONCE u32 equal_to(const struct lanes *l, u32 group, u32 lane) {
  u32 found = 0;
  for (u32 i = 0; i < 32; i++) found |= (u32)(l->value[i] == l->value[lane]) << i;
  for (u32 i = 0; i < 32 && l->high; i++) found &= ~((u32)(l->high[i] != l->high[lane]) << i);
  return found & group;
}

static ONCE void match_any(const struct lanes *l, u32 group) {
  for (u32 left = group; left; left &= left - 1) l->result[__builtin_ctz(left)] = equal_to(l, group, __builtin_ctz(left));
}

static ONCE void match_all(const struct lanes *l, u32 group) {
  u32 equal = equal_to(l, group, __builtin_ctz(group)) == group;
  answer(l, group, equal ? group : 0);
  put(l->flag, group, equal);
}

/* All operands are read before another collective can overwrite them: a group completes at once. */
static ONCE void complete(const struct lanes *l, u32 group, u32 operation) {
  switch (operation) {
    case SYNC: break;
    case ACTIVE: answer(l, group, group); break;
    case SHUFFLE_INDEX: case SHUFFLE_UP: case SHUFFLE_DOWN: case SHUFFLE_XOR: shuffle(l, group, operation); break;
    case ALL: answer(l, group, votes(l, group) == group); break;
    case ANY: answer(l, group, votes(l, group) != 0); break;
    case UNIFORM: answer(l, group, votes(l, group) == group || votes(l, group) == 0); break;
    case BALLOT: answer(l, group, votes(l, group)); break;
    case MATCH_ANY: match_any(l, group); break;
    case MATCH_ALL: match_all(l, group); break;
    default: answer(l, group, reduced(l, group, operation));
  }
}

/* -- all threads at one place ----------------------------------------------------------------------------------------- */

/* The first cell counts true predicates of threads that wait at the block's barrier, the second those threads. */
static ONCE void count_predicates(const struct block *b, int all) {
  const struct kernel *k = b->kernel;
  const u32 *predicate = array(b, k->predicate);
  const s32 *state = (const s32 *)array(b, k->state);
  u32 *cells = (u32 *)b->cells, found = 0, here = 0;
  for (u32 t = 0; t < b->threads; t++)
    if (all || state[t] >= 0) found += predicate[t], here++;
  cells[0] = found, cells[1] = here;
}

static int all_full(const u32 *mask, u32 threads) {
  u32 lacking = 0;
  for (u32 t = 0; t < threads; t++) lacking |= ~mask[t];
  return !lacking;
}

static void ballot_all(const u32 *restrict value, u32 *restrict result, u32 threads) {
  for (u32 t = 0; t < threads; t += 32) {
    u32 found = 0;
    for (u32 i = 0; i < 32; i++) found |= (value[t + i] & 1) << i;
    for (u32 i = 0; i < 32; i++) result[t + i] = found;
  }
}

/* One collective for every warp of the block; 0 where a mask is not the same for a whole warp. */
static ONCE int complete_all(const struct block *b, u32 place) {
  const struct kernel *k = b->kernel;
  const u32 threads = b->threads, whole = threads % 32 == 0, operation = place & ~HERE;
  u32 *result = array(b, k->result);
  if (whole && operation == ACTIVE) {
    for (u32 t = 0; t < threads; t++) result[t] = ~0u;
    return 1;
  }
  const u32 masked = place == operation && operation != ACTIVE;
  const u32 full = !masked || (whole && all_full(array(b, k->mask), threads));
  if (whole && full && operation == BALLOT) {
    ballot_all(array(b, k->value), result, threads);
    return 1;
  }
  const struct lanes first = lanes_of(b, 0);
  for (u32 at = 0; at < threads; at += 32) {
    u32 here = threads - at, group = here < 32 ? (1u << here) - 1 : ~0u;
    struct lanes l = moved(first, at);
    if (!full && group & ~(at_same(l.mask, l.mask[0]) & l.mask[0])) return 0;
    complete(&l, group, operation);
  }
  return 1;
}

/* After a step that some threads were through with: the others go on to the end of the loop. Where all are then. */
static int finish_steps(const struct block *b, s32 *all) {
  const struct kernel *k = b->kernel;
  s32 *state = (s32 *)array(b, k->state), any = 0;
  *all = END;
  for (u32 t = 0; t < b->threads; t++) {
    if (state[t] >= 0 && k->operations[state[t]] == STEP) state[t] = run_thread(b, state[t], t, STEP);
    *all &= state[t], any |= state[t];
  }
  return *all == any && *all >= 0 && alike(b, 0, b->threads);
}

/* From place to place while all threads are at the same one. PARTED: each thread's state says where it is. */
static int run_together(const struct block *b) {
  const struct kernel *k = b->kernel;
  const u64 part = k->once_bytes;
  s32 *state = (s32 *)array(b, k->state), place = 0;
  u8 *in = b->once, *out = b->once + k->places * part;
  struct box whole = whole_block(b);
  for (;;) {
    u64 ways = run(b, place, &whole, in + (u64)place * part, out);
    s32 all = (s32)ways, any = (s32)(ways >> 32);
    if (all != any) {
      spread(b, out, 0, b->threads);
      if (!finish_steps(b, &all)) return PARTED;
      if (part) memcpy(out + (u64)all * part, own(b, 0), part);
    }
    if (all < 0) return code(all);
    u32 operation = k->operations[all];
    if (operation == BARRIER) {
      if (k->predicate != ABSENT) count_predicates(b, 1);
    } else if (operation < MEET && !complete_all(b, operation)) {
      for (u32 t = 0; t < b->threads; t++) state[t] = all;
      spread(b, out, 0, b->threads);
      return PARTED;
    }
    u8 *free = in;
    in = out, out = free;
    place = all;
  }
}

/* -- threads at different places -------------------------------------------------------------------------------------- */

/* By warp: lanes that have not ended, and those of them that may run. */
struct turns { u32 alive[WARPS], ready[WARPS]; };

/* Lanes 0 up to `count` of a warp as one box, if they are one and at the same place; -1 if not. */
static int run_box(const struct block *b, u32 first, u32 count, s32 *state) {
  const struct kernel *k = b->kernel;
  struct box box = one_thread(b, first);
  u32 rows = count / b->size[0];
  if (box.first[0] + count <= b->size[0]) box.end[0] = box.first[0] + count;
  else if (box.first[0] == 0 && count % b->size[0] == 0 && box.first[1] + rows <= b->size[1])
    box.end[0] = b->size[0], box.end[1] = box.first[1] + rows;
  else return -1;
  u32 different = 0;
  for (u32 i = 1; i < count; i++) different |= state[i] ^ state[0];
  if (different || !alike(b, first, count)) return -1;
  u64 ways = run(b, state[0], &box, k->once_bytes ? own(b, first) : 0, b->once);
  if ((s32)ways == (s32)(ways >> 32))
    for (u32 i = 0; i < count; i++) state[i] = (s32)ways;
  spread(b, b->once, first, count);
  return 0;
}

static void run_lanes(const struct block *b, u32 first, u32 lanes, s32 *state) {
  while (lanes) {
    u32 i = b->order == REVERSE ? 31 - __builtin_clz(lanes) : __builtin_ctz(lanes);
    lanes &= ~(1u << i);
    state[i] = run_thread(b, state[i], first + i, MEET);
  }
}

/* Run the lanes of a warp that are ready; the code of a fault or FINE. */
static int run_ready(const struct block *b, struct turns *turns, u32 warp) {
  const struct kernel *k = b->kernel;
  u32 can = turns->ready[warp], first = 32 * warp, passing = 0;
  s32 *state = (s32 *)array(b, k->state) + first;
  turns->ready[warp] = 0;
  int boxed = b->order == FORWARD && can && can == turns->alive[warp] && !(can & (can + 1)) &&
              !run_box(b, first, __builtin_popcount(can), state);
  if (!boxed) run_lanes(b, first, can, state);
  else
    for (u32 left = can; left; left &= left - 1) {
      s32 place = state[__builtin_ctz(left)];
      if (place >= 0 && k->operations[place] >= MEET) passing |= left & -left;
    }
  run_lanes(b, first, passing, state);
  for (u32 left = can; left; left &= left - 1) {
    s32 place = state[__builtin_ctz(left)];
    if (place < 0) turns->alive[warp] &= ~(left & -left);
    if (place < END) return code(place);
  }
  return FINE;
}

/* Lanes of `group` that wait in an operation like that of lane `i`, with an equal mask. */
static int all_arrived(const struct kernel *k, const struct lanes *l, const s32 *state, u32 group, u32 i) {
  if (group & ~at_same(l->mask, l->mask[i])) return 0;
  for (u32 left = group; left; left &= left - 1)
    if (k->operations[state[__builtin_ctz(left)]] != k->operations[state[i]]) return 0;
  return 1;
}

/* Whether an operation is for those that are at its place. */
static int is_here(u32 operation) { return operation == ACTIVE || (operation < MEET && operation & HERE); }

/* Complete every collective whose lanes have all arrived; DEADLOCK where a mask misses its caller. When none completes,
   the lanes at one place that asks who is active are those that are active there. */
static int settle(const struct block *b, struct turns *turns, u32 warp) {
  const struct kernel *k = b->kernel;
  const s32 *state = (const s32 *)array(b, k->state) + 32 * warp;
  const u32 living = turns->alive[warp];
  if (k->mask == ABSENT) return FINE;
  struct lanes l = lanes_of(b, warp);
  u32 freed = 0;
  for (u32 left = living; left;) {
    u32 i = __builtin_ctz(left), group = l.mask[i] & living, operation = k->operations[state[i]];
    left &= left - 1;
    if (operation == BARRIER || is_here(operation)) continue;
    if (!(l.mask[i] >> i & 1)) return DEADLOCK;
    if (!all_arrived(k, &l, state, group, i)) continue;
    complete(&l, group, operation);
    freed |= group, left &= ~group;
  }
  for (u32 left = freed ? 0 : living; left; left &= left - 1) {
    s32 place = state[__builtin_ctz(left)];
    if (is_here(k->operations[place])) {
      freed = at_same((const u32 *)state, place);
      complete(&l, freed, k->operations[place] & ~HERE);
      break;
    }
  }
  turns->ready[warp] = freed;
  return FINE;
}

/* Whether lanes of one warp wait at different barriers. */
static int has_diverged(const struct block *b) {
  const struct kernel *k = b->kernel;
  const s32 *state = (const s32 *)array(b, k->state);
  s32 place = END;
  for (u32 t = 0; t < b->threads; t++) {
    if (t % 32 == 0) place = END;
    if (state[t] < 0 || k->operations[state[t]] != BARRIER) continue;
    if (place != END && place != state[t]) return 1;
    place = state[t];
  }
  return 0;
}

/* The block's own barrier: all that live must wait at it. 1 if they may go on, 0 if none is left, -1 if they never will. */
static int meet(const struct block *b, struct turns *turns) {
  const struct kernel *k = b->kernel;
  const s32 *state = (const s32 *)array(b, k->state);
  u32 any = 0;
  for (u32 t = 0; t < b->threads; t++) {
    if (state[t] < 0) continue;
    if (k->operations[state[t]] != BARRIER) return -1;
    any = 1;
  }
  if (any && k->predicate != ABSENT) count_predicates(b, 0);
  for (u32 w = 0; w < b->padded / 32; w++) turns->ready[w] = turns->alive[w];
  return any;
}

/* Barriers by number: one completes when as many threads wait at it as it asks for (0: all that live). */
static int meet_named(const struct block *b, struct turns *turns) {
  const struct kernel *k = b->kernel;
  const s32 *state = (const s32 *)array(b, k->state);
  const u32 *barrier = array(b, k->barrier), *count = array(b, k->count), *predicate = array(b, k->predicate);
  u32 waiting[16] = {0}, needed[16] = {0}, (*cells)[2] = (u32(*)[2])b->cells, living = 0, done = 0;
  for (u32 i = 0; i < 16; i++) cells[i][0] = cells[i][1] = 0;
  for (u32 t = 0; t < b->threads; t++) {
    if (state[t] < 0) continue;
    living++;
    if (k->operations[state[t]] != BARRIER) continue;
    u32 id = barrier[t] & 15;
    needed[id] = count[t] > needed[id] ? count[t] : needed[id];
    cells[id][0] += predicate[t];
    cells[id][1] = ++waiting[id];
  }
  if (!living) return 0;
  for (u32 i = 0; i < 16; i++) done |= (u32)(waiting[i] >= (needed[i] ? needed[i] : living)) << i;
  if (!done) return -1;
  for (u32 t = 0; t < b->threads; t++)
    if (state[t] >= 0 && k->operations[state[t]] == BARRIER && done >> (barrier[t] & 15) & 1)
      turns->ready[t / 32] |= 1u << (t & 31);
  return 1;
}

/* Who lives and who may run: all at the start of a block; when threads have parted, those that wait for nothing. */
static int take_stock(const struct block *b, struct turns *turns, int fresh) {
  const struct kernel *k = b->kernel;
  s32 *state = (s32 *)array(b, k->state), least = 0;
  for (u32 t = 0; t < b->padded; t++) {
    state[t] = t >= b->threads ? END : fresh ? 0 : state[t];
    u32 bit = state[t] >= 0 ? 1u << (t & 31) : 0, free = fresh || (bit && k->operations[state[t]] >= MEET) ? bit : 0;
    turns->alive[t / 32] = (t & 31 ? turns->alive[t / 32] : 0) | bit;
    turns->ready[t / 32] = (t & 31 ? turns->ready[t / 32] : 0) | free;
    least = state[t] < least ? state[t] : least;
  }
  return least < END ? code(least) : FINE;
}

/* Rounds of warps until no thread is left or none can go on. */
static int run_apart(const struct block *b, int fresh) {
  struct turns turns;
  u32 warps = (u32)(b->padded / 32);
  int fault = take_stock(b, &turns, fresh);
  if (fault) return fault;
  for (;;) {
    for (u32 i = 0; i < warps; i++) {
      u32 w = b->order == REVERSE ? warps - 1 - i : i;
      do {
        if ((fault = run_ready(b, &turns, w)) || (fault = settle(b, &turns, w))) return fault;
      } while (turns.ready[w]);
    }
    if (b->kernel->strict && has_diverged(b)) return DIVERGED;
    int met = b->kernel->barrier == ABSENT ? meet(b, &turns) : meet_named(b, &turns);
    if (met <= 0) return met ? DEADLOCK : FINE;
  }
}

/* No thread ever waits: all at once, or one by one from the last to the first. */
static int run_independent(const struct block *b) {
  struct box whole = whole_block(b);
  s32 worst = END;
  if (b->order != REVERSE) return code((s32)run(b, 0, &whole, 0, 0));
  for (u32 t = b->threads; t--;) {
    struct box one = one_thread(b, t);
    worst &= (s32)run(b, 0, &one, 0, 0);
  }
  return code(worst);
}

/* One block. The result is FINE, DEADLOCK (a barrier or collective never completed), ASSERTION, TRAP or DIVERGED. */
int __r3_run_block(const u8 *arguments, const struct launch *l, const u32 *index, u8 *frame, const struct kernel *k) {
  u8 *shared = (u8 *)up((u64)frame), *cells = shared + up(shared_bytes(k, l) + noted_bytes(k, l));
  struct block b = {
    k, arguments, shared, cells, cells + CELLS_BYTES, cells + CELLS_BYTES + once_bytes(k), whole_warps(l->block),
    l->block[0] * l->block[1] * l->block[2], {l->block[0], l->block[1], l->block[2]}, {index[0], index[1], index[2]},
    {l->grid[0], l->grid[1], l->grid[2]}, l->shared_bytes, k->static_shared, l->order, l->threads == 1, ~0u,
  };
  memset(shared + shared_bytes(k, l), 0, noted_bytes(k, l));
  if (k->places == 1) return run_independent(&b);
  int outcome = l->order == FORWARD && k->barrier == ABSENT ? run_together(&b) : PARTED;
  return outcome == PARTED ? run_apart(&b, !(l->order == FORWARD && k->barrier == ABSENT)) : outcome;
}
