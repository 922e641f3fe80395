// CUDA 13 no longer has this header, which clang includes.
