// Graphs: which kernels an instantiated one launches, counted whenever it is launched.
#include "coverage.h"
#include "driver.h"
#include "interpose.h"
#include "plan.h"
#include "recording.h"
#include "system.h"

namespace r3 {

namespace {

Lock graphs_lock;
Map<const void *, Vector<Kernel *> *> graphs;

void collect(Handle graph, Vector<Kernel *> &into) {
    const Driver &real = driver();
    size_t count = 0;
    if (!real.cuGraphGetNodes || real.cuGraphGetNodes(graph, nullptr, &count)) return;
    Vector<Handle> nodes;
    nodes.resize(count);
    if (count && real.cuGraphGetNodes(graph, nodes.begin(), &count)) return;
    for (Handle node : nodes) {
        int type = -1;
        real.cuGraphNodeGetType(node, &type);
        KernelNode held = {};
        Handle child = nullptr;
        if (type == NODE_CHILD_GRAPH && !real.cuGraphChildGraphNodeGetGraph(node, &child)) collect(child, into);
        if (type != NODE_KERNEL || !real.cuGraphKernelNodeGetParams_v2) continue;
        if (real.cuGraphKernelNodeGetParams_v2(node, &held)) continue;
        Kernel *kernel = kernel_of(held.function ? held.function : held.kernel);
        if (!kernel) continue;
        kernel->grid = held.grid, kernel->block = held.block;
        into.push(kernel);
    }
}

}  // namespace

static Result instantiated(Result result, const Handle *made, Handle graph) {
    if (result != SUCCESS || !plan().active || !made) return result;
    Vector<Kernel *> *kernels = create<Vector<Kernel *>>();
    collect(graph, *kernels);
    Held held(graphs_lock);
    graphs.at(*made) = kernels;
    return result;
}

static void before_graph(Handle graph) {
    if (!plan().active) return;
    wait_for_recording();
    Held held(graphs_lock);
    Vector<Kernel *> **kernels = graphs.find(graph);
    if (!kernels || !*kernels) return;
    for (Kernel *kernel : **kernels) {
        __atomic_fetch_add(&kernel->launches, 1, __ATOMIC_RELAXED);
        if (kernel->wanted) coverage_count(*kernel, "launched by a graph");
    }
}

}  // namespace r3

using r3::Handle;

R3_ENTRY(cuGraphInstantiate, (Handle *made, Handle graph, Handle *node, char *log, size_t length),
         (made, graph, node, log, length),
         { return r3::instantiated(real_cuGraphInstantiate(made, graph, node, log, length), made, graph); })

R3_ENTRY(cuGraphInstantiate_v2, (Handle *made, Handle graph, Handle *node, char *log, size_t length),
         (made, graph, node, log, length),
         { return r3::instantiated(real_cuGraphInstantiate_v2(made, graph, node, log, length), made, graph); })

R3_ENTRY(cuGraphInstantiateWithFlags, (Handle *made, Handle graph, uint64_t flags), (made, graph, flags),
         { return r3::instantiated(real_cuGraphInstantiateWithFlags(made, graph, flags), made, graph); })

R3_ENTRY(cuGraphInstantiateWithParams, (Handle *made, Handle graph, void *parameters), (made, graph, parameters),
         { return r3::instantiated(real_cuGraphInstantiateWithParams(made, graph, parameters), made, graph); })

R3_ENTRY(cuGraphInstantiateWithParams_ptsz, (Handle *made, Handle graph, void *parameters),
         (made, graph, parameters),
         { return r3::instantiated(real_cuGraphInstantiateWithParams_ptsz(made, graph, parameters), made, graph); })

R3_ENTRY(cuGraphLaunch, (Handle graph, Handle stream), (graph, stream), {
    r3::before_graph(graph);
    return real_cuGraphLaunch(graph, stream);
})

R3_ENTRY(cuGraphLaunch_ptsz, (Handle graph, Handle stream), (graph, stream), {
    r3::before_graph(graph);
    return real_cuGraphLaunch_ptsz(graph, stream);
})
