// Three launches of one kernel; prints the first element, so that a changed result shows.
#include "simple.h"

int main(void) {
    enum { COUNT = 1000 };
    double values[COUNT], first;
    find_driver();
    Handle function = scale_function();
    Address out, in;
    cuMemAlloc_(&out, sizeof values);
    cuMemAlloc_(&in, sizeof values);
    for (int i = 0; i < COUNT; i++) values[i] = i + 1;
    cuMemcpyHtoD_(in, values, sizeof values);
    for (int step = 0; step < 3; step++) launch_scale(function, out, in, step + 0.5, COUNT, NULL);
    cuMemcpyDtoH_(&first, out, sizeof first);
    cuMemFree_(out);
    printf("%g\n", first);
    return 0;
}
