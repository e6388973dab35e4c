// cudnn-frontend's headers as the plan worker uses them: cuDNN opened at run time, no
// exceptions, no JSON of its own. Only this folder includes them: they are large.

#pragma once

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define NV_CUDNN_DISABLE_EXCEPTION
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>
