#include "unit.h"

#include "background.h"
#include "driver.h"
#include "folder.h"
#include "pipeline.h"
#include "plan.h"
#include "system.h"
#include "timing.h"

namespace r3 {

namespace {

const uint64_t COPIED_PAGES = 2048;  // at a time, so that copying goes on while further pages are looked at
const uint64_t JOINED_PAGES = 16;    // pieces no further apart than this are one
const Problem NOT_COPIED = "its memory could not be copied to disk";
const Problem TOO_LARGE = "the recording is as large as was allowed";
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

}  // namespace

Problem read_arguments(const Kernel &kernel, const Launch &launch, Vector<unsigned char> &into) {
    size_t nbytes = 0, given = 0;
    for (const Parameter &parameter : kernel.parameters)
        if (parameter.offset + parameter.nbytes > nbytes) nbytes = parameter.offset + parameter.nbytes;
    into.resize(nbytes);
    for (size_t i = 0; launch.parameters && i < kernel.parameters.size(); i++) {
        const Parameter &parameter = kernel.parameters[i];
        memcpy(&into[parameter.offset], launch.parameters[i], parameter.nbytes);
    }
    if (launch.parameters || !nbytes) return nullptr;
    const void *block = nullptr;
    for (void **extra = launch.extra; extra && uintptr_t(*extra) != EXTRA_END; extra += 2) {
        if (uintptr_t(*extra) == EXTRA_BUFFER) block = extra[1];
        if (uintptr_t(*extra) == EXTRA_SIZE) given = *static_cast<size_t *>(extra[1]);
    }
    if (!block || given < nbytes) return "its arguments were not given in a way that is known";
    memcpy(into.begin(), block, nbytes);
    return nullptr;
}

uint64_t recorded_bytes() { return __atomic_load_n(&total_bytes, __ATOMIC_RELAXED); }

void units_renew() {
    units = 0;
    total_bytes = 0;
}

Unit *Unit::create(Kernel &kernel, const Launch &launch, long occurrence) {
    Unit *made = r3::create<Unit>();
    made->kernel_ = &kernel, made->launch_ = launch, made->occurrence_ = occurrence, made->when_ = elapsed();
    snprintf(made->name_, sizeof made->name_, "unit-%ld", units++);
    return made;
}

Unit::~Unit() {
    for (Buffer *buffer : buffers_) destroy(buffer);
    if (!complete_) file_.remove();
}

Problem Unit::before() {
    if (driver().cuCtxGetCurrent(&context_)) return "the driver reported an error";
    reach_.begin();
    for (size_t i = 0; i + 8 <= arguments_.size(); i += 4) {
        uint64_t word;
        memcpy(&word, &arguments_[i], 8);
        reach_.follow(word);
    }
    if (Problem problem = set_aside_variables()) return problem;
    if (Problem problem = set_aside_reachable()) return problem;
    return hold();
}

Problem Unit::refused() {
    if (!kernel_describe(*kernel_, launch_.function)) return "this driver does not say what parameters kernels have";
    if (Problem problem = read_arguments(*kernel_, launch_, arguments_)) return problem;
    if (kernel_->module && kernel_->module->textured) return "its module has texture references";
    return takes_texture() ? "it takes a texture or surface object" : nullptr;
}

// Handles are numbers like others: in a program that has textures, a number equal to one counts as one.
bool Unit::takes_texture() const {
    for (const Parameter &parameter : kernel_->parameters)
        for (size_t at = 0; at + sizeof(uint64_t) <= parameter.nbytes; at += sizeof(uint64_t)) {
            uint64_t word;
            memcpy(&word, &arguments_[parameter.offset + at], sizeof word);
            if (memory_is_texture(word)) return true;
        }
    return false;
}

Buffer *Unit::add(Address address, size_t nbytes, const char *kind, const char *symbol) {
    Buffer *buffer = r3::create<Buffer>();
    buffer->address = address, buffer->nbytes = nbytes, buffer->kind = kind, buffer->symbol = symbol;
    buffers_.push(buffer);
    return buffer;
}

Problem Unit::set_aside_variables() {
    for (const Variable &variable : kernel_variables(*kernel_)) {
        Address address;
        size_t nbytes;
        if (!kernel_variable(*kernel_, variable.name, address, nbytes) || !nbytes) continue;
        Buffer *buffer = add(address, nbytes, variable.constant ? "constant" : "device", variable.name);
        if (Problem problem = set_aside(*buffer, buffer->before)) return problem;
    }
    return nullptr;
}

// Buffers lead to further buffers: until none is new.
Problem Unit::set_aside_reachable() {
    Vector<char> seen;
    seen.resize(reach_.known.size());
    uint64_t here = memory_device();
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < seen.size(); i++) {
            if (!reach_.reached[i] || seen[i]) continue;
            seen[i] = 1, more = true;
            const Allocation &found = reach_.known[i];
            Buffer *buffer = add(found.address, found.nbytes, found.kind, nullptr);
            buffer->number = found.number, buffer->away = !(found.devices & here);
            if (Problem problem = set_aside(*buffer, buffer->before)) return problem;
        }
    }
    return nullptr;
}

// Find the pages that are to be kept, and copy them to memory of ours where there is room.
Problem Unit::set_aside(Buffer &buffer, Moment &moment) {
    bool first = &moment == &buffer.before;
    Pages *before = first ? nullptr : &buffer.before.pages;
    Reach *reach = first ? &reach_ : nullptr;
    if (!pages_look(buffer.address, buffer.nbytes, buffer.away, staging_, before, moment.pages, reach))
        return "its memory could not be read";
    Vector<Piece> &pieces = moment.pieces;
    for (uint64_t page = 0; page < moment.pages.flags.size(); page++) {
        if (moment.pages.flags[page] != (FILLED | CHANGED)) continue;
        if (!pieces.empty() && page <= pieces.back().first + pieces.back().count + JOINED_PAGES)
            pieces.back().count = page + 1 - pieces.back().first;
        else pieces.push({page, 1, 0});
    }
    for (Piece &piece : pieces) stage(buffer, piece);
    return nullptr;
}

void Unit::stage(const Buffer &buffer, Piece &piece) {
    size_t start = piece.first * PAGE_BYTES, nbytes = piece.count * PAGE_BYTES;
    if (start + nbytes > buffer.nbytes) nbytes = buffer.nbytes - start;
    piece.from = buffer.address + start;
    Address place = elsewhere_ ? 0 : staging_.place(nbytes);
    elsewhere_ = !place || driver().cuMemcpyDtoDAsync_v2(place, piece.from, nbytes, nullptr);
    if (!elsewhere_) piece.from = place;
}

// What was set aside stays as it is from now on.
Problem Unit::hold() {
    if (driver().cuStreamSynchronize(nullptr)) return "its memory could not be read";
    if (!elsewhere_) return nullptr;
    background_wait();
    return write();
}

// All that was set aside and is not in the file yet, which is opened no sooner: units that wait take no files of the
// application's.
Problem Unit::write() {
    Text path;
    path.add("%s/%s.bin", folder(), name_);
    if (!file_.created() && !file_.create(path.c_str())) return "the disk refused a file";
    if (!pipeline_begin(file_, places_.size() * PAGE_BYTES)) return "the driver refused pinned memory";
    Problem problem = nullptr;
    for (Buffer *buffer : buffers_) {
        if (!problem) problem = write(*buffer, buffer->before);
        if (!problem) problem = write(*buffer, buffer->after);
    }
    bool written = pipeline_drain();  // whatever happened: what is on its way needs the file
    return problem || written ? problem : NOT_COPIED;
}

// Copy the pages that the file does not have yet, neighbours together.
Problem Unit::write(Buffer &buffer, Moment &moment) {
    if (!moment.runs.empty()) return nullptr;
    size_t kept = 0;
    for (const Piece &each : moment.pieces) kept += each.count;
    if (kept && !pages_fetch(moment.pages)) return NOT_COPIED;
    places_.reserve(kept);
    const Piece *piece = moment.pieces.begin();
    uint64_t from = 0, count = 0;
    auto flush = [&]() {
        if (!count) return true;
        while (from >= piece->first + piece->count) piece++;
        size_t start = from * PAGE_BYTES, nbytes = count * PAGE_BYTES;
        if (start + nbytes > buffer.nbytes) nbytes = buffer.nbytes - start;
        count = 0;
        return pipeline_append(piece->from + (from - piece->first) * PAGE_BYTES, nbytes);
    };
    for (uint64_t page = 0; page < moment.pages.flags.size(); page++) {
        unsigned char flags = moment.pages.flags[page];
        if (!(flags & CHANGED)) continue;
        int64_t place = ZEROS;
        if (flags & FILLED) {
            bool apart = count && from + count != page;
            if ((apart || count == COPIED_PAGES) && !flush()) return NOT_COPIED;
            size_t known = places_.size();
            place = int64_t(places_.at(moment.pages.digests[page]));
            if (recorded_bytes() + places_.size() * PAGE_BYTES > plan().most_bytes) return TOO_LARGE;
            if (size_t(place) == known && !count++) from = page;
        }
        extend(moment.runs, page, place);
    }
    return flush() ? nullptr : NOT_COPIED;
}

Problem Unit::after(double seconds) {
    for (Buffer *buffer : buffers_) {
        if (!buffer->symbol) {
            Allocation now;
            bool same = memory_find(buffer->address, now) && now.number == buffer->number;
            if (!same) return "its memory was freed while it ran";
        }
        if (Problem problem = set_aside(*buffer, buffer->after)) return problem;
    }
    if (Problem problem = hold()) return problem;
    describe(seconds);
    return nullptr;
}

void Unit::describe(double seconds) {
    facts_.add("{\"kernel\": ").quoted(kernel_->name);
    facts_.add(", \"occurrence\": %ld, \"seconds\": %.6f, \"gpu_seconds\": %.9f, ", occurrence_, when_, seconds);
    describe_launch(facts_, launch_);
    facts_.add("\"events_seconds\": %.9f, \"pause_seconds\": %.6f, \"parameters\": [", events_seconds(),
               elapsed() - when_);
    for (size_t i = 0; i < kernel_->parameters.size(); i++)
        facts_.add("%s[%zu, %zu]", i ? ", " : "", kernel_->parameters[i].offset, kernel_->parameters[i].nbytes);
    facts_.add("], \"arguments\": \"").hex(arguments_.begin(), arguments_.size()).add("\", \"image\": ");
}

Problem Unit::finish() {
    if (Problem problem = write()) return problem;
    __atomic_add_fetch(&total_bytes, places_.size() * PAGE_BYTES, __ATOMIC_RELAXED);
    facts_.quoted(kernel_->module ? module_keep(*kernel_->module) : "");
    facts_.add(", \"written_seconds\": %.6f, \"buffers\": [", elapsed() - when_);
    for (size_t i = 0; i < buffers_.size(); i++) {
        if (i) facts_.add(", ");
        describe_buffer(facts_, *buffers_[i]);
    }
    facts_.add("]}\n");
    Text path;
    path.add("%s/%s.json", folder(), name_);
    complete_ = write_whole(path.c_str(), facts_.c_str(), facts_.size());
    return complete_ ? nullptr : "the disk refused its description";
}

}  // namespace r3
