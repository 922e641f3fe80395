// Kernels with something for every knob: loops of known and unknown length, branches, switches, local arrays, calls.
extern "C" {

__global__ void series(int n, int terms, const double* x, double* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double sum = 0, term = 1;
  for (int k = 1; k <= terms; k++) {
    sum += term;
    term = term * x[i] / k;
  }
  y[i] = sum;
}

__global__ void convolve(int n, int taps, const float* x, const float* w, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float sum = 0;
  for (int k = 0; k < taps; k++) sum += w[k] * x[i + k];
  for (int k = 0; k < 12; k++) sum += x[i + k] * x[i + k];
  y[i] = sum;
}

__global__ void machine(int n, const int* code, int* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int state = 0, value = i;
  for (int k = 0; k < n; k++) {
    switch (code[k] & 7) {
      case 0: value += state; state = 1; break;
      case 1: value ^= 5; state = state == 1 ? 2 : 0; break;
      case 2: if (state == 2) value *= 3; else value -= 1; break;
      case 3: if (value < 0) { y[i] = value; return; } break;
      case 4: value = value > 100 ? value / 3 : value + 7; break;
      default: state = value & 3;
    }
  }
  y[i] = value;
}

__global__ void smooth(int nx, int ny, const float* u, float* v) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= nx) return;
  float window[8];
  for (int k = 0; k < 8; k++) window[k] = u[i + k * nx];
  for (int j = 8; j < ny; j++) {
    float sum = 0;
    for (int k = 0; k < 8; k++) sum += window[k] * (float)k;
    v[i + j * nx] = sum / (window[0] + 1.0f);
    for (int k = 0; k < 7; k++) window[k] = window[k + 1];
    window[7] = u[i + j * nx];
  }
}
}

__device__ float mix(float a, float b, int k) {
  float r = a;
  for (int j = 0; j < k; j++) {
    if (r > b) r -= b * a; else r += b / (a + 1.0f);
    r = r * r - a * b + (float)j;
    if (r < 0) r = -r; else if (r > 100.0f) r = r * 0.5f + a;
    r += (a + b) * (a - b) * r;
  }
  return r;
}

extern "C" __global__ void mixed(int n, int k, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  y[i] = mix(x[i], x[i + 1], k) + mix(x[i + 1], x[i], k + 1);
  y[i + n] = mix(y[i], x[i + 2], 3) - mix(x[i + 2], y[i], k - 1);
}

extern "C" __global__ void matrix(int n, const float* a, const float* b, float* c) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  for (int j = 0; j < n; j++) {
    float sum = 0;
    for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
    c[i * n + j] = sum;
  }
}

extern "C" __global__ void branches(int n, float cut, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i], r = 0;
  if (v > cut) { if (v > 2 * cut) r = v * v; else r = v + cut; }
  if (i > 3 && x[i - 1] > cut && x[i - 2] > v) r += x[i - 3];
  if (r > 0) r += v / cut; else r -= v / cut;
  y[i] = r + v / cut;
  y[i] = v > cut ? y[i] * 3 : y[i] - 1;
}

__constant__ float weights[24 * 6];

extern "C" __global__ void table(int n, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float sum = 0;
  for (int j = 0; j < 24; j++)
    for (int k = 0; k < 6; k++) sum = sum * weights[j * 6 + k] + x[i + j * n + k] / weights[k];
  y[i] = sum;
}

// What is cheap enough to be chosen without a branch once the loop is unrolled, which is left to the pipeline.
extern "C" __global__ void either(int n, float cut, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float sum = 0;
  for (int k = 0; k < 3; k++) {
    float v = x[3 * i + k];
    if (v > cut) sum = v * k + sum; else sum = sum * sum - v * k;
  }
  y[i] = sum;
}
