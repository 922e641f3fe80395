// Random look-ups of cross sections, as mini-apps of particle transport are: tables of pointers, binary searches, a
// generator of random numbers in each thread, a histogram with atomics. Prints a checksum.
#include <cstdio>
#include <cstdlib>
#include <vector>

struct Nuclide {
    double *energies, *sections;  // `points` of them, energies in order
    int points;
};

struct Table {
    const Nuclide *nuclides;
    int count;
};

__device__ unsigned long long next_seed(unsigned long long seed) {
    return (2806196910506780709ull * seed + 1) & ((1ull << 63) - 1);
}

__global__ void make_energies(double *energies, double *sections, int points, unsigned long long seed) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= points) return;
    energies[i] = (i + 0.5) / points;
    sections[i] = (double)(next_seed(seed + i) % 1000) / 1000;
}

__global__ void look_up(Table table, int lookups, unsigned long long seed, double *found, int *histogram) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= lookups) return;
    seed = next_seed(seed + 77 * i);
    double energy = (double)seed / (double)(1ull << 63), sum = 0;
    for (int k = 0; k < table.count; k++) {
        Nuclide nuclide = table.nuclides[k];
        int low = 0, high = nuclide.points - 1;
        while (high - low > 1) {
            int middle = (low + high) / 2;
            if (nuclide.energies[middle] > energy) high = middle;
            else low = middle;
        }
        double width = nuclide.energies[high] - nuclide.energies[low];
        double share = width > 0 ? (energy - nuclide.energies[low]) / width : 0;
        sum += nuclide.sections[low] + share * (nuclide.sections[high] - nuclide.sections[low]);
    }
    found[i] = sum;
    atomicAdd(&histogram[(int)(energy * 16)], 1);
}

// lookups [nuclides] [points] [lookups] [batches]
int main(int count, char **given) {
    int nuclides = count > 1 ? atoi(given[1]) : 12, points = count > 2 ? atoi(given[2]) : 1000;
    int lookups = count > 3 ? atoi(given[3]) : 20000, batches = count > 4 ? atoi(given[4]) : 5;
    std::vector<Nuclide> made(nuclides);
    for (int k = 0; k < nuclides; k++) {
        made[k].points = points - k;
        if (cudaMalloc(&made[k].energies, points * sizeof(double))) return 1;
        if (cudaMalloc(&made[k].sections, points * sizeof(double))) return 1;
        make_energies<<<(points + 127) / 128, 128>>>(made[k].energies, made[k].sections, made[k].points, k + 1);
    }
    Nuclide *table;
    double *found;
    int *histogram;
    if (cudaMalloc(&table, nuclides * sizeof(Nuclide)) || cudaMalloc(&found, lookups * sizeof(double))) return 1;
    if (cudaMalloc(&histogram, 17 * sizeof(int)) || cudaMemset(histogram, 0, 17 * sizeof(int))) return 1;
    cudaMemcpy(table, made.data(), nuclides * sizeof(Nuclide), cudaMemcpyHostToDevice);
    for (int batch = 0; batch < batches; batch++)
        look_up<<<(lookups + 255) / 256, 256>>>({table, nuclides}, lookups, 1000 + batch, found, histogram);
    std::vector<double> host(lookups);
    if (cudaMemcpy(host.data(), found, lookups * sizeof(double), cudaMemcpyDeviceToHost)) return 1;
    double sum = 0;
    for (double each : host) sum += each;
    std::printf("%.17g\n", sum);
}
