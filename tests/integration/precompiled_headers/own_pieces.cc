#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "tests/integration/precompiled_headers/pieces.h"

namespace kiln::test {
namespace {

struct Header {
  const char* name;
  const char* text;
};

// What may be left of a header in an image, or in the compiler's state, in many ways.
constexpr Header kHeaders[] = {
    {"members.h",
     "template <class T> struct Members { static constexpr int kOne = 1; static "
     "constexpr "
     "T kTwo{2}; static __device__ int three() "
     "{ return kOne + 2; } };\n"
     "__device__ inline int uses(Members<long> m) { return m.kOne; }\n"
     "template <class T> struct Late { static constexpr int kSize = sizeof(T); };\n"
     "__device__ inline int late() { return Late<double>::kSize; }\n"},
    {"variables.h",
     "__device__ int global_of_header = 3; __constant__ float table_of_header[4] = {1, "
     "2, 3, 4}; static __device__ int hidden_of_header; inline constexpr int kInline = "
     "5;\ntemplate <class T> constexpr T kOf = T(7); __shared__ int shared_of_header;\n"
     "namespace { __device__ float nameless_of_header[3]; }\n"},
    {"functions.h",
     "__device__ __noinline__ int called(int x) { return x * 3 + 1; }\nstatic "
     "__device__ "
     "__noinline__ int hidden_call(int x) { return called(x) - 1; }\nextern "
     "\"C\" __global__ void kernel_of_header(int* n) { *n = hidden_call(*n); }\n"
     "template <int N> __device__ __noinline__ int times(int x) { return x * N; }\n"
     "__device__ inline int prints(int x) { printf(\"%d of a header\\n\", x); return "
     "x; "
     "}\n__device__ inline int counted() { static __device__ int count = 0; return "
     "++count; }\n"},
    {"classes.h",
     "struct Shape { __device__ virtual int area() const { return 1; } __device__ "
     "virtual ~Shape() {} };\nstruct Square : Shape { int side; __device__ Square(int "
     "s) : side(s) {} __device__ int area() const override { return side * side; } };\n"
     "template <class T, int N> struct Vector { T x[N]; __device__ T sum() const { T s "
     "{}; for (const T& each : x) s += each; return s; } };\n"},
    {"macros.h",
     "#define TWICE(x) ((x) + (x))\n#define NAME(x) name_##x = #x[0]\nconstexpr int "
     "NAME(first);\n#define GONE 1\n#undef GONE\n"},
    {"state.h",
     "#pragma pack(push, 1)\n#pragma nv_diag_suppress 177\nusing "
     "namespace cuda_like;\n"},
    {"names.h",
     "namespace cuda_like { inline namespace v1 { struct Tag {}; __device__ inline int "
     "rank(Tag) { return 1; } } }\n"},
    {"files.h",
     "__device__ inline const char* file_of_header() { return __FILE__; }\n__device__ "
     "inline int line_of_header() { return __LINE__; }\n__device__ inline const char* "
     "function_of_header() { return __func__; }\n"},
    {"base.h",
     "__device__ inline const char* base_of_header() { return __BASE_FILE__; }\n"},
    {"open.h", "extern \"C\" {\n"},
    {"warns.h", "#warning \"mind this\"\n"},
    {"guarded.h",
     "#ifndef GUARDED_H\n#define GUARDED_H\n#include \"once.h\"\ntemplate <class T> "
     "__device__ T guarded(T x) { return once(x) + 1; }\n#endif\n"},
    {"once.h", "template <class T> __device__ T once(T x) { return x; }\n"},
    {"deferred.h",
     "template <class T> struct Traits { static constexpr int kRank = 1; };\ntemplate "
     "<class T> __device__ __noinline__ int rank_of(T) { return Traits<T>::kRank; }\n"
     "template <class... T> __device__ int sum_of(T... x) { return (0 + ... + x); }\n"
     "__device__ inline auto make_adder(int x) { return [x](int y) { return x + y; }; "
     "}\n__device__ inline int uses_adder(int x) { return make_adder(x)(2) + "
     "sum_of(1, x, 'c'); }\nextern template __device__ int rank_of<char>(char);\n"},
    {"pending.h",
     "template <int N> struct Constant { static constexpr int value = N; };\ntemplate "
     "<class T> __device__ T pending(T x) { return x + Constant<sizeof(T)>::value; }\n"
     "__device__ inline int uses_pending(int x) { return pending(x) + "
     "int(pending(2.f)) "
     "+ int(pending(1LL)); }\n"},
    {"type_names.h",
     "template <class T> __device__ const char* name_of(T) { return "
     "__PRETTY_FUNCTION__; "
     "}\ntemplate <class T> struct Named { static __device__ const char* of() { return "
     "__func__; } };\n"},
    {"assembly.h",
     "__device__ __forceinline__ int lane() { int x; asm volatile(\"{ .reg .u32 t; "
     "mov.u32 t, %%laneid; "
     "mov.u32 %0, t; }\" : \"=r\"(x)); return x; }\n"},
};

constexpr Piece kOwnPieces[] = {
    {"members", "members.h",
     "*n = Members<int>::kTwo + uses({}) + late() + Late<short>::kSize; const float* p "
     "= "
     "&Members<float>::kTwo; n[1] = int(*p);"},
    {"variables", "variables.h",
     "n[0] = global_of_header + kInline + kOf<int>; f[0] = table_of_header[n[1] & 3] + "
     "nameless_of_header[n[2]] + kOf<float>; hidden_of_header += 1;"},
    {"unused_variables", "variables.h", "*n = 1;"},
    {"functions", "functions.h",
     "*n = called(*n) + times<3>(*n) + prints(2) + counted();"},
    {"classes", "classes.h",
     "Square s(*n); const Shape& shape = s; Vector<float, 3> v{{1, 2, *f}}; *n = "
     "shape.area(); *f = v.sum();"},
    {"macros", "macros.h",
     "int NAME(own); *n = TWICE(*n) + name_first + name_own + GONE;",
     "#undef TWICE\n#define TWICE(x) 5\nconstexpr int GONE = 3;\n"},
    {"packed_and_suppressed", "names.h state.h",
     "int unused; *n = int(sizeof(Odd)) + rank(Tag());",
     "struct Odd { char c; int i; };\n"},
    {"files", "files.h",
     "reinterpret_cast<const char**>(n)[0] = file_of_header(); "
     "reinterpret_cast<const char**>(n)[1] = function_of_header(); n[8] = "
     "line_of_header() + __LINE__;"},
    {"base_file", "base.h", "reinterpret_cast<const char**>(n)[0] = base_of_header();",
     "", true},
    {"open_block", "open.h", "*n = in_block(2);",
     "__device__ int in_block(int x) { return x; }\n}\n", true},
    {"warning", "warns.h", "*n = 3;", "", true},
    {"guarded", "guarded.h", "*n = guarded(once(*n));",
     "struct Own;\n#include \"guarded.h\"\n#include \"once.h\"\n"},
    {"specialized_after", "deferred.h",
     "*n = rank_of(Mine()) + rank_of(2) + uses_adder(3);",
     "struct Mine {};\ntemplate <> struct Traits<Mine> { static constexpr int kRank = "
     "9; "
     "};\n"},
    {"kernel_templates", "deferred.h", "*n = 1;",
     "template <class T> __global__ void scaled(T* x, T y) { *x *= y + T(rank_of(y)); "
     "}\n"},
    // The variables of the image in another order if the header's are instantiated
    // first.
    {"pending_instantiations", "pending.h",
     "*n = uses_pending(*n) + Constant<77>::value + Constant<78>::value;"},
    {"instantiated", "deferred.h", "*n = rank_of(3.f);",
     "template __device__ int rank_of<double>(double);\n"},
    {"type_names", "type_names.h",
     "auto lambda = [](int x) { return x + 1; }; struct { int x; } object{}; enum { kA "
     "}; "
     "const char* names[] = {name_of(lambda), name_of(object), name_of(kA), "
     "Named<decltype(lambda)>::of()}; reinterpret_cast<const char**>(n)[1] = "
     "names[n[0] & "
     "3]; n[0] = lambda(n[0]);"},
    {"assembly", "assembly.h", "*n = lane() + lane();"},
    {"anonymous", "variables.h", "f[1] = nameless_of_header[1] + mine[2];",
     "namespace { __device__ float mine[4] = {1}; }\n"},
};

}  // namespace

std::span<const Piece> own_pieces() {
  return kOwnPieces;
}

void write_own_headers(const std::string& folder) {
  for (const auto& [name, text] : kHeaders)
    std::ofstream(folder + "/" + name) << "#pragma once\n" << text;
}

std::string includes_of(const std::vector<Piece>& pieces) {
  std::string includes;
  for (const Piece& piece : pieces) {
    std::istringstream names(piece.headers);
    for (std::string name; names >> name;)
      includes += fmt::format("#include <{}>\n", name);
  }
  return includes;
}

std::string source_of(const std::vector<Piece>& pieces) {
  std::string source = includes_of(pieces);
  for (const Piece& piece : pieces) source += piece.before;
  source += "extern \"C\" __global__ void k(float* f, int* n) {\n";
  for (const Piece& piece : pieces) source += fmt::format("  {{ {} }}\n", piece.code);
  return source + "}\n";
}

}  // namespace kiln::test
