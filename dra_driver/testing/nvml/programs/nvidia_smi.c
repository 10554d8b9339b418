/* SPDX-License-Identifier: Apache-2.0
 * nvidia-smi, as far as a driver for Kubernetes needs it: -L, --version, -c, and compute-policy. Exit codes are NVIDIA's: the code of
 * NVML, 6 if a GPU is not found, 2 for arguments that it does not know. */
#include "nvml.h"

#include <string.h>
#include <strings.h>

static const char *const modes[] = {"DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED", "EXCLUSIVE_PROCESS"};
static const char *const slices[] = {"Default", "Short", "Medium", "Long"};

static void fail(int code, const char *text) {
    printf("%s: %s\n", text, explain(code));
    exit(code > 255 ? 255 : code);
}

static void start(void) {
    load_library("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.");
    int code = CALL("nvmlInitWithFlags", 1u);
    if (code == 9) {
        puts("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver "
             "is installed and running.\n");
        exit(9);
    }
    if (code) fail(code, "Failed to initialize NVML");
}

static unsigned count_gpus(void) {
    unsigned count = 0;
    int code = CALL("nvmlDeviceGetCount_v2", &count);
    if (code) fail(code, "Unable to determine the number of GPUs");
    if (!count) {
        puts("No devices were found");
        exit(6);
    }
    return count;
}

static device by_number(unsigned number) {
    device one = NULL;
    int code = CALL("nvmlDeviceGetHandleByIndex_v2", number, &one);
    if (code) fail(code, "Unable to determine the device handle for GPU");
    return one;
}

/* A number, a UUID or a PCI address. */
static device find(const char *id) {
    device one = NULL;
    if (strlen(id) < 4) return by_number((unsigned)atoi(id));
    int code = strncmp(id, "GPU-", 4) == 0 || strncmp(id, "MIG-", 4) == 0
                   ? CALL("nvmlDeviceGetHandleByUUID", id, &one)
                   : CALL("nvmlDeviceGetHandleByPciBusId_v2", id, &one);
    if (code == 6) {
        puts("No devices were found");
        exit(6);
    }
    if (code) fail(code, "Unable to determine the device handle for GPU");
    return one;
}

static void show_migs(device one) {
    char name[96], uuid[96];
    unsigned now = 0, pending = 0, largest = 0, shown = 0;
    if (CALL("nvmlDeviceGetMigMode", one, &now, &pending) || !now) return;
    if (CALL("nvmlDeviceGetMaxMigDeviceCount", one, &largest)) return;
    for (unsigned number = 0; number < largest; number++) {
        device mig;
        if (CALL("nvmlDeviceGetMigDeviceHandleByIndex", one, number, &mig)) continue;
        if (CALL("nvmlDeviceGetName", mig, name, (unsigned)sizeof name)) continue;
        if (CALL("nvmlDeviceGetUUID", mig, uuid, (unsigned)sizeof uuid)) continue;
        const char *profile = strstr(name, " MIG ");
        printf("  MIG %-15s Device %2u: (UUID: %s)\n", profile ? profile + 5 : "", shown++, uuid);
    }
}

static int list(void) {
    char name[96], uuid[96];
    unsigned count = count_gpus();
    for (unsigned number = 0; number < count; number++) {
        device one = by_number(number);
        int code = CALL("nvmlDeviceGetName", one, name, (unsigned)sizeof name);
        if (!code) code = CALL("nvmlDeviceGetUUID", one, uuid, (unsigned)sizeof uuid);
        if (code) {
            printf("Unable to determine the device handle for gpu %u: %s\n", number, explain(code));
            continue;
        }
        printf("GPU %u: %s (UUID: %s)\n", number, name, uuid);
        show_migs(one);
    }
    return 0;
}

static int show_version(void) {
    char driver[96] = "", nvml[96] = "";
    int cuda = 0;
    CALL("nvmlSystemGetDriverVersion", driver, (unsigned)sizeof driver);
    CALL("nvmlSystemGetNVMLVersion", nvml, (unsigned)sizeof nvml);
    CALL("nvmlSystemGetCudaDriverVersion", &cuda);
    const char *minor = strchr(nvml, '.');
    printf("NVIDIA-SMI version  : %s\nNVML version        : %s\n", driver, minor ? minor + 1 : nvml);
    printf("DRIVER version      : %s\nCUDA Version        : %d.%d\n", driver, cuda / 1000, cuda % 1000 / 10);
    return 0;
}

static int set_mode(device one, const char *word) {
    int mode = -1;
    for (int number = 0; number < 4; number++)
        if (strcasecmp(word, modes[number]) == 0 || (word[0] == '0' + number && !word[1])) mode = number;
    if (mode < 0) {
        printf("\"%s\" is not a valid compute mode\n", word);
        return 2;
    }
    int code = CALL("nvmlDeviceSetComputeMode", one, (unsigned)mode);
    if (code) fail(code, "Unable to set the compute mode");
    printf("Set compute mode to %s.\nAll done.\n", modes[mode]);
    return 0;
}

static int set_slice(device one, const char *word) {
    if (word[0] < '0' || word[0] > '3' || word[1]) {
        printf("Invalid timeslice \"%s\": 0 Default, 1 Short, 2 Medium, 3 Long\n", word);
        return 2;
    }
    int code = CALL("mockSetTimeSlice", one, (unsigned)(word[0] - '0'));
    if (code) fail(code, "Failed to set timeslice");
    printf("Successfully set the timeslice to %s\n", slices[word[0] - '0']);
    return 0;
}

static int list_slices(device only) {
    unsigned count = count_gpus();
    puts("+-------------------------------------------------------+\n| GPU compute policies:                                 |\n"
         "| GPU     Name                               Value      |\n|=======================================================|");
    for (unsigned number = 0; number < count; number++) {
        device one = by_number(number);
        unsigned slice = 0;
        if ((only && only != one) || CALL("mockGetTimeSlice", one, &slice)) continue;
        printf("| %3u     %-34s %-10s |\n", number, "Timeslice", slices[slice & 3]);
    }
    puts("+-------------------------------------------------------+");
    return 0;
}

int main(int count, char **words) {
    const char *id = NULL, *mode = NULL, *slice = NULL, *policy = NULL;
    int listing = 0, version = 0, first = 1;
    if (count > 1 && strcmp(words[1], "compute-policy") == 0) policy = words[first++];
    for (int number = first; number < count; number++) {
        const char *word = words[number], *next = number + 1 < count ? words[number + 1] : NULL;
        if (!strncmp(word, "--id=", 5)) id = word + 5;
        else if (!strncmp(word, "--set-timeslice=", 16) && policy) slice = word + 16;
        else if ((!strcmp(word, "-i") || !strcmp(word, "--id")) && next) id = next, number++;
        else if (!strcmp(word, "--set-timeslice") && next && policy) slice = next, number++;
        else if ((!strcmp(word, "-c") || !strcmp(word, "--compute-mode")) && next && !policy) mode = next, number++;
        else if (!strcmp(word, "-L") || !strcmp(word, "-l") || !strcmp(word, "--list-gpus") || !strcmp(word, "--list")) listing = 1;
        else if (!strcmp(word, "--version")) version = 1;
        else {
            printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n");
            return 2;
        }
    }
    start();
    if (version) return show_version();
    device one = id ? find(id) : NULL;
    if (policy) return slice ? set_slice(one ? one : by_number(0), slice) : list_slices(one);
    if (mode) return set_mode(one ? one : by_number(0), mode);
    if (listing || count == 1) return list();
    return 2;
}
