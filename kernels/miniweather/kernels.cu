// The seven kernels of miniweather: dry, compressible, non-hydrostatic flow in a vertical plane.
//
// One thread works on one cell (halos: one row or column). Cells are indexed k upwards, i along the wind, from 0 for
// the first cell inside the domain; faces carry the index of the cell above or to the right of them.
#include "constants.h"

__device__ int cell(int variable, int k, int i, int nx, int nz) {
    return (variable * (nz + 2 * HALO) + k + HALO) * (nx + 2 * HALO) + i + HALO;
}

__device__ double pressure(double density_theta) {
    return SURFACE_PRESSURE * pow(GAS_CONSTANT * density_theta / SURFACE_PRESSURE, HEAT_PRESSURE / HEAT_VOLUME);
}

// Fourth-order value at the face below q[0], from the averages of two cells on either side.
__device__ double face_value(const double* q, int stride) {
    return (-q[-2 * stride] + 7.0 * q[-stride] + 7.0 * q[0] - q[stride]) / 12.0;
}

// Third derivative at the same face, times the cube of the cell's width.
__device__ double face_third_difference(const double* q, int stride) {
    return -q[-2 * stride] + 3.0 * q[-stride] - 3.0 * q[0] + q[stride];
}

// -- initial state --------------------------------------------------------------------------------------------------

__device__ double background_theta(double z, int weather) {
    if (weather == THERMAL) return SURFACE_THETA;
    return SURFACE_THETA * exp(BUOYANCY_FREQUENCY * BUOYANCY_FREQUENCY * z / GRAVITY);
}

// Exner pressure (p / p0)^(R / cp) of air at rest: d(exner)/dz = -g / (cp theta).
__device__ double background_exner(double z, int weather) {
    if (weather == THERMAL) return 1.0 - GRAVITY * z / (HEAT_PRESSURE * SURFACE_THETA);
    double n2 = BUOYANCY_FREQUENCY * BUOYANCY_FREQUENCY;
    return 1.0 - GRAVITY * GRAVITY / (HEAT_PRESSURE * SURFACE_THETA * n2) * (1.0 - exp(-n2 * z / GRAVITY));
}

__device__ double background_density_theta(double z, int weather) {
    return SURFACE_PRESSURE / GAS_CONSTANT * pow(background_exner(z, weather), HEAT_VOLUME / GAS_CONSTANT);
}

// How much warmer than the background the air is at first, in K.
__device__ double initial_warmth(double x, double z, int weather) {
    if (weather == THERMAL) {
        double distance = sqrt(pow((x - DOMAIN_X / 2) / 2000.0, 2.0) + pow((z - 2000.0) / 2000.0, 2.0));
        return distance < 1.0 ? 3.0 * pow(cos(PI / 2 * distance), 2.0) : 0.0;
    }
    return 0.5 * sin(PI * z / DOMAIN_Z) / (1.0 + pow((x - DOMAIN_X / 4) / 1000.0, 2.0));
}

// Cell averages by Gauss-Legendre quadrature with three points a direction; the first column of threads also
// writes the background: averages of the cells (with ghost cells) and values at the faces.
extern "C" __global__ void initial_state(double* state, double* density, double* density_theta, double* face_density,
                                         double* face_density_theta, double* face_pressure, double dx, double dz,
                                         int nx, int nz, int weather) {
    int i = blockIdx.x * blockDim.x + threadIdx.x - HALO;
    int k = blockIdx.y * blockDim.y + threadIdx.y - HALO;
    if (i >= nx + HALO || k >= nz + HALO) return;

    const double points[3] = {-0.5 * sqrt(0.6), 0.0, 0.5 * sqrt(0.6)};
    const double weights[3] = {5.0 / 18.0, 8.0 / 18.0, 5.0 / 18.0};
    double wind = weather == THERMAL ? 0.0 : WIND;
    double mean_density = 0.0, mean_density_theta = 0.0, mean_warmth = 0.0;
    for (int b = 0; b < 3; b++) {
        double z = (k + 0.5 + points[b]) * dz;
        double rho_theta = background_density_theta(z, weather);
        double rho = rho_theta / background_theta(z, weather);
        mean_density += weights[b] * rho;
        mean_density_theta += weights[b] * rho_theta;
        for (int a = 0; a < 3; a++) {
            double x = (i + 0.5 + points[a]) * dx;
            mean_warmth += weights[a] * weights[b] * rho * initial_warmth(x, z, weather);
        }
    }
    state[cell(DENSITY, k, i, nx, nz)] = 0.0;
    state[cell(MOMENTUM_X, k, i, nx, nz)] = mean_density * wind;
    state[cell(MOMENTUM_Z, k, i, nx, nz)] = 0.0;
    state[cell(DENSITY_THETA, k, i, nx, nz)] = mean_warmth;

    if (i != 0) return;
    density[k + HALO] = mean_density;
    density_theta[k + HALO] = mean_density_theta;
    if (k < 0 || k > nz) return;
    double rho_theta = background_density_theta(k * dz, weather);
    face_density[k] = rho_theta / background_theta(k * dz, weather);
    face_density_theta[k] = rho_theta;
    face_pressure[k] = pressure(rho_theta);
}

// -- ghost cells ----------------------------------------------------------------------------------------------------

// Periodic in x. One thread a row.
extern "C" __global__ void halo_x(double* state, int nx, int nz) {
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= nz) return;
    for (int v = 0; v < VARIABLES; v++) {
        for (int h = 0; h < HALO; h++) {
            state[cell(v, k, h - HALO, nx, nz)] = state[cell(v, k, nx + h - HALO, nx, nz)];
            state[cell(v, k, nx + h, nx, nz)] = state[cell(v, k, h, nx, nz)];
        }
    }
}

// Ground and lid: nothing flows through, the wind along them goes on unchanged. One thread a column.
extern "C" __global__ void halo_z(double* state, const double* density, int nx, int nz) {
    int i = blockIdx.x * blockDim.x + threadIdx.x - HALO;
    if (i >= nx + HALO) return;
    for (int v = 0; v < VARIABLES; v++) {
        for (int h = 1; h <= HALO; h++) {
            int below = -h, above = nz - 1 + h;
            double lowest = state[cell(v, 0, i, nx, nz)];
            double highest = state[cell(v, nz - 1, i, nx, nz)];
            if (v == MOMENTUM_Z) {
                lowest = 0.0;
                highest = 0.0;
            } else if (v == MOMENTUM_X) {
                lowest = lowest / density[HALO] * density[below + HALO];
                highest = highest / density[nz - 1 + HALO] * density[above + HALO];
            }
            state[cell(v, below, i, nx, nz)] = lowest;
            state[cell(v, above, i, nx, nz)] = highest;
        }
    }
}

// -- tendencies -----------------------------------------------------------------------------------------------------

// What flows through the left and right faces of each cell. tendency[variable][z][x] has no ghost cells.
extern "C" __global__ void tendencies_x(const double* state, const double* density, const double* density_theta,
                                        double* tendency, double dx, double dt, int nx, int nz) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int k = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= nx || k >= nz) return;

    double flux[2][VARIABLES];
    for (int side = 0; side < 2; side++) {
        double value[VARIABLES], damping[VARIABLES];
        for (int v = 0; v < VARIABLES; v++) {
            const double* q = &state[cell(v, k, i + side, nx, nz)];
            value[v] = face_value(q, 1);
            damping[v] = HYPERVISCOSITY * dx / (16.0 * dt) * face_third_difference(q, 1);
        }
        double rho = value[DENSITY] + density[k + HALO];
        double u = value[MOMENTUM_X] / rho;
        double w = value[MOMENTUM_Z] / rho;
        double theta = (value[DENSITY_THETA] + density_theta[k + HALO]) / rho;
        flux[side][DENSITY] = rho * u + damping[DENSITY];
        flux[side][MOMENTUM_X] = rho * u * u + pressure(rho * theta) + damping[MOMENTUM_X];
        flux[side][MOMENTUM_Z] = rho * u * w + damping[MOMENTUM_Z];
        flux[side][DENSITY_THETA] = rho * u * theta + damping[DENSITY_THETA];
    }
    for (int v = 0; v < VARIABLES; v++) {
        tendency[(v * nz + k) * nx + i] = -(flux[1][v] - flux[0][v]) / dx;
    }
}

// What flows through the lower and upper faces of each cell, and gravity.
extern "C" __global__ void tendencies_z(const double* state, const double* face_density,
                                        const double* face_density_theta, const double* face_pressure,
                                        double* tendency, double dz, double dt, int nx, int nz) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int k = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= nx || k >= nz) return;

    double flux[2][VARIABLES];
    for (int side = 0; side < 2; side++) {
        int face = k + side;
        double value[VARIABLES], damping[VARIABLES];
        for (int v = 0; v < VARIABLES; v++) {
            const double* q = &state[cell(v, face, i, nx, nz)];
            value[v] = face_value(q, nx + 2 * HALO);
            damping[v] = HYPERVISCOSITY * dz / (16.0 * dt) * face_third_difference(q, nx + 2 * HALO);
        }
        double rho = value[DENSITY] + face_density[face];
        double u = value[MOMENTUM_X] / rho;
        double w = value[MOMENTUM_Z] / rho;
        double theta = (value[DENSITY_THETA] + face_density_theta[face]) / rho;
        if (face == 0 || face == nz) { // neither mass nor heat passes ground and lid
            w = 0.0;
            damping[DENSITY] = 0.0;
            damping[DENSITY_THETA] = 0.0;
        }
        flux[side][DENSITY] = rho * w + damping[DENSITY];
        flux[side][MOMENTUM_X] = rho * w * u + damping[MOMENTUM_X];
        flux[side][MOMENTUM_Z] = rho * w * w + pressure(rho * theta) - face_pressure[face] + damping[MOMENTUM_Z];
        flux[side][DENSITY_THETA] = rho * w * theta + damping[DENSITY_THETA];
    }
    for (int v = 0; v < VARIABLES; v++) {
        double source = v == MOMENTUM_Z ? -GRAVITY * state[cell(DENSITY, k, i, nx, nz)] : 0.0;
        tendency[(v * nz + k) * nx + i] = -(flux[1][v] - flux[0][v]) / dz + source;
    }
}

// -- time step ------------------------------------------------------------------------------------------------------

// result = start + dt * tendency, inside the domain. result and start may be the same array.
extern "C" __global__ void update(const double* start, const double* tendency, double* result, double dt, int nx,
                                  int nz) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int k = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= nx || k >= nz) return;
    for (int v = 0; v < VARIABLES; v++) {
        int inside = cell(v, k, i, nx, nz);
        result[inside] = start[inside] + dt * tendency[(v * nz + k) * nx + i];
    }
}

// -- diagnostics ----------------------------------------------------------------------------------------------------

// Mass (kg/m) and total energy (J/m: kinetic, internal, potential) of the cells of each block, as
// partial[block][2]. The host adds the blocks in order, so the sums are the same in every run.
extern "C" __global__ void diagnostics(const double* state, const double* density, const double* density_theta,
                                       double* partial, double dx, double dz, int nx, int nz) {
    __shared__ double mass[REDUCTION_THREADS];
    __shared__ double energy[REDUCTION_THREADS];
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    int k = n / nx;
    int i = n % nx;
    mass[threadIdx.x] = 0.0;
    energy[threadIdx.x] = 0.0;
    if (n < nx * nz) {
        double rho = state[cell(DENSITY, k, i, nx, nz)] + density[k + HALO];
        double u = state[cell(MOMENTUM_X, k, i, nx, nz)] / rho;
        double w = state[cell(MOMENTUM_Z, k, i, nx, nz)] / rho;
        double p = pressure(state[cell(DENSITY_THETA, k, i, nx, nz)] + density_theta[k + HALO]);
        double temperature = p / (rho * GAS_CONSTANT);
        double height = (k + 0.5) * dz;
        mass[threadIdx.x] = rho * dx * dz;
        energy[threadIdx.x] = rho * ((u * u + w * w) / 2 + HEAT_VOLUME * temperature + GRAVITY * height) * dx * dz;
    }
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            mass[threadIdx.x] += mass[threadIdx.x + half];
            energy[threadIdx.x] += energy[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        partial[2 * blockIdx.x] = mass[0];
        partial[2 * blockIdx.x + 1] = energy[0];
    }
}
