// Nothing to call: a program that has this target among its dependencies allocates with jemalloc (docs/adr/0015).
#pragma once
