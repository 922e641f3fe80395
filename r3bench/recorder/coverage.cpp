#include "coverage.h"

#include <unistd.h>

#include "folder.h"
#include "plan.h"
#include "system.h"

namespace r3 {

namespace {

Lock count_lock;
long unknown;
double first_launch, last_wait;
int regions_open;
double region_began, region_seconds;

void put_kernel(Kernel &kernel, void *into) {
    Text &text = *static_cast<Text *>(into);
    text.add("%s\n {\"kernel\": ", text.c_str()[text.size() - 1] == '[' ? "" : ",").quoted(kernel.name);
    text.add(", \"launches\": %ld, \"recorded\": %ld, \"substituted\": %ld, ", kernel.launches, kernel.recorded,
             kernel.substituted);
    text.add("\"conditional\": %ld, ", kernel.conditional);
    text.add("\"gpu_seconds\": %.9f, \"timed\": %lu, ", kernel.gpu_seconds, kernel.timed);
    text.add("\"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], \"reasons\": {", kernel.grid.x, kernel.grid.y,
             kernel.grid.z, kernel.block.x, kernel.block.y, kernel.block.z);
    for (size_t i = 0; i < kernel.reasons.size(); i++)
        text.add("%s", i ? ", " : "").quoted(kernel.reasons[i].text).add(": %ld", kernel.reasons[i].count);
    text.add("}}");
}

}  // namespace

void coverage_count(Kernel &kernel, Problem reason) {
    Held held(count_lock);
    for (Kernel::Reason &each : kernel.reasons)
        if (!strcmp(each.text, reason)) return void(each.count++);
    kernel.reasons.push({reason, 1});
}

void coverage_failed(Kernel &kernel, Problem reason) {
    coverage_count(kernel, reason);
    warn_once("launches are not recorded: %s", reason);
}

void coverage_unknown() { __atomic_add_fetch(&unknown, 1, __ATOMIC_RELAXED); }
void coverage_launched() {
    if (!first_launch) first_launch = elapsed();
}

void coverage_waited() {
    if (first_launch) last_wait = elapsed();
}

void coverage_region(int step) {
    Held held(count_lock);
    double now = elapsed();
    if (regions_open > 0) region_seconds += now - region_began;
    region_began = now, regions_open += step;
}

void coverage_renew() {
    unknown = 0;
    first_launch = last_wait = 0;
    regions_open = 0, region_seconds = 0;
}

void coverage_write(bool ended) {
    Held held(count_lock);
    Text text, path;
    text.add("{\"pid\": %d, \"ended\": %s, \"seconds\": %.6f, ", getpid(), ended ? "true" : "false", elapsed());
    text.add("\"first_launch\": %.6f, \"last_wait\": %.6f, \"region_seconds\": %.6f, ", first_launch, last_wait,
             region_seconds);
    text.add("\"unknown\": %ld, \"kernels\": [", unknown);
    kernels_each(put_kernel, &text);
    text.add("]}\n");
    path.add("%s/coverage.json", folder());
    write_whole(path.c_str(), text.c_str(), text.size());
}

}  // namespace r3
