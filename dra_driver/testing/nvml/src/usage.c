/* SPDX-License-Identifier: Apache-2.0
 * What is measured on a GPU: load, power, clocks, and what slows it down. The library has none of it for a MIG device. */
#include "mock.h"

struct rates {
    unsigned gpu, memory; /* percent */
};

enum clock { GRAPHICS_CLOCK, SM_CLOCK, MEMORY_CLOCK, VIDEO_CLOCK, CLOCKS };

int nvmlDeviceGetUtilizationRates(handle device, struct rates *rates) {
    ENTER_GPU(device);
    NEED(rates);
    if (call.gpu->mig_enabled) return NOT_SUPPORTED; /* of a divided GPU there is no load of the whole */
    *rates = (struct rates){call.gpu->utilization, call.gpu->memory_utilization};
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(handle device, unsigned *milliwatts) {
    ENTER_GPU(device);
    NEED(milliwatts);
    *milliwatts = call.gpu->power_mw;
    return SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(handle device, unsigned *milliwatts) {
    ENTER_GPU(device);
    NEED(milliwatts);
    *milliwatts = call.gpu->power_limit_mw;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(handle device, unsigned clock, unsigned *mhz) {
    ENTER_GPU(device);
    NEED(clock < CLOCKS && mhz);
    *mhz = clock == MEMORY_CLOCK ? call.gpu->memory_clock_mhz : call.gpu->sm_clock_mhz;
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksEventReasons(handle device, unsigned long long *reasons) {
    ENTER_GPU(device);
    NEED(reasons);
    *reasons = call.gpu->clock_reasons;
    return SUCCESS;
}

/* Its name before the driver 535; newer libraries have both. */
int nvmlDeviceGetCurrentClocksThrottleReasons(handle device, unsigned long long *reasons) {
    ENTER_GPU(device);
    NEED(reasons);
    *reasons = call.gpu->clock_reasons;
    return SUCCESS;
}
