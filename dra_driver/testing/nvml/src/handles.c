/* SPDX-License-Identifier: Apache-2.0
 * Handles, and what each function does first: is the library initialized, is the GPU there, has the call to fail? */
#include "mock.h"

#include <string.h>

extern int initialized;

handle handle_of(enum kind kind, unsigned gpu, unsigned gpu_instance, unsigned compute_instance) {
    return (handle)(uintptr_t)(((uintptr_t)kind << 28) | (gpu << 16) | (gpu_instance << 8) | compute_instance);
}

enum kind handle_kind(handle value) { return (enum kind)((uintptr_t)value >> 28); }
unsigned handle_gpu(handle value) { return ((uintptr_t)value >> 16) & 0xFFF; }
unsigned handle_gpu_instance(handle value) { return ((uintptr_t)value >> 8) & 0xFF; }
unsigned handle_compute_instance(handle value) { return (uintptr_t)value & 0xFF; }

int is_visible(const struct world *world, unsigned index) {
    return visible_gpu(index) && world->gpus[index].loss != VANISHED;
}

static int begin(struct call *call, const char *function, int gpu) {
    memset(call, 0, sizeof *call);
    call->function = function;
    int code = rules_apply(&call->world, function, gpu);
    if (call->world->node.count_calls) state_count(function, gpu);
    if (!initialized) return UNINITIALIZED;
    if (call->world->node.call_code) return call->world->node.call_code;
    return code;
}

int enter(struct call *call, const char *function) {
    int code = begin(call, function, ABSENT);
    const struct node *node = &call->world->node;
    return code ? code : failing_code(node->errors, node->error_count, function);
}

int is_lost(const struct gpu *gpu) {
    return gpu->loss != PRESENT && (gpu->loss_after == 0 || rules_count(gpu->loss_identity) > gpu->loss_after);
}

static const struct mig *mig_behind(const struct gpu *gpu, handle device) {
    for (unsigned number = 0; number < gpu->mig_count; number++) {
        const struct mig *mig = &gpu->migs[number];
        if (!mig->hidden && mig->gpu_instance == handle_gpu_instance(device) &&
            mig->compute_instance == handle_compute_instance(device))
            return mig;
    }
    return NULL;
}

int enter_any(struct call *call, const char *function, handle device) {
    enum kind kind = handle_kind(device);
    unsigned index = handle_gpu(device);
    int known = kind >= GPU_HANDLE && kind <= COMPUTE_INSTANCE && index < mock_gpu_count;
    int code = begin(call, function, known ? (int)index : ABSENT);
    if (code) return code;
    if (!known || !visible_gpu(index)) return INVALID_ARGUMENT;
    call->gpu = &call->world->gpus[index];
    if (is_lost(call->gpu)) return GPU_IS_LOST;
    if (kind == MIG_HANDLE && !(call->mig = mig_behind(call->gpu, device))) return NOT_FOUND;
    /* In the tables this is the code of one field, the recovery action. */
    if (strcmp(function, "nvmlDeviceGetFieldValues") == 0) return SUCCESS;
    return failing_code(call->gpu->errors, call->gpu->error_count, function);
}

/* Functions that have no answer for a MIG device. */
int enter_gpu(struct call *call, const char *function, handle device) {
    int code = enter_any(call, function, device);
    return code == SUCCESS && handle_kind(device) != GPU_HANDLE ? INVALID_ARGUMENT : code;
}

/* The code of a call whose value the board does not have. */
int missing(const struct call *call) {
    int code = call->gpu ? failing_code(call->gpu->errors, call->gpu->error_count, call->function) : SUCCESS;
    return code ? code : NOT_SUPPORTED;
}

int give_text(const char *text, char *buffer, unsigned size) {
    NEED(buffer);
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return SUCCESS;
}
