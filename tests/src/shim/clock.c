/*
 * Replaces a server's clocks (LD_PRELOAD). A test controls them through a mapped file.
 *
 * The wall clock is shifted for the whole process. The two monotonic clocks can be frozen for the module
 * alone: the server's own event loop must keep running, or nothing would be tested but a stopped server.
 *
 * Memory allocators read clocks while they start, so reading a clock must not allocate, lock or look up symbols: the
 * real clocks are read by system call.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

/* The layout is repeated in clock.rs. */
struct control {
	_Atomic int64_t wall_offset_ns;
	_Atomic int64_t module_frozen;
	_Atomic int64_t module_mono_ns;
	_Atomic int64_t module_raw_ns;
	_Atomic int64_t module_both_ns;
};

static struct control *control;
static char module_name[256];

__attribute__((constructor)) static void attach(void)
{
	const char *path = getenv("REDLOCK_CLOCK_FILE");
	const char *name = getenv("REDLOCK_CLOCK_MODULE");
	int file;
	void *map;

	/* A copy, because servers overwrite the environment with their process title. */
	if (name && strlen(name) < sizeof(module_name))
		strcpy(module_name, name);
	file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (file < 0)
		abort();
	map = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	if (map == MAP_FAILED)
		abort();
	control = map;
}

/*
 * Whether this call site is in the module. Asking the loader is slow and there are few call sites, so the answers are
 * cached: the address, and beside it the address with the answer in its lowest bit.
 */
static int in_module(uintptr_t site)
{
	static struct { _Atomic uintptr_t site, answer; } known[64];
	unsigned slot = (site ^ site >> 6) % 64;
	uintptr_t answer = atomic_load(&known[slot].answer);
	Dl_info object;
	const char *name;

	if (atomic_load(&known[slot].site) == site && (answer & ~(uintptr_t)1) == (site & ~(uintptr_t)1))
		return answer & 1;
	answer = 0;
	if (dladdr((void *)site, &object) && object.dli_fname) {
		name = strrchr(object.dli_fname, '/');
		answer = strcmp(name ? name + 1 : object.dli_fname, module_name) == 0;
	}
	atomic_store(&known[slot].site, site);
	atomic_store(&known[slot].answer, (site & ~(uintptr_t)1) | answer);
	return (int)answer;
}

/*
 * A clock of the module: the sum of its own part and the part that both clocks share. The module reads the two clocks
 * one after the other. If a test advanced both between those reads, the module would see only one advance. So the
 * first read of each pair reads the shared part, and the second uses the same value. Servers run modules on one
 * thread.
 */
static int64_t module_clock(clockid_t id)
{
	static int64_t both_ns;
	static int mono_read = 1, raw_read = 1;
	int *mine = id == CLOCK_MONOTONIC ? &mono_read : &raw_read;

	/* A coarse read does not belong to a pair. */
	if (id == CLOCK_MONOTONIC_COARSE)
		return atomic_load(&control->module_both_ns) + atomic_load(&control->module_mono_ns);
	if (*mine || (mono_read && raw_read)) {
		both_ns = atomic_load(&control->module_both_ns);
		mono_read = raw_read = 0;
	}
	*mine = 1;
	return both_ns + atomic_load(id == CLOCK_MONOTONIC ? &control->module_mono_ns : &control->module_raw_ns);
}

static int read_clock(clockid_t id, struct timespec *out, uintptr_t site)
{
	int64_t ns;

	if (control && (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_RAW || id == CLOCK_MONOTONIC_COARSE) &&
	    atomic_load(&control->module_frozen) && in_module(site)) {
		ns = module_clock(id);
	} else {
		if (syscall(SYS_clock_gettime, id, out) != 0)
			return -1;
		if (!control || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE))
			return 0;
		ns = out->tv_sec * SECOND + out->tv_nsec + atomic_load(&control->wall_offset_ns);
	}
	out->tv_sec = ns / SECOND;
	out->tv_nsec = ns % SECOND;
	return 0;
}

int clock_gettime(clockid_t id, struct timespec *out)
{
	return read_clock(id, out, (uintptr_t)__builtin_return_address(0));
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
	struct timespec now;

	(void)zone;
	read_clock(CLOCK_REALTIME, &now, 0);
	out->tv_sec = now.tv_sec;
	out->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *out)
{
	struct timespec now;

	read_clock(CLOCK_REALTIME, &now, 0);
	if (out)
		*out = now.tv_sec;
	return now.tv_sec;
}

/*
 * Some servers load modules with RTLD_DEEPBIND, which binds the module's calls past all preloaded libraries, also past
 * this one. Removes the flag.
 */
void *dlopen(const char *path, int flags)
{
	void *(*real)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");

	return real(path, flags & ~RTLD_DEEPBIND);
}
