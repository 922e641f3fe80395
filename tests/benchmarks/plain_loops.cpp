// The thirteen kernels of tests/device/thirteen.cu as loops that a C++ programmer would write for one core.
typedef decltype(sizeof 0) size_t;

struct Par { double a; int n; float w[3]; const float *x; };

extern "C" {

void *memset(void *, int, size_t);
float expf(float), sinf(float), sqrtf(float), tanhf(float);

void saxpy(int n, float a, const float *x, float *y) {
  for (int i = 0; i < n; i++) y[i] = a * x[i] + y[i];
}

void stencil5(const double *__restrict u, double *__restrict v, int n, double c) {
  for (int i = 2; i < n - 2; i++) v[i] = c * (-u[i - 2] + 16.0 * u[i - 1] - 30.0 * u[i] + 16.0 * u[i + 1] - u[i + 2]);
}

void lap2d(const double *__restrict u, double *__restrict v, int nx, int ny, double c) {
  for (int j = 2; j < ny - 2; j++)
    for (int i = 2; i < nx - 2; i++) {
      size_t k = (size_t)j * nx + i, x = (size_t)nx;
      v[k] = c * (-u[k - 2] + 16 * u[k - 1] + 16 * u[k + 1] - u[k + 2] - u[k - 2 * x] + 16 * u[k - x] + 16 * u[k + x] -
                  u[k + 2 * x] - 60 * u[k]);
    }
}

void matmul(const float *a, const float *b, float *__restrict c, int n) {
  memset(c, 0, sizeof(float) * n * n);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++)
      for (int j = 0; j < n; j++) c[i * n + j] += a[i * n + k] * b[k * n + j];
}

void reduce(const float *x, float *out, int n) {
  float sum = 0;
  for (int i = 0; i < n; i++) sum += x[i];
  *out = sum;
}

void reduce_dyn(const float *x, float *out, int n) { reduce(x, out, n); }

void hist(const unsigned char *x, int *h, int n) {
  for (int i = 0; i < n; i++) h[x[i]]++;
}

void hist_sh(const unsigned char *x, int *h, int n) { hist(x, h, n); }

void collatz(const unsigned *x, int *out, int n) {
  for (int i = 0; i < n; i++) {
    unsigned v = x[i];
    int c = v ? 0 : -1;
    while (v > 1) {
      v = v & 1 ? 3 * v + 1 : v >> 1;
      c++;
    }
    out[i] = c;
  }
}

void structk(const Par *p, float *y) {
  for (int i = 0; i < p->n; i++) {
    float s = 0;
    for (int k = 0; k < 3; k++) {
      int j = i + k - 1;
      if (j >= 0 && j < p->n) s += p->w[k] * p->x[j];
    }
    y[i] = (float)p->a * s;
  }
}

void mathk(const float *x, float *y, int n) {
  for (int i = 0; i < n; i++) y[i] = expf(-x[i] * x[i]) * sinf(x[i]) + sqrtf(x[i] * x[i] + 1.f) + tanhf(x[i]);
}

void earlyexit(const int *x, int *y, int n) {
  for (int first = 0; first < n; first += 256) {
    int end = first + 256 < n ? first + 256 : n, count = 0;
    for (int i = first; i < end; i++) count += x[i] > 0;
    for (int i = first; i < end; i++) y[i] = count;
  }
}

void localarr(const float *x, float *y, int n, int r) {
  for (int first = 0; first < n; first += 256) {
    float third[256];
    for (int t = 0; t < 256; t++) {
      float buffer[16];
      int i = first + t;
      for (int k = 0; k < 16; k++) buffer[(k * r) & 15] = x[(i + k) % n];
      third[t] = buffer[3];
      y[i] = buffer[r & 15];
    }
    for (int t = 0; t < 256; t++) y[first + t] += third[(t + 1) % 256];
  }
}
}
