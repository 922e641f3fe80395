// The life of the process: where its output goes, what a fork changes, what is written at its end.
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "background.h"
#include "coverage.h"
#include "folder.h"
#include "modules.h"
#include "own.h"
#include "pipeline.h"
#include "plan.h"
#include "profile.h"
#include "recording.h"
#include "system.h"
#include "timing.h"

namespace r3 {

namespace {

char path[4096];

void in_child() {
    locks_renew();
    coverage_renew();
    modules_renew();
    pipeline_renew();
    background_renew();
    own_kernels_renew();
    events_renew();
    recording_renew();
    profile_renew();
    units_renew();
    folder_renew();
}

__attribute__((constructor)) void begin() {
    if (plan().active) pthread_atfork(nullptr, nullptr, in_child);
}

__attribute__((destructor)) void end() {
    if (!plan().active || !kernels_count()) return;
    background_wait();
    if (plan().profile) profile_collect();
    coverage_write(true);
}

}  // namespace

const char *folder() {
    if (!path[0]) {
        int number = 0;  // a program that became another one has the same process, and left its folder
        do snprintf(path, sizeof path, "%s/process-%d-%d", plan().folder, getpid(), number++);
        while (mkdir(path, 0777) && errno == EEXIST);
        if (access(path, W_OK)) warn_once("%s cannot be made (%s)", path, strerror(errno));
    }
    return path;
}

void folder_renew() {
    path[0] = 0;
}

}  // namespace r3
