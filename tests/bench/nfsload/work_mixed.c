#include "load.h"
const struct workload mixed_workloads[] = {{0}};
