#include "unit.h"

#include "driver.h"
#include "folder.h"
#include "pages.h"
#include "pipeline.h"
#include "plan.h"
#include "system.h"

namespace r3 {

// Pages from `first` on: `count` of them lie in the file from page `place` on, or are all the same (step 0), or zeros.
struct Run {
    uint64_t first, count;
    int64_t place;
    uint64_t step;
};

struct Buffer {
    Address address;
    size_t nbytes;
    const char *kind;
    const char *symbol;  // of a variable, or null
    uint64_t number;
    Vector<Digest> digests;
    Vector<Run> before, after;
};

namespace {

const int64_t ZEROS = -1;
const uint64_t COPIED_PAGES = 2048;  // at a time, so that copying goes on while further pages are looked at
long units;
uint64_t total_bytes;

void extend(Vector<Run> &runs, uint64_t page, int64_t place) {
    if (!runs.empty() && runs.back().first + runs.back().count == page) {
        Run &last = runs.back();
        bool zeros = last.place == ZEROS && place == ZEROS;
        bool follows = last.place != ZEROS && place == last.place + int64_t(last.count * last.step);
        if (zeros || follows) return void(last.count++);
        if (last.count == 1 && place == last.place) {
            last.step = 0;
            return void(last.count++);
        }
    }
    runs.push({page, 1, place, 1});
}

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

void put_buffer(Text &text, const Buffer &buffer) {
    text.add("{\"address\": %llu, \"nbytes\": %zu, \"memory\": \"%s\", \"symbol\": ",
             (unsigned long long)buffer.address, buffer.nbytes, buffer.kind);
    if (buffer.symbol) text.quoted(buffer.symbol);
    else text.add("null");
    put_runs(text, "before", buffer.before);
    put_runs(text, "after", buffer.after);
    text.add("}");
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

uint64_t recorded_bytes() { return total_bytes; }

void units_renew() {
    units = 0;
    total_bytes = 0;
}

Unit::Unit(Kernel &kernel, const Launch &launch, long occurrence)
    : kernel_(kernel), launch_(launch), occurrence_(occurrence), when_(elapsed()) {
    snprintf(name_, sizeof name_, "unit-%ld", units++);
}

Unit::~Unit() {
    for (Buffer *buffer : buffers_) destroy(buffer);
}

Problem Unit::before() {
    Text path;
    path.add("%s/%s.bin", folder(), name_);
    if (!file_.create(path.c_str())) return "the disk refused a file";
    if (Problem problem = read_arguments()) return problem;
    if (takes_texture()) return "it takes a texture or surface object";
    memory_snapshot(known_);
    reached_.resize(known_.size());
    for (size_t i = 0; i + 8 <= arguments_.size(); i += 4) {
        uint64_t word;
        memcpy(&word, &arguments_[i], 8);
        reach(word);
    }
    if (!pipeline_begin(file_, &known_, &reached_)) return "the driver refused pinned memory";
    if (Problem problem = copy_variables()) return problem;
    return copy_reachable();
}

Problem Unit::read_arguments() {
    size_t nbytes = 0;
    for (const Parameter &parameter : kernel_.parameters)
        if (parameter.offset + parameter.nbytes > nbytes) nbytes = parameter.offset + parameter.nbytes;
    arguments_.resize(nbytes);
    if (launch_.parameters) {
        for (size_t i = 0; i < kernel_.parameters.size(); i++) {
            const Parameter &parameter = kernel_.parameters[i];
            memcpy(&arguments_[parameter.offset], launch_.parameters[i], parameter.nbytes);
        }
        return nullptr;
    }
    const void *block = nullptr;
    size_t given = 0;
    for (void **extra = launch_.extra; extra && uintptr_t(*extra) != EXTRA_END; extra += 2) {
        if (uintptr_t(*extra) == EXTRA_BUFFER) block = extra[1];
        if (uintptr_t(*extra) == EXTRA_SIZE) given = *static_cast<size_t *>(extra[1]);
    }
    if (nbytes && (!block || given < nbytes)) return "its arguments were not given in a way that is known";
    if (nbytes) memcpy(arguments_.begin(), block, nbytes);
    return nullptr;
}

// Handles are numbers like others: in a program that has textures, a number equal to one counts as one.
bool Unit::takes_texture() const {
    for (const Parameter &parameter : kernel_.parameters) {
        uint64_t word = 0;
        if (parameter.nbytes != sizeof word) continue;
        memcpy(&word, &arguments_[parameter.offset], sizeof word);
        if (memory_is_texture(word)) return true;
    }
    return false;
}

void Unit::reach(uint64_t word) {
    Allocation found;
    if (!memory_find(word, found)) return;
    for (size_t i = 0; i < known_.size(); i++)
        if (known_[i].address == found.address) reached_[i] = 1;
}

Buffer *Unit::add(Address address, size_t nbytes, const char *kind, const char *symbol) {
    Buffer *buffer = create<Buffer>();
    buffer->address = address, buffer->nbytes = nbytes, buffer->kind = kind, buffer->symbol = symbol;
    buffers_.push(buffer);
    return buffer;
}

Problem Unit::copy_variables() {
    for (const Variable &variable : kernel_variables(kernel_)) {
        Address address;
        size_t nbytes;
        if (!kernel_variable(kernel_, variable.name, address, nbytes) || !nbytes) continue;
        Buffer *buffer = add(address, nbytes, variable.constant ? "constant" : "device", variable.name);
        if (Problem problem = copy(*buffer, false)) return problem;
    }
    return nullptr;
}

// Buffers lead to further buffers: until none is new.
Problem Unit::copy_reachable() {
    Vector<char> copied;
    copied.resize(known_.size());
    if (!pipeline_drain()) return "its memory could not be copied to disk";
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < known_.size(); i++) {
            if (!reached_[i] || copied[i]) continue;
            copied[i] = 1, more = true;
            Buffer *buffer = add(known_[i].address, known_[i].nbytes, known_[i].kind, nullptr);
            buffer->number = known_[i].number;
            if (Problem problem = copy(*buffer, false)) return problem;
        }
        if (!pipeline_drain()) return "its memory could not be copied to disk";
    }
    return nullptr;
}

// Copy the pages that the file does not have yet, neighbours together.
Problem Unit::copy(Buffer &buffer, bool changed_only) {
    Vector<Digest> now;
    if (!pages_digest(buffer.address, buffer.nbytes, now)) return "its memory could not be read";
    Vector<Run> &runs = changed_only ? buffer.after : buffer.before;
    if (!changed_only) places_.reserve(now.size());
    uint64_t from = 0, count = 0;
    auto flush = [&]() {
        if (!count) return true;
        size_t start = from * PAGE_BYTES, nbytes = count * PAGE_BYTES;
        if (start + nbytes > buffer.nbytes) nbytes = buffer.nbytes - start;
        uint64_t place = pages_ - count;
        count = 0;
        return pipeline_copy(buffer.address + start, nbytes, place * PAGE_BYTES);
    };
    for (uint64_t page = 0; page < now.size(); page++) {
        if (changed_only && now[page] == buffer.digests[page]) continue;
        int64_t place = ZEROS;
        if (!now[page].zero()) {
            uint64_t &known = places_.at(now[page]);  // one more than the place; 0 where it is new
            if (!known) {
                bool apart = count && from + count != page;
                if ((apart || count == COPIED_PAGES) && !flush()) return "its memory could not be copied to disk";
                if (!count) from = page;
                count++;
                known = ++pages_;
            }
            place = int64_t(known) - 1;
        }
        extend(runs, page, place);
    }
    if (!flush()) return "its memory could not be copied to disk";
    buffer.digests.swap(now);
    if (recorded_bytes() + pages_ * PAGE_BYTES > plan().most_bytes) return "the recording is as large as was allowed";
    return nullptr;
}

Problem Unit::after(double seconds) {
    for (Buffer *buffer : buffers_) {
        if (!buffer->symbol) {
            Allocation now;
            bool same = memory_find(buffer->address, now) && now.number == buffer->number;
            if (!same) return "its memory was freed while it ran";
        }
        if (Problem problem = copy(*buffer, true)) return problem;
    }
    if (!pipeline_drain()) return "its memory could not be copied to disk";
    total_bytes += pages_ * PAGE_BYTES;
    return describe(seconds);
}

Problem Unit::describe(double seconds) {
    Text text, path;
    text.add("{\"kernel\": ").quoted(kernel_.name).add(", \"image\": ");
    if (kernel_.module) text.quoted(module_keep(*kernel_.module));
    else text.add("\"\"");
    text.add(", \"occurrence\": %ld, \"seconds\": %.6f, \"gpu_seconds\": %.9f, ", occurrence_, when_, seconds);
    text.add("\"pause_seconds\": %.6f, \"stream\": %llu, ", elapsed() - when_, (unsigned long long)uintptr_t(launch_.stream));
    put_dim(text, "grid", launch_.grid);
    put_dim(text, "block", launch_.block);
    put_dim(text, "cluster", launch_.cluster);
    text.add("\"shared_bytes\": %u, \"cooperative\": %s, ", launch_.shared_bytes, launch_.cooperative ? "true" : "false");
    put_settings(text, launch_.function);
    put_device(text);
    text.add("\"parameters\": [");
    for (size_t i = 0; i < kernel_.parameters.size(); i++)
        text.add("%s[%zu, %zu]", i ? ", " : "", kernel_.parameters[i].offset, kernel_.parameters[i].nbytes);
    text.add("], \"arguments\": \"").hex(arguments_.begin(), arguments_.size()).add("\", \"buffers\": [");
    for (size_t i = 0; i < buffers_.size(); i++) {
        if (i) text.add(", ");
        put_buffer(text, *buffers_[i]);
    }
    text.add("]}\n");
    path.add("%s/%s.json", folder(), name_);
    return write_whole(path.c_str(), text.c_str(), text.size()) ? nullptr : "the disk refused its description";
}

}  // namespace r3
