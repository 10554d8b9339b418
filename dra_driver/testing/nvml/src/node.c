/* SPDX-License-Identifier: Apache-2.0
 * The functions of the whole node: start and end, versions, confidential computing, and the handles of its GPUs. */
#include "mock.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

int initialized;
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

static const struct {
    int code;
    const char *text;
} messages[] = {
    {SUCCESS, "Success"},
    {UNINITIALIZED, "Uninitialized"},
    {INVALID_ARGUMENT, "Invalid Argument"},
    {NOT_SUPPORTED, "Not Supported"},
    {NO_PERMISSION, "Insufficient Permissions"},
    {NOT_FOUND, "Not Found"},
    {INSUFFICIENT_SIZE, "Insufficient Size"},
    {DRIVER_NOT_LOADED, "Driver Not Loaded"},
    {TIMEOUT, "Timeout"},
    {FUNCTION_NOT_FOUND, "Function Not Found"},
    {GPU_IS_LOST, "GPU is lost"},
    {LIB_RM_VERSION_MISMATCH, "Driver/library version mismatch"},
    {19, "In use by another client"},
    {23, "Insufficient Resources"},
    {VERSION_MISMATCH, "Argument version mismatch"},
};

const char *nvmlErrorString(int code) {
    for (size_t number = 0; number < sizeof messages / sizeof *messages; number++)
        if (messages[number].code == code) return messages[number].text;
    return "Unknown Error";
}

static unsigned visible_count(const struct world *world) {
    unsigned count = 0;
    for (unsigned index = 0; index < world->gpu_count; index++) count += (unsigned)is_visible(world, index);
    return count;
}

static int start(const char *function, int without_gpus) {
    const struct world *world;
    int code = rules_apply(&world, function, ABSENT);
    if (world->node.count_calls) state_count(function, ABSENT);
    if (world->node.init_code) return world->node.init_code;
    if (code) return code;
    pthread_mutex_lock(&starting);
    visible_look();
    code = visible_control();
    if (code == SUCCESS && !without_gpus && visible_count(world) == 0) code = DRIVER_NOT_LOADED;
    if (code == SUCCESS) initialized++;
    pthread_mutex_unlock(&starting);
    return code;
}

int nvmlInitWithFlags(unsigned flags) { return start(__func__, flags & 1); }
int nvmlInit_v2(void) { return start(__func__, 0); }
int nvmlInit(void) { return start(__func__, 0); }

int nvmlShutdown(void) {
    pthread_mutex_lock(&starting);
    int code = initialized ? SUCCESS : UNINITIALIZED;
    if (initialized) initialized--;
    pthread_mutex_unlock(&starting);
    return code;
}

int nvmlSystemGetDriverVersion(char *version, unsigned size) {
    ENTER_NODE;
    return give_text(call.world->node.driver_version, version, size);
}

int nvmlSystemGetNVMLVersion(char *version, unsigned size) {
    ENTER_NODE;
    return give_text(call.world->node.nvml_version, version, size);
}

static int cuda_version(const struct call *call, int *version) {
    NEED(version);
    if (call->world->node.cuda_version == ABSENT) return NOT_SUPPORTED;
    *version = call->world->node.cuda_version;
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion(int *version) {
    ENTER_NODE;
    return cuda_version(&call, version);
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    ENTER_NODE;
    return cuda_version(&call, version);
}

struct cc_state {
    unsigned environment, feature, dev_tools;
};

int nvmlSystemGetConfComputeState(struct cc_state *state) {
    ENTER_NODE;
    NEED(state);
    const struct node *node = &call.world->node;
    if (node->cc_feature == ABSENT) return NOT_SUPPORTED;
    state->environment = node->cc_feature ? 2 : 0;
    state->feature = (unsigned)node->cc_feature;
    state->dev_tools = node->cc_dev_tools > 0;
    return SUCCESS;
}

struct cc_settings {
    unsigned version, environment, feature, dev_tools, multi_gpu;
};

int nvmlSystemGetConfComputeSettings(struct cc_settings *settings) {
    ENTER_NODE;
    NEED(settings);
    const struct node *node = &call.world->node;
    if (settings->version != (sizeof *settings | 1 << 24)) return VERSION_MISMATCH;
    if (node->cc_feature == ABSENT) return NOT_SUPPORTED;
    settings->environment = node->cc_feature ? 2 : 0;
    settings->feature = (unsigned)node->cc_feature;
    settings->dev_tools = node->cc_dev_tools > 0;
    settings->multi_gpu = 0;
    return SUCCESS;
}

int nvmlSystemGetConfComputeGpusReadyState(unsigned *ready) {
    ENTER_NODE;
    NEED(ready);
    if (call.world->node.cc_ready == ABSENT) return NOT_SUPPORTED;
    *ready = (unsigned)call.world->node.cc_ready;
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    ENTER_NODE;
    NEED(count);
    *count = visible_count(call.world);
    return SUCCESS;
}

int nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

/* A GPU that fell off the bus is found, but its handle is refused. */
static int give(const struct world *world, unsigned index, handle *device) {
    const struct gpu *gpu = &world->gpus[index];
    if (gpu->loss == FALLEN && is_lost(gpu)) return GPU_IS_LOST;
    *device = handle_of(GPU_HANDLE, index, 0, 0);
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned number, handle *device) {
    ENTER_NODE;
    NEED(device);
    for (unsigned index = 0; index < call.world->gpu_count; index++)
        if (is_visible(call.world, index) && number-- == 0) return give(call.world, index, device);
    return INVALID_ARGUMENT;
}

static int mig_by_uuid(const struct gpu *gpu, const char *uuid, handle *device) {
    for (unsigned number = 0; number < gpu->mig_count; number++) {
        const struct mig *mig = &gpu->migs[number];
        if (mig->hidden || strcmp(mig->uuid, uuid) != 0 || !visible_mig(gpu->index, mig)) continue;
        *device = handle_of(MIG_HANDLE, gpu->index, mig->gpu_instance, mig->compute_instance);
        return 1;
    }
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, handle *device) {
    ENTER_NODE;
    NEED(uuid && device);
    for (unsigned index = 0; index < call.world->gpu_count; index++) {
        const struct gpu *gpu = &call.world->gpus[index];
        if (!is_visible(call.world, index)) continue;
        if (strcmp(gpu->uuid, uuid) == 0) return give(call.world, index, device);
        if (mig_by_uuid(gpu, uuid, device)) return SUCCESS;
    }
    return NOT_FOUND;
}

int nvmlDeviceGetHandleBySerial(const char *serial, handle *device) {
    ENTER_NODE;
    NEED(serial && device);
    for (unsigned index = 0; index < call.world->gpu_count; index++)
        if (is_visible(call.world, index) && strcmp(call.world->gpus[index].serial, serial) == 0)
            return give(call.world, index, device);
    return NOT_FOUND;
}

/* Domains have four or eight digits. */
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, handle *device) {
    ENTER_NODE;
    NEED(bus_id && device);
    unsigned domain, bus, slot, wanted_domain, wanted_bus, wanted_slot;
    if (sscanf(bus_id, "%x:%x:%x", &wanted_domain, &wanted_bus, &wanted_slot) != 3) return INVALID_ARGUMENT;
    for (unsigned index = 0; index < call.world->gpu_count; index++) {
        if (!is_visible(call.world, index)) continue;
        if (sscanf(call.world->gpus[index].bus_id, "%x:%x:%x", &domain, &bus, &slot) != 3) continue;
        if (domain == wanted_domain && bus == wanted_bus && slot == wanted_slot)
            return give(call.world, index, device);
    }
    return NOT_FOUND;
}
