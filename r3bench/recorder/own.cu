// Kernels that the recorder runs in applications. own.ptx beside this file is made from it;
// tests/recorder/test_own_kernels.py makes it anew and compares.
//
// r3_pages: 128 bits that stand for the content of each page, zero for a page of zeros; whether it is filled (1) and
// other than before (2); and which allocations its words lead to. One warp a page.
// r3_busy: keeps one thread busy for a while, and no longer than so many looks at the clock.

using u32 = unsigned int;
using u64 = unsigned long long;

struct alignas(16) Pair {
    u64 low, high;
};

struct Span {
    u64 first, end;
};

// Allocations in order of address, words from `low` to `low + span` may lead into them; a mark for each that one does.
struct Reach {
    const Span *spans;
    u64 count, low, span;
    unsigned char *marks;
};

static __device__ u64 mixed(u64 word) {
    word = (word ^ (word >> 32)) * 0xd6e8feb86659fd93ull;
    return word ^ (word >> 29);
}

static __device__ u64 summed(u64 value) {
    for (int step = 16; step; step /= 2) {
        u32 low = __shfl_xor_sync(0xffffffffu, (u32)value, step);
        u32 high = __shfl_xor_sync(0xffffffffu, (u32)(value >> 32), step);
        value += (u64)high << 32 | low;
    }
    return value;
}

static __device__ void follow(u64 word, const Reach &reach) {
    if (word - reach.low > reach.span) return;
    u64 from = 0, to = reach.count;
    while (from < to) {
        u64 middle = (from + to) / 2;
        if (reach.spans[middle].first <= word) from = middle + 1;
        else to = middle;
    }
    if (from && word <= reach.spans[from - 1].end) reach.marks[from - 1] = 1;
}

// `at` is aligned to 16 bytes; pages of 4096 bytes, the last may be shorter.
extern "C" __global__ void r3_pages(const unsigned char *at, u64 nbytes, Pair *digests, const Pair *before,
                                    unsigned char *flags, const Span *spans, u64 count, u64 low_word, u64 span,
                                    unsigned char *marks) {
    const Reach reach = {spans, count, low_word, span, marks};
    u64 page = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    u32 lane = threadIdx.x % 32;
    u64 start = page * 4096;
    if (start >= nbytes) return;
    u64 low = 0, high = 0, any = 0;
    for (u32 offset = lane * 16; offset < 4096; offset += 512) {
        Pair words = {0, 0};
        u64 place = start + offset;
        if (place + 16 <= nbytes) {
            words = *(const Pair *)(at + place);
        } else {
            for (u32 i = 0; i < 16 && place + i < nbytes; i++)
                (i < 8 ? words.low : words.high) |= (u64)at[place + i] << 8 * (i % 8);
        }
        any |= words.low | words.high;
        if (count) follow(words.low, reach), follow(words.high, reach);
        u64 salt = (offset + 1) * 0x9e3779b97f4a7c15ull;
        low += mixed(words.low ^ salt) * 3 + mixed(words.high + salt);
        high += mixed(words.high ^ mixed(salt)) * 5 + mixed(words.low + mixed(salt));
    }
    bool zero = !__any_sync(0xffffffffu, any != 0);
    low = summed(mixed(low)), high = summed(mixed(high + lane));
    if (lane) return;
    Pair now = zero ? Pair{0, 0} : Pair{low, high | 1};
    bool changed = !before || before[page].low != now.low || before[page].high != now.high;
    digests[page] = now;
    flags[page] = (zero ? 0 : 1) | (changed ? 2 : 0);
}

extern "C" __global__ void r3_busy(u64 nanoseconds) {
    u64 begin = __nvvm_read_ptx_sreg_globaltimer();
    for (u32 looks = 0; looks < 20000 && __nvvm_read_ptx_sreg_globaltimer() - begin < nanoseconds; looks++) {}
}
