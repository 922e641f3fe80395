// What is loaded, and what its functions are called.
#include "modules.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include "background.h"
#include "driver.h"
#include "folder.h"
#include "interpose.h"
#include "plan.h"
#include "profile.h"
#include "recording.h"
#include "substitutes.h"
#include "system.h"

namespace r3 {

namespace {

Lock table_lock;
Map<const void *, Module *> modules;
Map<const void *, Kernel *> functions;
Vector<Kernel *> kernels;
uint64_t changes;  // of the functions

// What a thread found lately, so that most launches take no lock: true as long as nothing has changed.
struct Found {
    Handle function;
    Kernel *kernel;
    uint64_t changes;
};
const size_t PLACES = 64;
__thread Found lately[PLACES];

void has_changed() { __atomic_add_fetch(&changes, 1, __ATOMIC_RELEASE); }

// Under the lock, as all changes.
void stands_for(Handle function, Kernel *kernel) {
    Kernel *&known = functions.at(function);
    if (known != kernel) has_changed();
    known = kernel;
}

// Bytes that belong to a loaded program or library stay; others the application may free as soon as they are loaded.
bool stays(const void *data) {
    Dl_info info;
    return dladdr(data, &info) != 0;
}

Image copy_of(const Image &image) {
    unsigned char *bytes = static_cast<unsigned char *>(malloc(image.nbytes + 1));
    if (!bytes) return {nullptr, 0, ""};
    memcpy(bytes, image.data, image.nbytes);
    bytes[image.nbytes] = 0;
    return {bytes, image.nbytes, image.format};
}

Module *made(Handle handle, bool library, Image image) {
    Module *module = create<Module>();
    module->handle = handle, module->library = library, module->image = image;
    return module;
}

// What lies in a shared library that is about to be closed, and may be gone then.
void leave(const void *library) {
    Held held(table_lock);
    modules.each([&](const void *, Module *module) {
        Dl_info info;
        bool inside = module && !module->copied && module->image.nbytes && dladdr(module->image.data, &info);
        if (!inside || info.dli_fbase != library) return;
        module->image = copy_of(module->image);
        module->copied = true;
    });
}

void loaded(Handle handle, bool library, const void *given) {
    if (!plan().active || !given) return;
    Image image = image_at(given);
    if (!image.nbytes) warn_once("an image of an unknown kind was loaded: its kernels cannot be recorded");
    bool copies = image.nbytes && !stays(image.data);
    Module *module = made(handle, library, copies ? copy_of(image) : image);
    module->copied = copies;
    Held held(table_lock);
    modules.at(handle) = module;
}

void loaded_file(Handle handle, bool library, const char *path) {
    if (!plan().active) return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (file < 0 || fstat(file, &status)) return;
    unsigned char *bytes = static_cast<unsigned char *>(calloc(1, static_cast<size_t>(status.st_size) + 1));
    bool whole = bytes && read(file, bytes, static_cast<size_t>(status.st_size)) == status.st_size;
    close(file);
    if (whole) loaded(handle, library, bytes);
    free(bytes);
}

// Functions of what is unloaded are forgotten; kernels stay for the report.
void unloaded(Handle handle) {
    if (!plan().active) return;
    wait_for_recording();
    background_wait();
    Held held(table_lock);
    Module **module = modules.find(handle);
    if (!module || !*module) return;
    functions.each([&](const void *, Kernel *&kernel) {
        if (kernel && kernel->module == *module) kernel = nullptr;
    });
    has_changed();
    *module = nullptr;
}

Kernel *kernel_named(const char *name, Module *module) {
    for (Kernel *kernel : kernels)
        if (kernel->module == module && !strcmp(kernel->name, name)) return kernel;
    Kernel *kernel = create<Kernel>();
    kernel->name = strdup(name), kernel->module = module, kernel->wanted = plan_wants(name);
    kernel->substitute = substitutes_of(name);
    kernels.push(kernel);
    return kernel;
}

void function_found(Handle function, Handle of, const char *name) {
    if (!plan().active || !function || !name) return;
    Held held(table_lock);
    Module **module = modules.find(of);
    stands_for(function, kernel_named(name, module ? *module : nullptr));
}

void same_function(Handle function, Handle kernel) {
    Held held(table_lock);
    Kernel **known = functions.find(kernel);
    if (known && *known) stands_for(function, *known);
}

// Graphs give a library's kernel as the function that it is in the current context.
bool found_by_kernel(Handle function, const char *name) {
    const Driver &real = driver();
    Kernel *found = nullptr;
    Held held(table_lock);
    functions.each([&](const void *handle, Kernel *kernel) {
        if (!kernel || !kernel->module || !kernel->module->library || strcmp(kernel->name, name)) return;
        Handle plain = nullptr;
        bool answered = real.cuKernelGetFunction && !real.cuKernelGetFunction(&plain, const_cast<void *>(handle));
        if (answered && plain == function) found = kernel;
    });
    if (found) stands_for(function, found);
    return found != nullptr;
}

// What the driver says of a function that came to the application by a way not seen here.
void ask(Handle function) {
    const Driver &real = driver();
    const char *name = nullptr;
    Handle of = nullptr;
    if (real.cuKernelGetName && !real.cuKernelGetName(&name, function)) {
        if (real.cuKernelGetLibrary) real.cuKernelGetLibrary(&of, function);
    } else if (real.cuFuncGetName && !real.cuFuncGetName(&name, function)) {
        if (found_by_kernel(function, name)) return;
        if (real.cuFuncGetModule) real.cuFuncGetModule(&of, function);
    }
    function_found(function, of, name);
}

Kernel *known(Handle function) {
    Held held(table_lock);
    Kernel **found = functions.find(function);
    return found ? *found : nullptr;
}

bool parameter_of(Handle function, size_t index, Parameter &parameter) {
    const Driver &real = driver();
    if (real.cuKernelGetParamInfo && !real.cuKernelGetParamInfo(function, index, &parameter.offset, &parameter.nbytes))
        return true;
    return real.cuFuncGetParamInfo && !real.cuFuncGetParamInfo(function, index, &parameter.offset, &parameter.nbytes);
}

}  // namespace

Kernel *kernel_registered(const void *function) { return known(const_cast<void *>(function)); }

void kernel_register(Handle function, Handle module, const char *name) { function_found(function, module, name); }

Kernel *kernel_of(Handle function) {
    Found &place = lately[slot_of(function) % PLACES];
    uint64_t now = __atomic_load_n(&changes, __ATOMIC_ACQUIRE);
    if (place.function == function && place.changes == now) return place.kernel;
    Kernel *kernel = known(function);
    if (!kernel) ask(function), kernel = known(function);
    if (kernel) place = {function, kernel, now};
    return kernel;
}

void kernel_alias(Handle function, Kernel &kernel) {
    Held held(table_lock);
    stands_for(function, &kernel);
}

bool kernel_describe(Kernel &kernel, Handle function) {
    const Driver &real = driver();
    if (!real.cuKernelGetParamInfo && !real.cuFuncGetParamInfo) return false;
    if (kernel.described) return true;
    for (Parameter parameter; parameter_of(function, kernel.parameters.size(), parameter);)
        kernel.parameters.push(parameter);
    kernel.described = true;
    return true;
}

bool kernel_variable(const Kernel &kernel, const char *name, Address &address, size_t &nbytes) {
    const Driver &real = driver();
    if (!kernel.module) return false;
    auto *ask_module = kernel.module->library ? real.cuLibraryGetGlobal : real.cuModuleGetGlobal_v2;
    return ask_module && !ask_module(&address, &nbytes, kernel.module->handle, name);
}

const Vector<Variable> &kernel_variables(Kernel &kernel) {
    static Vector<Variable> none;
    if (!kernel.module) return none;
    if (!kernel.module->variables) {
        Vector<Variable> *found = create<Vector<Variable>>();
        if (kernel.module->image.nbytes) image_variables(kernel.module->image, *found);
        for (const char *text : plan().variables) found->push({text + 2, text[0] == 'c'});
        kernel.module->variables = found;
    }
    return *kernel.module->variables;
}

const char *module_keep(Module &module) {
    if (module.file[0] || !module.image.nbytes) return module.file;
    Digest digest = digest_of(module.image.data, module.image.nbytes);
    char name[64];
    snprintf(name, sizeof name, "image-%016llx%016llx.%s", static_cast<unsigned long long>(digest.high),
             static_cast<unsigned long long>(digest.low), module.image.format);
    Text path;
    path.add("%s/%s", folder(), name);
    if (access(path.c_str(), F_OK) == 0 || write_whole(path.c_str(), module.image.data, module.image.nbytes))
        memcpy(module.file, name, sizeof name);
    return module.file;
}

size_t kernels_count() { return kernels.size(); }

void kernels_each(void (*use)(Kernel &, void *), void *context) {
    Held held(table_lock);
    for (Kernel *kernel : kernels) use(*kernel, context);
}

// The counts are the parent's, and so are the images in its folder; the child begins anew.
void modules_renew() {
    modules.each([](const void *, Module *module) {
        if (module) module->file[0] = 0;
    });
    functions.clear();
    kernels.clear();
    has_changed();
}

static Result after_load(Result result, Handle *handle, bool library, const void *image) {
    if (result == SUCCESS && handle) loaded(*handle, library, image);
    return result;
}

static Result after_load_file(Result result, Handle *handle, bool library, const char *path) {
    if (result == SUCCESS && handle) loaded_file(*handle, library, path);
    return result;
}

static Result after_find(Result result, Handle *function, Handle of, const char *name) {
    if (result == SUCCESS && function) function_found(*function, of, name);
    return result;
}

static Result after_reference(Result result, Handle of) {
    Held held(table_lock);
    Module **module = result == SUCCESS ? modules.find(of) : nullptr;
    if (module && *module) (*module)->textured = true;
    return result;
}

static void before_unload(Handle handle) { unloaded(handle); }

static Result after_same(Result result, Handle *function, Handle kernel) {
    if (result == SUCCESS && function) same_function(*function, kernel);
    return result;
}

// A library's module has a handle of its own; it is the same image.
static Result after_module(Result result, Handle *module, Handle library) {
    if (result != SUCCESS || !module) return result;
    Held held(table_lock);
    Module **known = modules.find(library);
    if (known && *known) modules.at(*module) = *known;
    return result;
}

static void before_close(void *library) {
    link_map *opened = nullptr;
    if (!plan().active || !library || dlinfo(library, RTLD_DI_LINKMAP, &opened)) return;
    bool stays_open = !opened->l_name[0];  // the program itself
    if (!stays_open) leave(reinterpret_cast<const void *>(opened->l_addr));
}

}  // namespace r3

using r3::Handle;

// -- shared libraries --

extern "C" __attribute__((visibility("default"))) int dlclose(void *library) {
    static auto *real = reinterpret_cast<int (*)(void *)>(r3::next_function("dlclose"));
    r3::before_close(library);
    return real ? real(library) : -1;
}

// -- modules --

R3_ENTRY(cuModuleLoad, (Handle *module, const char *path), (module, path),
         { return r3::after_load_file(real_cuModuleLoad(module, path), module, false, path); })

R3_ENTRY(cuModuleLoadData, (Handle *module, const void *image), (module, image),
         { return r3::after_load(real_cuModuleLoadData(module, image), module, false, image); })

R3_ENTRY(cuModuleLoadDataEx, (Handle *module, const void *image, unsigned count, int *options, void **values),
         (module, image, count, options, values), {
             r3::Result result = real_cuModuleLoadDataEx(module, image, count, options, values);
             return r3::after_load(result, module, false, image);
         })

R3_ENTRY(cuModuleLoadFatBinary, (Handle *module, const void *image), (module, image),
         { return r3::after_load(real_cuModuleLoadFatBinary(module, image), module, false, image); })

R3_ENTRY(cuModuleUnload, (Handle module), (module), {
    r3::before_unload(module);
    return real_cuModuleUnload(module);
})

R3_ENTRY(cuModuleGetFunction, (Handle *function, Handle module, const char *name), (function, module, name),
         { return r3::after_find(real_cuModuleGetFunction(function, module, name), function, module, name); })

R3_ENTRY(cuModuleGetTexRef, (Handle *reference, Handle module, const char *name), (reference, module, name),
         { return r3::after_reference(real_cuModuleGetTexRef(reference, module, name), module); })

R3_ENTRY(cuModuleGetSurfRef, (Handle *reference, Handle module, const char *name), (reference, module, name),
         { return r3::after_reference(real_cuModuleGetSurfRef(reference, module, name), module); })

// -- libraries --

R3_ENTRY(cuLibraryLoadData,
         (Handle *library, const void *image, int *jit, void **jit_values, unsigned jit_count, int *options,
          void **values, unsigned count),
         (library, image, jit, jit_values, jit_count, options, values, count), {
             r3::Result result =
                 real_cuLibraryLoadData(library, image, jit, jit_values, jit_count, options, values, count);
             return r3::after_load(result, library, true, image);
         })

R3_ENTRY(cuLibraryLoadFromFile,
         (Handle *library, const char *path, int *jit, void **jit_values, unsigned jit_count, int *options,
          void **values, unsigned count),
         (library, path, jit, jit_values, jit_count, options, values, count), {
             r3::Result result =
                 real_cuLibraryLoadFromFile(library, path, jit, jit_values, jit_count, options, values, count);
             return r3::after_load_file(result, library, true, path);
         })

R3_ENTRY(cuLibraryUnload, (Handle library), (library), {
    if (r3::plan().profile) r3::profile_collect();  // the runtime unloads at the end of the program
    r3::before_unload(library);
    return real_cuLibraryUnload(library);
})

R3_ENTRY(cuLibraryGetKernel, (Handle *kernel, Handle library, const char *name), (kernel, library, name),
         { return r3::after_find(real_cuLibraryGetKernel(kernel, library, name), kernel, library, name); })

R3_ENTRY(cuLibraryGetModule, (Handle *module, Handle library), (module, library),
         { return r3::after_module(real_cuLibraryGetModule(module, library), module, library); })

R3_ENTRY(cuKernelGetFunction, (Handle *function, Handle kernel), (function, kernel),
         { return r3::after_same(real_cuKernelGetFunction(function, kernel), function, kernel); })
