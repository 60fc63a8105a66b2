// Counts memory allocations.
#pragma once

#include <stdint.h>

/// Number of calls of malloc, calloc, realloc and similar functions in this process; always 0 if the C library is not
/// glibc.
uint64_t allocation_count(void);
