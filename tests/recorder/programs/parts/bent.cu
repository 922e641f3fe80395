#include "parts.h"
__device__ float offset = 0.25f;
__device__ float bent(float value) { return value * value + offset; }
