/* Attacks as machine code, past compiler and allow-list: what a kernel could do if it did anything at all. One object;
   the argument n says which. Numbers of system calls come from the command line, -DNR_<name>. */

#if defined(__x86_64__)
static long call(long n, long a, long b, long c, long d, long e, long f) {
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall" : "+a"(n) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return n;
}
#else
static long call(long n, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = n;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
#endif

enum { READ = 1, WRITE = 2, EXECUTE = 4, SHARED = 1, PRIVATE = 2, ANONYMOUS = 32 };
enum { AT_CWD = -100, THREAD = 0x10f00, GIB = 1 << 30 };
#define CALL(name, ...) CALL_(NR_##name, __VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define CALL_(n, a, b, c, d, e, f, ...) call(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/* Attacks that are let run, for their bounds to be seen: y[0] says how far they came. */
static float gigabytes_mapped(void) {
  float got = 0;
  while (got < 4096) {
    long at = CALL(mmap, 0, GIB, READ | WRITE, PRIVATE | ANONYMOUS, -1, 0);
    if (at < 0 && at > -4096) break;
    got++;
  }
  return got;
}

static float bytes_said(void) {
  static char text[4096];
  float said = 0;
  for (int i = 0; i < 256; i++) {
    long got = CALL(write, 2, text, sizeof text);
    if (got > 0) said += got;
  }
  return said;
}

static void wait(void) {
  for (volatile int forever = 1; forever;) {}
}

static void overflow_stack(volatile char *above) {
  volatile char here[4096];
  here[0] = above[0];
  overflow_stack(here);
  here[1] = above[0];
}

static int attack(const struct args *args, const struct launch *launch) {
  char there[184] = {0};
  switch (args->n) {
    ATTACKS
  }
  return 0;
}

u64 r3_frame_bytes(const struct launch *launch) { return 0; }
int r3_run_block(const u8 *raw, const struct launch *launch, const u32 *b, u8 *frame) {
  return attack((const void *)raw, launch);
}
