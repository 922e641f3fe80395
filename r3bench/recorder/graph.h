// What a graph holds: its kernels and the graphs inside it, and the memory that it makes and frees.
#pragma once

#include "coverage.h"
#include "launch.h"
#include "modules.h"

namespace r3 {

struct Level;

struct Node {
    Handle node;
    Kernel *kernel;  // null where it is none
    bool substituted;
    size_t number;  // of the kernel in the whole graph
    Level *inside;  // a graph inside the graph
};

// Nodes of a graph, in an order that its edges allow where it is kept.
struct Level {
    Handle graph;
    Vector<Node> nodes;
    ~Level() {
        for (Node &each : nodes) destroy(each.inside);
    }
};

// Memory that is there when a graph has run, or is not any more.
struct Made {
    Address at;
    size_t nbytes;
};

struct Graph {
    Handle kept;  // a clone of what was instantiated; null where nothing of it is to be recorded
    Level *all;
    size_t kernels;
    Vector<Made> made;
    Vector<Address> freed;
    Vector<Kernel *> conditional;  // that a conditional node in it launches, or not
    Problem problem;               // why it cannot be cut
    bool timed;
    ~Graph() { destroy(all); }
};

const Problem NOT_CUT = "the driver does not cut its graph";

// The application made a conditional node: what it may launch is known from there on.
void conditional_made(Handle node, const ConditionalNode &made);

// All that is there of a graph, anew; `ordered`: its nodes in an order that its edges allow.
void look_at(Handle graph, bool ordered, Graph &whole);

template <class F>
void each_kernel(Level &level, const F &use) {
    for (Node &node : level.nodes) {
        if (node.inside) each_kernel(*node.inside, use);
        else if (node.kernel) use(node);
    }
}

// What a node launches; false where it is no kernel.
bool kernel_node(Handle node, KernelNode &held);
Handle function_of(const KernelNode &held);
Launch launch_of(Handle node, const KernelNode &held);

}  // namespace r3
