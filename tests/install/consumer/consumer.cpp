// A stranger's program: asks dtrain how four ranks are laid out.
#include <iostream>

#include "topology/mesh.hpp"

int main() {
  const auto shape = dtrain::topology::MeshShape::parse("pipe=2", 4);
  std::cout << "mesh " << shape.to_string() << '\n';
}
