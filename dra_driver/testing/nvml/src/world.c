/* SPDX-License-Identifier: Apache-2.0
 * The tables with the changes of the control file. `control.py` describes and writes the lines of this file.
 *
 * A world never changes. A new one is made when the control file is another one; the last few worlds are kept, so that a call that has
 * begun can end with the world that it has. */
#include "mock.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { KEPT = 32, LINE = 1024 };

static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;
static struct world *worlds[KEPT];
static unsigned current;
static struct stat seen;

const char *setting(const char *variable, const char *compiled) {
    const char *value = getenv(variable);
    return value ? value : compiled;
}

static const char *control_path(void) { return setting("MOCK_NVML_CONTROL", mock_control); }

/* The text behind `key=` in a line; 0 if the line has none. */
static int text_of(const char *line, const char *key, char *text, size_t size) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, " %s=", key);
    const char *found = strstr(line, wanted);
    if (!found) return 0;
    found += strlen(wanted);
    size_t length = strcspn(found, " \n");
    if (length >= size) length = size - 1;
    memcpy(text, found, length);
    text[length] = 0;
    return 1;
}

static long long number_of(const char *line, const char *key, long long otherwise) {
    char text[64];
    return text_of(line, key, text, sizeof text) ? strtoll(text, NULL, 0) : otherwise;
}

static unsigned instance_of(const char *line, const char *key) { return (unsigned)number_of(line, key, NOBODY); }

static uint64_t identity_of(const char *line) {
    uint64_t hash = 1469598103934665603u;
    for (; *line && *line != '\n'; line++) hash = (hash ^ (unsigned char)*line) * 1099511628211u;
    return hash ? hash : 1;
}

static void read_rule(struct world *world, int gpu, const char *line) {
    if (world->rule_count == MAX_RULES) return;
    struct rule *rule = &world->rules[world->rule_count++];
    rule->gpu = gpu;
    strcpy(rule->function, "*");
    text_of(line, "function", rule->function, sizeof rule->function);
    rule->code = (int)number_of(line, "error", 0);
    rule->hang = (int)number_of(line, "hang", 0);
    rule->delay_ms = number_of(line, "delay_ms", 0);
    rule->after = number_of(line, "after_calls", 0);
    rule->calls = number_of(line, "calls", 0);
    rule->identity = identity_of(line);
}

static void read_event(struct world *world, unsigned gpu, const char *line) {
    if (world->event_count == MAX_EVENTS) return;
    struct event *event = &world->events[world->event_count++];
    event->gpu = gpu;
    event->id = (unsigned long)number_of(line, "id", 0);
    event->type = (unsigned long long)number_of(line, "type", 8);
    event->data = (unsigned long long)number_of(line, "data", 0);
    event->gpu_instance = instance_of(line, "gi");
    event->compute_instance = instance_of(line, "ci");
}

static void read_loss(struct gpu *gpu, enum loss loss, const char *line) {
    gpu->loss = loss;
    gpu->loss_after = number_of(line, "after_calls", 0);
    gpu->loss_identity = identity_of(line);
}

static void read_process(struct gpu *gpu, const char *line) {
    char kind[16] = "compute";
    if (gpu->process_count == MAX_PROCESSES) return;
    struct process *process = &gpu->processes[gpu->process_count++];
    text_of(line, "kind", kind, sizeof kind);
    process->pid = (unsigned)number_of(line, "pid", 0);
    process->kind = strcmp(kind, "graphics") == 0 ? GRAPHICS : strcmp(kind, "mps") == 0 ? MPS : COMPUTE;
    process->memory = (unsigned long long)number_of(line, "memory", 0);
    process->gpu_instance = instance_of(line, "gi");
    process->compute_instance = instance_of(line, "ci");
    gpu->used += process->memory;
}

static void read_fabric(struct fabric *fabric, const char *line) {
    char cluster[40];
    fabric->present = 1;
    fabric->state = (int)number_of(line, "state", fabric->state);
    fabric->status = (int)number_of(line, "status", fabric->status);
    fabric->clique = (unsigned)number_of(line, "clique", fabric->clique);
    if (text_of(line, "mask", cluster, sizeof cluster)) fabric->has_mask = 1;
    fabric->mask = (unsigned)number_of(line, "mask", fabric->mask);
    if (text_of(line, "summary", cluster, sizeof cluster)) fabric->has_mask = fabric->has_summary = 1;
    fabric->summary = (unsigned)number_of(line, "summary", fabric->summary);
    if (!text_of(line, "cluster", cluster, sizeof cluster)) return;
    for (unsigned byte = 0; byte < 16; byte++) {
        char pair[3] = {cluster[2 * byte], cluster[2 * byte + 1], 0};
        fabric->cluster[byte] = (unsigned char)strtoul(pair, NULL, 16);
    }
}

static void read_mig(struct gpu *gpu, const char *line) {
    if (gpu->mig_count == MAX_MIGS) return;
    struct mig *mig = &gpu->migs[gpu->mig_count++];
    memset(mig, 0, sizeof *mig);
    text_of(line, "uuid", mig->uuid, sizeof mig->uuid);
    text_of(line, "label", mig->label, sizeof mig->label);
    mig->gpu_instance = (unsigned)number_of(line, "gi", 0);
    mig->compute_instance = (unsigned)number_of(line, "ci", 0);
    mig->profile = (unsigned)number_of(line, "profile", 0);
    mig->start = (unsigned)number_of(line, "start", 0);
    mig->size = (unsigned)number_of(line, "size", 0);
    mig->gpu_slices = (unsigned)number_of(line, "gpu_slices", 0);
    mig->compute_slices = (unsigned)number_of(line, "compute_slices", 0);
    mig->memory_mib = (unsigned long long)number_of(line, "memory_mib", 0);
    mig->multiprocessors = (unsigned)number_of(line, "multiprocessors", 0);
    mig->copy_engines = (unsigned)number_of(line, "copy_engines", 0);
    mig->decoders = (unsigned)number_of(line, "decoders", 0);
    mig->encoders = (unsigned)number_of(line, "encoders", 0);
    mig->jpeg_engines = (unsigned)number_of(line, "jpeg_engines", 0);
    mig->ofa_engines = (unsigned)number_of(line, "ofa_engines", 0);
}

static void hide_mig(struct gpu *gpu, const char *line) {
    char uuid[TEXT] = "";
    int one = text_of(line, "uuid", uuid, sizeof uuid);
    for (unsigned number = 0; number < gpu->mig_count; number++)
        if (!one || strcmp(gpu->migs[number].uuid, uuid) == 0) gpu->migs[number].hidden = 1;
}

static void take_links_down(struct gpu *gpu, const char *line) {
    long long link = number_of(line, "link", ABSENT);
    for (unsigned number = 0; number < gpu->link_count; number++)
        if (link == ABSENT || gpu->links[number].number == link) gpu->links[number].down = 1;
}

static void read_values(struct gpu *gpu, const char *line) {
    gpu->temperature = (int)number_of(line, "temperature", gpu->temperature);
    gpu->used = (unsigned long long)number_of(line, "memory_used", (long long)gpu->used);
    gpu->recovery_action = (int)number_of(line, "recovery_action", gpu->recovery_action);
    gpu->compute_mode = (int)number_of(line, "compute_mode", gpu->compute_mode);
    gpu->mig_enabled = (int)number_of(line, "mig_enabled", gpu->mig_enabled);
    gpu->mig_pending = (int)number_of(line, "mig_pending", gpu->mig_pending);
    gpu->rows_correctable = (int)number_of(line, "rows_correctable", gpu->rows_correctable);
    gpu->rows_uncorrectable = (int)number_of(line, "rows_uncorrectable", gpu->rows_uncorrectable);
    gpu->rows_pending = (int)number_of(line, "rows_pending", gpu->rows_pending);
    gpu->rows_failed = (int)number_of(line, "rows_failed", gpu->rows_failed);
    gpu->retired_pending = (int)number_of(line, "retired_pending", gpu->retired_pending);
    gpu->utilization = (unsigned)number_of(line, "utilization", gpu->utilization);
    gpu->memory_utilization = (unsigned)number_of(line, "memory_utilization", gpu->memory_utilization);
    gpu->power_mw = (unsigned)number_of(line, "power_mw", gpu->power_mw);
    gpu->power_limit_mw = (unsigned)number_of(line, "power_limit_mw", gpu->power_limit_mw);
    gpu->sm_clock_mhz = (unsigned)number_of(line, "sm_clock_mhz", gpu->sm_clock_mhz);
    gpu->memory_clock_mhz = (unsigned)number_of(line, "memory_clock_mhz", gpu->memory_clock_mhz);
    gpu->clock_reasons = (unsigned long long)number_of(line, "clock_reasons", (long long)gpu->clock_reasons);
    gpu->ecc_corrected = (unsigned long long)number_of(line, "ecc_corrected", (long long)gpu->ecc_corrected);
}

static void read_gpu_line(struct world *world, struct gpu *gpu, const char *verb, const char *line) {
    if (strcmp(verb, "lost") == 0) read_loss(gpu, LOST, line);
    if (strcmp(verb, "fallen_off_bus") == 0) read_loss(gpu, FALLEN, line);
    if (strcmp(verb, "vanished") == 0) read_loss(gpu, VANISHED, line);
    if (strcmp(verb, "ecc_uncorrectable") == 0) gpu->ecc_uncorrected = number_of(line, "count", 1);
    if (strcmp(verb, "set") == 0) read_values(gpu, line);
    if (strcmp(verb, "process") == 0) read_process(gpu, line);
    if (strcmp(verb, "no_processes") == 0) gpu->process_count = 0;
    if (strcmp(verb, "nvlink_down") == 0) take_links_down(gpu, line);
    if (strcmp(verb, "fabric") == 0) read_fabric(&gpu->fabric, line);
    if (strcmp(verb, "mig") == 0) read_mig(gpu, line);
    if (strcmp(verb, "mig_hidden") == 0) hide_mig(gpu, line);
    if (strcmp(verb, "event") == 0) read_event(world, gpu->index, line);
}

static void read_node_line(struct node *node, const char *verb, const char *line) {
    if (strcmp(verb, "unloaded") == 0) node->init_code = DRIVER_NOT_LOADED, node->call_code = UNKNOWN;
    if (strcmp(verb, "mismatch") == 0) node->init_code = node->call_code = LIB_RM_VERSION_MISMATCH;
    if (strcmp(verb, "no_permission") == 0) node->init_code = node->call_code = NO_PERMISSION;
    if (strcmp(verb, "count_calls") == 0) node->count_calls = 1;
    if (strcmp(verb, "set") == 0) {
        node->cc_feature = (int)number_of(line, "cc_feature", node->cc_feature);
        node->cc_ready = (int)number_of(line, "cc_ready", node->cc_ready);
        text_of(line, "driver_version", node->driver_version, sizeof node->driver_version);
    }
}

static void read_line(struct world *world, const char *line) {
    char target[16] = "", verb[32] = "";
    if (sscanf(line, "%15s %31s", target, verb) < 2 || *target == '#') return;
    int every = strcmp(target, "*") == 0;
    if (strcmp(target, "node") == 0) {
        read_node_line(&world->node, verb, line);
    } else if (strcmp(verb, "fail") == 0) {
        read_rule(world, every ? ABSENT : atoi(target), line);
    } else {
        for (unsigned index = 0; index < world->gpu_count; index++)
            if (every || (unsigned)atoi(target) == index) read_gpu_line(world, &world->gpus[index], verb, line);
    }
}

static struct world *make_world(void) {
    char line[LINE];
    struct world *world = calloc(1, sizeof *world + mock_gpu_count * sizeof *world->gpus);
    if (!world) abort();
    world->node = mock_node;
    world->gpu_count = mock_gpu_count;
    memcpy(world->gpus, mock_gpus, mock_gpu_count * sizeof *world->gpus);
    FILE *file = *control_path() ? fopen(control_path(), "re") : NULL;
    if (!file) return world;
    while (fgets(line, sizeof line, file)) read_line(world, line);
    fclose(file);
    return world;
}

static int same(const struct stat *one, const struct stat *other) {
    return one->st_ino == other->st_ino && one->st_size == other->st_size &&
           one->st_mtim.tv_sec == other->st_mtim.tv_sec && one->st_mtim.tv_nsec == other->st_mtim.tv_nsec;
}

const struct world *world_now(void) {
    struct stat now;
    pthread_mutex_lock(&reading);
    if (!*control_path() || stat(control_path(), &now) < 0) memset(&now, 0, sizeof now);
    if (!worlds[current] || !same(&now, &seen)) {
        current = (current + 1) % KEPT;
        free(worlds[current]);
        worlds[current] = make_world();
        seen = now;
    }
    const struct world *world = worlds[current];
    pthread_mutex_unlock(&reading);
    return world;
}

/* Something to wait on until the control file changes; -1 if there is none. The caller closes it. */
int control_watch(void) {
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", control_path());
    char *slash = strrchr(folder, '/');
    if (!slash) return -1;
    *slash = 0;
    int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (watch >= 0 && inotify_add_watch(watch, folder, IN_MOVED_TO | IN_CLOSE_WRITE) < 0) {
        close(watch);
        return -1;
    }
    return watch;
}

void control_wait(int watch, int milliseconds) {
    if (watch < 0 && *control_path() && milliseconds > 100) milliseconds = 100;
    char ignored[4096];
    struct pollfd one = {watch, POLLIN, 0};
    if (poll(&one, watch >= 0, milliseconds) > 0 && read(watch, ignored, sizeof ignored) < 0) { /* it was no news */
    }
}
