// A conjugate gradient solver on a grid, as mini-apps of finite elements are: a sparse matrix in a struct, reductions,
// vector updates, hundreds of launches. Prints the iterations, the residual and how long a launch takes.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                    \
    do {                                                               \
        cudaError_t error = (call);                                    \
        if (error != cudaSuccess) {                                    \
            std::printf("%s: %s\n", #call, cudaGetErrorString(error)); \
            std::exit(1);                                              \
        }                                                              \
    } while (0)

struct Matrix {
    const int *row_starts, *columns;
    const double *values;
    int rows;
};

__global__ void fill_matrix(int nx, int ny, int *starts, int *columns, double *values) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row > nx * ny) return;
    starts[row] = 5 * row;
    if (row == nx * ny) return;
    int x = row % nx, y = row / nx;
    const int dx[] = {0, -1, 1, 0, 0}, dy[] = {0, 0, 0, -1, 1};
    for (int k = 0; k < 5; k++) {
        int i = x + dx[k], j = y + dy[k];
        bool inside = i >= 0 && i < nx && j >= 0 && j < ny;
        columns[5 * row + k] = inside ? j * nx + i : row;
        values[5 * row + k] = k == 0 ? 4.001 : inside ? -1.0 : 0.0;
    }
}

__global__ void multiply(Matrix a, const double *x, double *y) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.rows) return;
    double sum = 0;
    for (int k = a.row_starts[row]; k < a.row_starts[row + 1]; k++) sum += a.values[k] * x[a.columns[k]];
    y[row] = sum;
}

__global__ void dot(const double *x, const double *y, int n, double *partial) {
    __shared__ double sums[256];
    double sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i] * y[i];
    sums[threadIdx.x] = sum;
    for (int half = blockDim.x / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) partial[blockIdx.x] = sums[0];
}

__global__ void add_scaled(double *x, double factor, const double *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += factor * y[i];
}

__global__ void scale_and_add(double *x, double factor, const double *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = factor * x[i] + y[i];
}

static const int PARTS = 256;

static double product(const double *x, const double *y, int n, double *partial) {
    double sums[PARTS], sum = 0;
    dot<<<PARTS, 256>>>(x, y, n, partial);
    CHECK(cudaMemcpy(sums, partial, sizeof sums, cudaMemcpyDeviceToHost));
    for (double each : sums) sum += each;
    return sum;
}

// solver [nx] [ny] [iterations]
int main(int count, char **given) {
    int nx = count > 1 ? atoi(given[1]) : 128, ny = count > 2 ? atoi(given[2]) : 128;
    int most = count > 3 ? atoi(given[3]) : 40, n = nx * ny, blocks = (n + 256) / 256, iteration = 0;
    int *starts, *columns;
    double *values, *x, *r, *p, *ap, *partial;
    CHECK(cudaMalloc(&starts, (n + 1) * sizeof(int)));
    CHECK(cudaMalloc(&columns, 5 * (size_t)n * sizeof(int)));
    CHECK(cudaMalloc(&values, 5 * (size_t)n * sizeof(double)));
    for (double **each : {&x, &r, &p, &ap}) CHECK(cudaMalloc(each, n * sizeof(double)));
    CHECK(cudaMalloc(&partial, PARTS * sizeof(double)));
    fill_matrix<<<blocks, 256>>>(nx, ny, starts, columns, values);
    std::vector<double> right(n);
    for (int i = 0; i < n; i++) right[i] = 1 + i % 7;
    CHECK(cudaMemset(x, 0, n * sizeof(double)));
    CHECK(cudaMemcpy(r, right.data(), n * sizeof(double), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(p, r, n * sizeof(double), cudaMemcpyDeviceToDevice));
    Matrix a = {starts, columns, values, n};
    double norm = product(r, r, n, partial);
    for (; iteration < most && norm > 1e-20; iteration++) {
        multiply<<<blocks, 256>>>(a, p, ap);
        double alpha = norm / product(p, ap, n, partial);
        add_scaled<<<blocks, 256>>>(x, alpha, p, n);
        add_scaled<<<blocks, 256>>>(r, -alpha, ap, n);
        double next = product(r, r, n, partial);
        scale_and_add<<<blocks, 256>>>(p, next / norm, r, n);
        norm = next;
    }
    CHECK(cudaDeviceSynchronize());
    std::printf("%d iterations, residual %.9e\n", iteration, std::sqrt(norm));
}
