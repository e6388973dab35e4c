#include "tests/integration/activation/problem.h"
