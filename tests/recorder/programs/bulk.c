// So many megabytes in a table of fields, which a number of kernels change in turn: recorded, all of them are read and
// one is written. Neighbouring numbers are alike but for the lower half of their digits, as where flows are computed.
#include "simple.h"

enum { FIELDS = 4 };

static uint64_t words;  // of a field

static void advance(void **parameters, const Dims *dims) {
    uint64_t *first = ((uint64_t **)*(Address *)parameters[0])[0];
    (void)dims;
    for (uint64_t i = 0; i < words; i++) first[i] += i % 7;
}

static void fill(Address at, uint64_t seed) {
    uint64_t *to = (uint64_t *)(uintptr_t)at;
    for (uint64_t i = 0; i < words; i++) {
        uint64_t noise = (i + seed) * 0x9e3779b97f4a7c15u;
        noise = (noise ^ noise >> 29) * 0xd6e8feb86659fd93u;
        double smooth = 300 + 1e-6 * (double)(i % 1000000);
        memcpy(&to[i], &smooth, 8);
        to[i] ^= noise >> 38;
    }
}

int main(int count, char **given) {
    const size_t sizes[] = {8};
    Address fields[FIELDS], table;
    Handle module, function;
    if (count < 3) return fprintf(stderr, "bulk MEGABYTES KERNELS\n");
    words = strtoull(given[1], NULL, 10) * (1 << 20) / 8 / FIELDS;
    find_driver();
    for (int i = 0; i < FIELDS; i++) cuMemAlloc_(&fields[i], words * 8), fill(fields[i], (uint64_t)i << 40);
    cuMemAlloc_(&table, sizeof fields);
    cuMemcpyHtoD_(table, fields, sizeof fields);
    void *parameters[] = {&table};
    for (int kernel = 0; kernel < atoi(given[2]); kernel++) {
        char name[32];
        snprintf(name, sizeof name, "advance%d", kernel);
        fakeKernel_(name, advance, 1, sizes);
        cuModuleLoadData_(&module, ".version 7.0\n");
        cuModuleGetFunction_(&function, module, name);
        cuLaunchKernel_(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
    }
    return 0;
}
