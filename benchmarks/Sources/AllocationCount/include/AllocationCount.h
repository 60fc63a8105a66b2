// How often memory was asked for.
#pragma once

#include <stdint.h>

/// How often this process has called malloc, calloc, realloc and their like; always 0 where the C library is not glibc.
uint64_t allocation_count(void);
