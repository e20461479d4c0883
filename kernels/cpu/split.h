/* split.h moved: kernels/split.h */
#include "kernels/split.h"
