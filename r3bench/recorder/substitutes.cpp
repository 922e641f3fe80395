#include "substitutes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coverage.h"
#include "driver.h"
#include "memory.h"
#include "plan.h"
#include "streams.h"
#include "system.h"

namespace r3 {

namespace {

struct Condition {
    size_t offset, nbytes;
    unsigned char bytes[64];
};

struct Aligned {
    size_t offset, nbytes;
};

// A variable of the substitute and the application's own of the same name.
struct Mirrored {
    Address ours, theirs;
    size_t nbytes;
    bool constant, stale;
    Handle copied, stream;  // event of the last copy of a constant, which may be on its way in that stream; or null
};

// A substitute in one context.
struct Loaded {
    Handle context, function;
    unsigned shared_bytes;  // allowed so far
    Vector<Mirrored> variables;
};

}  // namespace

struct Substitute {
    char kernel[1024], image[4096];
    bool has_block, has_grid, has_launch, broken;
    Dim3 block, grid, new_block, per_thread;
    Vector<Condition> arguments;
    Vector<Aligned> aligned;
    Vector<size_t> distinct;
    Vector<Loaded *> loaded;
    Substitute *next;  // of the same kernel
};

namespace {

Lock load_lock;
Vector<Substitute *> substitutes;

unsigned nibble(char c) { return unsigned(c <= '9' ? c - '0' : c - 'a' + 10); }

bool read_dim(const char *text, Dim3 &dim) { return sscanf(text, "%u %u %u", &dim.x, &dim.y, &dim.z) == 3; }

void read_argument(Substitute &made, const char *text) {
    Condition condition = {};
    char digits[129] = "";
    if (sscanf(text, "%zu %128s", &condition.offset, digits) != 2) return;
    condition.nbytes = strlen(digits) / 2;
    for (size_t i = 0; i < condition.nbytes; i++)
        condition.bytes[i] = static_cast<unsigned char>(nibble(digits[2 * i]) << 4 | nibble(digits[2 * i + 1]));
    made.arguments.push(condition);
}

void read_launch(Substitute &made, const char *text) {
    Dim3 &block = made.new_block, &each = made.per_thread;
    made.has_launch = sscanf(text, "%u %u %u %u %u %u", &block.x, &block.y, &block.z, &each.x, &each.y, &each.z) == 6;
}

void set(Substitute &made, const char *key, const char *value) {
    Aligned aligned = {};
    if (!strcmp(key, "kernel")) snprintf(made.kernel, sizeof made.kernel, "%s", value);
    else if (!strcmp(key, "image")) snprintf(made.image, sizeof made.image, "%s", value);
    else if (!strcmp(key, "block")) made.has_block = read_dim(value, made.block);
    else if (!strcmp(key, "grid")) made.has_grid = read_dim(value, made.grid);
    else if (!strcmp(key, "argument")) read_argument(made, value);
    else if (!strcmp(key, "distinct")) made.distinct.push(strtoul(value, nullptr, 10));
    else if (!strcmp(key, "launch")) read_launch(made, value);
    else if (!strcmp(key, "aligned") && sscanf(value, "%zu %zu", &aligned.offset, &aligned.nbytes) == 2)
        made.aligned.push(aligned);
    else made.broken = true;
}

void read(const char *path) {
    FILE *file = fopen(path, "re");
    if (!file) return warn_once("substitute %s cannot be read: the application's own kernel runs", path);
    Substitute *made = create<Substitute>();
    char line[8192];
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *value = strchr(line, ' ');
        if (!value) continue;
        *value++ = 0;
        set(*made, line, value);
    }
    fclose(file);
    if (made->broken) warn_once("substitute %s has a line that is not known: the original runs", path);
    substitutes.push(made);
}

void read_all() {
    for (const char *path : plan().substitutes) read(path);
    for (size_t i = substitutes.size(); i-- > 1;)
        for (size_t j = i; j-- > 0;)
            if (!strcmp(substitutes[i]->kernel, substitutes[j]->kernel)) {
                substitutes[j]->next = substitutes[i];
                break;
            }
}

// -- conditions --

// Where an argument's bytes lie, however it was passed; null where that is not known.
const unsigned char *argument(const Kernel &kernel, const Launch &launch, size_t offset, size_t nbytes) {
    for (size_t i = 0; i < kernel.parameters.size(); i++) {
        const Parameter &each = kernel.parameters[i];
        if (offset < each.offset || offset + nbytes > each.offset + each.nbytes) continue;
        if (launch.parameters) return static_cast<const unsigned char *>(launch.parameters[i]) + offset - each.offset;
        for (void **extra = launch.extra; extra && uintptr_t(*extra) != EXTRA_END; extra += 2)
            if (uintptr_t(*extra) == EXTRA_BUFFER) return static_cast<const unsigned char *>(extra[1]) + offset;
    }
    return nullptr;
}

bool pointer_argument(const Kernel &kernel, const Launch &launch, size_t offset, uint64_t &value) {
    const unsigned char *bytes = argument(kernel, launch, offset, 8);
    if (bytes) memcpy(&value, bytes, 8);
    return bytes != nullptr;
}

bool same(const Dim3 &one, const Dim3 &other) {
    return one.x == other.x && one.y == other.y && one.z == other.z;
}

bool all_distinct(const Substitute &wanted, const Kernel &kernel, const Launch &launch) {
    Vector<Address> seen;
    for (size_t offset : wanted.distinct) {
        uint64_t value;
        Allocation found;
        if (!pointer_argument(kernel, launch, offset, value) || !memory_find(value, found)) return false;
        for (Address other : seen)
            if (other == found.address) return false;
        seen.push(found.address);
    }
    return true;
}

// Why a substitute does not fit a launch, or null.
const char *misfit(const Substitute &wanted, const Kernel &kernel, const Launch &launch) {
    if (wanted.has_block && !same(wanted.block, launch.block)) return "launched with another block than it is made for";
    if (wanted.has_grid && !same(wanted.grid, launch.grid)) return "launched with another grid than it is made for";
    for (const Condition &each : wanted.arguments) {
        const unsigned char *bytes = argument(kernel, launch, each.offset, each.nbytes);
        if (!bytes || memcmp(bytes, each.bytes, each.nbytes)) return "other arguments than it is made for";
    }
    for (const Aligned &each : wanted.aligned) {
        uint64_t value;
        if (!pointer_argument(kernel, launch, each.offset, value) || value % each.nbytes)
            return "a pointer is aligned less than it is made for";
    }
    return all_distinct(wanted, kernel, launch) ? nullptr : "pointers lead into one allocation";
}

// -- loading --

bool read_image(const char *path, Vector<unsigned char> &into) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    bool whole = file >= 0 && !fstat(file, &status);
    if (whole) {
        into.resize(size_t(status.st_size) + 1);
        whole = ::read(file, into.begin(), size_t(status.st_size)) == status.st_size;
    }
    if (file >= 0) close(file);
    return whole;
}

bool same_parameters(Kernel &kernel, const Launch &launch, Handle function) {
    Kernel other = {};
    if (!kernel_describe(kernel, launch.function) || !kernel_describe(other, function)) return false;
    if (kernel.parameters.size() != other.parameters.size()) return false;
    for (size_t i = 0; i < kernel.parameters.size(); i++)
        if (memcmp(&kernel.parameters[i], &other.parameters[i], sizeof(Parameter))) return false;
    return true;
}

bool find_variables(const Image &image, const Kernel &kernel, Handle module, Vector<Mirrored> &into) {
    Vector<Variable> names;
    image_variables(image, names);
    for (const Variable &each : names) {
        Mirrored found = {};
        size_t theirs = 0;
        if (driver().cuModuleGetGlobal_v2(&found.ours, &found.nbytes, module, each.name)) continue;
        if (!kernel_variable(kernel, each.name, found.theirs, theirs) || theirs != found.nbytes) return false;
        found.constant = each.constant, found.stale = true;
        into.push(found);
    }
    return true;
}

Loaded *load(Substitute &wanted, Kernel &kernel, const Launch &launch, Handle context) {
    const Driver &real = driver();
    Loaded *made = create<Loaded>();
    made->context = context, made->shared_bytes = 48 << 10;
    Vector<unsigned char> image;
    Handle module = nullptr, function = nullptr;
    if (!read_image(wanted.image, image) || real.cuModuleLoadData(&module, image.begin()) ||
        real.cuModuleGetFunction(&function, module, wanted.kernel)) {
        warn_once("the driver does not load %s: the original %s runs", wanted.image, wanted.kernel);
    } else if (!same_parameters(kernel, launch, function)) {
        warn_once("%s takes other parameters than the %s of the application, which runs", wanted.image, wanted.kernel);
    } else if (!find_variables(image_at(image.begin()), kernel, module, made->variables)) {
        warn_once("%s has device variables that the application has not: the original runs", wanted.image);
    } else {
        made->function = function;
        kernel_alias(function, kernel);
    }
    return made;
}

Loaded *here(Substitute &wanted, Kernel &kernel, const Launch &launch) {
    Handle context = nullptr;
    if (wanted.broken || driver().cuCtxGetCurrent(&context)) return nullptr;
    Held held(load_lock);
    for (Loaded *each : wanted.loaded)
        if (each->context == context) return each->function ? each : nullptr;
    if (any_capture()) return nullptr;  // nothing may be loaded meanwhile
    wanted.loaded.push(load(wanted, kernel, launch, context));
    return wanted.loaded.back()->function ? wanted.loaded.back() : nullptr;
}

bool allow_shared(Loaded &loaded, unsigned nbytes) {
    const int MAX_DYNAMIC_SHARED = 8;
    if (nbytes <= loaded.shared_bytes) return true;
    if (driver().cuFuncSetAttribute(loaded.function, MAX_DYNAMIC_SHARED, int(nbytes))) return false;
    loaded.shared_bytes = nbytes;
    return true;
}

// Other streams wait for what this one copies.
bool mark(Mirrored &constant, Handle stream) {
    const Driver &real = driver();
    const unsigned no_timing = 2;
    if (!constant.copied && real.cuEventCreate(&constant.copied, no_timing)) return false;
    constant.stream = stream;
    return !real.cuEventRecord(constant.copied, stream);
}

// Have a stream wait for a constant that another one still copies.
bool there(Mirrored &constant, Handle stream) {
    const Driver &real = driver();
    if (!constant.copied || constant.stream == stream) return true;
    if (real.cuEventQuery(constant.copied)) return !real.cuStreamWaitEvent(stream, constant.copied, 0);
    real.cuEventDestroy_v2(constant.copied);
    constant.copied = nullptr;
    return true;
}

// Constants after the application wrote to them, other variables before and after every launch, in stream order.
bool bring_in(Loaded &loaded, Handle stream) {
    const Driver &real = driver();
    if (loaded.variables.empty()) return true;
    Held held(load_lock);
    for (Mirrored &each : loaded.variables) {
        if (each.constant && !each.stale) {
            if (!there(each, stream)) return false;
            continue;
        }
        each.stale = false;
        if (real.cuMemcpyDtoDAsync_v2(each.ours, each.theirs, each.nbytes, stream)) return false;
        if (each.constant && !mark(each, stream)) return false;
    }
    return true;
}

Result bring_out(Loaded &loaded, Handle stream) {
    Result result = SUCCESS;
    for (Mirrored &each : loaded.variables)
        if (!each.constant && !result)
            result = driver().cuMemcpyDtoDAsync_v2(each.theirs, each.ours, each.nbytes, stream);
    return result;
}

unsigned blocks(unsigned grid, unsigned block, unsigned new_block, unsigned per_thread) {
    uint64_t threads = uint64_t(grid) * block, each = uint64_t(new_block) * per_thread;
    return unsigned((threads + each - 1) / each);
}

void reshape(const Substitute &wanted, Launch &launch) {
    if (!wanted.has_launch) return;
    Dim3 &grid = launch.grid, &block = launch.block;
    const Dim3 &to = wanted.new_block, &each = wanted.per_thread;
    grid = {blocks(grid.x, block.x, to.x, each.x), blocks(grid.y, block.y, to.y, each.y),
            blocks(grid.z, block.z, to.z, each.z)};
    block = to;
}

// Turn a launch into that of the first substitute whose conditions hold; null, and the reason counted, where none does.
Loaded *fitting(Kernel &kernel, Launch &launch) {
    const char *reason = "its parameters are not known";
    bool known = kernel_describe(kernel, launch.function);
    for (Substitute *wanted = known ? kernel.substitute : nullptr; wanted; wanted = wanted->next) {
        if ((reason = misfit(*wanted, kernel, launch))) continue;
        reason = "its substitute could not be loaded";
        Loaded *loaded = here(*wanted, kernel, launch);
        if (!loaded) continue;
        reason = "it has device variables and is captured into a graph";
        if (!loaded->variables.empty() && launch.in_graph) continue;
        reason = "its substitute cannot have that much shared memory";
        if (!allow_shared(*loaded, launch.shared_bytes) || !bring_in(*loaded, launch.stream)) continue;
        launch.function = loaded->function;
        reshape(*wanted, launch);
        return loaded;
    }
    coverage_count(kernel, reason);
    return nullptr;
}

}  // namespace

Substitute *substitutes_of(const char *kernel) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_all);
    for (Substitute *each : substitutes)
        if (!strcmp(each->kernel, kernel)) return each;
    return nullptr;
}

Result launch_substituted(Kernel &kernel, const Launch &launch) {
    Launch tuned = launch;
    Loaded *loaded = fitting(kernel, tuned);
    if (!loaded || tuned.pass(tuned) != SUCCESS) return launch.pass(launch);
    if (launch.in_graph) return SUCCESS;  // counted when its graph is launched
    __atomic_fetch_add(&kernel.substituted, 1, __ATOMIC_RELAXED);
    return bring_out(*loaded, launch.stream);
}

bool substitute_for(Kernel &kernel, Launch &launch) { return fitting(kernel, launch) != nullptr; }

bool substitutes_made(Handle function) {
    Held held(load_lock);
    for (Substitute *each : substitutes)
        for (Loaded *loaded : each->loaded)
            if (loaded->function && loaded->function == function) return true;
    return false;
}

void substitutes_note_write(Address to, size_t nbytes) {
    if (substitutes.empty()) return;
    Held held(load_lock);
    for (Substitute *each : substitutes)
        for (Loaded *loaded : each->loaded)
            for (Mirrored &variable : loaded->variables)
                if (to < variable.theirs + variable.nbytes && variable.theirs < to + nbytes) variable.stale = true;
}

void substitutes_forget() {
    Held held(load_lock);
    for (Substitute *each : substitutes) each->loaded.clear();
}

}  // namespace r3
