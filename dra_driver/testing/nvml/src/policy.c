/* SPDX-License-Identifier: Apache-2.0
 * Time slices. NVML has no function for them, only nvidia-smi does; these two are for the nvidia-smi of this folder. */
#include "mock.h"

int mockSetTimeSlice(handle device, unsigned interval) {
    ENTER_GPU(device);
    if (interval > 3) return INVALID_ARGUMENT;
    if (call.gpu->architecture != ABSENT && call.gpu->architecture < 5) return NOT_SUPPORTED;
    return state_write("time-slice", call.gpu->uuid, (long)interval);
}

int mockGetTimeSlice(handle device, unsigned *interval) {
    ENTER_GPU(device);
    NEED(interval);
    *interval = (unsigned)state_read("time-slice", call.gpu->uuid, 0);
    return SUCCESS;
}
