// Graphs of the libcuda.so.1 without a GPU: kernel nodes only, run in the order of their edges.
typedef struct {
    Handle function;
    Dims dims;
    unsigned shared;
    void **parameters, **extra;
    Handle kernel, context;
} NodeParams;

typedef struct Node {
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
static Node *add_node(Graph *graph, const NodeParams *params) {
    Node *node = graph->nodes[graph->count++] = calloc(1, sizeof *node);
    set_params(node, params), node->graph = graph;
    return node;
}
static void add_edge(Graph *graph, Node *from, Node *to) {
    graph->from[graph->edges] = from, graph->to[graph->edges++] = to;
}
static Node *in_clone(const Graph *clone, const Node *original) {
    for (int i = 0; i < clone->count; i++)
        if (clone->nodes[i]->origin == original) return clone->nodes[i];
    return NULL;
}

Result cuStreamBeginCapture_v2(Handle stream, int mode) {
    capture_stream = stream, capture_broken = 0;
    return (void)mode, capturing = calloc(1, sizeof *capturing), SUCCESS;
}
Result cuStreamEndCapture(Handle stream, Handle *graph) {
    return (void)stream, *graph = capturing, capturing = NULL, capture_broken ? UNSAFE : SUCCESS;
}
static Result captured(Handle function, const Dims *dims, void **parameters) {
    NodeParams params = {function, *dims, 0, parameters, NULL, NULL, NULL};
    Node *node = add_node(capturing, &params);
    if (capturing->count > 1) add_edge(capturing, capturing->nodes[capturing->count - 2], node);
    return SUCCESS;
}
Result cuGraphCreate(Handle *graph, unsigned flags) { return *graph = calloc(1, sizeof(Graph)), flags ? INVALID : SUCCESS; }
Result cuGraphDestroy(Handle graph) {
    for (int i = 0; i < ((Graph *)graph)->count; i++) free(((Graph *)graph)->nodes[i]);
    return free(graph), SUCCESS;
}
Result cuGraphAddKernelNode_v2(Handle *made, Handle graph, const Handle *before, size_t count, const NodeParams *params) {
    *made = add_node(graph, params);
    for (size_t i = 0; i < count; i++) add_edge(graph, before[i], *made);
    return SUCCESS;
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
Result cuGraphNodeGetType(Handle node, int *type) { return *type = 0, node ? SUCCESS : INVALID; }
Result cuGraphKernelNodeGetParams_v2(Handle node, NodeParams *params) { return *params = ((Node *)node)->params, SUCCESS; }
Result cuGraphKernelNodeSetParams_v2(Handle node, const NodeParams *params) { return set_params(node, params), SUCCESS; }
static Graph *copy_of(const Graph *original) {
    Graph *clone = calloc(1, sizeof *clone);
    for (int i = 0; i < original->count; i++)
        add_node(clone, &original->nodes[i]->params)->origin = original->nodes[i];
    for (int i = 0; i < original->edges; i++)
        add_edge(clone, in_clone(clone, original->from[i]), in_clone(clone, original->to[i]));
    return clone;
}
Result cuGraphClone(Handle *made, Handle graph) {
    if (getenv("FAKE_NO_CLONES")) return NOT_FOUND;
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
static void run_from(const Graph *graph, Node *node, int *done) {
    for (int i = 0; i < graph->edges; i++)
        if (graph->to[i] == node) run_from(graph, graph->from[i], done);
    for (int i = 0; i < graph->count; i++)
        if (graph->nodes[i] == node && !done[i]++)
            run(node->params.function, &node->params.dims, node->arguments, NULL);
}
Result cuGraphLaunch(Handle ready, Handle stream) {
    const Graph *graph = ready;
    int done[32] = {0};
    for (int i = 0; i < graph->count; i++) run_from(graph, graph->nodes[i], done);
    return (void)stream, SUCCESS;
}
