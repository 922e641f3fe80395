// What applications get up to, one situation a run.
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "simple.h"

enum { COUNT = 1000, BYTES = COUNT * 8 };

static Handle function;
static Address out, in;

static void set_up(void) {
    double values[COUNT];
    find_driver();
    function = scale_function();
    cuMemAlloc_(&out, BYTES);
    cuMemAlloc_(&in, BYTES);
    for (int i = 0; i < COUNT; i++) values[i] = i + 1;
    cuMemcpyHtoD_(in, values, BYTES);
    memset(values, 0, BYTES);
    cuMemcpyHtoD_(out, values, BYTES);
}

static void finish(void) {
    double first;
    cuMemcpyDtoH_(&first, out, 8);
    printf("%g\n", first);
}

// The device stays busy: the recorder must give up and the program go on.
static void hang(void) {
    fakeBusy_(-1);
    launch_scale(function, out, in, 1, COUNT, NULL);
    fakeBusy_(0);
}

static void wait_for_first_unit(pid_t process) {
    char path[4096];
    snprintf(path, sizeof path, "%s", getenv("R3BENCH_PLAN"));
    *strrchr(path, '/') = 0;
    snprintf(path + strlen(path), 64, "/process-%d-0/unit-0.json", process);
    for (int i = 0; i < 6000 && access(path, F_OK); i++) usleep(10000);
}

// Dies while the next launch is recorded: only what was complete by then is kept.
static void killed(void) {
    launch_scale(function, out, in, 1, COUNT, NULL);
    fakeBusy_(-1);
    if (fork() == 0) {
        wait_for_first_unit(getppid());
        usleep(100000);
        kill(getppid(), SIGKILL);
        _exit(0);
    }
    launch_scale(function, out, in, 1, COUNT, NULL);
}

static void forked(void) {
    launch_scale(function, out, in, 1, COUNT, NULL);
    pid_t child = fork();
    launch_scale(function, out, in, child ? 2 : 3, COUNT, NULL);
    if (!child) exit(0);
    waitpid(child, NULL, 0);
}

static Handle captured_graph(int launches) {
    Result (*begin)(Handle, int), (*end)(Handle, Handle *);
    Handle graph;
    FIND(begin, "cuStreamBeginCapture_v2", "cuStreamBeginCapture");
    FIND(end, "cuStreamEndCapture", "cuStreamEndCapture");
    begin(NULL, 0);
    for (int i = 0; i < launches; i++) launch_scale(function, out, in, 100 * (i + 1), COUNT, NULL);
    if (end(NULL, &graph)) exit(5);
    return graph;
}

// While a stream is captured, another one goes on.
static void captured(void) {
    Result (*begin)(Handle, int), (*end)(Handle, Handle *), (*create)(Handle *, unsigned);
    Handle graph, one, other;
    FIND(begin, "cuStreamBeginCapture_v2", "cuStreamBeginCapture");
    FIND(end, "cuStreamEndCapture", "cuStreamEndCapture");
    FIND(create, "cuStreamCreate", "cuStreamCreate");
    create(&one, 0);
    create(&other, 0);
    launch_scale(function, out, in, 1, COUNT, other);
    begin(one, 0);
    launch_scale(function, out, in, 100, COUNT, one);
    launch_scale(function, out, in, 10, COUNT, other);
    if (end(one, &graph)) exit(5);
    launch_scale(function, out, in, 1, COUNT, other);
}

static Result (*instantiate)(Handle *, Handle, uint64_t), (*launch_graph)(Handle, Handle), (*destroy)(Handle);
static void find_graphs(void) {
    FIND(instantiate, "cuGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags");
    FIND(launch_graph, "cuGraphLaunch", "cuGraphLaunch");
    FIND(destroy, "cuGraphDestroy", "cuGraphDestroy");
}

// Three launches in a graph that is launched twice; what it was made of is gone by then.
static void graph(void) {
    Handle made = captured_graph(3), ready;
    find_graphs();
    instantiate(&ready, made, 0);
    destroy(made);
    for (int i = 0; i < 2; i++) launch_graph(ready, NULL);
}

// A graph made node by node, of which a node is changed between two launches.
static void scale_tuned(void **parameters, const Dims *dims) {
    scale(parameters, dims);
    (*(double **)parameters[0])[0] += 1000;
}
static void built(void) {
    NodeParams node = {function, {{2, 1, 1}, {64, 1, 1}}, 0, NULL, NULL, NULL, NULL};
    Result (*create)(Handle *, unsigned), (*add)(Handle *, Handle, const Handle *, size_t, const void *),
        (*change)(Handle, Handle, const void *);
    Handle made, ready, nodes[2];
    double factor = 1;
    int count = COUNT;
    void *parameters[] = {&out, &in, &factor, &count};
    find_graphs();
    fakeKernel_("_Z5scalePdPKddi@tuned", scale_tuned, 4, SCALE_SIZES);
    FIND(create, "cuGraphCreate", "cuGraphCreate");
    FIND(add, "cuGraphAddKernelNode_v2", "cuGraphAddKernelNode");
    FIND(change, "cuGraphExecKernelNodeSetParams_v2", "cuGraphExecKernelNodeSetParams");
    node.parameters = parameters;
    create(&made, 0);
    for (int i = 0; i < 2; i++, factor *= 10) add(&nodes[i], made, nodes, (size_t)i, &node);
    instantiate(&ready, made, 0);
    launch_graph(ready, NULL);
    change(ready, nodes[1], &node);
    launch_graph(ready, NULL);
}

// Two devices in turn, each with a stream of its own.
static void devices(void) {
    Handle (*context)(int), streams[2];
    Result (*set)(Handle), (*create)(Handle *, unsigned);
    *(void **)&context = dlsym(library(), "fakeContext");
    FIND(set, "cuCtxSetCurrent", "cuCtxSetCurrent");
    FIND(create, "cuStreamCreate", "cuStreamCreate");
    for (int i = 0; i < 2; i++) set(context(i)), create(&streams[i], 0);
    for (int i = 0; i < 4; i++) {
        set(context(i % 2));
        launch_scale(function, out, in, i + 1, COUNT, streams[i % 2]);
    }
    set(context(0));
}

// The device is reset between two launches: what the recorder had there is gone.
static void reset(void) {
    Result (*all)(int);
    FIND(all, "cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxReset");
    launch_scale(function, out, in, 1, COUNT, NULL);
    all(0);
    launch_scale(function, out, in, 1, COUNT, NULL);
}

// Asks how much is free, and takes nearly all of it, while the recorder has memory there.
static void greedy(void) {
    Result (*info)(size_t *, size_t *);
    size_t before, unused, whole;
    Address most;
    FIND(info, "cuMemGetInfo_v2", "cuMemGetInfo");
    info(&before, &whole);
    launch_scale(function, out, in, 1, COUNT, NULL);
    info(&unused, &whole);
    if (unused != before) exit(6);
    launch_scale(function, out, in, 1, COUNT, NULL);
    if (cuMemAlloc_(&most, unused - 65536)) exit(7);
}

// A megabyte with empty, repeated and different pages, of which some are emptied, copied or changed.
enum { PAGES = 256, WORDS = 512 };
static void change(void **parameters, const Dims *dims) {
    uint64_t(*pages)[WORDS] = *(void **)parameters[0];
    (void)dims;
    memset(pages[160], 0, 10 * sizeof pages[0]);
    memcpy(pages[30], pages[110], sizeof pages[0]);
    for (int i = 0; i < WORDS; i++) pages[40][i] = 12345;
}
static void large(void) {
    static uint64_t pages[PAGES][WORDS];
    const size_t sizes[] = {8};
    Handle module, changing;
    Address at, further;
    cuMemAlloc_(&at, sizeof pages);
    cuMemAlloc_(&further, 8192);
    for (int page = 0; page < PAGES; page++)
        for (int i = 0; i < WORDS; i++)
            pages[page][i] = page >= 3 && page < 20 ? 7 : page >= 100 && page < 200 ? (uint64_t)page : 0;
    pages[150][5] = further + 16;
    cuMemcpyHtoD_(at, pages, sizeof pages);
    fakeKernel_("change", change, 1, sizes);
    cuModuleLoadData_(&module, ".version 7.0\n");
    cuModuleGetFunction_(&changing, module, "change");
    void *parameters[] = {&at};
    for (int i = 0; i < 2; i++) cuLaunchKernel_(changing, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
}

// All kinds of memory in one launch: a table of pointers leads to each.
static void kinds(void) {
    Result (*managed)(Address *, size_t, unsigned), (*async)(Address *, size_t, Handle),
        (*pitch)(Address *, size_t *, size_t, size_t, unsigned), (*pinned)(void **, size_t, unsigned);
    size_t row;
    Address made[4], table;
    FIND(managed, "cuMemAllocManaged", "cuMemAllocManaged");
    FIND(async, "cuMemAllocAsync", "cuMemAllocAsync");
    FIND(pitch, "cuMemAllocPitch_v2", "cuMemAllocPitch");
    FIND(pinned, "cuMemHostAlloc", "cuMemHostAlloc");
    managed(&made[0], BYTES, 1);
    async(&made[1], BYTES, NULL);
    pitch(&made[2], &row, 1000, 3, 4);
    pinned((void **)&made[3], BYTES, 0);
    cuMemAlloc_(&table, sizeof made);
    cuMemcpyHtoD_(table, made, sizeof made);
    launch_scale(function, table, in, 0, 0, NULL);
}

// A program that becomes another one in the same process.
static char *self;
static void exec_other(void) {
    launch_scale(function, out, in, 1, COUNT, NULL);
    wait_for_first_unit(getpid());
    execl(self, self, "packed", (char *)NULL);
}

static void packed(void) {
    struct {
        Address out, in;
        double factor;
        int count;
    } arguments = {out, in, 1, COUNT};
    size_t nbytes = sizeof arguments;
    void *extra[] = {(void *)1, &arguments, (void *)2, &nbytes, NULL};
    cuLaunchKernel_(function, 2, 1, 1, 64, 1, 1, 0, NULL, NULL, extra);
}

// rows[i][0] += bias, where rows is a table of pointers on the device and bias a variable of the module
static double *bias, *tuned_bias;
static void shift_by(double ***rows, int count, double amount) {
    for (int i = 0; i < count; i++) (*rows)[i][0] += amount;
}
static void shift(void **parameters, const Dims *dims) {
    (void)dims;
    shift_by(parameters[0], *(int *)parameters[1], (*bias)++);
}
static void shift_tuned(void **parameters, const Dims *dims) {
    (void)dims;
    shift_by(parameters[0], *(int *)parameters[1], (*tuned_bias)++);
}
static Handle shift_function(void) {
    const size_t sizes[] = {8, 4};
    Handle module, found;
    fakeKernel_("shift", shift, 2, sizes);
    fakeKernel_("shift@tuned", shift_tuned, 2, sizes);
    bias = fakeVariable_("bias", 8);
    tuned_bias = fakeVariable_("bias@tuned", 8);
    *bias = 0.5, *tuned_bias = 1000;
    if (cuModuleLoadData_(&module, ".version 7.0\n.visible .global .align 8 .f64 bias = 0;\n")) exit(2);
    if (cuModuleGetFunction_(&found, module, "shift")) exit(3);
    return found;
}
// A constant, read by launches on two streams in turn.
static void shift_constant(void **parameters, const Dims *dims) {
    (void)dims;
    shift_by(parameters[0], *(int *)parameters[1], *bias);
}
static void shift_constant_tuned(void **parameters, const Dims *dims) {
    (void)dims;
    shift_by(parameters[0], *(int *)parameters[1], 1000 + *tuned_bias);
}
static void constant(void) {
    const size_t sizes[] = {8, 4};
    Result (*create)(Handle *, unsigned);
    Handle module, shifting, streams[2];
    int (*waits)(void), count = 1;
    Address table;
    *(void **)&waits = dlsym(library(), "fakeStreamWaits");
    FIND(create, "cuStreamCreate", "cuStreamCreate");
    fakeKernel_("shift", shift_constant, 2, sizes);
    fakeKernel_("shift@tuned", shift_constant_tuned, 2, sizes);
    bias = fakeVariable_("bias", 8);
    tuned_bias = fakeVariable_("bias@tuned", 8);
    if (cuModuleLoadData_(&module, ".version 7.0\n.visible .const .align 8 .f64 bias = 0;\n")) exit(2);
    if (cuModuleGetFunction_(&shifting, module, "shift")) exit(3);
    for (int i = 0; i < 2; i++) create(&streams[i], 0);
    cuMemAlloc_(&table, sizeof out);
    cuMemcpyHtoD_(table, &out, sizeof out);
    void *parameters[] = {&table, &count};
    for (int i = 0; i < 4; i++) {
        double value = i + 1;
        if (i % 2 == 0) cuMemcpyHtoD_((Address)bias, &value, 8);
        cuLaunchKernel_(shifting, 1, 1, 1, 2, 1, 1, 0, streams[i % 2], parameters, NULL);
    }
    printf("%d ", waits());
}
static void nested(void) {
    Handle shifting = shift_function();
    Address table, rows[] = {out, in + 80};
    int count = 2;
    cuMemAlloc_(&table, sizeof rows);
    cuMemcpyHtoD_(table, rows, sizeof rows);
    void *parameters[] = {&table, &count};
    for (int i = 0; i < 3; i++) cuLaunchKernel_(shifting, 1, 1, 1, 2, 1, 1, 0, NULL, parameters, NULL);
}

// out[0] = the number of a texture object
static void sample(void **parameters, const Dims *dims) {
    (void)dims;
    (*(double **)parameters[0])[0] = (double)*(uint64_t *)parameters[1];
}
static void textured(void) {
    const size_t sizes[] = {8, 8};
    Result (*create)(uint64_t *, const void *, const void *, const void *);
    Handle module, sampling;
    uint64_t texture, number = 5;
    FIND(create, "cuTexObjectCreate", "cuTexObjectCreate");
    create(&texture, NULL, NULL, NULL);
    fakeKernel_("sample", sample, 2, sizes);
    cuModuleLoadData_(&module, ".version 7.0\n");
    cuModuleGetFunction_(&sampling, module, "sample");
    void *parameters[] = {&out, &texture}, *others[] = {&out, &number};
    cuLaunchKernel_(sampling, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
    cuLaunchKernel_(sampling, 1, 1, 1, 1, 1, 1, 0, NULL, others, NULL);
}

static void *thread(void *argument) {
    Address mine_out, mine_in;
    (void)argument;
    cuMemAlloc_(&mine_out, BYTES);
    cuMemAlloc_(&mine_in, BYTES);
    for (int i = 0; i < 50; i++) launch_scale(function, mine_out, mine_in, 1, COUNT, NULL);
    return NULL;
}
static void threads(void) {
    pthread_t made[4];
    for (int i = 0; i < 4; i++) pthread_create(&made[i], NULL, thread, NULL);
    for (int i = 0; i < 4; i++) pthread_join(made[i], NULL);
}

// Another thread frees memory while a launch that may reach it is being recorded.
static int freed;
static void watch(void **parameters, const Dims *dims) {
    (void)dims;
    (*(double **)parameters[0])[0] = freed ? -1 : 1;
}
enum { POLLS = 400 };
static void *free_soon(void *argument) {
    while (fakePollsLeft_() == POLLS) usleep(1000);  // the recorder has begun then
    cuMemFree_(*(Address *)argument);
    return freed = 1, NULL;
}
static void freeing(void) {
    const size_t sizes[] = {8};
    Handle module, watching;
    Address further;
    pthread_t other;
    cuMemAlloc_(&further, BYTES);
    fakeKernel_("watch", watch, 1, sizes);
    cuModuleLoadData_(&module, ".version 7.0\n");
    cuModuleGetFunction_(&watching, module, "watch");
    void *parameters[] = {&out};
    fakeBusy_(POLLS);
    pthread_create(&other, NULL, free_soon, &further);
    cuLaunchKernel_(watching, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
    pthread_join(other, NULL);
}

// A few kilobytes of a large pool.
static void pool(void) {
    Address all;
    double one = 1;
    cuMemAlloc_(&all, 256 << 20);
    cuMemcpyHtoD_(all + (200 << 20), &one, 8);
    launch_scale(function, all + (100 << 20), all + (200 << 20), 3, COUNT, NULL);
}

int main(int count, char **given) {
    const struct {
        const char *name;
        void (*run)(void);
    } situations[] = {{"hang", hang},       {"killed", killed}, {"forked", forked},   {"captured", captured},
                      {"packed", packed},   {"nested", nested}, {"threads", threads}, {"pool", pool},
                      {"textured", textured}, {"graph", graph}, {"built", built},
                      {"devices", devices}, {"kinds", kinds},   {"exec", exec_other},   {"reset", reset},
                      {"greedy", greedy},    {"large", large},
                      {"freeing", freeing}, {"constant", constant}};
    self = given[0];
    set_up();
    for (size_t i = 0; count > 1 && i < sizeof situations / sizeof *situations; i++)
        if (!strcmp(situations[i].name, given[1])) situations[i].run();
    finish();
    return 0;
}
