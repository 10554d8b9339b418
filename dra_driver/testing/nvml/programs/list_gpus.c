/* SPDX-License-Identifier: Apache-2.0
 * list-gpus: prints the UUIDs of the GPUs and MIG devices that a program in this place sees, one per line, as CUDA would find them.
 * Ends with the code of NVML if it cannot look, and with 0 and no line if it sees none. */
#include "nvml.h"

#include <string.h>

static void show(device one) {
    char uuid[96];
    unsigned now = 0, pending = 0, largest = 0;
    int code = CALL("nvmlDeviceGetUUID", one, uuid, (unsigned)sizeof uuid);
    if (code) {
        fprintf(stderr, "a GPU without UUID: %s\n", explain(code));
        return;
    }
    puts(uuid);
    if (CALL("nvmlDeviceGetMigMode", one, &now, &pending) || !now) return;
    if (CALL("nvmlDeviceGetMaxMigDeviceCount", one, &largest)) return;
    for (unsigned number = 0; number < largest; number++) {
        device mig;
        if (CALL("nvmlDeviceGetMigDeviceHandleByIndex", one, number, &mig) == 0 &&
            CALL("nvmlDeviceGetUUID", mig, uuid, (unsigned)sizeof uuid) == 0)
            puts(uuid);
    }
}

int main(void) {
    unsigned count = 0;
    load_library("list-gpus: this place has no NVIDIA library");
    int code = CALL("nvmlInitWithFlags", 1u);
    if (code == 0) code = CALL("nvmlDeviceGetCount_v2", &count);
    if (code) {
        fprintf(stderr, "list-gpus: %s\n", explain(code));
        return code > 255 ? 255 : code;
    }
    for (unsigned number = 0; number < count; number++) {
        device one;
        code = CALL("nvmlDeviceGetHandleByIndex_v2", number, &one);
        if (code) fprintf(stderr, "GPU %u: %s\n", number, explain(code));
        else show(one);
    }
    return 0;
}
