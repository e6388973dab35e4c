# What the build takes from NVIDIA: headers, never a library. Defines the target
# kiln_cuda_headers (cuda.h, nvrtc.h), and KILN_CUDNN_INCLUDE_DIR and
# KILN_CUDNN_FRONTEND_INCLUDE_DIR, which are empty where that part is missing.
# Looked for anew at every configure, so that a toolkit that comes or goes is noticed.
include(${CMAKE_CURRENT_LIST_DIR}/NvidiaParts.cmake)

kiln_find_nvidia_part(KILN_CUDA headers)
if(NOT KILN_CUDA_INCLUDE_DIR)
  message(FATAL_ERROR "The CUDA headers (cuda.h of CUDA 12 or later, cuda_fp16.h, crt, CCCL) are "
                      "in no installed toolkit and not in .deps. Run ./tools/run.sh, which "
                      "fetches them, or set CUDA_HOME to a toolkit.")
endif()
set(kiln_nvrtc_include_dir "${KILN_CUDA_INCLUDE_DIR}")
if(NOT EXISTS "${kiln_nvrtc_include_dir}/nvrtc.h")
  kiln_find_nvidia_part(kiln_nvrtc nvrtc)
  set(kiln_nvrtc_include_dir "${kiln_nvrtc_INCLUDE_DIR}")
endif()
if(NOT kiln_nvrtc_include_dir)
  message(FATAL_ERROR "nvrtc.h is in no installed toolkit and not in .deps. Run ./tools/run.sh, "
                      "which fetches it, or set CUDA_HOME to a toolkit.")
endif()
add_library(kiln_cuda_headers INTERFACE)
target_include_directories(kiln_cuda_headers SYSTEM INTERFACE ${KILN_CUDA_INCLUDE_DIR}
                                                              ${kiln_nvrtc_include_dir})

kiln_find_nvidia_part(KILN_CUDNN cudnn)
if(NOT KILN_CUDNN_INCLUDE_DIR)
  kiln_find_nvidia_part(KILN_CUDNN cudnn-headers)
endif()
kiln_find_nvidia_part(KILN_CUDNN_FRONTEND frontend)
set(KILN_CUDNN_FRONTEND_VERSION none)  # "1.23.0": part of every plan's key
if(KILN_CUDNN_FRONTEND_INCLUDE_DIR)
  file(STRINGS "${KILN_CUDNN_FRONTEND_INCLUDE_DIR}/cudnn_frontend_version.h" kiln_lines
       REGEX "^#define CUDNN_FRONTEND_(MAJOR|MINOR|PATCH)_VERSION [0-9]+")
  list(TRANSFORM kiln_lines REPLACE ".* ([0-9]+)$" "\\1")
  list(JOIN kiln_lines "." KILN_CUDNN_FRONTEND_VERSION)
endif()
foreach(kiln_part CUDA CUDNN CUDNN_FRONTEND)
  if(KILN_${kiln_part}_INCLUDE_DIR)
    message(STATUS "Headers of ${kiln_part}: ${KILN_${kiln_part}_INCLUDE_DIR}")
  else()
    message(STATUS "Headers of ${kiln_part}: not found")
  endif()
endforeach()
