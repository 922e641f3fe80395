#include "reach.h"

namespace r3 {

void Reach::begin() {
    memory_snapshot(known);
    reached.clear();
    reached.resize(known.size());
}

Address Reach::low() const { return known.empty() ? 0 : known[0].address; }

Address Reach::high() const {
    Address most = 0;
    for (const Allocation &each : known) most = each.end() > most ? each.end() : most;
    return most;
}

void Reach::follow(uint64_t word) {
    size_t from = 0, to = known.size();
    while (from < to) {
        size_t middle = (from + to) / 2;
        if (known[middle].address <= word) from = middle + 1;
        else to = middle;
    }
    if (from && word <= known[from - 1].end()) reached[from - 1] = 1;
}

// Most words lead nowhere: one comparison each.
void Reach::follow_all(const unsigned char *bytes, size_t nbytes) {
    const Address first = low(), span = high() - first;
    for (size_t at = 0; at + 8 <= nbytes; at += 8) {
        uint64_t word;
        memcpy(&word, bytes + at, 8);
        if (word - first <= span) follow(word);
    }
}

}  // namespace r3
