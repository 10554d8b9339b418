/* SPDX-License-Identifier: Apache-2.0
 * NVLink, and the fabric of switches. */
#include "mock.h"

#include <stdio.h>
#include <string.h>

/* The link with this number; NULL if it is not in the table: it is inactive, or the board has no such link. */
static const struct link *find_link(const struct gpu *gpu, unsigned number) {
    for (unsigned place = 0; place < gpu->link_count; place++)
        if (gpu->links[place].number == number) return &gpu->links[place];
    return NULL;
}

/* A board has links up to the last one of its table. */
int link_state(const struct gpu *gpu, unsigned number) {
    if (!gpu->link_count || number > gpu->links[gpu->link_count - 1].number) return ABSENT;
    const struct link *link = find_link(gpu, number);
    return link && !link->down;
}

int nvmlDeviceGetNvLinkState(handle device, unsigned number, unsigned *active) {
    ENTER_GPU(device);
    NEED(active);
    if (!call.gpu->link_count) return missing(&call);
    int state = link_state(call.gpu, number);
    if (state == ABSENT) return INVALID_ARGUMENT;
    *active = (unsigned)state;
    return SUCCESS;
}

struct pci {
    char legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
};

int nvmlDeviceGetNvLinkRemotePciInfo_v2(handle device, unsigned number, struct pci *pci) {
    ENTER_GPU(device);
    NEED(pci);
    if (!call.gpu->link_count) return missing(&call);
    const struct link *link = find_link(call.gpu, number);
    if (!link || link->down) return INVALID_ARGUMENT;
    memset(pci, 0, sizeof *pci);
    strcpy(pci->bus_id, link->remote);
    if (sscanf(link->remote, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device) != 3) return UNKNOWN;
    snprintf(pci->legacy, sizeof pci->legacy, "%04X:%02X:%02X.0", pci->domain & 0xFFFF, pci->bus & 0xFF, pci->device & 0xFF);
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(handle device, unsigned number, unsigned *type) {
    ENTER_GPU(device);
    NEED(type);
    if (!call.gpu->link_count) return missing(&call);
    const struct link *link = find_link(call.gpu, number);
    if (!link || link->down) return INVALID_ARGUMENT;
    if (link->remote_type == ABSENT) return NOT_SUPPORTED;
    *type = (unsigned)link->remote_type;
    return SUCCESS;
}

struct fabric_info {
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
};

int nvmlDeviceGetGpuFabricInfo(handle device, struct fabric_info *info) {
    ENTER_GPU(device);
    NEED(info);
    const struct fabric *fabric = &call.gpu->fabric;
    if (!fabric->present) return missing(&call);
    memcpy(info->cluster, fabric->cluster, sizeof info->cluster);
    info->status = fabric->status;
    info->clique = fabric->clique;
    info->state = (unsigned char)fabric->state;
    return SUCCESS;
}

struct fabric_info_v2 {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned mask;
};

struct fabric_info_v3 {
    struct fabric_info_v2 second;
    unsigned char summary;
};

/* A driver that knows no health mask has no versioned function, one that knows no summary has only its second version. */
int nvmlDeviceGetGpuFabricInfoV(handle device, struct fabric_info_v2 *info) {
    ENTER_GPU(device);
    NEED(info);
    const struct fabric *fabric = &call.gpu->fabric;
    int third = info->version == (sizeof(struct fabric_info_v3) | 3 << 24);
    if (fabric->present && !fabric->has_mask) return FUNCTION_NOT_FOUND;
    if (third ? fabric->present && !fabric->has_summary : info->version != (sizeof *info | 2 << 24)) return VERSION_MISMATCH;
    if (!fabric->present) return missing(&call);
    memcpy(info->cluster, fabric->cluster, sizeof info->cluster);
    info->status = fabric->status;
    info->clique = fabric->clique;
    info->state = (unsigned char)fabric->state;
    info->mask = fabric->mask;
    if (third) ((struct fabric_info_v3 *)info)->summary = (unsigned char)fabric->summary;
    return SUCCESS;
}
