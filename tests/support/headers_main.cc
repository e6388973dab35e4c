// Has the headers that nearly every test includes compiled once: see kiln_test().

int main() {
  return 0;
}
