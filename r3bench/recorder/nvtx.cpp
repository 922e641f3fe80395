// The time that the application spends in ranges of one name. NVTX lies in the application's own code; where
// NVTX_INJECTION64_PATH names this library, it asks us once, from each module that has it, which calls we answer.
#include <string.h>
#include <wchar.h>

#include "coverage.h"
#include "plan.h"
#include "system.h"

namespace r3 {

namespace {

using Function = void (*)();
struct Callbacks {
    size_t struct_bytes;
    int (*table)(unsigned module, Function ***table, unsigned *count);
};
// nvtxEventAttributes_t
struct Attributes {
    uint16_t version, nbytes;
    uint32_t category;
    int32_t color_kind;
    uint32_t color;
    int32_t payload_kind, reserved;
    uint64_t payload;
    int32_t message_kind;
    const void *message;
};
const unsigned CALLBACKS = 1, CORE = 1, CORE2 = 5;
enum { ASCII = 1, UNICODE = 2, REGISTERED = 3 };
enum { START_EX = 4, START_A, START_W, END, PUSH_EX, PUSH_A, PUSH_W, POP };                     // of CORE
enum { DOMAIN_START = 2, DOMAIN_END, DOMAIN_PUSH, DOMAIN_POP, REGISTER_A = 10, REGISTER_W = 11 };  // of CORE2
const int UNTRACKED = -2;  // the level of a pushed range, which nobody asked for

thread_local uint64_t pushed;  // a bit for each range that is open in this thread: whether it has the name

bool named(const char *message) { return message && plan().region && !strcmp(message, plan().region); }

const char *narrow(const wchar_t *wide, char (&into)[256]) {
    size_t length = 0;
    for (; wide && wide[length] && length < sizeof into - 1; length++)
        into[length] = wide[length] < 128 ? static_cast<char>(wide[length]) : '?';
    into[length] = 0;
    return into;
}

bool named_w(const wchar_t *message) {
    char text[256];
    return named(narrow(message, text));
}

// What was registered is the text itself.
bool named_ex(const Attributes *attributes) {
    if (!attributes) return false;
    if (attributes->message_kind == UNICODE) return named_w(static_cast<const wchar_t *>(attributes->message));
    bool text = attributes->message_kind == ASCII || attributes->message_kind == REGISTERED;
    return text && named(static_cast<const char *>(attributes->message));
}

int push(bool wanted) {
    pushed = pushed << 1 | wanted;
    if (wanted) coverage_region(1);
    return UNTRACKED;
}

int pop() {
    if (pushed & 1) coverage_region(-1);
    pushed >>= 1;
    return UNTRACKED;
}

uint64_t start(bool wanted) {
    static uint64_t count;
    if (wanted) coverage_region(1);
    return __atomic_add_fetch(&count, 2, __ATOMIC_RELAXED) | wanted;
}

void stop(uint64_t range) {
    if (range & 1) coverage_region(-1);
}

int push_a(const char *message) { return push(named(message)); }
int push_w(const wchar_t *message) { return push(named_w(message)); }
int push_ex(const Attributes *attributes) { return push(named_ex(attributes)); }
uint64_t start_a(const char *message) { return start(named(message)); }
uint64_t start_w(const wchar_t *message) { return start(named_w(message)); }
uint64_t start_ex(const Attributes *attributes) { return start(named_ex(attributes)); }
int domain_push(void *, const Attributes *attributes) { return push_ex(attributes); }
int domain_pop(void *) { return pop(); }
uint64_t domain_start(void *, const Attributes *attributes) { return start_ex(attributes); }
void domain_stop(void *, uint64_t range) { stop(range); }
const void *register_a(void *, const char *text) { return strdup(text ? text : ""); }
const void *register_w(void *, const wchar_t *text) {
    char copy[256];
    return strdup(narrow(text, copy));
}

struct Answer {
    unsigned module, index;
    Function function;
};

template <class F>
Function any(F *function) {
    return reinterpret_cast<Function>(function);
}

}  // namespace

}  // namespace r3

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
    using namespace r3;
    const Answer answers[] = {
        {CORE, START_EX, any(start_ex)},         {CORE, START_A, any(start_a)},
        {CORE, START_W, any(start_w)},           {CORE, END, any(stop)},
        {CORE, PUSH_EX, any(push_ex)},           {CORE, PUSH_A, any(push_a)},
        {CORE, PUSH_W, any(push_w)},             {CORE, POP, any(pop)},
        {CORE2, DOMAIN_START, any(domain_start)}, {CORE2, DOMAIN_END, any(domain_stop)},
        {CORE2, DOMAIN_PUSH, any(domain_push)},  {CORE2, DOMAIN_POP, any(domain_pop)},
        {CORE2, REGISTER_A, any(register_a)},    {CORE2, REGISTER_W, any(register_w)},
    };
    auto *callbacks = static_cast<const Callbacks *>(export_table(CALLBACKS));
    if (!callbacks || !plan().region) return 0;  // refused: every call is a test and nothing more
    for (const Answer &answer : answers) {
        Function **table = nullptr;
        unsigned count = 0;
        if (callbacks->table(answer.module, &table, &count) && table && answer.index < count && table[answer.index])
            *table[answer.index] = answer.function;
    }
    return 1;
}
