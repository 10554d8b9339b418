/* SPDX-License-Identifier: Apache-2.0
 * Events come from the control file. A set gets those that are written after the GPU was registered, each once. */
#include "mock.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { MAX_SETS = 64 };

struct set {
    int used;
    unsigned long long types[MAX_GPUS];
    unsigned long seen[MAX_GPUS]; /* the last event that the GPU has delivered */
};

static struct set sets[MAX_SETS];
static pthread_mutex_t using = PTHREAD_MUTEX_INITIALIZER;

static struct set *set_of(handle value) {
    unsigned number = handle_gpu(value);
    return handle_kind(value) == EVENT_SET && number < MAX_SETS && sets[number].used ? &sets[number] : NULL;
}

int nvmlEventSetCreate(handle *set) {
    ENTER_NODE;
    NEED(set);
    int code = INSUFFICIENT_SIZE;
    pthread_mutex_lock(&using);
    for (unsigned number = 0; number < MAX_SETS && code; number++) {
        if (sets[number].used) continue;
        sets[number] = (struct set){.used = 1};
        *set = handle_of(EVENT_SET, number, 0, 0);
        code = SUCCESS;
    }
    pthread_mutex_unlock(&using);
    return code;
}

int nvmlEventSetFree(handle set) {
    ENTER_NODE;
    pthread_mutex_lock(&using);
    struct set *one = set_of(set);
    if (one) one->used = 0;
    pthread_mutex_unlock(&using);
    return one ? SUCCESS : INVALID_ARGUMENT;
}

/* XIDs and clocks on all boards, ECC where there is ECC, MIG where there is MIG. */
static unsigned long long supported(const struct gpu *gpu) {
    unsigned long long types = 4 | 8 | 16;
    if (gpu->ecc_uncorrected != ABSENT) types |= 1 | 2;
    if (gpu->has_mig) types |= 256;
    return types;
}

int nvmlDeviceGetSupportedEventTypes(handle device, unsigned long long *types) {
    ENTER_GPU(device);
    NEED(types);
    *types = supported(call.gpu);
    return SUCCESS;
}

static unsigned long last_event(const struct world *world) {
    unsigned long last = 0;
    for (unsigned number = 0; number < world->event_count; number++)
        if (world->events[number].id > last) last = world->events[number].id;
    return last;
}

int nvmlDeviceRegisterEvents(handle device, unsigned long long types, handle set) {
    ENTER_GPU(device);
    if (types & ~supported(call.gpu)) return NOT_SUPPORTED;
    pthread_mutex_lock(&using);
    struct set *one = set_of(set);
    if (one && !one->types[call.gpu->index]) one->seen[call.gpu->index] = last_event(call.world);
    if (one) one->types[call.gpu->index] |= types;
    pthread_mutex_unlock(&using);
    return one ? SUCCESS : INVALID_ARGUMENT;
}

/* The oldest event that the set has not delivered; TIMEOUT if there is none. */
static int next_event(handle set, const struct world *world, struct event *event) {
    int code = TIMEOUT;
    pthread_mutex_lock(&using);
    struct set *one = set_of(set);
    for (unsigned number = 0; one && number < world->event_count && code; number++) {
        const struct event *found = &world->events[number];
        if (!(one->types[found->gpu] & found->type) || found->id <= one->seen[found->gpu]) continue;
        one->seen[found->gpu] = found->id;
        *event = *found;
        code = SUCCESS;
    }
    for (unsigned index = 0; one && code == TIMEOUT && index < world->gpu_count; index++)
        if (one->types[index] && world->gpus[index].loss != PRESENT) code = GPU_IS_LOST;
    pthread_mutex_unlock(&using);
    return one ? code : INVALID_ARGUMENT;
}

static long long milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static int wait_event(handle set, unsigned timeout, struct event *event) {
    int watch = control_watch();
    long long end = milliseconds() + timeout;
    int code;
    while ((code = next_event(set, world_now(), event)) == TIMEOUT) {
        long long left = end - milliseconds();
        if (left <= 0) break;
        control_wait(watch, (int)left);
    }
    if (watch >= 0) close(watch);
    return code;
}

struct event_data {
    handle device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

int nvmlEventSetWait_v2(handle set, struct event_data *data, unsigned timeout) {
    struct event event;
    ENTER_NODE;
    NEED(data);
    int code = wait_event(set, timeout, &event);
    if (code) return code;
    *data = (struct event_data){
        handle_of(GPU_HANDLE, event.gpu, 0, 0), event.type, event.data, event.gpu_instance, event.compute_instance};
    return SUCCESS;
}

struct event_data_v1 {
    handle device;
    unsigned long long type, data;
};

int nvmlEventSetWait(handle set, struct event_data_v1 *data, unsigned timeout) {
    struct event event;
    ENTER_NODE;
    NEED(data);
    int code = wait_event(set, timeout, &event);
    if (code) return code;
    *data = (struct event_data_v1){handle_of(GPU_HANDLE, event.gpu, 0, 0), event.type, event.data};
    return SUCCESS;
}
