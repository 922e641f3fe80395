// A kernel on 4 GiB in which no page is like another; prints how fast a plain copy from pinned memory is.
#include <chrono>
#include <cstdio>

using Word = unsigned long long;

__global__ void fill(Word *at, size_t count) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= count) return;
    Word word = i * 0x9e3779b97f4a7c15ull;
    word ^= word >> 31;
    at[i] = word * 0xd6e8feb86659fd93ull >> 12;
}

__global__ void touch(Word *at) { at[threadIdx.x * 1000] += 1; }

int main() {
    const size_t count = (size_t)1 << 29, pinned = (size_t)1 << 30;
    Word *at;
    void *host;
    if (cudaMalloc(&at, count * sizeof(Word)) || cudaMallocHost(&host, pinned)) return 1;
    fill<<<count / 256, 256>>>(at, count);
    for (int i = 0; i < 3; i++) touch<<<1, 32>>>(at);
    cudaDeviceSynchronize();
    auto begin = std::chrono::steady_clock::now();
    cudaMemcpy(host, at, pinned, cudaMemcpyDeviceToHost);
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::printf("plain pinned copy %.1f GB/s\n", (double)pinned / seconds / 1e9);
}
