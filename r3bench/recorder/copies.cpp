// Copies and memsets into device memory: they wait while another thread records, and a substituted kernel hears of what
// they write to variables.
#include "interpose.h"
#include "recording.h"
#include "substitutes.h"

namespace r3 {

static void before_write() { wait_for_recording(); }

static Result written(Result result, Address to, size_t nbytes) {
    if (result == SUCCESS) substitutes_note_write(to, nbytes);
    return result;
}

}  // namespace r3

using r3::Address;
using r3::Handle;

// An entry point that writes `nbytes` from `to` on.
#define R3_WRITE(name, parameters, arguments, to, nbytes)                     \
    R3_ENTRY(name, parameters, arguments, {                                  \
        r3::before_write();                                                  \
        return r3::written(real_##name arguments, to, nbytes);               \
    })
#define R3_WRITE_BOTH(name, per_thread, parameters, arguments, to, nbytes)    \
    R3_WRITE(name, parameters, arguments, to, nbytes)                        \
    R3_WRITE(name##per_thread, parameters, arguments, to, nbytes)

R3_WRITE_BOTH(cuMemcpyHtoD_v2, _ptds, (Address to, const void *from, size_t nbytes), (to, from, nbytes), to, nbytes)
R3_WRITE_BOTH(cuMemcpyHtoDAsync_v2, _ptsz, (Address to, const void *from, size_t nbytes, Handle stream),
              (to, from, nbytes, stream), to, nbytes)
R3_WRITE_BOTH(cuMemcpyDtoD_v2, _ptds, (Address to, Address from, size_t nbytes), (to, from, nbytes), to, nbytes)
R3_WRITE_BOTH(cuMemcpyDtoDAsync_v2, _ptsz, (Address to, Address from, size_t nbytes, Handle stream),
              (to, from, nbytes, stream), to, nbytes)
R3_WRITE_BOTH(cuMemcpy, _ptds, (Address to, Address from, size_t nbytes), (to, from, nbytes), to, nbytes)
R3_WRITE_BOTH(cuMemcpyAsync, _ptsz, (Address to, Address from, size_t nbytes, Handle stream),
              (to, from, nbytes, stream), to, nbytes)
R3_WRITE_BOTH(cuMemcpyPeer, _ptds, (Address to, Handle there, Address from, Handle here, size_t nbytes),
              (to, there, from, here, nbytes), to, nbytes)
R3_WRITE_BOTH(cuMemcpyPeerAsync, _ptsz,
              (Address to, Handle there, Address from, Handle here, size_t nbytes, Handle stream),
              (to, there, from, here, nbytes, stream), to, nbytes)

R3_WRITE_BOTH(cuMemsetD8_v2, _ptds, (Address to, unsigned char value, size_t count), (to, value, count), to, count)
R3_WRITE_BOTH(cuMemsetD16_v2, _ptds, (Address to, unsigned short value, size_t count), (to, value, count), to,
              2 * count)
R3_WRITE_BOTH(cuMemsetD32_v2, _ptds, (Address to, unsigned value, size_t count), (to, value, count), to, 4 * count)
R3_WRITE_BOTH(cuMemsetD8Async, _ptsz, (Address to, unsigned char value, size_t count, Handle stream),
              (to, value, count, stream), to, count)
R3_WRITE_BOTH(cuMemsetD16Async, _ptsz, (Address to, unsigned short value, size_t count, Handle stream),
              (to, value, count, stream), to, 2 * count)
R3_WRITE_BOTH(cuMemsetD32Async, _ptsz, (Address to, unsigned value, size_t count, Handle stream),
              (to, value, count, stream), to, 4 * count)
R3_WRITE_BOTH(cuMemsetD2D8_v2, _ptds, (Address to, size_t pitch, unsigned char value, size_t width, size_t height),
              (to, pitch, value, width, height), to, pitch * height)
R3_WRITE_BOTH(cuMemsetD2D32_v2, _ptds, (Address to, size_t pitch, unsigned value, size_t width, size_t height),
              (to, pitch, value, width, height), to, pitch * height)

R3_WRITE_BOTH(cuMemsetD2D16_v2, _ptds, (Address to, size_t pitch, unsigned short value, size_t width, size_t height),
              (to, pitch, value, width, height), to, pitch * height)
R3_WRITE_BOTH(cuMemsetD2D8Async, _ptsz,
              (Address to, size_t pitch, unsigned char value, size_t width, size_t height, Handle stream),
              (to, pitch, value, width, height, stream), to, pitch * height)
R3_WRITE_BOTH(cuMemsetD2D16Async, _ptsz,
              (Address to, size_t pitch, unsigned short value, size_t width, size_t height, Handle stream),
              (to, pitch, value, width, height, stream), to, pitch * height)
R3_WRITE_BOTH(cuMemsetD2D32Async, _ptsz,
              (Address to, size_t pitch, unsigned value, size_t width, size_t height, Handle stream),
              (to, pitch, value, width, height, stream), to, pitch * height)
R3_WRITE_BOTH(cuMemcpyAtoD_v2, _ptds, (Address to, Handle from, size_t offset, size_t nbytes),
              (to, from, offset, nbytes), to, nbytes)

// Many copies in one call: whatever is written may be a variable of a module.
R3_WRITE_BOTH(cuMemcpyBatchAsync, _ptsz,
              (Address *to, Address *from, size_t *nbytes, size_t count, void *attributes, size_t *which,
               size_t attribute_count, size_t *failed, Handle stream),
              (to, from, nbytes, count, attributes, which, attribute_count, failed, stream), 0, ~size_t(0))
R3_WRITE_BOTH(cuMemcpyBatchAsync_v2, _ptsz,
              (Address *to, Address *from, size_t *nbytes, size_t count, void *attributes, size_t *which,
               size_t attribute_count, Handle stream),
              (to, from, nbytes, count, attributes, which, attribute_count, stream), 0, ~size_t(0))

// Copies of rectangles are described in a structure; none of them writes a variable of a module.
R3_WRITE_BOTH(cuMemcpy2D_v2, _ptds, (const void *copy), (copy), 0, 0)
R3_WRITE_BOTH(cuMemcpy2DUnaligned_v2, _ptds, (const void *copy), (copy), 0, 0)
R3_WRITE_BOTH(cuMemcpy2DAsync_v2, _ptsz, (const void *copy, Handle stream), (copy, stream), 0, 0)
R3_WRITE_BOTH(cuMemcpy3D_v2, _ptds, (const void *copy), (copy), 0, 0)
R3_WRITE_BOTH(cuMemcpy3DAsync_v2, _ptsz, (const void *copy, Handle stream), (copy, stream), 0, 0)
R3_WRITE_BOTH(cuMemcpy3DPeer, _ptds, (const void *copy), (copy), 0, 0)
R3_WRITE_BOTH(cuMemcpy3DPeerAsync, _ptsz, (const void *copy, Handle stream), (copy, stream), 0, 0)
