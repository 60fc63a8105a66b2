// Declares nothing: a program that depends on this target allocates with jemalloc (docs/adr/0015).
#pragma once
