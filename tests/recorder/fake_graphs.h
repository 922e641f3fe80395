// Graphs of the libcuda.so.1 without a GPU, run in the order of their edges: kernels, graphs inside, memory.
#include <sys/mman.h>

typedef struct Node {
    int type;
    struct Graph *inside;  // launched where it is no conditional node, or its condition holds
    uint64_t condition;
    Address at;  // of memory that it makes or frees
    size_t nbytes;
    unsigned cluster;
    NodeParams params;
    void *arguments[16];
    char bytes[16][64];
    struct Node *origin;  // in the graph that this one was cloned from
    struct Graph *graph;
} Node;

typedef struct Graph {
    Node *nodes[32];
    int count;
    Node *from[64], *to[64];
    int edges;
} Graph;

static void set_params(Node *node, const NodeParams *params) {
    const Kernel *kernel = params->function;
    NodeParams given = *params;
    for (int i = 0; i < kernel->count; i++) {
        memmove(node->bytes[i], given.parameters[i], kernel->sizes[i]);
        node->arguments[i] = node->bytes[i];
    }
    node->params = given, node->params.parameters = node->arguments;
}
static Node *add_empty(Graph *graph, int type) {
    Node *node = graph->nodes[graph->count++] = calloc(1, sizeof *node);
    return node->type = type, node->graph = graph, node;
}
static Node *add_node(Graph *graph, const NodeParams *params) {
    Node *node = add_empty(graph, NODE_KERNEL);
    return set_params(node, params), node;
}
static void add_edge(Graph *graph, Node *from, Node *to) {
    graph->from[graph->edges] = from, graph->to[graph->edges++] = to;
}
static Node *in_clone(const Graph *clone, const Node *original) {
    for (int i = 0; i < clone->count; i++)
        if (clone->nodes[i]->origin == original) return clone->nodes[i];
    return NULL;
}

static Graph *copy_of(const Graph *original) {
    Graph *clone = calloc(1, sizeof *clone);
    for (int i = 0; i < original->count; i++) {
        Node *from = original->nodes[i], *node = add_empty(clone, from->type);
        if (from->type == NODE_KERNEL) set_params(node, &from->params);
        if (from->inside) node->inside = copy_of(from->inside), node->condition = from->condition;
        node->at = from->at, node->nbytes = from->nbytes, node->cluster = from->cluster, node->origin = from;
    }
    for (int i = 0; i < original->edges; i++)
        add_edge(clone, in_clone(clone, original->from[i]), in_clone(clone, original->to[i]));
    return clone;
}
static int has_memory(const Graph *graph) {
    for (int i = 0; i < graph->count; i++)
        if (graph->nodes[i]->type == NODE_ALLOCATES || graph->nodes[i]->type == NODE_FREES) return 1;
    return 0;
}

Result cuStreamBeginCapture_v2(Handle stream, int mode) {
    capture_stream = stream, capture_broken = 0;
    return (void)mode, capturing = calloc(1, sizeof *capturing), SUCCESS;
}
Result cuStreamEndCapture(Handle stream, Handle *graph) {
    if (!capturing || stream != capture_stream) return INVALID;
    return *graph = capturing, capturing = NULL, capture_broken ? UNSAFE : SUCCESS;
}
static Node *behind_the_last(Node *node) {
    if (capturing->count > 1) add_edge(capturing, capturing->nodes[capturing->count - 2], node);
    return node;
}
static Result captured(Handle function, const Dims *dims, void **parameters) {
    NodeParams params = {function, *dims, 0, parameters, NULL, NULL, NULL};
    return behind_the_last(add_node(capturing, &params)), SUCCESS;
}
// Memory of a graph is there when the graph has run, and what reads it before ends the program.
static Result captured_memory(int type, Address *at, size_t nbytes) {
    Node *node = behind_the_last(add_empty(capturing, type));
    nbytes = (nbytes + 4095) / 4096 * 4096;
    if (type == NODE_ALLOCATES) *at = (Address)(uintptr_t)mmap(NULL, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return node->at = *at, node->nbytes = nbytes, SUCCESS;
}
Result cuGraphCreate(Handle *graph, unsigned flags) { return *graph = calloc(1, sizeof(Graph)), flags ? INVALID : SUCCESS; }
Result cuGraphDestroy(Handle graph) {
    for (int i = 0; i < ((Graph *)graph)->count; i++) {
        if (((Graph *)graph)->nodes[i]->inside) cuGraphDestroy(((Graph *)graph)->nodes[i]->inside);
        free(((Graph *)graph)->nodes[i]);
    }
    return free(graph), SUCCESS;
}
Result cuGraphAddKernelNode_v2(Handle *made, Handle graph, const Handle *before, size_t count, const NodeParams *params) {
    *made = add_node(graph, params);
    for (size_t i = 0; i < count; i++) add_edge(graph, before[i], *made);
    return SUCCESS;
}
Result cuGraphAddChildGraphNode(Handle *made, Handle graph, const Handle *before, size_t count, Handle child) {
    Node *node = *made = add_empty(graph, NODE_CHILD);
    node->inside = copy_of(child);
    for (size_t i = 0; i < count; i++) add_edge(graph, before[i], node);
    return SUCCESS;
}
Result cuGraphAddNode_v2(Handle *made, Handle graph, const Handle *before, const void *edges, size_t count,
                         ConditionalParams *params) {
    static Handle bodies[32];
    static int used;
    if (params->type != NODE_CONDITIONAL || params->count != 1 || edges) return INVALID;
    Node *node = *made = add_empty(graph, NODE_CONDITIONAL);
    node->inside = calloc(1, sizeof *node->inside), node->condition = params->condition;
    params->made = &bodies[used], bodies[used++] = node->inside;
    for (size_t i = 0; i < count; i++) add_edge(graph, before[i], node);
    return SUCCESS;
}
Result cuGraphAddNode(Handle *made, Handle graph, const Handle *before, size_t count, ConditionalParams *params) {
    return cuGraphAddNode_v2(made, graph, before, NULL, count, params);
}
Result cuGraphChildGraphNodeGetGraph(Handle node, Handle *child) { return *child = ((Node *)node)->inside, SUCCESS; }
Result cuGraphMemAllocNodeGetParams(Handle node, void *params) {
    const Node *held = node;
    memcpy((char *)params + 104, &held->nbytes, 8), memcpy((char *)params + 112, &held->at, 8);
    return SUCCESS;
}
Result cuGraphMemFreeNodeGetParams(Handle node, Address *at) { return *at = ((Node *)node)->at, SUCCESS; }
Result cuGraphKernelNodeSetAttribute(Handle node, int which, const void *value) {
    return which == 4 ? ((Node *)node)->cluster = *(const unsigned *)value, SUCCESS : INVALID;
}
Result cuGraphKernelNodeGetAttribute(Handle node, int which, void *value) {
    unsigned cluster[] = {((Node *)node)->cluster, 1, 1};
    return which == 4 ? memcpy(value, cluster, sizeof cluster), SUCCESS : INVALID;
}
// The last node first: the order means nothing.
Result cuGraphGetNodes(Handle graph, Handle *nodes, size_t *count) {
    Graph *held = graph;
    *count = (size_t)held->count;
    for (int i = 0; nodes && i < held->count; i++) nodes[i] = held->nodes[held->count - 1 - i];
    return SUCCESS;
}
Result cuGraphGetEdges(Handle graph, Handle *from, Handle *to, size_t *count) {
    Graph *held = graph;
    if (from) memcpy(from, held->from, *count * sizeof *from), memcpy(to, held->to, *count * sizeof *to);
    return *count = (size_t)held->edges, SUCCESS;
}
Result cuGraphNodeGetType(Handle node, int *type) { return *type = ((Node *)node)->type, SUCCESS; }
Result cuGraphKernelNodeGetParams_v2(Handle node, NodeParams *params) { return *params = ((Node *)node)->params, SUCCESS; }
Result cuGraphKernelNodeSetParams_v2(Handle node, const NodeParams *params) { return set_params(node, params), SUCCESS; }
Result cuGraphClone(Handle *made, Handle graph) {
    if (getenv("FAKE_NO_CLONES") || has_memory(graph)) return NOT_FOUND;
    return *made = copy_of(graph), SUCCESS;
}
Result cuGraphNodeFindInClone(Handle *found, Handle node, Handle clone) {
    return *found = in_clone(clone, node), *found ? SUCCESS : NOT_FOUND;
}
Result cuGraphDestroyNode(Handle node) {
    Graph *graph = ((Node *)node)->graph;
    int nodes = 0, edges = 0;
    for (int i = 0; i < graph->edges; i++)
        if (graph->from[i] != node && graph->to[i] != node)
            graph->from[edges] = graph->from[i], graph->to[edges++] = graph->to[i];
    for (int i = 0; i < graph->count; i++)
        if (graph->nodes[i] != node) graph->nodes[nodes++] = graph->nodes[i];
    graph->count = nodes, graph->edges = edges;
    return free(node), SUCCESS;
}
Result cuGraphInstantiateWithFlags(Handle *made, Handle graph, uint64_t flags) {
    return (void)flags, *made = copy_of(graph), SUCCESS;
}
Result cuGraphExecKernelNodeSetParams_v2(Handle ready, Handle node, const NodeParams *params) {
    Node *found = in_clone(ready, node);
    return found ? set_params(found, params), SUCCESS : NOT_FOUND;
}
Result cuGraphExecDestroy(Handle ready) { return cuGraphDestroy(ready); }
static void run_graph(const Graph *graph);
static void run_node(Node *node) {
    if (node->type == NODE_KERNEL) run(node->params.function, &node->params.dims, node->arguments, NULL);
    if (node->type == NODE_CHILD || node->condition) run_graph(node->inside);
    if (node->type == NODE_ALLOCATES) mprotect(host(node->at), node->nbytes, PROT_READ | PROT_WRITE);
    if (node->type == NODE_FREES) munmap(host(node->at), node->nbytes);
}
static void run_from(const Graph *graph, Node *node, int *done) {
    for (int i = 0; i < graph->edges; i++)
        if (graph->to[i] == node) run_from(graph, graph->from[i], done);
    for (int i = 0; i < graph->count; i++)
        if (graph->nodes[i] == node && !done[i]++) run_node(node);
}
static void run_graph(const Graph *graph) {
    int done[32] = {0};
    for (int i = 0; i < graph->count; i++) run_from(graph, graph->nodes[i], done);
}
Result cuGraphLaunch(Handle ready, Handle stream) { return (void)stream, run_graph(ready), SUCCESS; }
