/* What GNUstep's headers ask for as soon as clang has blocks on. */
#ifndef MILKIT_TESTS_BLOCKS_RUNTIME_H
#define MILKIT_TESTS_BLOCKS_RUNTIME_H
#include <Block.h>
#endif
