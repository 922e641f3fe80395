// What a unit says of its launch: JSON, as dump.py reads it.
#include "driver.h"
#include "unit.h"

namespace r3 {

namespace {

void put_runs(Text &text, const char *name, const Vector<Run> &runs) {
    text.add(", \"%s\": [", name);
    const char *comma = "";
    for (const Run &run : runs) {
        text.add("%s[%llu, %llu, %lld, %llu]", comma, (unsigned long long)run.first, (unsigned long long)run.count,
                 (long long)run.place, (unsigned long long)run.step);
        comma = ", ";
    }
    text.add("]");
}

void put_dim(Text &text, const char *name, const Dim3 &dim) {
    text.add("\"%s\": [%u, %u, %u], ", name, dim.x, dim.y, dim.z);
}

// Attributes that a replay may want: stack and heap limits, and the kernel's own settings.
void put_settings(Text &text, Handle function) {
    const char *limits[] = {"stack_bytes", "printf_bytes", "heap_bytes"};
    for (int i = 0; i < 3; i++) {
        size_t value = 0;
        if (driver().cuCtxGetLimit && !driver().cuCtxGetLimit(&value, i)) text.add("\"%s\": %zu, ", limits[i], value);
    }
    const struct {
        const char *name;
        int number;
    } attributes[] = {{"registers", 4}, {"static_shared_bytes", 1}, {"local_bytes", 3},
                      {"max_dynamic_shared_bytes", 8}, {"shared_carveout", 9}};
    Handle plain = function;
    if (driver().cuKernelGetFunction && driver().cuKernelGetFunction(&plain, function)) plain = function;
    for (const auto &each : attributes) {
        int value = 0;
        if (driver().cuFuncGetAttribute && !driver().cuFuncGetAttribute(&value, each.number, plain))
            text.add("\"%s\": %d, ", each.name, value);
    }
}

void put_device(Text &text) {
    int device = 0, major = 0, minor = 0, version = 0;
    char name[128] = "";
    const Driver &real = driver();
    const int MAJOR = 75, MINOR = 76;
    if (real.cuCtxGetDevice(&device)) return;
    real.cuDeviceGetAttribute(&major, MAJOR, device);
    real.cuDeviceGetAttribute(&minor, MINOR, device);
    real.cuDeviceGetName(name, sizeof name, device);
    real.cuDriverGetVersion(&version);
    text.add("\"device\": %d, \"arch\": \"sm_%d%d\", \"driver\": %d, \"gpu\": ", device, major, minor, version);
    text.quoted(name).add(", ");
}

}  // namespace

void describe_launch(Text &text, const Launch &launch) {
    text.add("\"stream\": %llu, ", (unsigned long long)uintptr_t(launch.stream));
    put_dim(text, "grid", launch.grid);
    put_dim(text, "block", launch.block);
    put_dim(text, "cluster", launch.cluster);
    text.add("\"shared_bytes\": %u, \"cooperative\": %s, ", launch.shared_bytes, launch.cooperative ? "true" : "false");
    put_settings(text, launch.function);
    put_device(text);
}

void describe_buffer(Text &text, const Buffer &buffer) {
    text.add("{\"address\": %llu, \"nbytes\": %zu, \"memory\": \"%s\", \"symbol\": ",
             (unsigned long long)buffer.address, buffer.nbytes, buffer.kind);
    if (buffer.symbol) text.quoted(buffer.symbol);
    else text.add("null");
    put_runs(text, "before", buffer.before.runs);
    put_runs(text, "after", buffer.after.runs);
    text.add("}");
}

}  // namespace r3
