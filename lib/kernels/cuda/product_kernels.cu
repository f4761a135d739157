// Products by cublasLt, with what follows them. LibTorch has loaded that library where a GPU computes; it is
// looked up by name, so that the module opens without it.
#include "kernels/cuda/product_kernels.hpp"

#include <cublasLt.h>
#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include "core/error.hpp"
#include "kernels/cuda/bias_gradient.hpp"

namespace dtrain::kernels {
namespace {

constexpr const char* kAdvice = "leave out --kernels fused";

void check(cublasStatus_t status, const char* call) {
  require(status == CUBLAS_STATUS_SUCCESS, "fails with status " + std::to_string(static_cast<int>(status)),
          {.subject = call, .advice = kAdvice});
}

/// The library's functions that are used here.
struct Library {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmulDescCreate) describe;
  decltype(&cublasLtMatmulDescDestroy) forget_description;
  decltype(&cublasLtMatmulDescSetAttribute) set;
  decltype(&cublasLtMatrixLayoutCreate) lay_out;
  decltype(&cublasLtMatrixLayoutDestroy) forget_layout;
  decltype(&cublasLtMatmulPreferenceCreate) prefer;
  decltype(&cublasLtMatmulPreferenceDestroy) forget_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose;
  decltype(&cublasLtMatmul) multiply;

  /// Nothing where it is not there.
  static std::optional<Library> open() {
    const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
    void* const file = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (file == nullptr) return std::nullopt;
    bool all = true;
    const auto find = [&]<class Function>(Function& function, const char* symbol) {
      function = reinterpret_cast<Function>(dlsym(file, symbol));
      all = all && function != nullptr;
    };
    Library found{};
    find(found.create, "cublasLtCreate");
    find(found.describe, "cublasLtMatmulDescCreate");
    find(found.forget_description, "cublasLtMatmulDescDestroy");
    find(found.set, "cublasLtMatmulDescSetAttribute");
    find(found.lay_out, "cublasLtMatrixLayoutCreate");
    find(found.forget_layout, "cublasLtMatrixLayoutDestroy");
    find(found.prefer, "cublasLtMatmulPreferenceCreate");
    find(found.forget_preference, "cublasLtMatmulPreferenceDestroy");
    find(found.set_preference, "cublasLtMatmulPreferenceSetAttribute");
    find(found.choose, "cublasLtMatmulAlgoGetHeuristic");
    find(found.multiply, "cublasLtMatmul");
    return all ? std::optional(found) : std::nullopt;
  }
};

/// A handle of the library's, freed with `Free`.
template <class Handle>
class Held {
 public:
  using Free = cublasStatus_t (*)(Handle);
  Held(Handle handle, Free free) : handle_(handle), free_(free) {}
  ~Held() { free_(handle_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  Handle get() const { return handle_; }

 private:
  Handle handle_;
  Free free_;
};

/// What is the same each time a product of these sizes is computed.
class Plan {
 public:
  /// `bias` and `aux`: as of run(); known before an algorithm is chosen.
  Plan(const Library& library, cublasLtHandle_t handle, const ColumnProduct& of, cudaDataType_t type,
       cublasLtEpilogue_t epilogue, void* bias, void* aux)
      : library_(library),
        handle_(handle),
        product_(description(library), library.forget_description),
        a_(layout(library, type, of.transposes_a ? of.k : of.m, of.transposes_a ? of.m : of.k, of.lda),
           library.forget_layout),
        b_(layout(library, type, of.k, of.n, of.ldb), library.forget_layout),
        d_(layout(library, type, of.m, of.n, of.ldd), library.forget_layout) {
    set(CUBLASLT_MATMUL_DESC_TRANSA, of.transposes_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    if (epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, of.ldd);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
    }
    set_pointers(bias, aux);
    choose();
  }

  bool there_is_one() const { return chosen_; }

  /// `bias` and `aux`: what the epilogue reads and writes beside `d`; null without one.
  void run(void* d, const void* a, const void* b, void* bias, void* aux, void* workspace,
           cudaStream_t stream) const {
    set_pointers(bias, aux);
    const float one = 1.0F;
    const float zero = 0.0F;
    check(library_.multiply(handle_, product_.get(), &one, a, a_.get(), b, b_.get(), &zero, d, d_.get(), d,
                            d_.get(), &algorithm_, workspace, ProductKernels::kWorkspaceBytes, stream),
          "cublasLtMatmul");
  }

 private:
  static cublasLtMatmulDesc_t description(const Library& library) {
    cublasLtMatmulDesc_t made = nullptr;
    check(library.describe(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    return made;
  }
  static cublasLtMatrixLayout_t layout(const Library& library, cudaDataType_t type, std::int64_t rows,
                                       std::int64_t columns, std::int64_t leading) {
    cublasLtMatrixLayout_t made = nullptr;
    check(library.lay_out(&made, type, static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns),
                          leading),
          "cublasLtMatrixLayoutCreate");
    return made;
  }
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) const {
    check(library_.set(product_.get(), attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }

  void set_pointers(void* bias, void* aux) const {
    if (bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (aux != nullptr) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
  }

  void choose() {
    cublasLtMatmulPreference_t made = nullptr;
    check(library_.prefer(&made), "cublasLtMatmulPreferenceCreate");
    const Held<cublasLtMatmulPreference_t> preference(made, library_.forget_preference);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(library_.set_preference(preference.get(), attribute, &value, sizeof value),
            "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, ProductKernels::kWorkspaceBytes);
    // 256 where nothing is said; weights are parts of a flat block.
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t{16});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, std::uint32_t{16});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, std::uint32_t{16});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::uint32_t{16});
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const auto status = library_.choose(handle_, product_.get(), a_.get(), b_.get(), d_.get(), d_.get(),
                                        preference.get(), 1, &best, &found);
    chosen_ = status == CUBLAS_STATUS_SUCCESS && found == 1 && best.state == CUBLAS_STATUS_SUCCESS;
    algorithm_ = best.algo;
  }

  const Library& library_;
  cublasLtHandle_t handle_;
  Held<cublasLtMatmulDesc_t> product_;
  Held<cublasLtMatrixLayout_t> a_, b_, d_;
  cublasLtMatmulAlgo_t algorithm_{};
  bool chosen_ = false;
};

class CudaProductKernels final : public ProductKernels {
 public:
  bool gelu(void* out, void* before, const void* x, const void* weight, const void* bias, Element type,
            const InnerProduct& of, void* workspace, Stream stream) const override {
    if (!takes_epilogue(of, type, {out, before, x, weight, bias, workspace})) return false;
    return run({out, weight, x, const_cast<void*>(bias), before}, product_with_weight(of), type,
               CUBLASLT_EPILOGUE_GELU_AUX_BIAS, workspace, stream);
  }

  bool gelu_gradient(void* gradient, float* of_bias, const void* of_output, const void* outer,
                     const void* before, Element type, const InnerProduct& of, void* workspace,
                     Stream stream) const override {
    if (!takes_epilogue(of, type, {gradient, of_output, outer, before, workspace})) return false;
    // Not DGELU_BGRAD: cublasLt computes that behind the product, in 321 us for 16,384 x 3,072 elements of
    // bf16 on an H200, 2026-11-26. This pass moves 302 MB, which that GPU does in 70 us: a prediction.
    if (!run({.d = gradient, .a = outer, .b = of_output}, product_with_outer(of), type,
             CUBLASLT_EPILOGUE_DEFAULT, workspace, stream))
      return false;
    gelu_gradient_on_gpu(gradient, of_bias, before, type, of, workspace, static_cast<cudaStream_t>(stream));
    return true;
  }

 private:
  struct Operands {
    void* d;
    const void* a;
    const void* b;
    void* bias = nullptr;
    void* aux = nullptr;
  };
  // Forward and backward run in different threads, and a plan's pointers are the last call's.
  bool run(const Operands& on, const ColumnProduct& of, Element type, cublasLtEpilogue_t epilogue,
           void* workspace, Stream stream) const {
    const std::lock_guard lock(mutex_);
    if (!library_) return false;
    if (handle_ == nullptr) check(library_->create(&handle_), "cublasLtCreate");
    const cudaDataType_t data = type == Element::float16 ? CUDA_R_16F : CUDA_R_16BF;
    auto& plan = plans_[{of.m, of.n, of.k, data, epilogue}];
    if (plan == nullptr)
      plan = std::make_unique<Plan>(*library_, handle_, of, data, epilogue, on.bias, on.aux);
    if (!plan->there_is_one()) return false;
    plan->run(on.d, on.a, on.b, on.bias, on.aux, workspace, static_cast<cudaStream_t>(stream));
    return true;
  }

  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, cudaDataType_t, cublasLtEpilogue_t>;
  mutable std::mutex mutex_;
  const std::optional<Library> library_ = Library::open();
  mutable cublasLtHandle_t handle_ = nullptr;  // of the rank's one GPU; lives as long as the process
  mutable std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace

const ProductKernels& product_kernels_of_gpu() {
  static const CudaProductKernels kernels;
  return kernels;
}

}  // namespace dtrain::kernels
