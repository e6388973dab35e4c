// <stdbool.h> for NVRTC: C++ has it by itself.
#pragma once
#define __bool_true_false_are_defined 1
