// The functions of cuDNN that this library has, exported by their own names.

#pragma once

#include "cudnn/table.h"

#pragma GCC visibility push(default)
extern "C" {
std::size_t cudnnGetVersion();
const char* cudnnGetErrorString(kiln::attention::cudnn::Status status);
void cudnnGetLastErrorString(char* text, std::size_t room);
kiln::attention::cudnn::Status cudnnCreate(kiln::attention::cudnn::Handle* handle);
kiln::attention::cudnn::Status cudnnDestroy(kiln::attention::cudnn::Handle handle);
kiln::attention::cudnn::Status cudnnSetStream(kiln::attention::cudnn::Handle handle,
                                              CUstream_st* stream);
kiln::attention::cudnn::Status cudnnBackendCreateDescriptor(
    kiln::attention::cudnn::DescriptorKind kind,
    kiln::attention::cudnn::Descriptor* descriptor);
kiln::attention::cudnn::Status cudnnBackendDestroyDescriptor(
    kiln::attention::cudnn::Descriptor descriptor);
kiln::attention::cudnn::Status cudnnBackendSetAttribute(
    kiln::attention::cudnn::Descriptor descriptor,
    kiln::attention::cudnn::Attribute name, kiln::attention::cudnn::AttributeType type,
    std::int64_t count, const void* values);
kiln::attention::cudnn::Status cudnnBackendGetAttribute(
    kiln::attention::cudnn::Descriptor descriptor,
    kiln::attention::cudnn::Attribute name, kiln::attention::cudnn::AttributeType type,
    std::int64_t room, std::int64_t* count, void* values);
kiln::attention::cudnn::Status cudnnBackendFinalize(
    kiln::attention::cudnn::Descriptor descriptor);
kiln::attention::cudnn::Status cudnnBackendExecute(
    kiln::attention::cudnn::Handle handle, kiln::attention::cudnn::Descriptor plan,
    kiln::attention::cudnn::Descriptor pack);
}
#pragma GCC visibility pop
