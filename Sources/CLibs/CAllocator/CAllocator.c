#include "CAllocator.h"

#ifdef __linux__
// Read by jemalloc before main. Two arenas, because one thread does nearly all the work. Freed memory is returned to
// the system after a second, so that a burst does not stay in the resident size. MALLOC_CONF in the environment has
// precedence.
const char *malloc_conf = "narenas:2,dirty_decay_ms:1000,muzzy_decay_ms:0";
#endif
