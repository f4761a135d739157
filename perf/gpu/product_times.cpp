// product_times [TOKENS]: the matrix products of a step of gpt2-124M in bf16, each by every algorithm that
// cublasLt proposes, fastest first: microseconds, TFLOP/s, the algorithm's rank in the library's own order.
// Products with what follows them (biases, GELU, sums for gradients of biases) stand beside those without.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
constexpr int kProposals = 24;
constexpr int kRepeats = 12;

void check(int status, const char* what) {
  if (status == 0) return;
  std::fprintf(stderr, "product_times: %s fails with status %d\n", what, status);
  std::exit(1);
}

/// D [m, n] = op(A) op(B), column-major.
struct Product {
  const char* name;
  bool transposes_a;
  bool transposes_b;
  std::int64_t m, n, k;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cudaDataType_t result = CUDA_R_16BF;
  float keep = 0;  // beta
};

struct Memory {
  void *a, *b, *d, *bias, *aux, *workspace;
};

void measure(cublasLtHandle_t handle, const Product& of, const Memory& memory) {
  cublasLtMatmulDesc_t product = nullptr;
  check(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, of.transposes_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, of.transposes_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (of.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, of.epilogue);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, memory.bias);
    if (of.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || of.epilogue == CUBLASLT_EPILOGUE_DGELU ||
        of.epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, of.m);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, memory.aux);
    }
    const bool gradient =
        of.epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD || of.epilogue == CUBLASLT_EPILOGUE_BGRADB;
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, gradient ? of.result : CUDA_R_16BF);
  }
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  const auto lay_out = [](cublasLtMatrixLayout_t* made, cudaDataType_t type, std::int64_t rows,
                          std::int64_t columns) {
    check(cublasLtMatrixLayoutCreate(made, type, static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(columns), rows),
          "cublasLtMatrixLayoutCreate");
  };
  lay_out(&a, CUDA_R_16BF, of.transposes_a ? of.k : of.m, of.transposes_a ? of.m : of.k);
  lay_out(&b, CUDA_R_16BF, of.transposes_b ? of.n : of.k, of.transposes_b ? of.k : of.n);
  lay_out(&d, of.result, of.m, of.n);
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &kWorkspaceBytes, sizeof kWorkspaceBytes),
        "cublasLtMatmulPreferenceSetAttribute");
  std::vector<cublasLtMatmulHeuristicResult_t> proposals(kProposals);
  int found = 0;
  const int status = cublasLtMatmulAlgoGetHeuristic(handle, product, a, b, d, d, preference, kProposals,
                                                    proposals.data(), &found);
  std::printf("\n%s  m %ld n %ld k %ld\n", of.name, of.m, of.n, of.k);
  if (status != 0 || found == 0) {
    std::printf("  no algorithm (status %d)\n", status);
    return;
  }
  struct Timed {
    float us;
    int rank;
  };
  std::vector<Timed> timed;
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  const float one = 1.0F;
  for (int rank = 0; rank < found; ++rank) {
    const auto multiply = [&] {
      return cublasLtMatmul(handle, product, &one, memory.a, a, memory.b, b, &of.keep, memory.d, d, memory.d,
                            d, &proposals[static_cast<std::size_t>(rank)].algo, memory.workspace,
                            kWorkspaceBytes, nullptr);
    };
    if (multiply() != CUBLAS_STATUS_SUCCESS) continue;
    multiply();
    float best = 1e30F;
    for (int round = 0; round < 3; ++round) {
      cudaEventRecord(begin);
      for (int i = 0; i < kRepeats; ++i) multiply();
      cudaEventRecord(end);
      check(cudaEventSynchronize(end), "cudaEventSynchronize");
      float ms = 0;
      cudaEventElapsedTime(&ms, begin, end);
      best = std::min(best, ms * 1000.0F / kRepeats);
    }
    timed.push_back({best, rank});
  }
  std::sort(timed.begin(), timed.end(), [](const Timed& x, const Timed& y) { return x.us < y.us; });
  const double operations =
      2.0 * static_cast<double>(of.m) * static_cast<double>(of.n) * static_cast<double>(of.k);
  for (std::size_t i = 0; i < timed.size(); ++i) {
    if (i >= 3 && timed[i].rank != 0) continue;
    std::printf("  %8.1f us  %4.0f TFLOP/s  rank %d of %d\n", timed[i].us, operations / timed[i].us / 1e6,
                timed[i].rank, found);
  }
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** words) {
  const std::int64_t tokens = count > 1 ? std::atol(words[1]) : 16384;
  const std::int64_t piece = tokens / 2;  // of the words' loss
  Memory memory{};
  const auto take = [](void** made, std::size_t bytes) {
    check(cudaMalloc(made, bytes), "cudaMalloc");
    // Small values of both signs: a GPU's clock depends on the bits that change.
    std::vector<std::uint16_t> values(bytes / 2);
    std::uint32_t state = 1;
    for (auto& value : values) {
      state = state * 1664525U + 1013904223U;
      value = static_cast<std::uint16_t>(0x3c00U | (state >> 16U & 0x80ffU));
    }
    check(cudaMemcpy(*made, values.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  };
  const std::size_t most = std::size_t{2} * static_cast<std::size_t>(piece) * 50304;
  take(&memory.a, most);
  take(&memory.b, most);
  take(&memory.d, most);
  take(&memory.aux, std::size_t{2} * static_cast<std::size_t>(tokens) * 3072);
  take(&memory.bias, std::size_t{4} * 50304);
  take(&memory.workspace, kWorkspaceBytes);
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), "cublasLtCreate");
  const auto bias = CUBLASLT_EPILOGUE_BIAS;
  const auto sums = CUBLASLT_EPILOGUE_BGRADB;
  const Product products[] = {
      {"qkv", true, false, 2304, tokens, 768, bias},
      {"out of attention", true, false, 768, tokens, 768, bias},
      {"inner", true, false, 3072, tokens, 768, bias},
      {"inner, GELU", true, false, 3072, tokens, 768, CUBLASLT_EPILOGUE_GELU_BIAS},
      {"inner, GELU, its input kept", true, false, 3072, tokens, 768, CUBLASLT_EPILOGUE_GELU_AUX_BIAS},
      {"outer", true, false, 768, tokens, 3072, bias},
      {"words", true, false, 50304, piece, 768},
      {"of qkv's input", false, false, 768, tokens, 2304},
      {"of attention's result", false, false, 768, tokens, 768},
      {"of inner's input", false, false, 768, tokens, 3072},
      {"of GELU's result", false, false, 3072, tokens, 768},
      {"of GELU's input", false, false, 3072, tokens, 768, CUBLASLT_EPILOGUE_DGELU},
      {"of GELU's input, with sums", false, false, 3072, tokens, 768, CUBLASLT_EPILOGUE_DGELU_BGRAD},
      {"of words' input", false, false, 768, piece, 50304},
      {"of qkv's weight", false, true, 768, 2304, tokens, CUBLASLT_EPILOGUE_DEFAULT, CUDA_R_32F},
      {"of qkv's weight, with sums", false, true, 768, 2304, tokens, sums, CUDA_R_32F},
      {"of attention's weight", false, true, 768, 768, tokens, CUBLASLT_EPILOGUE_DEFAULT, CUDA_R_32F},
      {"of attention's weight, with sums", false, true, 768, 768, tokens, sums, CUDA_R_32F},
      {"of inner's weight", false, true, 768, 3072, tokens, CUBLASLT_EPILOGUE_DEFAULT, CUDA_R_32F},
      {"of inner's weight, with sums", false, true, 768, 3072, tokens, sums, CUDA_R_32F},
      {"of outer's weight", false, true, 3072, 768, tokens, CUBLASLT_EPILOGUE_DEFAULT, CUDA_R_32F},
      {"of outer's weight, with sums", false, true, 3072, 768, tokens, sums, CUDA_R_32F},
      {"of words' weight, added", false, true, 768, 50304, piece, CUBLASLT_EPILOGUE_DEFAULT, CUDA_R_32F,
       1.0F},
  };
  for (const Product& product : products) measure(handle, product, memory);
  return 0;
}
