#include "plan.h"

#include <unistd.h>

#include "system.h"

namespace r3 {

namespace {

void add_pattern(Vector<regex_t> &patterns, const char *text) {
    regex_t pattern;
    if (regcomp(&pattern, text, REG_EXTENDED | REG_NOSUB)) warn_once("'%s' is no regular expression", text);
    else patterns.push(pattern);
}

bool matches(const Vector<regex_t> &patterns, const char *text) {
    for (const regex_t &pattern : patterns)
        if (!regexec(&pattern, text, 0, nullptr, 0)) return true;
    return false;
}

void set(Plan &plan, const char *key, const char *value) {
    if (!strcmp(key, "folder")) plan.folder = strdup(value);
    else if (!strcmp(key, "kernel")) add_pattern(plan.kernels, value);
    else if (!strcmp(key, "exclude")) add_pattern(plan.excluded, value);
    else if (!strcmp(key, "launch")) plan.launches.push(atol(value));
    else if (!strcmp(key, "variable")) plan.variables.push(strdup(value));
    else if (!strcmp(key, "substitute")) plan.substitutes.push(strdup(value));
    else if (!strcmp(key, "rank")) plan.ranks.push(atol(value));
    else if (!strcmp(key, "every")) plan.every = atol(value);
    else if (!strcmp(key, "skip")) plan.skip = atol(value);
    else if (!strcmp(key, "max-per-kernel")) plan.most_per_kernel = atol(value);
    else if (!strcmp(key, "distinct")) plan.distinct = atol(value);
    else if (!strcmp(key, "max-bytes")) plan.most_bytes = strtoull(value, nullptr, 10);
    else if (!strcmp(key, "timeout")) plan.timeout_s = atof(value);
    else if (!strcmp(key, "profile")) plan.profile = atol(value);
    else if (!strcmp(key, "region")) plan.region = strdup(value);
    else warn_once("the plan has an unknown key '%s'", key);
}

// Slurm, Open MPI, MPICH and its kin, PMIx, Flux; a process that is none of a parallel run is always one of ours.
bool our_rank(const Vector<long> &ranks) {
    const char *variables[] = {"SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "FLUX_TASK_RANK"};
    for (const char *variable : variables) {
        const char *rank = getenv(variable);
        if (!rank || ranks.empty()) continue;
        for (long wanted : ranks)
            if (wanted == atol(rank)) return true;
        return false;
    }
    return true;
}

void read(Plan &plan) {
    plan.every = 1, plan.timeout_s = 60, plan.most_bytes = ~0ull;
    const char *path = getenv("R3BENCH_PLAN");
    FILE *file = path ? fopen(path, "re") : nullptr;
    if (path && !file) warn_once("the plan %s cannot be read: nothing is recorded", path);
    if (!file) return;
    char line[4096];
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *value = strchr(line, ' ');
        if (!value) continue;
        *value++ = 0;
        set(plan, line, value);
    }
    fclose(file);
    plan.active = plan.folder != nullptr && our_rank(plan.ranks);
}

}  // namespace

const Plan *plan_read;

const Plan &read_plan() {
    static Plan made;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, [] {
        read(made);
        __atomic_store_n(&plan_read, &made, __ATOMIC_RELEASE);
    });
    return made;
}

bool plan_wants(const char *kernel) {
    const Plan &asked = plan();
    return (asked.kernels.empty() || matches(asked.kernels, kernel)) && !matches(asked.excluded, kernel);
}

}  // namespace r3
