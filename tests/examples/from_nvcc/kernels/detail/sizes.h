// What device and host code have in common: plain C++.
#pragma once

constexpr int kMaxColumns = 1024;
constexpr int kThreads = 128;

constexpr int ceil_div(int n, int by) {
  return (n + by - 1) / by;
}
