// Twenty steps, half of them in NVTX ranges called "steps" that take 50 ms or more; as long passes outside of them.
#include <cstdio>
#include <ctime>
#include <vector>

#include <nvtx3/nvToolsExt.h>

#include "step.cuh"

static void wait_ms(long milliseconds) {
    timespec time = {0, milliseconds * 1000000};
    nanosleep(&time, nullptr);
}

int main() {
    const int count = 1 << 16;
    std::vector<double> host(count);
    for (int i = 0; i < count; i++) host[i] = i % 89;
    double *state, *flux;
    if (cudaMalloc(&state, count * sizeof(double)) || cudaMalloc(&flux, count * sizeof(double))) return 1;
    cudaMemset(state, 0, count * sizeof(double));
    cudaMemcpy(flux, host.data(), count * sizeof(double), cudaMemcpyHostToDevice);
    for (int i = 0; i < 20; i++) {
        nvtxRangePushA(i % 2 ? "steps" : "others");
        step<<<count / 128, 128>>>(state, flux, count, 0.5);
        cudaDeviceSynchronize();
        wait_ms(5);
        nvtxRangePop();
    }
    cudaMemcpy(host.data(), state, count * sizeof(double), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (int i = 0; i < count; i++) sum += host[i] * (i % 7);
    std::printf("%.17g\n", sum);
}
