// miniweather on one GPU: nvcc -O3 main.cu -o miniweather && ./miniweather 400 200 600 thermal
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels.cu"

static void check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    std::fprintf(stderr, "miniweather: %s: %s\n", what, cudaGetErrorString(status));
    std::exit(1);
}

static double* zeros(size_t count) {
    double* array = nullptr;
    check(cudaMalloc(&array, count * sizeof(double)), "cannot allocate memory on the device");
    check(cudaMemset(array, 0, count * sizeof(double)), "cannot clear memory on the device");
    return array;
}

static int blocks(int threads, int block) { return (threads + block - 1) / block; }

struct Model {
    int nx, nz, weather;
    double dx, dz, dt;
    double *state, *stage, *tendency, *partial;
    double *density, *density_theta, *face_density, *face_density_theta, *face_pressure;
    bool x_first = true;
};

struct Totals {
    double mass, energy;
};

static int reduction_blocks(const Model& m) { return blocks(m.nx * m.nz, REDUCTION_THREADS); }

static Model start(int nx, int nz, int weather) {
    Model m = {nx, nz, weather};
    m.dx = DOMAIN_X / nx;
    m.dz = DOMAIN_Z / nz;
    m.dt = COURANT * std::min(m.dx, m.dz) / FASTEST_SPEED;
    size_t rows = nz + 2 * HALO, columns = nx + 2 * HALO;
    m.state = zeros(VARIABLES * rows * columns);
    m.stage = zeros(VARIABLES * rows * columns);
    m.tendency = zeros(size_t(VARIABLES) * nz * nx);
    m.partial = zeros(2 * size_t(reduction_blocks(m)));
    m.density = zeros(rows);
    m.density_theta = zeros(rows);
    m.face_density = zeros(nz + 1);
    m.face_density_theta = zeros(nz + 1);
    m.face_pressure = zeros(nz + 1);
    dim3 block(32, 8), grid(blocks(nx + 2 * HALO, 32), blocks(nz + 2 * HALO, 8));
    initial_state<<<grid, block>>>(m.state, m.density, m.density_theta, m.face_density, m.face_density_theta,
                                   m.face_pressure, m.dx, m.dz, nx, nz, weather);
    check(cudaMemcpy(m.stage, m.state, VARIABLES * rows * columns * sizeof(double), cudaMemcpyDeviceToDevice),
          "initial state failed");
    return m;
}

static Totals totals(const Model& m) {
    int count = reduction_blocks(m);
    diagnostics<<<count, REDUCTION_THREADS>>>(m.state, m.density, m.density_theta, m.partial, m.dx, m.dz, m.nx, m.nz);
    std::vector<double> partial(2 * size_t(count));
    check(cudaMemcpy(partial.data(), m.partial, partial.size() * sizeof(double), cudaMemcpyDeviceToHost),
          "diagnostics failed");
    Totals sum = {0.0, 0.0};
    for (int block = 0; block < count; block++) {
        sum.mass += partial[2 * block];
        sum.energy += partial[2 * block + 1];
    }
    return sum;
}

// result = start + dt * (tendency of forcing along one direction)
static void advance(Model& m, bool along_x, double* start, double* forcing, double* result, double dt) {
    dim3 block(32, 8), grid(blocks(m.nx, 32), blocks(m.nz, 8));
    if (along_x) {
        halo_x<<<blocks(m.nz, 128), 128>>>(forcing, m.nx, m.nz);
        tendencies_x<<<grid, block>>>(forcing, m.density, m.density_theta, m.tendency, m.dx, dt, m.nx, m.nz);
    } else {
        halo_z<<<blocks(m.nx + 2 * HALO, 128), 128>>>(forcing, m.density, m.nx, m.nz);
        tendencies_z<<<grid, block>>>(forcing, m.face_density, m.face_density_theta, m.face_pressure, m.tendency, m.dz,
                                      dt, m.nx, m.nz);
    }
    update<<<grid, block>>>(start, m.tendency, result, dt, m.nx, m.nz);
}

// Three stages along one direction: third order in time for linear waves.
static void sweep(Model& m, bool along_x, double dt) {
    advance(m, along_x, m.state, m.state, m.stage, dt / 3);
    advance(m, along_x, m.state, m.stage, m.stage, dt / 2);
    advance(m, along_x, m.state, m.stage, m.state, dt);
}

// Directions one after the other, the first of them changing from step to step.
static void step(Model& m, double dt) {
    sweep(m, m.x_first, dt);
    sweep(m, !m.x_first, dt);
    m.x_first = !m.x_first;
}

int main(int argc, char** argv) {
    bool named = argc == 5 && (!std::strcmp(argv[4], "thermal") || !std::strcmp(argv[4], "gravity"));
    int nx = named ? std::atoi(argv[1]) : 0, nz = named ? std::atoi(argv[2]) : 0;
    double end = named ? std::atof(argv[3]) : -1.0;
    if (nx < 2 * HALO || nz < 2 * HALO || end < 0.0) {
        std::fprintf(stderr, "usage: miniweather NX NZ SECONDS thermal|gravity   (at least 4 cells a direction)\n");
        return 2;
    }
    Model m = start(nx, nz, std::strcmp(argv[4], "thermal") ? GRAVITY_WAVE : THERMAL);
    Totals before = totals(m);
    int steps = int(std::ceil(end / m.dt));
    double dt = steps ? end / steps : 0.0;
    auto clock = std::chrono::steady_clock::now();
    for (int n = 0; n < steps; n++) step(m, dt);
    check(cudaDeviceSynchronize(), "time stepping failed");
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - clock).count();
    Totals after = totals(m);
    std::printf("cells          %d x %d\nsteps          %d of %.6g s\n", nx, nz, steps, dt);
    std::printf("mass change    %.3e\n", (after.mass - before.mass) / before.mass);
    std::printf("energy change  %.3e\n", (after.energy - before.energy) / before.energy);
    std::fprintf(stderr, "run time       %.3f s, %.3f ms a step\n", seconds, steps ? 1e3 * seconds / steps : 0.0);
    return 0;
}
