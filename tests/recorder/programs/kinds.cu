// Ways to launch and to get memory that the simple program does not use, one a run; each prints a number.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cg = cooperative_groups;

#define CHECK(call)                                 \
    do {                                            \
        int error = int(call);                      \
        if (error) {                                \
            std::printf("%s: %d\n", #call, error);  \
            std::exit(1);                           \
        }                                           \
    } while (0)

__global__ void add(float *at, int count, float value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) at[i] += value;
}

__global__ void twice(float *at, int count) {
    cg::grid_group grid = cg::this_grid();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) at[i] += 1;
    grid.sync();
    float other = i < count ? at[count - 1 - i] : 0;
    grid.sync();
    if (i < count) at[i] += other;
}

__global__ void __cluster_dims__(2, 1, 1) clustered(float *at, int count) {
    cg::cluster_group cluster = cg::this_cluster();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) at[i] += cluster.block_rank() + 1;
}

extern __shared__ float tile[];
__global__ void shared_sum(float *at, int count) {
    for (int i = threadIdx.x; i < count; i += blockDim.x) tile[i] = at[i];
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < count; i += 97) sum += tile[i];
    if (threadIdx.x == 0) at[0] = sum;
}

const int COUNT = 20000;

static void add_some(float *at, cudaStream_t stream = 0) {
    add<<<(COUNT + 127) / 128, 128, 0, stream>>>(at, COUNT, 0.5f);
}

static void graph(float *at) {
    cudaStream_t stream;
    cudaGraph_t made;
    cudaGraphExec_t ready;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 3; i++) add_some(at, stream);
    CHECK(cudaStreamEndCapture(stream, &made));
    CHECK(cudaGraphInstantiate(&ready, made, 0));
    for (int i = 0; i < 2; i++) CHECK(cudaGraphLaunch(ready, stream));
    CHECK(cudaStreamSynchronize(stream));
    add_some(at);
}

// A graph that holds another one twice.
static void nested(float *at) {
    cudaStream_t stream;
    cudaGraph_t inner, outer;
    cudaGraphNode_t nodes[2];
    cudaGraphExec_t ready;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 2; i++) add_some(at, stream);
    CHECK(cudaStreamEndCapture(stream, &inner));
    CHECK(cudaGraphCreate(&outer, 0));
    for (int i = 0; i < 2; i++) CHECK(cudaGraphAddChildGraphNode(&nodes[i], outer, nodes, i, inner));
    CHECK(cudaGraphInstantiate(&ready, outer, 0));
    for (int i = 0; i < 2; i++) CHECK(cudaGraphLaunch(ready, stream));
    CHECK(cudaStreamSynchronize(stream));
}

// A graph makes memory, works there, and takes it away again; a launch outside follows.
static void graph_memory(float *at) {
    cudaStream_t stream;
    cudaGraph_t made;
    cudaGraphExec_t ready;
    float *inside;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMallocAsync((void **)&inside, COUNT * sizeof(float), stream));
    CHECK(cudaMemcpyAsync(inside, at, COUNT * sizeof(float), cudaMemcpyDeviceToDevice, stream));
    add_some(inside, stream);
    CHECK(cudaMemcpyAsync(at, inside, COUNT * sizeof(float), cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaFreeAsync(inside, stream));
    CHECK(cudaStreamEndCapture(stream, &made));
    CHECK(cudaGraphInstantiate(&ready, made, 0));
    for (int i = 0; i < 2; i++) CHECK(cudaGraphLaunch(ready, stream));
    CHECK(cudaStreamSynchronize(stream));
    add_some(at);
}

static void cooperative(float *at) {
    int count = COUNT;
    void *arguments[] = {&at, &count};
    CHECK(cudaLaunchCooperativeKernel((void *)twice, dim3((COUNT + 255) / 256), dim3(256), arguments, 0, 0));
}

static void shared(float *at) {
    CHECK(cudaFuncSetAttribute(shared_sum, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000));
    shared_sum<<<1, 256, COUNT * sizeof(float)>>>(at, COUNT);
}

// Every device adds to memory of its own, in turn.
static void devices(float *host) {
    int count = 0;
    float *at[8];
    CHECK(cudaGetDeviceCount(&count));
    count = count < 8 ? count : 8;
    for (int i = 0; i < count; i++) {
        CHECK(cudaSetDevice(i));
        CHECK(cudaMalloc(&at[i], COUNT * sizeof(float)));
        CHECK(cudaMemcpy(at[i], host, COUNT * sizeof(float), cudaMemcpyHostToDevice));
    }
    for (int launch = 0; launch < 2; launch++)
        for (int i = 0; i < count; i++) {
            CHECK(cudaSetDevice(i));
            add_some(at[i]);
        }
    for (int i = 0; i < count; i++) {
        CHECK(cudaSetDevice(i));
        CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaSetDevice(0));
}

static float *mapped(size_t nbytes) {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc rights = {};
    rights.location = properties.location;
    rights.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    size_t whole = (nbytes + (2 << 20) - 1) / (2 << 20) * (2 << 20);
    CUdeviceptr at;
    CUmemGenericAllocationHandle memory;
    CHECK(cuMemCreate(&memory, whole, &properties, 0));
    CHECK(cuMemAddressReserve(&at, whole, 0, 0, 0));
    CHECK(cuMemMap(at, whole, 0, memory, 0));
    CHECK(cuMemSetAccess(at, whole, &rights, 1));
    return (float *)at;
}

int main(int count, char **given) {
    const char *kind = count > 1 ? given[1] : "";
    float *at, sum = 0, *host = (float *)calloc(COUNT, sizeof(float));
    CHECK(cudaFree(0));
    if (!strcmp(kind, "vmm")) at = mapped(COUNT * sizeof(float));
    else CHECK(cudaMalloc(&at, COUNT * sizeof(float)));
    for (int i = 0; i < COUNT; i++) host[i] = i % 13;
    if (!strcmp(kind, "registered")) {
        CHECK(cudaHostRegister(host, COUNT * sizeof(float), cudaHostRegisterDefault));
        add_some(host);
        CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaMemcpy(at, host, COUNT * sizeof(float), cudaMemcpyHostToDevice));
    if (!strcmp(kind, "graph")) graph(at);
    else if (!strcmp(kind, "nested")) nested(at);
    else if (!strcmp(kind, "graph-memory")) graph_memory(at);
    else if (!strcmp(kind, "cooperative")) cooperative(at);
    else if (!strcmp(kind, "clusters")) clustered<<<160, 128>>>(at, COUNT);
    else if (!strcmp(kind, "shared")) shared(at);
    else if (!strcmp(kind, "devices")) devices(host);
    else add_some(at);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(host, at, COUNT * sizeof(float), cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++) sum += host[i];
    std::printf("%.9g\n", sum);
}
