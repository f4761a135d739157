// Stands in for libFuzzer where the compiler has none: FUZZ_TARGET CORPUS [--runs N] [--seconds S] [--seed N]
// reads every file of the corpus, then N mutations of them that are always the same, then others for S
// seconds. Those begin with a seed of their own, which is printed: the day, or what --seed says. It has no
// feedback from the code; preset `fuzz` has. An input that ends the process, or that takes more than ten
// seconds, is kept as fuzz-finding in the working folder.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <iterator>
#include <map>
#include <random>
#include <vector>

#include "target.hpp"

namespace {

using Input = std::vector<std::uint8_t>;

constexpr unsigned kLimit_s = 10;
constexpr std::size_t kLargestInput = 1 << 16;

const Input* current = nullptr;  // for the handler of signals, which has no other way to it

void keep_finding(int signal) {
  const int file = ::open("fuzz-finding", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file >= 0 && current != nullptr && ::write(file, current->data(), current->size()) >= 0) {
    constexpr char kText[] = "fuzz: the input is kept as fuzz-finding\n";
    if (::write(STDERR_FILENO, kText, sizeof(kText) - 1) < 0) ::_exit(1);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal == SIGALRM ? SIGKILL : signal);
}

void run(const Input& input) {
  current = &input;
  ::alarm(kLimit_s);
  LLVMFuzzerTestOneInput(input.data(), input.size());
  ::alarm(0);
}

/// Changes an input a little, in one of the ways that break readers.
class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  Input mutate(Input input, const Input& other) {
    for (std::size_t i = 0, times = 1 + below(4); i < times; ++i) change(input, other);
    input.resize(std::min(input.size(), kLargestInput));
    return input;
  }
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }

 private:
  void change(Input& input, const Input& other) {
    const std::size_t at = below(input.size() + 1);
    const auto place = [&](std::size_t where) { return input.begin() + static_cast<std::ptrdiff_t>(where); };
    switch (below(8)) {
      case 0:  // a bit
        if (at < input.size()) input[at] ^= static_cast<std::uint8_t>(1U << below(8));
        return;
      case 1:  // a byte
        if (at < input.size()) input[at] = static_cast<std::uint8_t>(random_());
        return;
      case 2:  // a number of 8 bytes at the edge of some range
        for (std::size_t i = 0, number = edge(); i < 8 && at + i < input.size(); ++i, number >>= 8)
          input[at + i] = static_cast<std::uint8_t>(number);
        return;
      case 3: {  // the same in digits
        const std::string digits = std::to_string(static_cast<std::int64_t>(edge()));
        input.insert(place(at), digits.begin(), digits.end());
        return;
      }
      case 4:  // less
        input.erase(place(at), place(std::min(input.size(), at + 1 + below(16))));
        return;
      case 5:  // the same again
        if (at < input.size()) {
          const Input piece(place(at), place(std::min(input.size(), at + 1 + below(64))));
          input.insert(place(below(input.size())), piece.begin(), piece.end());
        }
        return;
      case 6:  // the end of another input
        if (!other.empty()) {
          input.resize(at);
          input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(below(other.size())),
                       other.end());
        }
        return;
      default:  // cut
        input.resize(at);
    }
  }

  std::uint64_t edge() {
    static constexpr std::array<std::uint64_t, 14> kEdges = {
        0,      1,          127,        128,        255,        256,        0x7FFF,
        0xFFFF, 0x7FFFFFFF, 0x80000000, 1ULL << 40, 1ULL << 62, ~0ULL >> 1, ~0ULL};
    return kEdges[below(kEdges.size())];
  }

  std::mt19937_64 random_;
};

std::vector<Input> read_corpus(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<Input> corpus;
  for (const auto& file : files) {
    std::ifstream stream(file, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  return corpus;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: " << argv[0] << " CORPUS [--runs N] [--seconds S] [--seed N]\n";
    return 2;
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::map<std::string, std::uint64_t> given = {
      {"--runs", 0},
      {"--seconds", 0},
      {"--seed", static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::days>(now).count())}};
  for (int i = 2; i + 1 < argc; i += 2) given.at(argv[i]) = std::stoull(argv[i + 1]);
  for (const int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL, SIGALRM})
    std::signal(signal, keep_finding);
  const std::vector<Input> corpus = read_corpus(argv[1]);
  if (corpus.empty()) {
    std::cerr << "fuzz: " << argv[1] << " holds no inputs\n";
    return 2;
  }
  for (const Input& input : corpus) run(input);
  const auto mutate_one = [&](Mutator& mutator) {
    run(mutator.mutate(corpus[mutator.below(corpus.size())], corpus[mutator.below(corpus.size())]));
  };
  Mutator always(1);
  for (std::uint64_t i = 0; i < given["--runs"]; ++i) mutate_one(always);

  std::cout << corpus.size() << " inputs and " << given["--runs"] << " mutations; then seed "
            << given["--seed"] << std::endl;
  Mutator others(given["--seed"]);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(given["--seconds"]);
  std::uint64_t more = 0;
  for (; std::chrono::steady_clock::now() < end; ++more) mutate_one(others);
  std::cout << more << " further mutations\n";
}
