// Module images as the driver is given them: where one ends, what it is, which variables it has.
#pragma once

#include "containers.h"

namespace r3 {

struct Image {
    const unsigned char *data;
    size_t nbytes;       // 0 where the content is no image that we know
    const char *format;  // cubin, fatbin or ptx, as a capture names them
};

struct Variable {
    const char *name;
    bool constant;
};

// The image behind a pointer that was given to cuModuleLoadData or cuLibraryLoadData.
Image image_at(const void *given);

// Its __device__ and __constant__ variables, as far as its entries are not packed; names live as long as the image.
void image_variables(const Image &image, Vector<Variable> &into);

}  // namespace r3
