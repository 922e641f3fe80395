// The operating system: time, locks that give up, warnings, files that are complete or not there.
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <time.h>

#include "containers.h"

namespace r3 {

double seconds();         // since some start
double elapsed();         // since this library was loaded
void sleep_us(unsigned microseconds);
timespec after(double seconds);  // from now, as locks and conditions take it

// A lock that is given up after a time, so that a hang of ours never hangs the application.
class Lock {
public:
    Lock();
    bool acquire(double timeout_s);
    void acquire();
    void release();

private:
    friend void locks_renew();
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    Lock *next_;
};

void locks_renew();  // in a child after fork, where the owners are gone

class Held {
public:
    explicit Held(Lock &lock) : lock_(lock) { lock_.acquire(); }
    ~Held() { lock_.release(); }
    Held(const Held &) = delete;
    Held &operator=(const Held &) = delete;

private:
    Lock &lock_;
};

// A thread of ours that no signal of the application reaches; false where the system refuses one.
bool start_thread(void *(*run)(void *));

// One line on standard error, once for each text.
void warn_once(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Write a whole file under a temporary name and rename it; false, with a warning, where the disk refuses.
bool write_whole(const char *path, const void *data, size_t nbytes);
bool write_at(int file, const void *data, size_t nbytes, uint64_t offset);

Digest digest_of(const void *data, size_t nbytes);

}  // namespace r3
