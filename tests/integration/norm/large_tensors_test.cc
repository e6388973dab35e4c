#include "tests/integration/norm/problem.h"
