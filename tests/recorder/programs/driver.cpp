// The driver API alone: "driver IMAGE" launches the kernel of many.cu from an image of its own.
// "driver fork PROGRAM ARGUMENT" forks before it touches the GPU; the child becomes another program.
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(call)                                 \
    do {                                            \
        int error = call;                           \
        if (error) {                                \
            printf("%s: %d\n", #call, error);       \
            exit(1);                                \
        }                                           \
    } while (0)

static int become(char *program, char *argument) {
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        execl(program, program, argument, (char *)NULL);
        _exit(2);
    }
    waitpid(child, &status, 0);
    return status;
}

int main(int count, char **given) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction turn;
    CUdeviceptr at;
    CUstream stream;
    float values[256];
    int turns = 10;
    if (count > 3 && !strcmp(given[1], "fork")) return become(given[2], given[3]);
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoad(&module, given[1]));
    CHECK(cuModuleGetFunction(&turn, module, "_Z4turnPfi"));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&at, sizeof values));
    CHECK(cuMemsetD32(at, 0x3f800000, 256));
    void *parameters[] = {&at, &turns};
    for (int i = 0; i < 3; i++) CHECK(cuLaunchKernel(turn, 1, 1, 1, 128, 1, 1, 0, stream, parameters, NULL));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH(values, at, sizeof values));
    CHECK(cuDevicePrimaryCtxRelease(device));
    printf("%.9g\n", values[0]);
}
