#include "graph.h"

#include "driver.h"
#include "substitutes.h"
#include "system.h"

namespace r3 {

namespace {

Lock conditional_lock;
Map<const void *, Vector<Handle> *> conditional;  // graphs by node

bool nodes_of(Handle graph, Vector<Handle> &nodes) {
    size_t count = 0;
    const Driver &real = driver();
    if (!real.cuGraphGetNodes || real.cuGraphGetNodes(graph, nullptr, &count)) return false;
    nodes.resize(count);
    return !count || !real.cuGraphGetNodes(graph, nodes.begin(), &count);
}

// Nodes in an order that their edges allow; false where the driver does not tell them.
bool put_in_order(Vector<Handle> &nodes, Handle graph) {
    size_t count = 0;
    const Driver &real = driver();
    if (!real.cuGraphGetEdges || real.cuGraphGetEdges(graph, nullptr, nullptr, &count)) return false;
    Vector<Handle> from, to, ordered;
    from.resize(count), to.resize(count);
    if (count && real.cuGraphGetEdges(graph, from.begin(), to.begin(), &count)) return false;
    Map<const void *, size_t> places;
    places.reserve(nodes.size());
    for (size_t i = 0; i < nodes.size(); i++) places.at(nodes[i]) = i;
    Vector<size_t> before, last, next;  // nodes that each waits for; edges from each, one more than their number
    before.resize(nodes.size()), last.resize(nodes.size()), next.resize(count);
    for (size_t edge = 0; edge < count; edge++) {
        size_t &of = last[places.at(from[edge])];
        before[places.at(to[edge])]++;
        next[edge] = of, of = edge + 1;
    }
    for (size_t i = 0; i < nodes.size(); i++)
        if (!before[i]) ordered.push(nodes[i]);
    for (size_t at = 0; at < ordered.size(); at++)
        for (size_t edge = last[places.at(ordered[at])]; edge; edge = next[edge - 1])
            if (!--before[places.at(to[edge - 1])]) ordered.push(to[edge - 1]);
    nodes.swap(ordered);
    return nodes.size() == ordered.size();
}

// What a graph does that is no launch.
void note(Handle node, int type, Graph &whole) {
    const Driver &real = driver();
    AllocationNode made = {};
    Address freed = 0;
    if (type == NODE_ALLOCATES && real.cuGraphMemAllocNodeGetParams && !real.cuGraphMemAllocNodeGetParams(node, &made))
        whole.made.push({made.at, made.nbytes});
    if (type == NODE_FREES && real.cuGraphMemFreeNodeGetParams && !real.cuGraphMemFreeNodeGetParams(node, &freed))
        whole.freed.push(freed);
    if (type == NODE_ALLOCATES || type == NODE_FREES) whole.problem = "its graph allocates memory";
}

Vector<Handle> *inside(Handle node) {
    Held held(conditional_lock);
    Vector<Handle> **graphs = conditional.find(node);
    return graphs ? *graphs : nullptr;
}

// What a conditional node launches or not, by its graphs: nothing in them is ever cut.
void note_conditional(Handle node, Graph &whole) {
    Vector<Handle> *graphs = inside(node), nodes;
    whole.problem = "its graph has conditional nodes";
    if (!graphs) return warn_once("what a conditional node of a copied graph launches is not known");
    for (Handle graph : *graphs) {
        if (!nodes_of(graph, nodes)) continue;
        for (Handle each : nodes) {
            KernelNode held = {};
            int type = -1;
            driver().cuGraphNodeGetType(each, &type);
            if (type == NODE_CONDITIONAL) note_conditional(each, whole);
            Kernel *kernel = kernel_node(each, held) ? kernel_of(function_of(held)) : nullptr;
            if (kernel) whole.conditional.push(kernel);
        }
    }
}

Level *level_of(Handle graph, bool ordered, Graph &whole) {
    Level *made = create<Level>();
    Vector<Handle> nodes;
    made->graph = graph;
    bool known = nodes_of(graph, nodes) && (!ordered || put_in_order(nodes, graph));
    if (!known) whole.problem = NOT_CUT;
    for (Handle node : nodes) {
        Node found = {node, nullptr, false, 0, nullptr};
        KernelNode held = {};
        Handle inner = nullptr;
        int type = -1;
        driver().cuGraphNodeGetType(node, &type);
        note(node, type, whole);
        if (type == NODE_CONDITIONAL) note_conditional(node, whole);
        if (type == NODE_CHILD_GRAPH && !driver().cuGraphChildGraphNodeGetGraph(node, &inner))
            found.inside = level_of(inner, ordered, whole);
        if (kernel_node(node, held) && (found.kernel = kernel_of(function_of(held)))) {
            found.kernel->grid = held.grid, found.kernel->block = held.block;
            found.substituted = substitutes_made(function_of(held)), found.number = whole.kernels++;
        }
        made->nodes.push(found);
    }
    return made;
}

}  // namespace

bool kernel_node(Handle node, KernelNode &held) {
    int type = -1;
    const Driver &real = driver();
    if (real.cuGraphNodeGetType(node, &type) || type != NODE_KERNEL) return false;
    return real.cuGraphKernelNodeGetParams_v2 && !real.cuGraphKernelNodeGetParams_v2(node, &held);
}

Handle function_of(const KernelNode &held) { return held.function ? held.function : held.kernel; }

void conditional_made(Handle node, const ConditionalNode &made) {
    Held held(conditional_lock);
    Vector<Handle> *&graphs = conditional.at(node);
    if (!graphs) graphs = create<Vector<Handle>>();
    graphs->clear();
    graphs->append(made.made, made.count);
}

void look_at(Handle graph, bool ordered, Graph &whole) {
    destroy(whole.all);
    whole.made.clear(), whole.freed.clear(), whole.conditional.clear();
    whole.kernels = 0;
    whole.all = level_of(graph, ordered, whole);
    for (size_t i = whole.freed.size(); i-- > 0;)
        for (size_t k = whole.made.size(); k-- > 0;)
            if (i < whole.freed.size() && whole.made[k].at == whole.freed[i]) whole.made.erase(k), whole.freed.erase(i);
}

Launch launch_of(Handle node, const KernelNode &held) {
    Launch launch = {};
    launch.function = function_of(held), launch.grid = held.grid, launch.block = held.block;
    launch.shared_bytes = held.shared_bytes, launch.parameters = held.parameters, launch.extra = held.extra;
    launch.in_graph = true;
    LaunchAttribute attribute = {};
    auto *ask = driver().cuGraphKernelNodeGetAttribute;
    if (ask && !ask(node, ATTRIBUTE_CLUSTER, attribute.bytes)) launch.cluster = attribute.cluster;
    attribute = {};
    if (ask && !ask(node, ATTRIBUTE_COOPERATIVE, attribute.bytes)) launch.cooperative = attribute.cooperative != 0;
    return launch;
}

}  // namespace r3
