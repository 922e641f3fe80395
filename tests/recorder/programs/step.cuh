// A step of a small simulation, apart from the program: it needs no header of CUDA.
__global__ void step(double *state, const double *flux, int count, double dt) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    double left = flux[i == 0 ? count - 1 : i - 1], right = flux[i == count - 1 ? 0 : i + 1];
    state[i] += dt * (right - left);
}
