/* SPDX-License-Identifier: Apache-2.0
 *
 * A libnvidia-ml.so.1 that answers from tables.
 *
 * tables.c    generated: what the library answers while nothing is wrong
 * world.c     the tables, changed by the control file; read anew when that file changes
 * rules.c     delays, errors and hangs of single functions
 * state.c     what several processes share: compute modes, time slices, a journal
 * visible.c   which device files this process can open
 * node.c, gpu.c, usage.c, mig.c, links.c, events.c    the functions of NVML
 */
#ifndef MOCK_H
#define MOCK_H

#include <stddef.h>
#include <stdint.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    FUNCTION_NOT_FOUND = 13,
    GPU_IS_LOST = 15,
    LIB_RM_VERSION_MISMATCH = 18,
    VERSION_MISMATCH = 25,
    UNKNOWN = 999
};

enum { ABSENT = -1, NOBODY = 0xFFFFFFFF }; /* a number that the board does not have; no instance */

enum {
    MAX_GPUS = 32,
    MAX_LINKS = 36,
    MAX_MIGS = 16,
    MAX_PROCESSES = 32,
    MAX_PROFILES = 18,
    MAX_ERRORS = 24,
    MAX_EVENTS = 64,
    MAX_RULES = 64,
    TEXT = 96
};

enum process_kind { COMPUTE, GRAPHICS, MPS };

/* How a GPU is gone. */
enum loss {
    PRESENT,
    LOST,     /* handles can still be had; each other call gives GPU_IS_LOST */
    FALLEN,   /* it fell off the bus: its handle cannot be had any more */
    VANISHED  /* it is not counted any more, as after a removal from the PCI bus */
};

struct failing {
    char function[TEXT];
    int code;
};

struct link {
    unsigned number;
    int remote_type;
    char remote[32];
    int down;
};

struct mig {
    char uuid[TEXT];
    unsigned gpu_instance, compute_instance, profile, start, size;
    unsigned gpu_slices, compute_slices, multiprocessors;
    unsigned copy_engines, decoders, encoders, jpeg_engines, ofa_engines;
    unsigned long long memory_mib;
    char label[32]; /* 3g.20gb */
    int hidden;
};

struct profile {
    unsigned number, id, slices, instances, multiprocessors;
    unsigned copy_engines, decoders, encoders, jpeg_engines, ofa_engines;
    unsigned long long memory_mib;
    unsigned starts[8], start_count, size;
    char label[32];
};

struct process {
    unsigned pid;
    enum process_kind kind;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

struct fabric {
    int present, state, status, has_mask, has_summary;
    unsigned char cluster[16];
    unsigned clique, mask, summary;
};

struct gpu {
    unsigned index;
    char uuid[TEXT], name[TEXT], serial[32], bus_id[32];
    int minor, brand, architecture, major_capability, minor_capability;
    unsigned pci_device, pci_subsystem;
    int addressing, module, virtualization;
    int has_memory, has_reserved;
    unsigned long long total, used, reserved;
    int has_mig, mig_enabled, mig_pending;
    struct mig migs[MAX_MIGS];
    unsigned mig_count;
    struct link links[MAX_LINKS];
    unsigned link_count;
    struct fabric fabric;
    int compute_mode, temperature, recovery_action;
    long long ecc_uncorrected; /* ABSENT: the board has no ECC */
    int has_rows, rows_correctable, rows_uncorrectable, rows_pending, rows_failed;
    int retired_pending;
    unsigned utilization, memory_utilization, power_mw, power_limit_mw, sm_clock_mhz, memory_clock_mhz;
    unsigned long long clock_reasons; /* nvmlClocksEventReasons */
    unsigned long long ecc_corrected;
    struct process processes[MAX_PROCESSES];
    unsigned process_count;
    struct failing errors[MAX_ERRORS];
    unsigned error_count;
    const struct profile *profiles;
    unsigned profile_count;
    enum loss loss;
    long loss_after; /* calls that still work */
    uint64_t loss_identity;
};

struct node {
    char driver_version[TEXT], nvml_version[TEXT];
    int cuda_version, cc_feature, cc_dev_tools, cc_ready;
    struct failing errors[MAX_ERRORS];
    unsigned error_count;
    int init_code, call_code; /* the driver is not loaded, or does not match */
    int count_calls;
};

struct event {
    unsigned long id;
    unsigned gpu;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

/* A delay, an error or a hang of calls. */
struct rule {
    int gpu; /* ABSENT: all GPUs, and functions without one */
    char function[TEXT]; /* "*" at the end stands for anything */
    int code, hang;
    long delay_ms, after, calls; /* calls: how many are met, 0 for all */
    uint64_t identity;           /* of the line, so that its count survives a change of the file */
};

struct world {
    struct node node;
    struct rule rules[MAX_RULES];
    unsigned rule_count;
    struct event events[MAX_EVENTS];
    unsigned event_count;
    unsigned gpu_count;
    struct gpu gpus[];
};

/* The tables: tables.c */
extern const struct node mock_node;
extern const struct gpu mock_gpus[];
extern const unsigned mock_gpu_count;
extern const char mock_control[], mock_state[], mock_dev[];

/* world.c */
const struct world *world_now(void);
const char *setting(const char *variable, const char *compiled);
int control_watch(void);
void control_wait(int watch, int milliseconds);

/* links.c: 1 for an active link, 0 for an inactive one, ABSENT if the board has no such link */
int link_state(const struct gpu *gpu, unsigned number);

/* rules.c */
long rules_count(uint64_t identity);
int rules_apply(const struct world **world, const char *function, int gpu);
int failing_code(const struct failing *errors, unsigned count, const char *function);

/* state.c */
long state_read(const char *what, const char *uuid, long otherwise);
int state_write(const char *what, const char *uuid, long value);
void state_journal(const char *text);
void state_count(const char *function, int gpu);

/* visible.c */
void visible_look(void);
int visible_control(void);
int visible_gpu(unsigned index);
int visible_mig(unsigned index, const struct mig *mig);

/* A call: what `enter` found behind the handle. `mig` is NULL for a whole GPU. */
typedef void *handle;
struct call {
    const struct world *world;
    const struct gpu *gpu;
    const struct mig *mig;
    const char *function;
};

enum kind { GPU_HANDLE = 1, MIG_HANDLE, GPU_INSTANCE, COMPUTE_INSTANCE, EVENT_SET };

handle handle_of(enum kind kind, unsigned gpu, unsigned gpu_instance, unsigned compute_instance);
enum kind handle_kind(handle value);
unsigned handle_gpu(handle value);
unsigned handle_gpu_instance(handle value);
unsigned handle_compute_instance(handle value);

/* Each returns the code with which the call has to end, or SUCCESS. */
int enter(struct call *call, const char *function);
int enter_gpu(struct call *call, const char *function, handle device);
int enter_any(struct call *call, const char *function, handle device);
int missing(const struct call *call);
int give_text(const char *text, char *buffer, unsigned size);
int is_lost(const struct gpu *gpu);
int is_visible(const struct world *world, unsigned index);

#define ENTER_NODE                                \
    struct call call;                             \
    int refused = enter(&call, __func__);         \
    if (refused) return refused
#define ENTER_GPU(device)                             \
    struct call call;                                 \
    int refused = enter_gpu(&call, __func__, device); \
    if (refused) return refused
#define ENTER_ANY(device)                             \
    struct call call;                                 \
    int refused = enter_any(&call, __func__, device); \
    if (refused) return refused
#define NEED(condition) \
    if (!(condition)) return INVALID_ARGUMENT

#endif
