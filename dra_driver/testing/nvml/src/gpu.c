/* SPDX-License-Identifier: Apache-2.0
 * The functions of one GPU: what it is, its memory, its processes and its health. */
#include "mock.h"

#include <stdio.h>
#include <string.h>

static int give_number(const struct call *call, int value, unsigned *result) {
    NEED(result);
    if (value == ABSENT) return missing(call);
    *result = (unsigned)value;
    return SUCCESS;
}

int nvmlDeviceGetName(handle device, char *name, unsigned size) {
    ENTER_ANY(device);
    char text[2 * TEXT];
    snprintf(text, sizeof text, "%s%s%s", call.gpu->name, call.mig ? " MIG " : "", call.mig ? call.mig->label : "");
    return give_text(text, name, size);
}

int nvmlDeviceGetUUID(handle device, char *uuid, unsigned size) {
    ENTER_ANY(device);
    return give_text(call.mig ? call.mig->uuid : call.gpu->uuid, uuid, size);
}

int nvmlDeviceGetSerial(handle device, char *serial, unsigned size) {
    ENTER_GPU(device);
    if (!*call.gpu->serial) return missing(&call);
    return give_text(call.gpu->serial, serial, size);
}

int nvmlDeviceGetMinorNumber(handle device, unsigned *minor) {
    ENTER_GPU(device);
    return give_number(&call, call.gpu->minor, minor);
}

/* The number among the GPUs that this process sees. */
int nvmlDeviceGetIndex(handle device, unsigned *number) {
    ENTER_GPU(device);
    NEED(number);
    *number = 0;
    for (unsigned index = 0; index < call.gpu->index; index++) *number += (unsigned)is_visible(call.world, index);
    return SUCCESS;
}

int nvmlDeviceGetBrand(handle device, unsigned *brand) {
    ENTER_GPU(device);
    return give_number(&call, call.gpu->brand, brand);
}

int nvmlDeviceGetArchitecture(handle device, unsigned *architecture) {
    ENTER_GPU(device);
    return give_number(&call, call.gpu->architecture, architecture);
}

int nvmlDeviceGetCudaComputeCapability(handle device, int *major, int *minor) {
    ENTER_ANY(device);
    NEED(major && minor);
    if (call.gpu->major_capability == ABSENT) return missing(&call);
    *major = call.gpu->major_capability;
    *minor = call.gpu->minor_capability;
    return SUCCESS;
}

struct pci {
    char legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(handle device, struct pci *pci) {
    ENTER_GPU(device);
    NEED(pci);
    memset(pci, 0, sizeof *pci);
    const char *text = call.gpu->bus_id;
    strcpy(pci->bus_id, text);
    if (sscanf(text, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device) == 3)
        snprintf(pci->legacy, sizeof pci->legacy, "%04X:%02X:%02X.0", pci->domain & 0xFFFF, pci->bus & 0xFF, pci->device & 0xFF);
    pci->pci_device = call.gpu->pci_device;
    pci->pci_subsystem = call.gpu->pci_subsystem;
    return SUCCESS;
}

struct memory {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

static int read_memory(const struct call *call, struct memory_v2 *memory) {
    const struct gpu *gpu = call->gpu;
    if (!gpu->has_memory) return missing(call);
    memory->total = gpu->total;
    memory->reserved = gpu->has_reserved ? gpu->reserved : 0;
    memory->used = gpu->used;
    if (call->mig) {
        memory->total = call->mig->memory_mib << 20;
        memory->reserved = memory->used = 0;
        for (unsigned number = 0; number < gpu->process_count; number++)
            if (gpu->processes[number].gpu_instance == call->mig->gpu_instance)
                memory->used += gpu->processes[number].memory;
    }
    unsigned long long held = memory->reserved + memory->used;
    memory->free = memory->total > held ? memory->total - held : 0;
    return SUCCESS;
}

/* The first version counts reserved memory as used, if the driver knows the second. */
int nvmlDeviceGetMemoryInfo(handle device, struct memory *memory) {
    struct memory_v2 found;
    ENTER_ANY(device);
    NEED(memory);
    int code = read_memory(&call, &found);
    if (code) return code;
    *memory = (struct memory){found.total, found.free, found.used + found.reserved};
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(handle device, struct memory_v2 *memory) {
    ENTER_ANY(device);
    NEED(memory);
    if (memory->version != (sizeof *memory | 2 << 24)) return VERSION_MISMATCH;
    if (call.gpu->has_memory && !call.gpu->has_reserved) return FUNCTION_NOT_FOUND;
    return read_memory(&call, memory);
}

struct addressing {
    unsigned version, value;
};

int nvmlDeviceGetAddressingMode(handle device, struct addressing *mode) {
    ENTER_GPU(device);
    NEED(mode);
    if (mode->version != (sizeof *mode | 1 << 24)) return VERSION_MISMATCH;
    return give_number(&call, call.gpu->addressing, &mode->value);
}

int nvmlDeviceGetModuleId(handle device, unsigned *module) {
    ENTER_GPU(device);
    return give_number(&call, call.gpu->module, module);
}

int nvmlDeviceGetVirtualizationMode(handle device, unsigned *mode) {
    ENTER_GPU(device);
    return give_number(&call, call.gpu->virtualization, mode);
}

int nvmlDeviceGetComputeMode(handle device, unsigned *mode) {
    ENTER_GPU(device);
    if (call.gpu->compute_mode == ABSENT) return missing(&call);
    return give_number(&call, (int)state_read("compute-mode", call.gpu->uuid, call.gpu->compute_mode), mode);
}

int nvmlDeviceSetComputeMode(handle device, unsigned mode) {
    ENTER_GPU(device);
    if (mode > 3) return INVALID_ARGUMENT;
    if (mode == 1 || call.gpu->compute_mode == ABSENT) return NOT_SUPPORTED; /* 1: one thread, gone since CUDA 8 */
    return state_write("compute-mode", call.gpu->uuid, (long)mode);
}

int nvmlDeviceGetTemperature(handle device, unsigned sensor, unsigned *temperature) {
    ENTER_GPU(device);
    if (sensor != 0) return INVALID_ARGUMENT;
    return give_number(&call, call.gpu->temperature, temperature);
}

struct temperature {
    unsigned version, sensor;
    int temperature;
};

int nvmlDeviceGetTemperatureV(handle device, struct temperature *temperature) {
    ENTER_GPU(device);
    NEED(temperature);
    if (temperature->version != (sizeof *temperature | 1 << 24)) return VERSION_MISMATCH;
    if (temperature->sensor != 0) return INVALID_ARGUMENT;
    return give_number(&call, call.gpu->temperature, (unsigned *)&temperature->temperature);
}

enum {
    ECC_DOUBLE = 4,
    RETIRED_PENDING = 31,
    LINK_COUNT = 91,
    REMAPPED_CORRECTABLE = 142,
    REMAPPED_UNCORRECTABLE,
    REMAPPED_PENDING,
    REMAPPED_FAILED,
    LINK_STATE = 165,
    RECOVERY_ACTION = 230
};
enum { UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3 };

struct field {
    unsigned id, scope;
    long long timestamp, latency;
    unsigned type;
    int code;
    union {
        unsigned number;
        unsigned long long large;
    } value;
};

/* The value of a field; ABSENT if this board does not have it. */
static long long field_value(const struct gpu *gpu, const struct field *field) {
    const int rows[] = {gpu->rows_correctable, gpu->rows_uncorrectable, gpu->rows_pending, gpu->rows_failed};
    switch (field->id) {
    case RECOVERY_ACTION:
        return gpu->recovery_action;
    case ECC_DOUBLE:
        return gpu->ecc_uncorrected;
    case RETIRED_PENDING:
        return gpu->retired_pending;
    case LINK_COUNT:
        return gpu->link_count ? (long long)gpu->links[gpu->link_count - 1].number + 1 : ABSENT;
    case LINK_STATE:
        return link_state(gpu, field->scope);
    case REMAPPED_CORRECTABLE:
    case REMAPPED_UNCORRECTABLE:
    case REMAPPED_PENDING:
    case REMAPPED_FAILED:
        return gpu->has_rows ? rows[field->id - REMAPPED_CORRECTABLE] : ABSENT;
    default:
        return ABSENT;
    }
}

/* Each field has a code of its own: in the tables that of the function for the same value. */
static int field_code(const struct gpu *gpu, unsigned id) {
    const char *function = "nvmlDeviceGetNvLinkState";
    if (id == RECOVERY_ACTION) function = "nvmlDeviceGetFieldValues";
    if (id == ECC_DOUBLE) function = "nvmlDeviceGetTotalEccErrors";
    if (id == RETIRED_PENDING) function = "nvmlDeviceGetRetiredPagesPendingStatus";
    if (id >= REMAPPED_CORRECTABLE && id <= REMAPPED_FAILED) function = "nvmlDeviceGetRemappedRows";
    return failing_code(gpu->errors, gpu->error_count, function);
}

static void read_field(const struct call *call, struct field *field) {
    long long value = field_value(call->gpu, field);
    field->code = field_code(call->gpu, field->id);
    if (!field->code && value == ABSENT) field->code = NOT_SUPPORTED;
    field->type = field->id == ECC_DOUBLE ? UNSIGNED_LONG_LONG : UNSIGNED_INT;
    field->value.large = 0;
    if (field->code) return;
    if (field->type == UNSIGNED_INT) field->value.number = (unsigned)value;
    else field->value.large = (unsigned long long)value;
}

int nvmlDeviceGetFieldValues(handle device, int count, struct field *fields) {
    ENTER_GPU(device);
    NEED(count > 0 && fields);
    for (int number = 0; number < count; number++) read_field(&call, &fields[number]);
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(handle device, unsigned type, unsigned counter, unsigned long long *count) {
    ENTER_GPU(device);
    NEED(count && type < 2 && counter < 2);
    if (call.gpu->ecc_uncorrected == ABSENT) return missing(&call);
    *count = type == 1 ? (unsigned long long)call.gpu->ecc_uncorrected : call.gpu->ecc_corrected;
    return SUCCESS;
}

int nvmlDeviceGetRemappedRows(handle device, unsigned *correctable, unsigned *uncorrectable, unsigned *pending, unsigned *failed) {
    ENTER_GPU(device);
    NEED(correctable && uncorrectable && pending && failed);
    if (!call.gpu->has_rows) return missing(&call);
    *correctable = (unsigned)call.gpu->rows_correctable;
    *uncorrectable = (unsigned)call.gpu->rows_uncorrectable;
    *pending = (unsigned)call.gpu->rows_pending;
    *failed = (unsigned)call.gpu->rows_failed;
    return SUCCESS;
}

/* Boards without row remapping retire pages instead. */
int nvmlDeviceGetRetiredPagesPendingStatus(handle device, unsigned *pending) {
    ENTER_GPU(device);
    return give_number(&call, call.gpu->retired_pending, pending);
}

struct process_v1 {
    unsigned pid;
    unsigned long long memory;
};

struct process_v2 {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

static int is_behind(const struct call *call, const struct process *process) {
    return !call->mig || (process->gpu_instance == call->mig->gpu_instance &&
                          process->compute_instance == call->mig->compute_instance);
}

/* Fills one of the two arrays. `size` is that of the array, and afterwards how many there are. */
static int list_processes(const struct call *call, enum process_kind kind, unsigned *size, struct process_v1 *old, struct process_v2 *infos) {
    NEED(size);
    unsigned found = 0;
    for (unsigned number = 0; number < call->gpu->process_count; number++) {
        const struct process *one = &call->gpu->processes[number];
        if (one->kind != kind || !is_behind(call, one)) continue;
        if (found < *size && old) old[found] = (struct process_v1){one->pid, one->memory};
        if (found < *size && infos)
            infos[found] = (struct process_v2){one->pid, one->memory, one->gpu_instance, one->compute_instance};
        found++;
    }
    int code = found > *size ? INSUFFICIENT_SIZE : SUCCESS;
    *size = found;
    return code;
}

int nvmlDeviceGetComputeRunningProcesses(handle device, unsigned *size, struct process_v1 *infos) {
    ENTER_ANY(device);
    return list_processes(&call, COMPUTE, size, infos, NULL);
}

int nvmlDeviceGetComputeRunningProcesses_v2(handle device, unsigned *size, struct process_v2 *infos) {
    ENTER_ANY(device);
    return list_processes(&call, COMPUTE, size, NULL, infos);
}

int nvmlDeviceGetComputeRunningProcesses_v3(handle device, unsigned *size, struct process_v2 *infos) {
    ENTER_ANY(device);
    return list_processes(&call, COMPUTE, size, NULL, infos);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(handle device, unsigned *size, struct process_v2 *infos) {
    ENTER_ANY(device);
    return list_processes(&call, GRAPHICS, size, NULL, infos);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(handle device, unsigned *size, struct process_v2 *infos) {
    ENTER_ANY(device);
    return list_processes(&call, MPS, size, NULL, infos);
}
