// Containers without the C++ library, which an unmodified application may have in any version or not at all.
#pragma once

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace r3 {

// A growing array of trivially copyable items. Never throws: where memory ends, the process would have ended anyway.
template <class T>
class Vector {
public:
    Vector() = default;
    Vector(const Vector &) = delete;
    Vector &operator=(const Vector &) = delete;
    ~Vector() { free(items_); }

    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    T *begin() { return items_; }
    T *end() { return items_ + size_; }
    const T *begin() const { return items_; }
    const T *end() const { return items_ + size_; }
    T &operator[](size_t i) { return items_[i]; }
    const T &operator[](size_t i) const { return items_[i]; }
    T &back() { return items_[size_ - 1]; }

    void resize(size_t count) {
        if (count > capacity_) grow(count);
        if (count > size_) memset(static_cast<void *>(items_ + size_), 0, (count - size_) * sizeof(T));
        size_ = count;
    }
    void push(const T &item) {
        if (size_ == capacity_) grow(size_ + 1);
        items_[size_++] = item;
    }
    void insert(size_t at, const T &item) {
        push(item);
        memmove(static_cast<void *>(items_ + at + 1), items_ + at, (size_ - 1 - at) * sizeof(T));
        items_[at] = item;
    }
    void erase(size_t at) {
        memmove(static_cast<void *>(items_ + at), items_ + at + 1, (size_ - 1 - at) * sizeof(T));
        size_--;
    }
    void append(const T *items, size_t count) {
        size_t before = size_;
        resize(size_ + count);
        if (count) memcpy(static_cast<void *>(items_ + before), items, count * sizeof(T));
    }
    void clear() { size_ = 0; }
    void swap(Vector &other) {
        T *items = items_;
        size_t size = size_, capacity = capacity_;
        items_ = other.items_, size_ = other.size_, capacity_ = other.capacity_;
        other.items_ = items, other.size_ = size, other.capacity_ = capacity;
    }

private:
    void grow(size_t least) {
        size_t wanted = capacity_ * 2 > least ? capacity_ * 2 : least;
        items_ = static_cast<T *>(realloc(static_cast<void *>(items_), wanted * sizeof(T)));
        if (!items_) abort();
        capacity_ = wanted;
    }

    T *items_ = nullptr;
    size_t size_ = 0, capacity_ = 0;
};

// One item with zeros in all members, which is how the containers begin; operator new is the C++ library's.
template <class T>
T *create() {
    T *made = static_cast<T *>(calloc(1, sizeof(T)));
    if (!made) abort();
    return made;
}

template <class T>
void destroy(T *item) {
    if (item) item->~T();
    free(static_cast<void *>(item));
}

// 128 bits that stand for the content of something.
struct Digest {
    uint64_t low, high;
    bool operator==(const Digest &other) const { return low == other.low && high == other.high; }
    bool zero() const { return !low && !high; }
};

inline uint64_t mixed(uint64_t word) {
    word = (word ^ (word >> 32)) * 0xd6e8feb86659fd93u;
    return word ^ (word >> 29);
}

inline uint64_t slot_of(uint64_t key) { return mixed(key); }
inline uint64_t slot_of(const void *key) { return mixed(reinterpret_cast<uint64_t>(key)); }
inline uint64_t slot_of(const Digest &key) { return key.low; }

// An open hash table from K to V; entries are never taken out, only given another value.
template <class K, class V>
class Map {
public:
    V *find(const K &key) {
        if (slots_.empty()) return nullptr;
        Slot &slot = place(key);
        return slot.used ? &slot.value : nullptr;
    }
    V &at(const K &key) {
        reserve(1);
        Slot &slot = place(key);
        if (!slot.used) {
            slot.used = true;
            slot.key = key;
            count_++;
        }
        return slot.value;
    }
    // Room for so many more, so that the table is not built anew time and again.
    void reserve(size_t count) {
        size_t wanted = 64;
        while (wanted < 2 * (count_ + count + 1)) wanted *= 2;
        if (wanted > slots_.size()) rehash(wanted);
    }
    void clear() {
        slots_.clear();
        count_ = 0;
    }
    template <class F>
    void each(F &&use) {
        for (Slot &slot : slots_)
            if (slot.used) use(slot.key, slot.value);
    }

private:
    struct Slot {
        K key;
        V value;
        bool used;
    };

    Slot &place(const K &key) {
        size_t mask = slots_.size() - 1, at = slot_of(key) & mask;
        while (slots_[at].used && !(slots_[at].key == key)) at = (at + 1) & mask;
        return slots_[at];
    }
    void rehash(size_t size) {
        Vector<Slot> old;
        old.swap(slots_);
        slots_.resize(size);
        for (Slot &slot : old)
            if (slot.used) place(slot.key) = slot;
    }

    Vector<Slot> slots_;
    size_t count_ = 0;
};

// Text that grows, for JSON above all.
class Text {
public:
    const char *c_str() const { return bytes_.empty() ? "" : &bytes_[0]; }
    size_t size() const { return bytes_.empty() ? 0 : bytes_.size() - 1; }

    Text &add(const char *format, ...) __attribute__((format(printf, 2, 3))) {
        va_list arguments, again;
        va_start(arguments, format);
        va_copy(again, arguments);
        int length = vsnprintf(nullptr, 0, format, arguments);
        size_t before = size();
        bytes_.resize(before + static_cast<size_t>(length) + 1);
        vsnprintf(&bytes_[before], static_cast<size_t>(length) + 1, format, again);
        va_end(again);
        va_end(arguments);
        return *this;
    }
    // A string of JSON.
    Text &quoted(const char *text) {
        add("\"");
        for (const unsigned char *c = reinterpret_cast<const unsigned char *>(text); *c; c++) {
            if (*c == '"' || *c == '\\') add("\\%c", *c);
            else if (*c < 0x20 || *c >= 0x7f) add("\\u%04x", *c);
            else add("%c", *c);
        }
        return add("\"");
    }
    Text &hex(const unsigned char *bytes, size_t count) {
        for (size_t i = 0; i < count; i++) add("%02x", bytes[i]);
        return *this;
    }

private:
    Vector<char> bytes_;
};

}  // namespace r3
