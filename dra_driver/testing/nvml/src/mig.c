/* SPDX-License-Identifier: Apache-2.0
 * MIG: the mode, the profiles of a board, and the devices that exist. */
#include "mock.h"

#include <string.h>

int nvmlDeviceGetMigMode(handle device, unsigned *now, unsigned *pending) {
    ENTER_GPU(device);
    NEED(now && pending);
    if (!call.gpu->has_mig) return missing(&call);
    *now = (unsigned)call.gpu->mig_enabled;
    *pending = (unsigned)call.gpu->mig_pending;
    return SUCCESS;
}

struct profile_info {
    unsigned id, peer_to_peer, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpeg_engines, ofa_engines;
    unsigned long long memory_mib;
};

struct profile_info_v2 {
    unsigned version, id, peer_to_peer, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpeg_engines, ofa_engines;
    unsigned long long memory_mib;
    char name[TEXT];
};

struct profile_info_v3 {
    unsigned version, id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpeg_engines, ofa_engines;
    unsigned long long memory_mib;
    char name[TEXT];
    unsigned capabilities;
};

/* Ampere tells its profiles only in MIG mode, later boards always. */
static int find_profile(const struct call *call, unsigned number, const struct profile **found) {
    const struct gpu *gpu = call->gpu;
    if (number >= MAX_PROFILES) return INVALID_ARGUMENT;
    if (!gpu->has_mig || (gpu->architecture < 9 && !gpu->mig_enabled)) return NOT_SUPPORTED;
    for (unsigned place = 0; place < gpu->profile_count; place++)
        if (gpu->profiles[place].number == number) {
            *found = &gpu->profiles[place];
            return SUCCESS;
        }
    return NOT_SUPPORTED;
}

int nvmlDeviceGetGpuInstanceProfileInfo(handle device, unsigned number, struct profile_info *info) {
    const struct profile *one = NULL;
    ENTER_GPU(device);
    NEED(info);
    int code = find_profile(&call, number, &one);
    if (code) return code;
    *info = (struct profile_info){
        one->id, 0, one->slices, one->instances, one->multiprocessors, one->copy_engines,
        one->decoders, one->encoders, one->jpeg_engines, one->ofa_engines, one->memory_mib};
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceProfileInfoV(handle device, unsigned number, struct profile_info_v2 *info) {
    const struct profile *one = NULL;
    ENTER_GPU(device);
    NEED(info);
    int third = info->version == (sizeof(struct profile_info_v3) | 3 << 24);
    if (!third && info->version != (sizeof *info | 2 << 24)) return VERSION_MISMATCH;
    int code = find_profile(&call, number, &one);
    if (code) return code;
    if (third) {
        struct profile_info_v3 *last = (struct profile_info_v3 *)info;
        *last = (struct profile_info_v3){
            info->version, one->id, one->slices, one->instances, one->multiprocessors, one->copy_engines,
            one->decoders, one->encoders, one->jpeg_engines, one->ofa_engines, one->memory_mib, "", 0};
        strcpy(last->name, one->label);
    } else {
        *info = (struct profile_info_v2){
            info->version, one->id, 0, one->slices, one->instances, one->multiprocessors, one->copy_engines,
            one->decoders, one->encoders, one->jpeg_engines, one->ofa_engines, one->memory_mib, ""};
        strcpy(info->name, one->label);
    }
    return SUCCESS;
}

struct placement {
    unsigned start, size;
};

int nvmlDeviceGetGpuInstancePossiblePlacements_v2(handle device, unsigned id, struct placement *placements, unsigned *count) {
    ENTER_GPU(device);
    NEED(count);
    const struct gpu *gpu = call.gpu;
    if (!gpu->has_mig || (gpu->architecture < 9 && !gpu->mig_enabled)) return NOT_SUPPORTED;
    for (unsigned place = 0; place < gpu->profile_count; place++) {
        const struct profile *one = &gpu->profiles[place];
        if (one->id != id) continue;
        unsigned room = *count;
        *count = one->start_count;
        if (!placements) return SUCCESS; /* the caller asks how many there are */
        if (room < one->start_count) return INSUFFICIENT_SIZE;
        for (unsigned start = 0; start < one->start_count; start++)
            placements[start] = (struct placement){one->starts[start], one->size};
        return SUCCESS;
    }
    return INVALID_ARGUMENT;
}

static unsigned largest_count(const struct gpu *gpu) {
    unsigned count = 0;
    for (unsigned place = 0; place < gpu->profile_count; place++)
        if (gpu->profiles[place].instances > count) count = gpu->profiles[place].instances;
    return count ? count : 7;
}

int nvmlDeviceGetMaxMigDeviceCount(handle device, unsigned *count) {
    ENTER_GPU(device);
    NEED(count);
    *count = call.gpu->has_mig && call.gpu->mig_enabled ? largest_count(call.gpu) : 0;
    return SUCCESS;
}

/* Numbers have gaps: a place without a device is NOT_FOUND. */
int nvmlDeviceGetMigDeviceHandleByIndex(handle device, unsigned number, handle *found) {
    ENTER_GPU(device);
    NEED(found);
    if (!call.gpu->has_mig) return NOT_SUPPORTED;
    if (number >= largest_count(call.gpu)) return INVALID_ARGUMENT;
    if (!call.gpu->mig_enabled || number >= call.gpu->mig_count) return NOT_FOUND;
    const struct mig *mig = &call.gpu->migs[number];
    if (mig->hidden || !visible_mig(call.gpu->index, mig)) return NOT_FOUND;
    *found = handle_of(MIG_HANDLE, call.gpu->index, mig->gpu_instance, mig->compute_instance);
    return SUCCESS;
}

int nvmlDeviceIsMigDeviceHandle(handle device, unsigned *is_mig) {
    ENTER_ANY(device);
    NEED(is_mig);
    *is_mig = call.mig != NULL;
    return SUCCESS;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle device, handle *parent) {
    ENTER_ANY(device);
    NEED(parent && call.mig);
    *parent = handle_of(GPU_HANDLE, call.gpu->index, 0, 0);
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(handle device, unsigned *id) {
    ENTER_ANY(device);
    NEED(id && call.mig);
    *id = call.mig->gpu_instance;
    return SUCCESS;
}

int nvmlDeviceGetComputeInstanceId(handle device, unsigned *id) {
    ENTER_ANY(device);
    NEED(id && call.mig);
    *id = call.mig->compute_instance;
    return SUCCESS;
}

struct attributes {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpeg_engines, ofa_engines, gpu_slices, compute_slices;
    unsigned long long memory_mib;
};

int nvmlDeviceGetAttributes_v2(handle device, struct attributes *attributes) {
    ENTER_ANY(device);
    NEED(attributes);
    const struct mig *mig = call.mig;
    if (!mig) return NOT_SUPPORTED;
    *attributes = (struct attributes){
        mig->multiprocessors, mig->copy_engines, mig->decoders, mig->encoders, mig->jpeg_engines,
        mig->ofa_engines, mig->gpu_slices, mig->compute_slices, mig->memory_mib};
    return SUCCESS;
}

static const struct mig *in_instance(const struct gpu *gpu, unsigned id) {
    for (unsigned number = 0; number < gpu->mig_count; number++)
        if (!gpu->migs[number].hidden && gpu->migs[number].gpu_instance == id) return &gpu->migs[number];
    return NULL;
}

int nvmlDeviceGetGpuInstanceById(handle device, unsigned id, handle *instance) {
    ENTER_GPU(device);
    NEED(instance);
    if (!call.gpu->has_mig || !call.gpu->mig_enabled) return NOT_SUPPORTED;
    if (!in_instance(call.gpu, id)) return NOT_FOUND;
    *instance = handle_of(GPU_INSTANCE, call.gpu->index, id, 0);
    return SUCCESS;
}

/* `instances` has to have room for as many as the profile can have. */
int nvmlDeviceGetGpuInstances(handle device, unsigned profile, handle *instances, unsigned *count) {
    ENTER_GPU(device);
    NEED(instances && count);
    if (!call.gpu->has_mig || !call.gpu->mig_enabled) return NOT_SUPPORTED;
    *count = 0;
    for (unsigned id = 0; id < 16; id++) {
        const struct mig *mig = in_instance(call.gpu, id);
        if (mig && mig->profile == profile) instances[(*count)++] = handle_of(GPU_INSTANCE, call.gpu->index, id, 0);
    }
    return SUCCESS;
}

struct instance_info {
    handle device;
    unsigned id, profile;
    struct placement placement;
};

int nvmlGpuInstanceGetInfo(handle instance, struct instance_info *info) {
    ENTER_ANY(instance);
    NEED(info && handle_kind(instance) == GPU_INSTANCE);
    const struct mig *mig = in_instance(call.gpu, handle_gpu_instance(instance));
    if (!mig) return NOT_FOUND;
    *info = (struct instance_info){
        handle_of(GPU_HANDLE, call.gpu->index, 0, 0), mig->gpu_instance, mig->profile, {mig->start, mig->size}};
    return SUCCESS;
}

int nvmlGpuInstanceGetComputeInstanceById(handle instance, unsigned id, handle *found) {
    ENTER_ANY(instance);
    NEED(found && handle_kind(instance) == GPU_INSTANCE);
    unsigned wanted = handle_gpu_instance(instance);
    for (unsigned number = 0; number < call.gpu->mig_count; number++) {
        const struct mig *mig = &call.gpu->migs[number];
        if (mig->hidden || mig->gpu_instance != wanted || mig->compute_instance != id) continue;
        *found = handle_of(COMPUTE_INSTANCE, call.gpu->index, wanted, id);
        return SUCCESS;
    }
    return NOT_FOUND;
}

struct compute_info {
    handle device, gpu_instance;
    unsigned id, profile;
    struct placement placement;
};

/* The number of a compute instance's profile: that of its slices in the enum. */
int nvmlComputeInstanceGetInfo_v2(handle instance, struct compute_info *info) {
    ENTER_ANY(instance);
    NEED(info && handle_kind(instance) == COMPUTE_INSTANCE);
    unsigned gpu_instance = handle_gpu_instance(instance), id = handle_compute_instance(instance), start = 0;
    for (unsigned number = 0; number < call.gpu->mig_count; number++) {
        const struct mig *mig = &call.gpu->migs[number];
        if (mig->hidden || mig->gpu_instance != gpu_instance) continue;
        if (mig->compute_instance != id) {
            start += mig->compute_slices;
            continue;
        }
        unsigned slices = mig->compute_slices;
        *info = (struct compute_info){
            handle_of(GPU_HANDLE, call.gpu->index, 0, 0), handle_of(GPU_INSTANCE, call.gpu->index, gpu_instance, 0),
            id, slices <= 4 ? slices - 1 : slices == 7 ? 4 : 5, {start, slices}};
        return SUCCESS;
    }
    return NOT_FOUND;
}
