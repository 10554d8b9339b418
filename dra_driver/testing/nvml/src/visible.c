/* SPDX-License-Identifier: Apache-2.0
 * A process sees the GPUs whose device files it can open, as with the real driver: that is what isolates containers.
 *
 * A folder, which a container runtime makes where a file was missing, is hidden, too.
 * A file that is there but has no driver behind it (ENXIO, ENODEV) counts as seen: character devices of a test have no driver. */
#include "mock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int gpus[MAX_GPUS];
static int control_code;

/* 0, or the errno that says that the file is not for this process. */
static int hidden_by(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", setting("MOCK_NVML_DEV", mock_dev), name);
    int file = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (file >= 0) {
        close(file);
        return 0;
    }
    return errno == EISDIR || errno == ENOENT || errno == EPERM || errno == EACCES || errno == ENOTDIR ? errno : 0;
}

static int checks(void) { return *setting("MOCK_NVML_DEV", mock_dev) != 0; }

/* The real library looks once, when it is initialized. */
void visible_look(void) {
    char name[64];
    int found = checks() ? hidden_by("nvidiactl") : 0;
    control_code = found == 0 ? SUCCESS : found == EACCES ? NO_PERMISSION : found == EPERM ? UNKNOWN : DRIVER_NOT_LOADED;
    for (unsigned index = 0; index < mock_gpu_count; index++) {
        snprintf(name, sizeof name, "nvidia%d", mock_gpus[index].minor);
        gpus[index] = !checks() || !hidden_by(name);
    }
}

int visible_control(void) { return control_code; }

int visible_gpu(unsigned index) { return gpus[index]; }

/* A MIG device needs the capabilities of its GPU instance and of its compute instance. */
int visible_mig(unsigned index, const struct mig *mig) {
    char name[64];
    if (!checks()) return 1;
    unsigned minor = 3 + ((unsigned)mock_gpus[index].minor * 15 + mig->gpu_instance) * 9;
    snprintf(name, sizeof name, "nvidia-caps/nvidia-cap%u", minor);
    if (hidden_by(name)) return 0;
    snprintf(name, sizeof name, "nvidia-caps/nvidia-cap%u", minor + 1 + mig->compute_instance);
    return !hidden_by(name);
}
