// Where in a unit's file a page of some content lies: millions of pages, most of them looked up once.
#pragma once

#include "containers.h"

namespace r3 {

class Places {
public:
    // Room for so many more pages.
    void reserve(size_t count) {
        size_t wanted = 64;
        while (wanted < 2 * (pages_.size() + count + 1)) wanted *= 2;
        if (wanted <= slots_.size()) return;
        slots_.clear();
        slots_.resize(wanted);
        for (size_t place = 0; place < pages_.size(); place++) slot_of(pages_[place]) = uint32_t(place + 1);
    }

    // The place of a page, among `size()` that there are; where it is new, the next one. There must be room.
    size_t at(const Digest &page) {
        uint32_t &slot = slot_of(page);
        if (!slot) {
            pages_.push(page);
            slot = uint32_t(pages_.size());
        }
        return slot - 1;
    }

    size_t size() const { return pages_.size(); }

private:
    // Numbers alone, so that the table stays in the cache; one more than the place, 0 where it is free.
    uint32_t &slot_of(const Digest &page) {
        size_t mask = slots_.size() - 1, at = page.low & mask;
        while (slots_[at] && !(pages_[slots_[at] - 1] == page)) at = (at + 1) & mask;
        return slots_[at];
    }

    Vector<Digest> pages_;
    Vector<uint32_t> slots_;
};

}  // namespace r3
