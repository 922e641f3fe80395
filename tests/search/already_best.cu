// Nothing to gain here: one load and one store a thread, in order, by pointers that promise all they can.

extern "C" __global__ void copy_state(const double* __restrict__ from, double* __restrict__ to, int count) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n < count) to[n] = from[n];
}
