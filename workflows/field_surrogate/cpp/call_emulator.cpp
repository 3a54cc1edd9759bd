// Calls an exported emulator from C++, as a solver would: no Python is needed at run time.
//
//   call_emulator model.pt2 FIELDS NX NZ STEPS state.bin result.bin
//
// state.bin holds FIELDS arrays of NX x NZ float32 in the order and the units that
// `scitoolkit export` printed; the state after STEPS steps is written to result.bin.

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 8) {
    std::cerr << "usage: call_emulator model.pt2 FIELDS NX NZ STEPS state.bin result.bin\n";
    return 2;
  }
  const int64_t fields = std::atoll(argv[2]), nx = std::atoll(argv[3]), nz = std::atoll(argv[4]);
  const int steps = std::atoi(argv[5]);
  const std::streamsize bytes = nx * nz * sizeof(float);

  std::ifstream input(argv[6], std::ios::binary);
  std::vector<at::Tensor> state;
  for (int64_t i = 0; i < fields; ++i) {
    state.push_back(at::empty({1, nx, nz}, at::kFloat));
    if (!input.read(reinterpret_cast<char*>(state.back().data_ptr<float>()), bytes)) {
      std::cerr << argv[6] << ": fewer than " << fields << " fields of " << bytes << " bytes\n";
      return 3;
    }
  }

  c10::InferenceMode no_gradients;
  torch::inductor::AOTIModelPackageLoader model(argv[1]);
  for (int step = 0; step < steps; ++step) state = model.run(state);

  std::ofstream output(argv[7], std::ios::binary);
  for (const at::Tensor& field : state)
    output.write(reinterpret_cast<const char*>(field.contiguous().data_ptr<float>()), bytes);
  return output ? 0 : 1;
}
