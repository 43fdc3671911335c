/* What all headers of corelocal use. */
#ifndef CORELOCAL_BASE_H
#define CORELOCAL_BASE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define CORELOCAL_ALIGNED(n) __attribute__((aligned(n)))
#else
#error "corelocal's headers need GCC or Clang"
#endif

#endif
