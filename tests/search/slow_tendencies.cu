// The x tendencies of miniweather, written to be slow: every variable and every face reads and works out again what the
// others need too, each term is divided on its own, and the sum lives in global memory.

extern "C" __global__ void slow_tendencies(double* state, double* density, double* density_theta, double* tendency,
                                           double dx, double dt, int nx, int nz) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int k = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= nx || k >= nz) return;

    for (int v = 0; v < 4; v++) {
        tendency[(v * nz + k) * nx + i] = 0.0;
        for (int side = 0; side < 2; side++) {
            double sign = side == 0 ? 1.0 : -1.0;
            int at = (k + 2) * (nx + 4) + i + side + 2;
            int plane = (nz + 4) * (nx + 4);
            double* momentum = state + plane;
            double* warmth = state + 3 * plane;
            double* carried = state + v * plane;
            double rho = -state[at - 2] / 12.0 + 7.0 * state[at - 1] / 12.0 + 7.0 * state[at] / 12.0 -
                         state[at + 1] / 12.0 + density[k + 2];
            double rho_theta = -warmth[at - 2] / 12.0 + 7.0 * warmth[at - 1] / 12.0 + 7.0 * warmth[at] / 12.0 -
                               warmth[at + 1] / 12.0 + density_theta[k + 2];
            double u = (-momentum[at - 2] / 12.0 + 7.0 * momentum[at - 1] / 12.0 + 7.0 * momentum[at] / 12.0 -
                        momentum[at + 1] / 12.0) / rho;
            double mean = -carried[at - 2] / 12.0 + 7.0 * carried[at - 1] / 12.0 + 7.0 * carried[at] / 12.0 -
                          carried[at + 1] / 12.0;
            double value = v == 0 ? rho : v == 3 ? rho_theta : mean;
            tendency[(v * nz + k) * nx + i] += sign * u * value / dx;
            if (v == 1) {
                tendency[(v * nz + k) * nx + i] += sign * 1.0e5 * pow(287.0 * rho_theta / 1.0e5, 1004.0 / 717.0) / dx;
            }
            tendency[(v * nz + k) * nx + i] += sign * 0.05 * dx / (16.0 * dt) * (-carried[at - 2] / dx +
                3.0 * carried[at - 1] / dx - 3.0 * carried[at] / dx + carried[at + 1] / dx);
        }
    }
}
