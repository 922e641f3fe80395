#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

namespace r3 {

namespace {

double at_load = seconds();
Lock *locks;
Lock warning_lock;
Map<Digest, bool> warned;

// Signals that writing may raise, which end an application that expects none: held back in this thread, and taken away.
class WithoutSignals {
public:
    WithoutSignals() {
        sigset_t waiting;
        sigemptyset(&raised_);
        sigpending(&waiting);
        const int signals[] = {SIGXFSZ, SIGPIPE};
        for (int signal : signals)
            if (!sigismember(&waiting, signal)) sigaddset(&raised_, signal);
        pthread_sigmask(SIG_BLOCK, &raised_, &before_);
    }
    ~WithoutSignals() {
        const timespec none = {0, 0};
        while (sigtimedwait(&raised_, nullptr, &none) > 0) {}
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    WithoutSignals(const WithoutSignals &) = delete;
    WithoutSignals &operator=(const WithoutSignals &) = delete;

private:
    sigset_t raised_, before_;
};

}  // namespace

double seconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double elapsed() { return seconds() - at_load; }

void sleep_us(unsigned microseconds) {
    timespec wait = {0, static_cast<long>(microseconds) * 1000};
    nanosleep(&wait, nullptr);
}

timespec after(double seconds) {
    timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    double whole = static_cast<double>(until.tv_nsec) * 1e-9 + seconds;
    until.tv_sec += static_cast<time_t>(whole);
    until.tv_nsec = static_cast<long>((whole - static_cast<double>(static_cast<time_t>(whole))) * 1e9);
    return until;
}

Lock::Lock() : next_(locks) { locks = this; }

bool Lock::acquire(double timeout_s) {
    timespec until = after(timeout_s);
    return pthread_mutex_timedlock(&mutex_, &until) == 0;
}

void Lock::acquire() { pthread_mutex_lock(&mutex_); }
void Lock::release() { pthread_mutex_unlock(&mutex_); }

void locks_renew() {
    for (Lock *each = locks; each; each = each->next_) pthread_mutex_init(&each->mutex_, nullptr);
}

bool start_thread(void *(*run)(void *)) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    bool started = pthread_create(&thread, nullptr, run, nullptr) == 0;
    if (started) pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
}

void warn_once(const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    Held held(warning_lock);
    bool &known = warned.at(digest_of(text, strlen(text)));
    if (known) return;
    known = true;
    WithoutSignals quiet;
    dprintf(STDERR_FILENO, "r3bench recorder: %s\n", text);
}

bool write_at(int file, const void *data, size_t nbytes, uint64_t offset) {
    const char *rest = static_cast<const char *>(data);
    while (nbytes) {
        ssize_t done = pwrite(file, rest, nbytes, static_cast<off_t>(offset));
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        rest += done, nbytes -= static_cast<size_t>(done), offset += static_cast<uint64_t>(done);
    }
    return true;
}

bool write_whole(const char *path, const void *data, size_t nbytes) {
    Text building;
    building.add("%s.tmp%d", path, getpid());
    WithoutSignals quiet;
    int file = open(building.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool written = file >= 0 && write_at(file, data, nbytes, 0);
    if (file >= 0) written = close(file) == 0 && written;
    if (written && rename(building.c_str(), path) == 0) return true;
    warn_once("%s cannot be written (%s)", path, strerror(errno));
    unlink(building.c_str());
    return false;
}

Digest digest_of(const void *data, size_t nbytes) {
    const unsigned char *bytes = static_cast<const unsigned char *>(data);
    Digest digest = {nbytes + 1, ~static_cast<uint64_t>(nbytes)};
    for (size_t at = 0; at < nbytes; at += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + at, nbytes - at < 8 ? nbytes - at : 8);
        digest.low = mixed(digest.low ^ word) + at;
        digest.high = mixed(digest.high + word * 0x9e3779b97f4a7c15u) ^ digest.low;
    }
    return digest;
}

}  // namespace r3
