// Compiles its kernel while it runs, as CuPy does: NVRTC is a library opened for itself, its functions found by dlsym.
#include "simple.h"

static const char *SOURCE = "#include <shape.h>\n"
                            "template <typename T> __global__ void scale(T* out, const T* in, T factor, int count) {\n"
                            "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                            "  if (i < count) out[i] += FACTOR * factor * in[i];\n"
                            "}\n";

int main(int count, char **arguments) {
    find_driver();
    void *nvrtc = dlopen(arguments[1], RTLD_LAZY | RTLD_LOCAL), *program;
    if (!nvrtc || count < 3) return 5;
    int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *);
    int (*name)(void *, const char *);
    int (*compile)(void *, int, const char *const *);
    int (*size)(void *, size_t *);
    int (*get)(void *, char *);
    *(void **)&create = dlsym(nvrtc, "nvrtcCreateProgram");
    *(void **)&name = dlsym(nvrtc, "nvrtcAddNameExpression");
    *(void **)&compile = dlsym(nvrtc, "nvrtcCompileProgram");
    *(void **)&size = dlsym(nvrtc, "nvrtcGetPTXSize");
    *(void **)&get = dlsym(nvrtc, "nvrtcGetPTX");
    const char *options[] = {"-arch=sm_90", "--std=c++17", "-DFACTOR=1", arguments[2]};
    char ptx[4096];
    size_t nbytes;
    if (create(&program, SOURCE, "k.cu", 0, NULL, NULL) || name(program, "scale<double>")) return 6;
    if (compile(program, 4, options) || size(program, &nbytes) || get(program, ptx)) return 7;

    Handle module, function;
    fakeKernel_("_Z5scaleIdEvPT_PKS0_S0_i", scale, 4, SCALE_SIZES);
    if (cuModuleLoadData_(&module, ptx)) return 8;
    if (cuModuleGetFunction_(&function, module, "_Z5scaleIdEvPT_PKS0_S0_i")) return 9;
    Address out, in;
    cuMemAlloc_(&out, 64);
    cuMemAlloc_(&in, 64);
    double values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    cuMemcpyHtoD_(in, values, 64);
    launch_scale(function, out, in, 2, 8, NULL);
    return 0;
}
