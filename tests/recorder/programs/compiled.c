// Compiles its kernel while it runs, as CuPy does: NVRTC is a library opened for itself, its functions found by dlsym.
#include "simple.h"

static const char *SOURCE = "#include <shape.h>\n"
                            "template <typename T> __global__ void scale(T* out, const T* in, T factor, int count) {\n"
                            "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                            "  if (i < count) out[i] += FACTOR * factor * in[i];\n"
                            "}\n";

static void nothing(void **parameters, const Dims *dims) { (void)parameters, (void)dims; }

static int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *);
static int (*name)(void *, const char *), (*compile)(void *, int, const char *const *), (*size)(void *, size_t *);
static int (*get)(void *, char *), (*destroy)(void **);
static const char *include;
static Address out, in;

static void *program_of(const char *expression) {
    void *program;
    if (create(&program, SOURCE, "k.cu", 0, NULL, NULL) || name(program, expression)) exit(6);
    return program;
}

static void compile_and_launch(void *program, const char *factor, const char *symbol) {
    const char *options[] = {"-arch=sm_90", "--std=c++17", include, factor};
    char ptx[4096];
    size_t nbytes;
    Handle module, function;
    if (compile(program, 4, options) || size(program, &nbytes) || get(program, ptx)) exit(7);
    if (cuModuleLoadData_(&module, ptx)) exit(8);
    if (cuModuleGetFunction_(&function, module, symbol)) exit(9);
    launch_scale(function, out, in, 2, 8, NULL);
}

// With one more argument also another form of the kernel, in a program that is there when the first is gone and that is
// compiled twice.
int main(int count, char **arguments) {
    const char *of_double = "_Z5scaleIdEvPT_PKS0_S0_i", *of_float = "_Z5scaleIfEvPT_PKS0_S0_i";
    find_driver();
    void *nvrtc = dlopen(arguments[1], RTLD_LAZY | RTLD_LOCAL), *program;
    if (!nvrtc || count < 3) return 5;
    *(void **)&create = dlsym(nvrtc, "nvrtcCreateProgram");
    *(void **)&name = dlsym(nvrtc, "nvrtcAddNameExpression");
    *(void **)&compile = dlsym(nvrtc, "nvrtcCompileProgram");
    *(void **)&size = dlsym(nvrtc, "nvrtcGetPTXSize");
    *(void **)&get = dlsym(nvrtc, "nvrtcGetPTX");
    *(void **)&destroy = dlsym(nvrtc, "nvrtcDestroyProgram");
    include = arguments[2];
    fakeKernel_(of_double, scale, 4, SCALE_SIZES);
    cuMemAlloc_(&out, 64);
    cuMemAlloc_(&in, 64);
    double values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    cuMemcpyHtoD_(in, values, 64);
    program = program_of("scale<double>");
    compile_and_launch(program, "-DFACTOR=1", of_double);
    if (destroy(&program)) return 10;
    if (count < 4) return 0;
    const size_t sizes[] = {8, 8, 4, 4};
    fakeKernel_(of_float, nothing, 4, sizes);
    program = program_of("scale<float>");
    compile_and_launch(program, "-DFACTOR=2", of_float);
    compile_and_launch(program, "-DFACTOR=3", of_float);
    return 0;
}
