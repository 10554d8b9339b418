/* SPDX-License-Identifier: Apache-2.0
 * What the programs of this folder call. They find the library as each program does: by its SONAME. */
#ifndef NVML_H
#define NVML_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef void *device;

static void *library;

static inline void load_library(const char *complaint) {
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (library) return;
    fprintf(stderr, "%s\n%s\n", complaint, dlerror());
    exit(12);
}

/* Functions of one, two, three and four arguments; code 13 if the library has no such function. */
static inline int call0(const char *name) {
    int (*function)(void) = (int (*)(void))dlsym(library, name);
    return function ? function() : 13;
}

#define CALL(name, ...)                                                                        \
    ({                                                                                         \
        int (*function)() = (int (*)())dlsym(library, name);                                   \
        function ? function(__VA_ARGS__) : 13;                                                 \
    })

static inline const char *explain(int code) {
    const char *(*function)(int) = (const char *(*)(int))dlsym(library, "nvmlErrorString");
    return function ? function(code) : "Unknown Error";
}

#endif
