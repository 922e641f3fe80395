// Graphs: the kernels in an instantiated one are counted whenever it is launched. To record one of them the graph is
// cut: what comes before it, the kernel alone, what comes behind it. To time kernels it is cut so at its first launch.
#include "coverage.h"
#include "driver.h"
#include "interpose.h"
#include "plan.h"
#include "profile.h"
#include "recording.h"
#include "streams.h"
#include "substitutes.h"
#include "system.h"

namespace r3 {

namespace {

// A kernel node. Nodes of child graphs are counted and not recorded: their place is -1.
struct Node {
    Handle node;
    Kernel *kernel;
    bool substituted;
    int place;  // among the nodes of the graph in order
};

struct Graph {
    Handle kept;  // a clone of what was instantiated; null where nothing of it is to be recorded
    Vector<Handle> order;
    Vector<Node> kernels;
    Problem problem;  // why it cannot be cut
    bool timed;
};

// A part of a graph, and the kernel that is alone in it or null.
struct Part {
    Handle ready;
    const Node *node;
    long occurrence;
};

const Problem NOT_CUT = "the driver does not cut its graph";
Lock graphs_lock;
Map<const void *, Graph *> graphs;

bool nodes_of(Handle graph, Vector<Handle> &nodes) {
    size_t count = 0;
    const Driver &real = driver();
    if (!real.cuGraphGetNodes || real.cuGraphGetNodes(graph, nullptr, &count)) return false;
    nodes.resize(count);
    return !count || !real.cuGraphGetNodes(graph, nodes.begin(), &count);
}

size_t index_of(const Vector<Handle> &nodes, Handle node) {
    size_t at = 0;
    while (at < nodes.size() && nodes[at] != node) at++;
    return at;
}

// Nodes in an order that their edges allow; false where the driver does not tell them.
bool put_in_order(Vector<Handle> &nodes, Handle graph) {
    size_t count = 0;
    const Driver &real = driver();
    if (!real.cuGraphGetEdges || real.cuGraphGetEdges(graph, nullptr, nullptr, &count)) return false;
    Vector<Handle> from, to, ordered;
    from.resize(count), to.resize(count);
    if (count && real.cuGraphGetEdges(graph, from.begin(), to.begin(), &count)) return false;
    Vector<size_t> before, ends;  // nodes that each waits for; the edges' ends by number
    before.resize(nodes.size());
    for (Handle each : to) {
        ends.push(index_of(nodes, each));
        before[ends.back()]++;
    }
    for (size_t i = 0; i < nodes.size(); i++)
        if (!before[i]) ordered.push(nodes[i]);
    for (size_t at = 0; at < ordered.size(); at++)
        for (size_t edge = 0; edge < count; edge++)
            if (from[edge] == ordered[at] && !--before[ends[edge]]) ordered.push(nodes[ends[edge]]);
    nodes.swap(ordered);
    return nodes.size() == ordered.size();
}

bool kernel_node(Handle node, KernelNode &held) {
    int type = -1;
    const Driver &real = driver();
    if (real.cuGraphNodeGetType(node, &type) || type != NODE_KERNEL) return false;
    return real.cuGraphKernelNodeGetParams_v2 && !real.cuGraphKernelNodeGetParams_v2(node, &held);
}

Handle function_of(const KernelNode &held) { return held.function ? held.function : held.kernel; }

void collect(const Vector<Handle> &nodes, bool child, Vector<Node> &into) {
    const Driver &real = driver();
    for (size_t i = 0; i < nodes.size(); i++) {
        KernelNode held = {};
        Handle inner = nullptr;
        int type = -1;
        Vector<Handle> inside;
        real.cuGraphNodeGetType(nodes[i], &type);
        bool child_graph = type == NODE_CHILD_GRAPH && !real.cuGraphChildGraphNodeGetGraph(nodes[i], &inner);
        if (child_graph && nodes_of(inner, inside)) collect(inside, true, into);
        Kernel *kernel = kernel_node(nodes[i], held) ? kernel_of(function_of(held)) : nullptr;
        if (!kernel) continue;
        kernel->grid = held.grid, kernel->block = held.block;
        into.push({nodes[i], kernel, substitutes_made(function_of(held)), child ? -1 : int(i)});
    }
}

Launch launch_of(const KernelNode &held) {
    Launch launch = {};
    launch.function = function_of(held), launch.grid = held.grid, launch.block = held.block;
    launch.shared_bytes = held.shared_bytes, launch.parameters = held.parameters, launch.extra = held.extra;
    launch.in_graph = true;
    return launch;
}

// What stands for a node in the clone of ours; null where there is none.
Handle kept_node(const Graph &graph, Handle node) {
    Handle ours = nullptr;
    bool found = graph.kept && !driver().cuGraphNodeFindInClone(&ours, node, graph.kept);
    return found ? ours : nullptr;
}

// Have a node of an instantiated graph run a tuned kernel, if one fits; whether it does.
bool substitute_node(const Graph &graph, Handle ready, Handle node, KernelNode held, Kernel &kernel) {
    const Driver &real = driver();
    if (!kernel.substitute || !real.cuGraphExecKernelNodeSetParams_v2) return false;
    Launch launch = launch_of(held);
    if (!substitute_for(kernel, launch)) return false;
    held.function = launch.function, held.kernel = nullptr, held.grid = launch.grid, held.block = launch.block;
    if (Handle ours = kept_node(graph, node)) real.cuGraphKernelNodeSetParams_v2(ours, &held);
    return !real.cuGraphExecKernelNodeSetParams_v2(ready, node, &held);
}

// -- cutting --

void give_up(Graph &graph, Problem problem) {
    if (graph.kept) driver().cuGraphDestroy(graph.kept);
    graph.kept = nullptr, graph.problem = problem;
}

bool worth_keeping(const Graph &graph) {
    if (plan().profile) return true;
    for (const Node &node : graph.kernels)
        if (node.kernel->wanted && node.kernel->recorded < plan().most_per_kernel) return true;
    return false;
}

// What was instantiated may be changed or destroyed by the application afterwards: a clone of ours stays.
void keep(Graph &made, Handle graph) {
    made.problem = NOT_CUT;
    if (!driver().cuGraphClone || driver().cuGraphClone(&made.kept, graph)) return;
    if (!nodes_of(made.kept, made.order) || !put_in_order(made.order, made.kept)) return give_up(made, NOT_CUT);
    made.problem = nullptr;
}

// An instantiated graph of the nodes from `first` to before `end`.
Handle part_of(const Graph &graph, size_t first, size_t end) {
    const Driver &real = driver();
    Handle clone = nullptr, ready = nullptr, node = nullptr;
    if (real.cuGraphClone(&clone, graph.kept)) return nullptr;
    bool cut = true;
    for (size_t i = 0; i < graph.order.size(); i++)
        if (i < first || i >= end)
            cut = cut && !real.cuGraphNodeFindInClone(&node, graph.order[i], clone) && !real.cuGraphDestroyNode(node);
    if (cut) cut = !real.cuGraphInstantiateWithFlags(&ready, clone, 0);
    real.cuGraphDestroy(clone);
    return cut ? ready : nullptr;
}

bool add_part(const Graph &graph, size_t first, size_t end, const Node *node, long occurrence, Vector<Part> &parts) {
    if (first == end) return true;
    parts.push({part_of(graph, first, end), node, occurrence});
    return parts.back().ready != nullptr;
}

// Whether a launch inside a graph is to be made alone.
bool alone(const Node &node, long occurrence) { return plan().profile || launch_chosen(*node.kernel, occurrence); }

bool cut(const Graph &graph, const Vector<long> &occurrences, Vector<Part> &parts) {
    size_t start = 0;
    bool whole = true;
    for (size_t i = 0; i < graph.kernels.size() && whole; i++) {
        const Node &node = graph.kernels[i];
        if (node.place < 0 || !alone(node, occurrences[i])) continue;
        size_t place = size_t(node.place);
        whole = add_part(graph, start, place, nullptr, 0, parts) &&
                add_part(graph, place, place + 1, &node, occurrences[i], parts);
        start = place + 1;
    }
    return whole && add_part(graph, start, graph.order.size(), nullptr, 0, parts);
}

Result pass_part(const Launch &l) { return driver().cuGraphLaunch(l.graph, l.stream); }

Result run_part(const Graph &graph, const Part &part, Handle stream) {
    Launch launch = {};
    KernelNode held = {};
    if (part.node && kernel_node(graph.order[size_t(part.node->place)], held)) launch = launch_of(held);
    launch.stream = stream, launch.graph = part.ready, launch.pass = pass_part;
    if (!part.node) return pass_part(launch);
    Kernel &kernel = *part.node->kernel;
    return plan().profile ? launch_timed(kernel, launch) : launch_recorded(kernel, launch, part.occurrence);
}

// Launch a graph part by part; false where it could not be cut, and nothing of it ran.
bool run_in_parts(Graph &graph, const Vector<long> &occurrences, Handle stream, Result &result) {
    Vector<Part> parts;
    bool whole = cut(graph, occurrences, parts);
    result = SUCCESS;
    for (const Part &part : parts)
        if (whole && result == SUCCESS) result = run_part(graph, part, stream);
    for (const Part &part : parts)
        if (part.ready) driver().cuGraphExecDestroy(part.ready);
    if (!whole) give_up(graph, NOT_CUT);
    return whole;
}

// -- launching --

Graph *graph_of(Handle ready) {
    Held held(graphs_lock);
    Graph **found = graphs.find(ready);
    return found ? *found : nullptr;
}

bool count(Graph &graph, Vector<long> &occurrences) {
    bool any = false;
    for (const Node &node : graph.kernels) {
        Kernel &kernel = *node.kernel;
        occurrences.push(__atomic_fetch_add(&kernel.launches, 1, __ATOMIC_RELAXED));
        if (node.substituted) __atomic_fetch_add(&kernel.substituted, 1, __ATOMIC_RELAXED);
        if (plan().profile) any = !graph.timed;
        if (plan().profile || !launch_chosen(kernel, occurrences.back())) continue;
        Problem problem = node.place < 0 ? "it is in a graph inside a graph" : graph.problem;
        if (problem) coverage_count(kernel, problem);
        else any = true;
    }
    graph.timed = true;
    return any && graph.kept;
}

}  // namespace

static void forget(Handle ready) {
    Held held(graphs_lock);
    Graph **found = graphs.find(ready);
    if (!found || !*found) return;
    give_up(**found, nullptr);
    destroy(*found);
    *found = nullptr;
}

// `updated`: the graph only changes one that was made of another, whose nodes are not known here.
static void instantiated(Handle ready, Handle graph, bool updated) {
    if (!plan().active) return;
    forget(ready);
    Graph *made = create<Graph>();
    Vector<Handle> nodes;
    if (nodes_of(graph, nodes)) collect(nodes, false, made->kernels);
    if (worth_keeping(*made)) keep(*made, graph);
    for (Node &each : made->kernels) {
        KernelNode held = {};
        if (!updated && each.place >= 0 && !each.substituted && kernel_node(each.node, held))
            each.substituted = substitute_node(*made, ready, each.node, held, *each.kernel);
    }
    if (made->kept) {
        made->kernels.clear();
        collect(made->order, false, made->kernels);
    }
    Held held(graphs_lock);
    graphs.at(ready) = made;
}

static Result after_instantiate(Result result, const Handle *made, Handle graph) {
    if (result == SUCCESS && made) instantiated(*made, graph, false);
    return result;
}

static Result after_update(Result result, Handle ready, Handle graph) {
    if (result == SUCCESS) instantiated(ready, graph, true);
    return result;
}

// The application gave a node of an instantiated graph other parameters.
static Result after_change(Result result, Handle ready, Handle node, const KernelNode *given) {
    Graph *graph = result == SUCCESS ? graph_of(ready) : nullptr;
    Kernel *kernel = graph && given ? kernel_of(function_of(*given)) : nullptr;
    if (!kernel) return result;
    Handle ours = kept_node(*graph, node);
    if (ours && driver().cuGraphKernelNodeSetParams_v2(ours, given)) give_up(*graph, "its graph was changed");
    for (Node &each : graph->kernels)
        if (each.node == node || each.node == ours)
            each.substituted = substitute_node(*graph, ready, node, *given, *kernel);
    return result;
}

// Changes that are not followed.
static Result after_other_change(Result result, Handle ready) {
    Graph *graph = result == SUCCESS ? graph_of(ready) : nullptr;
    if (graph && graph->kept) give_up(*graph, "its graph was changed");
    return result;
}

static Result launched(Handle ready, Handle stream, Result (*pass)(Handle, Handle)) {
    Graph *graph = plan().active && !any_capture() ? graph_of(ready) : nullptr;
    if (!graph) return pass(ready, stream);
    wait_for_recording();
    coverage_launched();
    Vector<long> occurrences;
    Result result;
    if (count(*graph, occurrences) && run_in_parts(*graph, occurrences, stream, result)) return result;
    return pass(ready, stream);
}

}  // namespace r3

using r3::Handle;
using r3::KernelNode;

// -- instantiation --

#define R3_INSTANTIATE(name, parameters, arguments) \
    R3_ENTRY(name, parameters, arguments, { return r3::after_instantiate(real_##name arguments, made, graph); })

R3_INSTANTIATE(cuGraphInstantiate, (Handle *made, Handle graph, Handle *node, char *log, size_t length),
               (made, graph, node, log, length))
R3_INSTANTIATE(cuGraphInstantiate_v2, (Handle *made, Handle graph, Handle *node, char *log, size_t length),
               (made, graph, node, log, length))
R3_INSTANTIATE(cuGraphInstantiateWithFlags, (Handle *made, Handle graph, uint64_t flags), (made, graph, flags))
R3_INSTANTIATE(cuGraphInstantiateWithParams, (Handle *made, Handle graph, void *given), (made, graph, given))
R3_INSTANTIATE(cuGraphInstantiateWithParams_ptsz, (Handle *made, Handle graph, void *given), (made, graph, given))

R3_ENTRY(cuGraphExecDestroy, (Handle ready), (ready), {
    r3::forget(ready);
    return real_cuGraphExecDestroy(ready);
})

// -- changes of what was instantiated --

R3_ENTRY(cuGraphExecUpdate, (Handle ready, Handle graph, Handle *node, int *why), (ready, graph, node, why),
         { return r3::after_update(real_cuGraphExecUpdate(ready, graph, node, why), ready, graph); })

R3_ENTRY(cuGraphExecUpdate_v2, (Handle ready, Handle graph, void *why), (ready, graph, why),
         { return r3::after_update(real_cuGraphExecUpdate_v2(ready, graph, why), ready, graph); })

R3_ENTRY(cuGraphExecKernelNodeSetParams_v2, (Handle ready, Handle node, const KernelNode *given), (ready, node, given),
         { return r3::after_change(real_cuGraphExecKernelNodeSetParams_v2(ready, node, given), ready, node, given); })

#define R3_CHANGE(name, parameters, arguments) \
    R3_ENTRY(name, parameters, arguments, { return r3::after_other_change(real_##name arguments, ready); })

R3_CHANGE(cuGraphExecKernelNodeSetParams, (Handle ready, Handle node, const void *given), (ready, node, given))
R3_CHANGE(cuGraphExecNodeSetParams, (Handle ready, Handle node, void *given), (ready, node, given))
R3_CHANGE(cuGraphExecMemcpyNodeSetParams, (Handle ready, Handle node, const void *given, Handle context),
          (ready, node, given, context))
R3_CHANGE(cuGraphExecMemsetNodeSetParams, (Handle ready, Handle node, const void *given, Handle context),
          (ready, node, given, context))
R3_CHANGE(cuGraphExecHostNodeSetParams, (Handle ready, Handle node, const void *given), (ready, node, given))
R3_CHANGE(cuGraphExecChildGraphNodeSetParams, (Handle ready, Handle node, Handle child), (ready, node, child))
R3_CHANGE(cuGraphNodeSetEnabled, (Handle ready, Handle node, unsigned enabled), (ready, node, enabled))

// -- launches --

R3_ENTRY(cuGraphLaunch, (Handle ready, Handle stream), (ready, stream),
         { return r3::launched(ready, stream, real_cuGraphLaunch); })

R3_ENTRY(cuGraphLaunch_ptsz, (Handle ready, Handle stream), (ready, stream),
         { return r3::launched(ready, r3::per_thread(stream), real_cuGraphLaunch_ptsz); })
