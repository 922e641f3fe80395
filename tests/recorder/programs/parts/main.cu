// Two translation units, linked by nvcc -rdc=true.
#include <cstdio>
#include "parts.h"

__global__ void bend(float *at, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) at[i] = bent(at[i]);
}

int main() {
    const int count = 1000;
    float *at, first;
    cudaMalloc(&at, count * sizeof(float));
    cudaMemset(at, 0, count * sizeof(float));
    float other = 1.5f;
    cudaMemcpyToSymbol(offset, &other, sizeof other);
    for (int i = 0; i < 3; i++) bend<<<8, 128>>>(at, count);
    cudaMemcpy(&first, at, sizeof first, cudaMemcpyDeviceToHost);
    std::printf("%.9g\n", first);
}
