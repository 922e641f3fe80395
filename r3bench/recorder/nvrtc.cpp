// Programs that the application compiles while it runs: their text is the source of kernels that it launches later.
#include <string.h>

#include "folder.h"
#include "interpose.h"
#include "plan.h"
#include "system.h"

namespace r3 {

namespace {

struct Program {
    int number;          // of what it was compiled to last
    Text source, names;  // a line "instantiate ..." each
};

Lock program_lock;
Map<const void *, Program *> programs;
int numbers;

bool recording() { return plan().active && plan().most_per_kernel > 0; }

void begin(const void *handle, const char *source) {
    Held held(program_lock);
    Program *&program = programs.at(handle);  // a handle may be that of a program that is gone
    destroy(program);
    program = create<Program>();
    program->source.add("%s", source);
}

Program *find(const void *handle) {
    Program **found = recording() ? programs.find(handle) : nullptr;
    return found ? *found : nullptr;
}

void keep(const Program &program, const char *suffix, const void *data, size_t nbytes) {
    Text path;
    path.add("%s/nvrtc-%d.%s", folder(), program.number, suffix);
    write_whole(path.c_str(), data, nbytes);
}

void keep_source(const void *handle, int count, const char *const *options) {
    Held held(program_lock);
    Program *program = find(handle);
    if (!program) return;
    Text lines;
    lines.add("%s", program->names.c_str());
    for (int i = 0; i < count; i++) lines.add("option %s\n", options[i]);
    program->number = numbers++;
    keep(*program, "options", lines.c_str(), lines.size());
    keep(*program, "cu", program->source.c_str(), program->source.size());
}

void keep_image(const void *handle, const char *image, Result sized, size_t nbytes) {
    Held held(program_lock);
    Program *program = find(handle);
    if (program && sized == SUCCESS) keep(*program, "image", image, nbytes);
}

}  // namespace

}  // namespace r3

using r3::Handle;

R3_FOUND_ENTRY(nvrtcCreateProgram,
               (Handle *program, const char *source, const char *name, int count, const char *const *headers,
                const char *const *names),
               (program, source, name, count, headers, names), {
                   r3::Result result = real_nvrtcCreateProgram(program, source, name, count, headers, names);
                   if (result == r3::SUCCESS && r3::recording()) r3::begin(*program, source);
                   return result;
               })

R3_FOUND_ENTRY(nvrtcAddNameExpression, (Handle program, const char *expression), (program, expression), {
    r3::Held held(r3::program_lock);
    if (r3::Program *known = r3::find(program)) known->names.add("instantiate %s\n", expression);
    return real_nvrtcAddNameExpression(program, expression);
})

R3_FOUND_ENTRY(nvrtcCompileProgram, (Handle program, int count, const char *const *options),
               (program, count, options), {
                   r3::Result result = real_nvrtcCompileProgram(program, count, options);
                   if (result == r3::SUCCESS) r3::keep_source(program, count, options);
                   return result;
               })

R3_FOUND_ENTRY(nvrtcGetCUBINSize, (Handle program, size_t *nbytes), (program, nbytes),
               { return real_nvrtcGetCUBINSize(program, nbytes); })

R3_FOUND_ENTRY(nvrtcGetPTXSize, (Handle program, size_t *nbytes), (program, nbytes),
               { return real_nvrtcGetPTXSize(program, nbytes); })

R3_FOUND_ENTRY(nvrtcGetCUBIN, (Handle program, char *image), (program, image), {
    r3::Result result = real_nvrtcGetCUBIN(program, image);
    size_t nbytes = 0;
    if (result == r3::SUCCESS) r3::keep_image(program, image, real_nvrtcGetCUBINSize(program, &nbytes), nbytes);
    return result;
})

R3_FOUND_ENTRY(nvrtcGetPTX, (Handle program, char *image), (program, image), {
    r3::Result result = real_nvrtcGetPTX(program, image);
    size_t nbytes = 0;
    if (result == r3::SUCCESS) r3::keep_image(program, image, real_nvrtcGetPTXSize(program, &nbytes), nbytes);
    return result;
})
