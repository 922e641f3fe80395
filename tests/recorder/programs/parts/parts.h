#pragma once
__device__ float bent(float value);
extern __device__ float offset;
