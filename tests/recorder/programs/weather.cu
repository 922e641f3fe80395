// A small atmosphere as applications write it: templates, constants, device variables, a struct of pointers, pointers in
// a buffer, streams. Prints a checksum, so that a changed result shows. Built by plain nvcc -O3, static or shared cudart.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                   \
    do {                                                              \
        cudaError_t error = (call);                                   \
        if (error != cudaSuccess) {                                   \
            std::printf("%s: %s\n", #call, cudaGetErrorString(error)); \
            std::exit(1);                                             \
        }                                                             \
    } while (0)

__constant__ double weights[4];
__device__ int steps_done;
static __device__ double largest;

struct Fields {
    double *state;
    const double *flux;
    int nx, nz;
};

template <class T, int AXIS>
__global__ void tendency(const T *__restrict__ state, T *__restrict__ flux, int nx, int nz, T dt) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, z = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= nx || z >= nz) return;
    T sum = 0;
    for (int k = 0; k < 4; k++) {
        int i = AXIS == 0 ? (x + k) % nx : x, j = AXIS == 1 ? (z + k) % nz : z;
        sum += T(weights[k]) * state[j * nx + i];
    }
    flux[z * nx + x] = dt * sum;
}

__global__ void advance(Fields fields) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < fields.nx * fields.nz) fields.state[i] += fields.flux[i];
    if (i == 0) steps_done++;
}

__global__ void add_rows(double *const *rows, int count, int nx, double *sums) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    if (x >= nx) return;
    double sum = 0;
    for (int row = 0; row < count; row++) sum += rows[row][x];
    sums[x] = sum;
    if (x == 0) largest = sum > largest ? sum : largest;
}

static double *allocate(const char *kind, size_t nbytes) {
    double *made;
    if (!strcmp(kind, "managed")) CHECK(cudaMallocManaged(&made, nbytes));
    else if (!strcmp(kind, "async")) CHECK(cudaMallocAsync(&made, nbytes, 0));
    else if (!strcmp(kind, "host")) CHECK(cudaMallocHost(&made, nbytes));
    else CHECK(cudaMalloc(&made, nbytes));
    CHECK(cudaMemset(made, 0, nbytes));
    return made;
}

// weather [device|managed|async|host|pool] [nx] [nz] [steps]
int main(int count, char **given) {
    const char *kind = count > 1 ? given[1] : "device";
    int nx = count > 2 ? atoi(given[2]) : 256, nz = count > 3 ? atoi(given[3]) : 64;
    int steps = count > 4 ? atoi(given[4]) : 4;
    size_t nbytes = sizeof(double) * nx * nz;
    double *state, *flux;
    if (!strcmp(kind, "pool")) {
        char *pool;
        CHECK(cudaMalloc(&pool, 18700000000ull));
        CHECK(cudaMemset(pool, 0, 18700000000ull));
        state = (double *)(pool + 4096), flux = (double *)(pool + 4096 + nbytes);
    } else {
        state = allocate(kind, nbytes), flux = allocate(kind, nbytes);
    }
    std::vector<double> host(nx * nz);
    for (int i = 0; i < nx * nz; i++) host[i] = 1.0 + (i % 97) * 0.01;
    CHECK(cudaMemcpy(state, host.data(), nbytes, cudaMemcpyDefault));
    double given_weights[4] = {-0.25, 0.5, -0.375, 0.125};
    CHECK(cudaMemcpyToSymbol(weights, given_weights, sizeof given_weights));
    std::vector<double *> rows(nz);
    for (int z = 0; z < nz; z++) rows[z] = state + z * nx;
    double **device_rows, *sums;
    CHECK(cudaMalloc(&device_rows, nz * sizeof(double *)));
    CHECK(cudaMemcpy(device_rows, rows.data(), nz * sizeof(double *), cudaMemcpyHostToDevice));
    CHECK(cudaMalloc(&sums, nx * sizeof(double)));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    dim3 block(32, 4), grid((nx + 31) / 32, (nz + 3) / 4);
    for (int step = 0; step < steps; step++) {
        tendency<double, 0><<<grid, block>>>(state, flux, nx, nz, 0.01);
        advance<<<(nx * nz + 127) / 128, 128>>>({state, flux, nx, nz});
        tendency<double, 1><<<grid, block>>>(state, flux, nx, nz, 0.01);
        advance<<<(nx * nz + 127) / 128, 128>>>({state, flux, nx, nz});
        CHECK(cudaDeviceSynchronize());
        add_rows<<<(nx + 127) / 128, 128, 0, stream>>>(device_rows, nz, nx, sums);
        CHECK(cudaStreamSynchronize(stream));
    }
    std::vector<double> result(nx);
    CHECK(cudaMemcpy(result.data(), sums, nx * sizeof(double), cudaMemcpyDeviceToHost));
    int done;
    CHECK(cudaMemcpyFromSymbol(&done, steps_done, sizeof done));
    double total = 0;
    for (double each : result) total += each;
    std::printf("%.17g after %d steps\n", total, done);
}
