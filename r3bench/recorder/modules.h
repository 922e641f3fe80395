// Loaded modules and libraries, and the kernels in them.
#pragma once

#include "abi.h"
#include "images.h"

namespace r3 {

struct Module {
    Handle handle;
    bool library;  // a CUlibrary, not a CUmodule
    Image image;
    char file[64];  // where the image was kept, in the folder of this process; empty as long as it was not
    bool copied;    // the image's bytes are ours
    bool textured;  // the application asked for a texture or surface reference of it
    Vector<Variable> *variables;
};

struct Parameter {
    size_t offset, nbytes;
};

// One kernel of one module, and what became of its launches.
struct Kernel {
    const char *name;
    Module *module;  // null where it is not known
    bool wanted;
    bool described;
    Vector<Parameter> parameters;
    long launches, recorded;
    long conditional;  // times that a node of a graph launched it or not, which nobody tells
    long failed;  // launches of which the recording was begun in vain
    Map<uint64_t, bool> shapes;  // grids, blocks and scalars that were recorded
    struct Substitute *substitute;  // see substitutes.h
    long substituted;
    double gpu_seconds;
    unsigned long timed;
    Dim3 grid, block;  // of the last launch
    struct Reason {
        const char *text;
        long count;
    };
    Vector<Reason> reasons;  // why launches were not recorded
};

// The kernel behind a CUfunction or CUkernel; null where the driver does not know it either.
Kernel *kernel_of(Handle function);

// The same for one that was registered by name, without asking the driver.
Kernel *kernel_registered(const void *function);
void kernel_register(Handle function, Handle module, const char *name);

// Another function that stands for a kernel of the application.
void kernel_alias(Handle function, Kernel &kernel);

// Parameters asked from the driver once; false where it cannot say.
bool kernel_describe(Kernel &kernel, Handle function);

// Address and size of a variable of the kernel's module; false where it has none of that name.
bool kernel_variable(const Kernel &kernel, const char *name, Address &address, size_t &nbytes);

// Names of the variables of its module, as far as they are known.
const Vector<Variable> &kernel_variables(Kernel &kernel);

// Keep the module's image on disk, once per content; its file's name, or an empty one.
const char *module_keep(Module &module);

size_t kernels_count();
void kernels_each(void (*use)(Kernel &, void *), void *context);
void modules_renew();  // in a child after fork

}  // namespace r3
