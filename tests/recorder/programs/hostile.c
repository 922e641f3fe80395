// What applications do that gets in a recorder's way, one situation a run.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "simple.h"

enum { COUNT = 1000, BYTES = COUNT * 8 };

static char **given;
static Handle function;
static Address out, in;

static void allocate(void) {
    double values[COUNT];
    cuMemAlloc_(&out, BYTES);
    cuMemAlloc_(&in, BYTES);
    for (int i = 0; i < COUNT; i++) values[i] = i + 1;
    cuMemcpyHtoD_(in, values, BYTES);
    memset(values, 0, BYTES);
    cuMemcpyHtoD_(out, values, BYTES);
}
static void launch(double factor) { launch_scale(function, out, in, factor, COUNT, NULL); }
static void put(Address at, Address word) { cuMemcpyHtoD_(at, &word, sizeof word); }

// Of this process: the recorder's folder, and a file there.
static const char *recorded_file(const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s", getenv("R3BENCH_PLAN"));
    *strrchr(path, '/') = 0;
    snprintf(path + strlen(path), 128, "/process-%d-0/%s", getpid(), name);
    return path;
}
static void wait_for(const char *name) {
    for (int i = 0; i < 6000 && access(recorded_file(name), F_OK); i++) usleep(10000);
}

// -- ends --

static void leaves(void) {
    launch(1);
    _exit(0);
}

static void turn_into_another(void) {
    execl("/proc/self/exe", given[0], "launches", (char *)NULL);
    _exit(9);
}
static void launches(void) {
    for (int i = 0; i < 3; i++) launch(1);
}
static void *launch_much(void *unused) {
    Address mine[2];
    for (int i = 0; i < 2; i++) cuMemAlloc_(&mine[i], BYTES);
    for (int i = 0; i < 100; i++) launch_scale(function, mine[0], mine[1], 1, COUNT, NULL);
    return unused;
}
// Threads launch and record while children are made, which become other programs.
static void busy_parent(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, launch_much, NULL);
    for (int i = 0, status; i < 5; i++) {
        pid_t child = fork();
        if (!child) turn_into_another();
        if (waitpid(child, &status, 0) != child || status) exit(6);
    }
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

// A child is made while the recorder writes its report, which the disk does not take for now.
static void fork_in_report(void) {
    char report[64];
    int status;
    launch(1);
    wait_for("unit-0.json");
    snprintf(report, sizeof report, "coverage.json.tmp%d", getpid());
    while (mkfifo(recorded_file(report), 0600)) usleep(1000);
    launch(1);
    wait_for("unit-1.json");
    usleep(200000);
    pid_t child = fork();
    if (!child) {
        alarm(30);
        launch(1);
        exit(0);
    }
    if (waitpid(child, &status, 0) != child || status) _exit(7);
    FILE *report_file = fopen(recorded_file(report), "r");
    if (report_file) fclose(report_file);
}

// -- signals and disks --

// No file may grow beyond a limit, and who tries is sent a signal.
static void limited(void) {
    struct rlimit small = {atoi(given[2]), atoi(given[2])};
    static double values[1 << 18];
    Address large;
    setrlimit(RLIMIT_FSIZE, &small);
    cuMemAlloc_(&large, sizeof values);
    for (int i = 0; i < 1 << 18; i++) values[i] = i + 0.5;
    cuMemcpyHtoD_(large, values, sizeof values);
    launch_scale(function, large, in, 1, COUNT, NULL);
    launch(1);
}

// Closes all files but the standard ones, as daemons do, and opens its own; nobody else writes to those or closes them.
static void closing(void) {
    char path[4096];
    int own[64];
    struct stat found;
    launch(1);
    wait_for("unit-0.bin.15");
    for (int file = 3; file < 256; file++) close(file);
    for (int i = 0; i < 64; i++) {
        snprintf(path, sizeof path, "%s/own-%d", given[2], i);
        own[i] = creat(path, 0600);
    }
    sleep(3);
    for (int i = 0; i < 64; i++)
        if (fstat(own[i], &found) || found.st_size) exit(6);
}

// Few files may be open, and the program needs most of them.
static void few_files(void) {
    struct rlimit few = {40, 40};
    setrlimit(RLIMIT_NOFILE, &few);
    for (int i = 0; i < 4; i++) launch(1);
    for (int i = 0; i < 16; i++)
        if (open("/dev/null", O_RDONLY) < 0) exit(6);
}

// Nobody reads what is written to standard error.
static void unheard(void) {
    int ends[2];
    if (pipe(ends)) exit(6);
    dup2(ends[1], 2);
    close(ends[0]), close(ends[1]);
    launch(1);
}

// The device never stops to be busy; how often it was asked after the first time is told.
static void stuck(void) {
    long (*queries)(void), before;
    *(void **)&queries = dlsym(library(), "fakeQueries");
    fakeBusy_(-1);
    launch(0);
    before = queries();
    for (int i = 0; i < 20; i++) launch(0);
    fakeBusy_(0);
    printf("%ld\n", queries() - before);
}

// Launches that cannot be recorded, with time between them.
static void hopeless(void) {
    for (int i = 0; i < 40; i++) launch(0), usleep(10000);
}

// -- modules --

// The image lies in a library that is closed again before anything is launched.
static void plugin(void) {
    Handle module, opened = dlopen(given[2], RTLD_NOW);
    if (!opened || cuModuleLoadData_(&module, dlsym(opened, "image"))) exit(6);
    if (cuModuleGetFunction_(&function, module, "_Z5scalePdPKddi")) exit(7);
    dlclose(opened);
    if (dlopen(given[2], RTLD_NOW | RTLD_NOLOAD)) exit(8);
    launch(1);
}

// The module is unloaded, and its image overwritten, while its launch is on its way to the disk.
static void unloaded(void) {
    Result (*unload)(Handle);
    Handle module;
    char *image = strdup(".version 7.0\n.visible .entry _Z5scalePdPKddi()\n{\n ret;\n}\n// ours\n");
    FIND(unload, "cuModuleUnload", "cuModuleUnload");
    cuModuleLoadData_(&module, image);
    cuModuleGetFunction_(&function, module, "_Z5scalePdPKddi");
    memset(image, 'x', strlen(image));
    launch(1);
    unload(module);
    cuMemFree_(in);
}

// -- memory --

static Result (*map)(Address, size_t, size_t, uint64_t, uint64_t), (*allow)(Address, size_t, const int *, size_t);

// Memory that is mapped and that nobody may read yet; a pointer leads to it.
static void mapped(void) {
    const int access[] = {1, 0, 3};
    FIND(map, "cuMemMap", "cuMemMap");
    FIND(allow, "cuMemSetAccess", "cuMemSetAccess");
    Address reserved = (Address)mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map(reserved, 4096, 0, 0, 0)) exit(6);
    put(in + 800, reserved);
    launch(0);
    if (allow(reserved, 4096, access, 1)) exit(7);
    launch(0);
}

// Of what is mapped a part may be read; what is mapped behind it is part of the same array, until it is taken away.
static void mapped_in_part(void) {
    const int access[] = {1, 0, 3};
    Result (*unmap)(Address, size_t);
    FIND(map, "cuMemMap", "cuMemMap");
    FIND(allow, "cuMemSetAccess", "cuMemSetAccess");
    FIND(unmap, "cuMemUnmap", "cuMemUnmap");
    Address at = (Address)mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map(at, 16384, 0, 0, 0) || allow(at + 4096, 8192, access, 1)) exit(6);
    put(in + 800, at + 4096 + 16);
    launch(0);
    if (map(at + 16384, 4096, 0, 0, 0) || allow(at + 12288, 8192, access, 1)) exit(7);
    launch(0);
    if (unmap(at + 16384, 4096)) exit(8);
    launch(0);
    if (unmap(at, 16384)) exit(9);
    launch(0);
}

// A pointer leads to memory of another device, which kernels of this one may not read.
static void far(void) {
    Handle (*context)(int);
    Result (*set)(Handle);
    Address large;
    *(void **)&context = dlsym(library(), "fakeContext");
    FIND(set, "cuCtxSetCurrent", "cuCtxSetCurrent");
    set(context(1));
    cuMemAlloc_(&large, 1 << 20);
    set(context(0));
    put(in + 800, large);
    launch(0);
}

// A pointer leads to memory that ended with its context.
static void reset(void) {
    Result (*retain)(Handle *, int), (*end)(int);
    Handle context;
    Address gone = out;
    FIND(retain, "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain");
    FIND(end, "cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxReset");
    retain(&context, 0);
    end(0);
    allocate();
    put(in + 800, gone);
    launch(0);
}

// -- graphs --

static Result (*begin)(Handle, int), (*end)(Handle, Handle *), (*instantiate)(Handle *, Handle, uint64_t),
    (*launch_graph)(Handle, Handle), (*create_stream)(Handle *, unsigned);
static void find_graphs(void) {
    FIND(begin, "cuStreamBeginCapture_v2", "cuStreamBeginCapture");
    FIND(end, "cuStreamEndCapture", "cuStreamEndCapture");
    FIND(instantiate, "cuGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags");
    FIND(launch_graph, "cuGraphLaunch", "cuGraphLaunch");
    FIND(create_stream, "cuStreamCreate", "cuStreamCreate");
}

// The end of a capture that never began, and then a true one, which must not be broken.
static void wrong_end(void) {
    Handle made, one, other;
    find_graphs();
    create_stream(&one, 0);
    create_stream(&other, 0);
    if (!end(one, &made)) exit(6);
    begin(one, 0);
    launch_scale(function, out, in, 10, COUNT, other);
    launch_scale(function, out, in, 100, COUNT, one);
    if (end(one, &made)) exit(7);
    launch(1);
}

// A graph of a kernel, a graph of a kernel and a graph, and a kernel; launched twice.
static void nested(void) {
    Result (*create)(Handle *, unsigned), (*add)(Handle *, Handle, const Handle *, size_t, const NodeParams *),
        (*inside)(Handle *, Handle, const Handle *, size_t, Handle), (*attribute)(Handle, int, const void *);
    Handle inner, middle, outer, ready, nodes[3];
    double factor = 1;
    int count = COUNT;
    const unsigned cluster[] = {2, 1, 1};
    void *parameters[] = {&out, &in, &factor, &count};
    NodeParams node = {function, {{2, 1, 1}, {64, 1, 1}}, 0, parameters, NULL, NULL, NULL};
    find_graphs();
    FIND(create, "cuGraphCreate", "cuGraphCreate");
    FIND(add, "cuGraphAddKernelNode_v2", "cuGraphAddKernelNode");
    FIND(inside, "cuGraphAddChildGraphNode", "cuGraphAddChildGraphNode");
    FIND(attribute, "cuGraphKernelNodeSetAttribute", "cuGraphKernelNodeSetAttribute");
    create(&inner, 0), create(&middle, 0), create(&outer, 0);
    add(&nodes[0], outer, NULL, 0, &node);
    factor = 10, add(&nodes[1], middle, NULL, 0, &node);
    factor = 100, add(&nodes[2], inner, NULL, 0, &node);
    attribute(nodes[2], 4, cluster);
    inside(&nodes[2], middle, &nodes[1], 1, inner);
    inside(&nodes[1], outer, &nodes[0], 1, middle);
    factor = 1000, add(&nodes[2], outer, &nodes[1], 1, &node);
    instantiate(&ready, outer, 0);
    for (int i = 0; i < 2; i++) launch_graph(ready, NULL);
}

// A graph makes memory, which is there for later launches, and another one takes it away.
static void graph_memory(void) {
    Result (*make)(Address *, size_t, Handle), (*drop)(Address, Handle);
    Handle stream, made, ready;
    Address at;
    find_graphs();
    FIND(make, "cuMemAllocAsync", "cuMemAllocAsync");
    FIND(drop, "cuMemFreeAsync", "cuMemFreeAsync");
    create_stream(&stream, 0);
    begin(stream, 0);
    make(&at, BYTES, stream);
    launch_scale(function, at, in, 2, COUNT, stream);
    if (end(stream, &made)) exit(6);
    put(out + 800, at);
    launch_scale(function, in, out, 0, 1, NULL);  // it is not there yet
    instantiate(&ready, made, 0);
    launch_graph(ready, NULL);
    launch_scale(function, at, in, 1, COUNT, NULL);
    begin(stream, 0);
    drop(at, stream);
    if (end(stream, &made)) exit(7);
    instantiate(&ready, made, 0);
    launch_graph(ready, NULL);
    launch_scale(function, in, out, 0, 1, NULL);  // nor is it now
}

// A graph of a kernel and of two conditional nodes: one launches another kernel, in the other's graph the same is left.
static void other_kernel(void **parameters, const Dims *dims) { scale(parameters, dims); }
static Handle named(const char *name, void (*run)(void **, const Dims *)) {
    Handle module, found;
    fakeKernel_(name, run, 4, SCALE_SIZES);
    cuModuleLoadData_(&module, ".version 7.0\n");
    if (cuModuleGetFunction_(&found, module, name)) exit(6);
    return found;
}
static void conditional(void) {
    Result (*create)(Handle *, unsigned), (*add)(Handle *, Handle, const Handle *, size_t, const NodeParams *),
        (*add_any)(Handle *, Handle, const Handle *, const void *, size_t, ConditionalParams *);
    Handle outer, ready, nodes[4];
    double factor = 1;
    int count = COUNT;
    void *parameters[] = {&out, &in, &factor, &count};
    NodeParams node = {function, {{2, 1, 1}, {64, 1, 1}}, 0, parameters, NULL, NULL, NULL};
    find_graphs();
    FIND(create, "cuGraphCreate", "cuGraphCreate");
    FIND(add, "cuGraphAddKernelNode_v2", "cuGraphAddKernelNode");
    FIND(add_any, "cuGraphAddNode_v2", "cuGraphAddNode");
    create(&outer, 0);
    add(&nodes[0], outer, NULL, 0, &node);
    node.function = named("other", other_kernel);
    for (int i = 0; i < 2; i++) {
        ConditionalParams condition = {NODE_CONDITIONAL, {0}, (uint64_t)(i == 0), 0, 1, NULL, NULL, {0}};
        if (add_any(&nodes[1 + i], outer, &nodes[i], NULL, 1, &condition)) exit(7);
        factor = 10 << i, add(&nodes[3], condition.made[0], NULL, 0, &node);
    }
    instantiate(&ready, outer, 0);
    for (int i = 0; i < 2; i++) launch_graph(ready, NULL);
}

// -- other ways to launch --

static void by_parts(void) {
    Result (*shape)(Handle, int, int, int), (*size)(Handle, unsigned), (*put_part)(Handle, int, const void *, unsigned),
        (*go)(Handle, int, int), (*later)(Handle, int, int, Handle), (*once)(Handle);
    struct {
        Address out, in;
        double factor;
        int count;
    } packed = {out, in, 1, COUNT};
    FIND(shape, "cuFuncSetBlockShape", "cuFuncSetBlockShape");
    FIND(size, "cuParamSetSize", "cuParamSetSize");
    FIND(put_part, "cuParamSetv", "cuParamSetv");
    FIND(go, "cuLaunchGrid", "cuLaunchGrid");
    FIND(later, "cuLaunchGridAsync", "cuLaunchGridAsync");
    FIND(once, "cuLaunch", "cuLaunch");
    shape(function, 64, 1, 1);
    size(function, 28);
    put_part(function, 0, &packed, 28);
    if (go(function, 2, 1) || later(function, 2, 1, NULL) || once(function)) exit(6);
}

static void on_several_devices(void) {
    Result (*go)(LaunchParams *, unsigned, unsigned);
    double factor = 1;
    int count = COUNT;
    void *parameters[] = {&out, &in, &factor, &count};
    LaunchParams one = {function, {{2, 1, 1}, {64, 1, 1}}, 0, NULL, parameters}, both[] = {one, one};
    FIND(go, "cuLaunchCooperativeKernelMultiDevice", "cuLaunchCooperativeKernelMultiDevice");
    if (go(both, 2, 0)) exit(6);
}

// -- arguments --

// Launches of which one differs in a number behind the first eight bytes of a structure.
static void structures(void) {
    struct {
        Address out, in;
        double factor;
        int count;
    } packed = {out, in, 0, COUNT};
    size_t nbytes = sizeof packed;
    void *extra[] = {(void *)1, &packed, (void *)2, &nbytes, NULL};
    for (int i = 0; i < 4; i++) {
        packed.factor = i / 2;
        cuLaunchKernel_(function, 2, 1, 1, 64, 1, 1, 0, NULL, NULL, extra);
    }
}

// A kernel takes its texture from a buffer, which only its code tells.
static void sample(void **parameters, const Dims *dims);
static void hidden_texture(void) {
    const size_t sizes[] = {8};
    Handle module, sampling;
    void *parameters[] = {&out};
    fakeKernel_("sample", sample, 1, sizes);
    cuModuleLoadData_(&module, ".version 7.0\n.visible .entry plain() {\n}\n.visible .entry sample(.param .u64 in) {\n"
                               "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd5, {%f1, %f2}];\n}\n");
    cuModuleGetFunction_(&sampling, module, "sample");
    for (int i = 0; i < 3; i++) cuLaunchKernel_(sampling, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
}

// A texture in a structure, and in a module.
static void sample(void **parameters, const Dims *dims) { (void)parameters, (void)dims; }
static void textures(void) {
    const size_t sizes[] = {16};
    Result (*create)(uint64_t *, const void *, const void *, const void *), (*reference)(Handle *, Handle, const char *);
    Handle module, sampling, found;
    uint64_t structure[2] = {out, 0};
    void *parameters[] = {structure};
    FIND(create, "cuTexObjectCreate", "cuTexObjectCreate");
    FIND(reference, "cuModuleGetTexRef", "cuModuleGetTexRef");
    fakeKernel_("sample", sample, 1, sizes);
    cuModuleLoadData_(&module, ".version 7.0\n");
    cuModuleGetFunction_(&sampling, module, "sample");
    create(&structure[1], NULL, NULL, NULL);
    cuLaunchKernel_(sampling, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
    structure[1] = 0;
    cuLaunchKernel_(sampling, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
    reference(&found, module, "image");
    cuLaunchKernel_(sampling, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
}

int main(int count, char **words) {
    const struct {
        const char *name;
        void (*run)(void);
    } situations[] = {{"leaves", leaves},     {"launches", launches},         {"busy parent", busy_parent},
                      {"fork", fork_in_report}, {"limited", limited},         {"unheard", unheard}, {"closing", closing}, {"few files", few_files},
                      {"plugin", plugin},     {"unloaded", unloaded},         {"mapped", mapped},
                      {"far", far},           {"reset", reset},               {"wrong end", wrong_end},
                      {"nested", nested},     {"graph memory", graph_memory}, {"structures", structures},
                      {"mapped in part", mapped_in_part}, {"conditional", conditional}, {"by parts", by_parts},
                      {"on several devices", on_several_devices},
                      {"textures", textures}, {"hidden texture", hidden_texture}, {"stuck", stuck},               {"hopeless", hopeless}};
    double first;
    given = words;
    find_driver();
    function = scale_function();
    allocate();
    for (size_t i = 0; count > 1 && i < sizeof situations / sizeof *situations; i++)
        if (!strcmp(situations[i].name, words[1])) situations[i].run();
    cuMemcpyDtoH_(&first, out, 8);
    printf("%g\n", first);
    return 0;
}
