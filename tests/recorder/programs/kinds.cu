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

// A graph whose only node launches another graph as long as a condition holds, as it does.
static void conditional(float *at) {
    cudaGraph_t outer;
    cudaGraphNode_t nodes[2];
    cudaGraphExec_t ready;
    cudaGraphConditionalHandle condition;
    int count = COUNT;
    float value = 0.5f;
    void *arguments[] = {&at, &count, &value};
    cudaGraphNodeParams given = {};
    cudaKernelNodeParams node = {};
    CHECK(cudaGraphCreate(&outer, 0));
    CHECK(cudaGraphConditionalHandleCreate(&condition, outer, 1, cudaGraphCondAssignDefault));
    given.type = cudaGraphNodeTypeConditional;
    given.conditional.handle = condition, given.conditional.type = cudaGraphCondTypeIf, given.conditional.size = 1;
    CHECK(cudaGraphAddNode(&nodes[0], outer, nullptr, nullptr, 0, &given));
    node.func = (void *)add, node.gridDim = dim3((COUNT + 127) / 128), node.blockDim = dim3(128);
    node.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&nodes[1], given.conditional.phGraph_out[0], nullptr, 0, &node));
    CHECK(cudaGraphInstantiate(&ready, outer, 0));
    for (int i = 0; i < 2; i++) CHECK(cudaGraphLaunch(ready, 0));
}

// A kernel finds its texture in a buffer.
__global__ void add_texture(float *at, int count, const cudaTextureObject_t *textures) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) at[i] += tex1Dfetch<float>(textures[0], i);
}

static void texture(float *at) {
    cudaResourceDesc resource = {};
    cudaTextureDesc how = {};
    cudaTextureObject_t made, *held;
    resource.resType = cudaResourceTypeLinear, resource.res.linear.devPtr = at;
    resource.res.linear.desc = cudaCreateChannelDesc<float>(), resource.res.linear.sizeInBytes = COUNT * sizeof(float);
    how.readMode = cudaReadModeElementType;
    CHECK(cudaCreateTextureObject(&made, &resource, &how, nullptr));
    CHECK(cudaMalloc(&held, sizeof made));
    CHECK(cudaMemcpy(held, &made, sizeof made, cudaMemcpyHostToDevice));
    add_texture<<<(COUNT + 127) / 128, 128>>>(at, COUNT, held);
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

// Memory mapped in parts of 2 MiB, of which each gets its access alone; the array begins at the end of the first one.
static float *mapped(size_t nbytes) {
    const size_t part = 2 << 20;
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc rights = {};
    rights.location = properties.location;
    rights.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    size_t parts = 1 + (nbytes + part - 1) / part;
    CUdeviceptr at;
    CHECK(cuMemAddressReserve(&at, parts * part, 0, 0, 0));
    for (size_t i = 0; i < parts; i++) {
        CUmemGenericAllocationHandle memory;
        CHECK(cuMemCreate(&memory, part, &properties, 0));
        CHECK(cuMemMap(at + i * part, part, 0, memory, 0));
        CHECK(cuMemSetAccess(at + i * part, part, &rights, 1));
    }
    return (float *)(at + part - nbytes / 2);
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
    else if (!strcmp(kind, "conditional")) conditional(at);
    else if (!strcmp(kind, "texture")) texture(at);
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
