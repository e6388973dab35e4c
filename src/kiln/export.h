// Marks what the shared library exports; all other symbols are hidden.

#pragma once

#define KILN_EXPORT __attribute__((visibility("default")))
// Before a field of an operation's arguments: the version of Kiln that has it first, if
// not all have it. The C interface is written from it. After a minor version is
// released no further field can be of it.
#define KILN_SINCE(major, minor)
// Before a field that says what to compute; the others say where tensors are, and of
// which type and shape. Python, whose tensors say this, passes options alone.
#define KILN_OPTION
// Before a pointer of an operation's arguments: the type of its elements, which is a
// field or f32, i32, u8 (any type of one byte), and the extents of the contiguous
// tensor, in fields; without any, what a comment says. Tensors with equal extents have
// equal shapes. _IF: the tensor is used where the flag is set. Python checks its
// tensors by it.
#define KILN_TENSOR(type, ...)
#define KILN_TENSOR_IF(flag, type, ...)
// Hides a private part of an exported class.
#define KILN_HIDDEN __attribute__((visibility("hidden")))
