// The recorder's own kernels, as own.cu has them, on a device that is the host; only with FAKE_OWN_KERNELS.
static void own_busy(void **parameters, const Dims *dims) { (void)parameters, (void)dims; }
static uint64_t digest_half(const unsigned char *bytes, size_t nbytes, uint64_t salt) {
    for (size_t i = 0; i < nbytes; i++) salt = (salt ^ bytes[i]) * 0x100000001b3u;
    return salt;
}
static void own_pages(void **parameters, const Dims *dims) {
    const unsigned char *at = *(unsigned char **)parameters[0];
    uint64_t nbytes = *(uint64_t *)parameters[1], count = *(uint64_t *)parameters[6];
    uint64_t low = *(uint64_t *)parameters[7], span = *(uint64_t *)parameters[8];
    uint64_t(*digests)[2] = *(void **)parameters[2], (*before)[2] = *(void **)parameters[3];
    uint64_t(*spans)[2] = *(void **)parameters[5];
    unsigned char *flags = *(unsigned char **)parameters[4], *marks = *(unsigned char **)parameters[9];
    (void)dims;
    if (owner((Address)(uintptr_t)*(unsigned char **)parameters[0]) != current) abort();
    if (!strcmp(getenv("FAKE_OWN_KERNELS"), "idle")) return (void)memset(flags, 0, (nbytes + 4095) / 4096);
    for (uint64_t page = 0; page * 4096 < nbytes; page++) {
        const unsigned char *bytes = at + page * 4096;
        size_t length = nbytes - page * 4096 < 4096 ? nbytes - page * 4096 : 4096;
        int filled = 0;
        for (size_t i = 0; i < length; i++) filled |= bytes[i];
        digests[page][0] = filled ? digest_half(bytes, length, 7) : 0;
        digests[page][1] = filled ? digest_half(bytes, length, 11) : 0;
        flags[page] = (unsigned char)(filled ? 1 : 0) | (!before || memcmp(before[page], digests[page], 16) ? 2 : 0);
        for (size_t i = 0; i + 8 <= length; i += 8) {
            uint64_t word;
            memcpy(&word, bytes + i, 8);
            for (uint64_t k = 0; word - low <= span && k < count; k++)
                if (word >= spans[k][0] && word <= spans[k][1]) marks[k] = 1;
        }
    }
}
static Kernel own_kernels[] = {{"r3_busy", own_busy, 1, {8}, NULL}, {"r3_pages", own_pages, 10, {8}, NULL}};
static int own_module;
