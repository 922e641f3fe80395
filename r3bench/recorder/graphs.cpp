// Graphs: the kernels in an instantiated one, and in graphs inside it, are counted whenever it is launched. To record one
// of them the graph is cut: what comes before it, the kernel alone, what comes behind it. To time kernels it is cut so at
// its first launch.
#include "coverage.h"
#include "driver.h"
#include "graph.h"
#include "interpose.h"
#include "memory.h"
#include "plan.h"
#include "profile.h"
#include "recording.h"
#include "streams.h"
#include "substitutes.h"
#include "system.h"

namespace r3 {

namespace {

// A part of a graph, and the kernel that is alone in it or null.
struct Part {
    Handle ready;
    const Node *node;
    long occurrence;
};

const Problem CHANGED = "its graph was changed";
Lock graphs_lock;
Map<const void *, Graph *> graphs;

void give_up(Graph &graph, Problem problem) {
    if (graph.kept) driver().cuGraphDestroy(graph.kept);
    graph.kept = nullptr, graph.problem = problem;
}

// What stands for a node in the clone of ours; null where there is none.
Handle kept_node(const Graph &graph, Handle node) {
    Handle ours = nullptr;
    bool found = graph.kept && !driver().cuGraphNodeFindInClone(&ours, node, graph.kept);
    return found ? ours : nullptr;
}

// What became of a node of an instantiated graph becomes of that in the clone too, or the clone is none any more.
void follow_change(Graph &graph, Handle node, const KernelNode &given) {
    Handle ours = kept_node(graph, node);
    if (graph.kept && (!ours || driver().cuGraphKernelNodeSetParams_v2(ours, &given))) give_up(graph, CHANGED);
}

// Have a node of an instantiated graph run a tuned kernel, if one fits; whether it does.
bool substitute_node(Graph &graph, Handle ready, Handle node, KernelNode held, Kernel &kernel) {
    const Driver &real = driver();
    if (!kernel.substitute || !real.cuGraphExecKernelNodeSetParams_v2) return false;
    Launch launch = launch_of(node, held);
    if (!substitute_for(kernel, launch)) return false;
    held.function = launch.function, held.kernel = nullptr, held.grid = launch.grid, held.block = launch.block;
    if (real.cuGraphExecKernelNodeSetParams_v2(ready, node, &held)) {
        coverage_count(kernel, "the driver does not change it in its graph");
        return false;
    }
    follow_change(graph, node, held);
    return true;
}

// -- cutting --

bool worth_keeping(const Graph &graph) {
    bool worth = plan().profile;
    each_kernel(*graph.all, [&](const Node &node) {
        worth = worth || (node.kernel->wanted && node.kernel->recorded < plan().most_per_kernel);
    });
    return worth;
}

// What was instantiated may be changed or destroyed by the application afterwards: a clone of ours stays.
void keep(Graph &made, Handle graph) {
    if (made.problem) return;
    made.problem = NOT_CUT;
    if (!driver().cuGraphClone || driver().cuGraphClone(&made.kept, graph)) return;
    made.problem = nullptr;
}

// An instantiated graph of the nodes from `first` to before `end`.
Handle part_of(const Level &level, size_t first, size_t end) {
    const Driver &real = driver();
    Handle clone = nullptr, ready = nullptr, node = nullptr;
    if (real.cuGraphClone(&clone, level.graph)) return nullptr;
    bool cut = true;
    for (size_t i = 0; i < level.nodes.size() && cut; i++)
        if (i < first || i >= end)
            cut = !real.cuGraphNodeFindInClone(&node, level.nodes[i].node, clone) && !real.cuGraphDestroyNode(node);
    if (cut) cut = !real.cuGraphInstantiateWithFlags(&ready, clone, 0);
    real.cuGraphDestroy(clone);
    return cut ? ready : nullptr;
}

bool add_part(const Level &level, size_t first, size_t end, const Node *node, long occurrence, Vector<Part> &parts) {
    if (first == end) return true;
    parts.push({part_of(level, first, end), node, occurrence});
    return parts.back().ready != nullptr;
}

// Whether a launch inside a graph is to be made alone.
bool alone(const Node &node, long occurrence) { return plan().profile || launch_chosen(*node.kernel, occurrence); }

bool any_alone(const Node &node, const Vector<long> &occurrences) {
    if (!node.inside) return node.kernel && alone(node, occurrences[node.number]);
    for (const Node &each : node.inside->nodes)
        if (any_alone(each, occurrences)) return true;
    return false;
}

// What comes before a kernel that is to be alone, it, and what comes behind it; in a graph inside likewise.
bool cut(const Level &level, const Vector<long> &occurrences, Vector<Part> &parts) {
    size_t start = 0;
    for (size_t i = 0; i < level.nodes.size(); i++) {
        const Node &node = level.nodes[i];
        if (!any_alone(node, occurrences)) continue;
        if (!add_part(level, start, i, nullptr, 0, parts)) return false;
        bool whole = node.inside ? cut(*node.inside, occurrences, parts)
                                 : add_part(level, i, i + 1, &node, occurrences[node.number], parts);
        if (!whole) return false;
        start = i + 1;
    }
    return add_part(level, start, level.nodes.size(), nullptr, 0, parts);
}

Result pass_part(const Launch &l) { return driver().cuGraphLaunch(l.graph, l.stream); }

Result run_part(const Part &part, Handle stream) {
    Launch launch = {};
    KernelNode held = {};
    if (part.node && kernel_node(part.node->node, held)) launch = launch_of(part.node->node, held);
    launch.stream = stream, launch.graph = part.ready, launch.pass = pass_part;
    if (!part.node) return pass_part(launch);
    Kernel &kernel = *part.node->kernel;
    return plan().profile ? launch_timed(kernel, launch) : launch_recorded(kernel, launch, part.occurrence);
}

// Launch a graph part by part; false where it could not be cut, and nothing of it ran.
bool run_in_parts(Graph &graph, const Vector<long> &occurrences, Handle stream, Result &result) {
    Vector<Part> parts;
    bool whole = cut(*graph.all, occurrences, parts);
    result = SUCCESS;
    for (const Part &part : parts)
        if (whole && result == SUCCESS) result = run_part(part, stream);
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
    Problem problem = any_capture() ? "a stream was being captured into a graph" : graph.problem;
    bool any = plan().profile && !graph.timed && !problem;
    each_kernel(*graph.all, [&](const Node &node) {
        Kernel &kernel = *node.kernel;
        occurrences.push(__atomic_fetch_add(&kernel.launches, 1, __ATOMIC_RELAXED));
        if (node.substituted) __atomic_fetch_add(&kernel.substituted, 1, __ATOMIC_RELAXED);
        if (plan().profile || !launch_chosen(kernel, occurrences.back())) return;
        if (problem) coverage_count(kernel, problem);
        else any = true;
    });
    for (Kernel *kernel : graph.conditional) __atomic_fetch_add(&kernel->conditional, 1, __ATOMIC_RELAXED);
    graph.timed = graph.timed || any;
    return any && graph.kept;
}

// What a graph allocated is there once it runs, and what it freed is not; all that it allocated and freed never shows.
Result with_memory(const Graph &graph, Result result) {
    for (const Made &each : graph.made)
        if (result == SUCCESS) memory_add(each.at, each.nbytes, "pool");
    return result;
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
    look_at(graph, false, *made);
    if (worth_keeping(*made)) keep(*made, graph);
    each_kernel(*made->all, [&](Node &each) {
        KernelNode held = {};
        if (!updated && !each.substituted && kernel_node(each.node, held))
            each.substituted = substitute_node(*made, ready, each.node, held, *each.kernel);
    });
    if (made->kept) look_at(made->kept, true, *made);
    if (made->kept && made->problem) give_up(*made, made->problem);
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
    follow_change(*graph, node, *given);
    bool substituted = substitute_node(*graph, ready, node, *given, *kernel);
    each_kernel(*graph->all, [&](Node &each) {
        if (each.node == node || (ours && each.node == ours)) each.substituted = substituted;
    });
    return result;
}

// Changes that are not followed.
static Result after_other_change(Result result, Handle ready) {
    Graph *graph = result == SUCCESS ? graph_of(ready) : nullptr;
    if (graph && graph->kept) give_up(*graph, CHANGED);
    return result;
}

static Result launched(Handle ready, Handle stream, Result (*pass)(Handle, Handle)) {
    Graph *graph = plan().active && !stream_capturing(stream) ? graph_of(ready) : nullptr;
    if (!graph) return pass(ready, stream);
    wait_for_recording();
    for (Address each : graph->freed) memory_remove(each);
    coverage_launched();
    Vector<long> occurrences;
    Result result;
    if (count(*graph, occurrences) && run_in_parts(*graph, occurrences, stream, result)) return result;
    return with_memory(*graph, pass(ready, stream));
}

}  // namespace r3

using r3::Handle;
using r3::KernelNode;

// -- conditional nodes --

#define R3_NODE(name, parameters, arguments)                                                     \
    R3_ENTRY(name, parameters, arguments, {                                                      \
        r3::Result result = real_##name arguments;                                               \
        if (result == r3::SUCCESS && given->type == r3::NODE_CONDITIONAL && r3::plan().active)   \
            r3::conditional_made(*node, *given);                                                 \
        return result;                                                                           \
    })

R3_NODE(cuGraphAddNode,
        (Handle * node, Handle graph, const Handle *before, size_t count, const r3::ConditionalNode *given),
        (node, graph, before, count, given))
R3_NODE(cuGraphAddNode_v2,
        (Handle * node, Handle graph, const Handle *before, const void *edges, size_t count,
         const r3::ConditionalNode *given),
        (node, graph, before, edges, count, given))

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
