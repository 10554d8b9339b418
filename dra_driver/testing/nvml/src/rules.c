/* SPDX-License-Identifier: Apache-2.0
 * Delays, errors and hangs. A call that hangs holds a lock of the whole process, which each other call takes for a moment. */
#include "mock.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uint64_t identity;
    long calls;
} counts[4 * MAX_RULES];

static void nap(long milliseconds) {
    struct timespec time = {milliseconds / 1000, (milliseconds % 1000) * 1000000};
    nanosleep(&time, NULL);
}

/* How many calls a rule has met in this process, this one included. Old rules make room for new ones. */
long rules_count(uint64_t identity) {
    static size_t oldest;
    size_t place = 0, room = sizeof counts / sizeof *counts;
    pthread_mutex_lock(&counting);
    while (place < room && counts[place].identity != identity) place++;
    if (place == room) {
        place = oldest++ % room;
        counts[place].identity = identity;
        counts[place].calls = 0;
    }
    long found = ++counts[place].calls;
    pthread_mutex_unlock(&counting);
    return found;
}

static int matches(const struct rule *rule, const char *function, int gpu) {
    if (rule->gpu != ABSENT && rule->gpu != gpu) return 0;
    size_t length = strlen(rule->function);
    if (length && rule->function[length - 1] == '*') return strncmp(rule->function, function, length - 1) == 0;
    return strcmp(rule->function, function) == 0;
}

static int still_hangs(uint64_t identity) {
    const struct world *world = world_now();
    for (unsigned number = 0; number < world->rule_count; number++)
        if (world->rules[number].identity == identity) return 1;
    return 0;
}

/* Until the rule is taken back. */
static void hang(uint64_t identity) {
    pthread_mutex_lock(&gate);
    while (still_hangs(identity)) nap(20);
    pthread_mutex_unlock(&gate);
}

/* Returns the code of the first rule that has one. `world` is replaced if time has passed. */
int rules_apply(const struct world **world, const char *function, int gpu) {
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    struct rule met[MAX_RULES];
    unsigned count = 0;
    *world = world_now();
    for (unsigned number = 0; number < (*world)->rule_count; number++)
        if (matches(&(*world)->rules[number], function, gpu)) met[count++] = (*world)->rules[number];
    int code = SUCCESS;
    for (unsigned number = 0; number < count && code == SUCCESS; number++) {
        const struct rule *rule = &met[number];
        if (rule->after || rule->calls) {
            long calls = rules_count(rule->identity);
            if (calls <= rule->after || (rule->calls && calls > rule->after + rule->calls)) continue;
        }
        if (rule->delay_ms) nap(rule->delay_ms);
        if (rule->hang) hang(rule->identity);
        code = rule->code;
    }
    if (count) *world = world_now();
    return code;
}

/* The tables have names without the number of the version: _v2, _v3 or V. */
static size_t plain(const char *name) {
    size_t length = strlen(name);
    if (length > 3 && name[length - 3] == '_' && name[length - 2] == 'v') return length - 3;
    return length > 1 && name[length - 1] == 'V' ? length - 1 : length;
}

int failing_code(const struct failing *errors, unsigned count, const char *function) {
    size_t length = plain(function);
    for (unsigned number = 0; number < count; number++)
        if (strlen(errors[number].function) == length && strncmp(errors[number].function, function, length) == 0)
            return errors[number].code;
    return SUCCESS;
}
