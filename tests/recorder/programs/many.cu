// Many launches of a kernel of about two microseconds: what the recorder costs when it records nothing.
#include <chrono>
#include <cstdio>
#include <cstdlib>

__global__ void turn(float *at, int turns) {
    float value = at[threadIdx.x];
    for (int i = 0; i < turns; i++) value = value * 1.0001f + 1e-6f;
    at[threadIdx.x] = value;
}

// many [launches] [windows]: prints the seconds of each window of so many launches.
int main(int count, char **given) {
    int launches = count > 1 ? atoi(given[1]) : 100000, windows = count > 2 ? atoi(given[2]) : 1;
    float *at;
    if (cudaMalloc(&at, 1024) || cudaMemset(at, 0, 1024)) return 1;
    for (int i = 0; i < 1000; i++) turn<<<1, 128>>>(at, 100);
    cudaDeviceSynchronize();
    for (int window = 0; window < windows; window++) {
        auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < launches; i++) turn<<<1, 128>>>(at, 100);
        cudaDeviceSynchronize();
        std::printf("%.6f\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
}
