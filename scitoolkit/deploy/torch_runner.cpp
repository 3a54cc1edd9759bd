/* Calls of torch packages from C: arrays on the host in and out, copies to the device inside.
   torch loads a package from a file only: it is written to the temporary folder, and removed. */
#include <ATen/Context.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Loader = torch::inductor::AOTIModelPackageLoader;
using Tensors = std::vector<at::Tensor>;

/* One call at a time, as a package has one workspace. */
std::mutex one_call;

struct TemporaryFile {
  std::string path = (std::filesystem::temp_directory_path() / "scitoolkit-XXXXXX.pt2").string();
  TemporaryFile(const char *bytes, int64_t size) {
    const int descriptor = mkstemps(path.data(), 4);
    if (descriptor < 0) throw std::runtime_error("cannot write to " + path);
    for (int64_t written = 0; written < size;) {
      const int64_t count = write(descriptor, bytes + written, size - written);
      if (count <= 0) {
        close(descriptor);
        unlink(path.c_str());
        throw std::runtime_error("no space for " + path);
      }
      written += count;
    }
    close(descriptor);
  }
  ~TemporaryFile() { unlink(path.c_str()); }
};

/* cuDNN rounds factors to 10 bits unless it is told not to; the setting is the caller's, too. */
struct Float32Products {
  const bool before = at::globalContext().allowTF32CuDNN();
  Float32Products() { at::globalContext().setAllowTF32CuDNN(false); }
  ~Float32Products() { at::globalContext().setAllowTF32CuDNN(before); }
};

/* The reason of an error, without the stack that torch adds. */
const char *reason(const std::exception &error) {
  const auto *of_torch = dynamic_cast<const c10::Error *>(&error);
  return of_torch ? of_torch->what_without_backtrace() : error.what();
}

struct Arrays {
  Tensors tensors;
  std::vector<bool> shared;
};

Loader &loaded(const stk_torch_function &function) {
  static std::map<const stk_torch_function *, std::unique_ptr<Loader>> loaders;
  auto &loader = loaders[&function];
  if (!loader) {
    const TemporaryFile file(function.package, function.package_bytes);
    loader = std::make_unique<Loader>(file.path);
  }
  return *loader;
}

/* Tensors in the caller's memory, and the descriptions behind those of these arrays. */
Arrays in_memory(const stk_torch_function &function, int64_t samples, void *const *pointers,
                 int64_t count, const int64_t *&description) {
  Arrays arrays;
  const auto dtype = function.is_double ? at::kDouble : at::kFloat;
  for (int64_t k = 0; k < count; k++) {
    const bool shared = *description++;
    const int64_t rank = *description++;
    std::vector<int64_t> shape(description, description + rank);
    description += rank;
    if (!shared) shape.insert(shape.begin(), samples);
    arrays.tensors.push_back(at::from_blob(pointers[k], shape, at::TensorOptions(dtype)));
    arrays.shared.push_back(shared);
  }
  return arrays;
}

/* Compute samples from `first` on; fewer than a batch are filled up with copies of the last one. */
void compute(Loader &loader, int64_t batch, const Arrays &inputs, const Tensors &outputs,
             int64_t first, int64_t count) {
  Tensors own;
  for (size_t k = 0; k < inputs.tensors.size(); k++) {
    at::Tensor rows = inputs.tensors[k];
    if (!inputs.shared[k]) {
      rows = rows.narrow(0, first, count);
      if (batch > count) {
        auto shape = rows.sizes().vec();
        shape[0] = batch - count;
        rows = at::cat({rows, rows.narrow(0, count - 1, 1).expand(shape)});
      } else if (first > 0) {
        rows = rows.clone(); /* aligned, as kernels for GPUs rely on */
      }
    }
    own.push_back(rows);
  }
  const Tensors results = loader.run(own);
  if (results.size() != outputs.size()) throw std::runtime_error("other outputs than declared");
  for (size_t k = 0; k < outputs.size(); k++) {
    const at::Tensor into = outputs[k].narrow(0, first, count);
    const at::Tensor result = results[k].narrow(0, 0, count);
    if (result.sizes() != into.sizes()) throw std::runtime_error("an output of another shape");
    into.copy_(result);
  }
}

void compute_all(const stk_torch_function &function, int64_t samples, const void *const *inputs,
                 void *const *outputs) {
  const c10::InferenceMode inference;
  const c10::Device device(function.device);
  Loader &loader = loaded(function);
  std::unique_ptr<Float32Products> exact;
  if (!device.is_cpu()) exact = std::make_unique<Float32Products>();
  const int64_t *description = function.arrays;
  Arrays own = in_memory(function, samples, const_cast<void *const *>(inputs),
                         function.num_inputs, description);
  const Tensors results =
      in_memory(function, samples, outputs, function.num_outputs, description).tensors;
  for (auto &tensor : own.tensors) tensor = tensor.to(device);
  const int64_t step = function.batch ? function.batch : samples;
  for (int64_t first = 0; first < samples; first += step) {
    const int64_t count = std::min(step, samples - first);
    try {
      compute(loader, function.batch, own, results, first, count);
      continue;
    } catch (const std::exception &) {
      /* Of one sample, such as an index out of range: find it. */
    }
    for (int64_t k = first; k < first + count; k++) {
      try {
        compute(loader, function.batch, own, results, k, 1);
      } catch (const std::exception &) {
        for (const auto &result : results)
          result.narrow(0, k, 1).fill_(std::numeric_limits<double>::quiet_NaN());
        /* It was no matter of the sample if the device fails. */
        for (const auto &tensor : own.tensors) tensor.cpu();
      }
    }
  }
}

} // namespace

extern "C" int stk_torch_load(const stk_torch_function *function) {
  try {
    const std::lock_guard<std::mutex> lock(one_call);
    const c10::Device device(function->device);
    at::ones({1}).to(device);
    loaded(*function);
    return 0;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "scitoolkit: the package for %s cannot be loaded: %s\n",
                 function->device, reason(error));
    return 6;
  }
}

extern "C" int stk_torch_call(const stk_torch_function *function, int64_t samples,
                              const void *const *inputs, void *const *outputs) {
  try {
    const std::lock_guard<std::mutex> lock(one_call);
    compute_all(*function, samples, inputs, outputs);
    return 0;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "scitoolkit: a call on %s failed: %s\n", function->device, reason(error));
    return 6;
  }
}
