// Staging and reading for the tests that are written in Python or need a file system of their own:
//   data_tool stage NAME FROM DATA_ROOT [INPUTS TARGETS]
//   data_tool words FILE                 its tokens by the word tokeniser, one a line
//   data_tool dump FOLDER SPLIT OUT      shuffled batches of 17, put back in order: OUT.inputs and
//   OUT.targets
// Ends like dtrain: one sentence on standard error and the error's exit code.
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "data/import/stage.hpp"
#include "data/loader.hpp"
#include "data/text/word_split.hpp"
#include "epoch_requests.hpp"
#include "h5/library.hpp"

namespace {

using namespace dtrain;
using namespace dtrain::data;

void run_stage(const std::vector<std::string>& words, h5::Library& library) {
  StageOptions options{.name = words.at(1), .from = words.at(2), .data_root = words.at(3)};
  if (words.size() > 5) {
    options.inputs = words.at(4);
    options.targets = words.at(5);
  }
  const DatasetInfo info = stage(options, library);
  for (const auto& [split, described] : info.splits) std::cout << split << ' ' << described.samples << '\n';
}

void run_words(const std::vector<std::string>& words) {
  std::ifstream stream(words.at(1), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  std::string scratch;
  std::vector<std::string_view> tokens;
  split_words(text, scratch, tokens);
  for (const std::string_view token : tokens) std::cout << token << '\n';
}

void run_dump(const std::vector<std::string>& words, h5::Library& library) {
  const Dataset dataset = Dataset::open(words.at(1), library);
  const std::string& split = words.at(2);
  const std::int64_t samples = dataset.info().samples(split);
  const auto order = epoch_order(samples, Order::shuffled, 1, 1);
  const auto requests = epoch_requests(order, 17, 1, {0, 1}, {0, (samples + 16) / 17}, 0);
  Loader loader(dataset, split, {.drive = LoaderOptions::Drive::thread});
  loader.start(requests);
  std::vector<std::byte> inputs;
  std::vector<std::byte> targets;
  for (std::size_t step = 0; step < requests.size(); ++step) {
    const Batch batch = loader.next();
    const std::size_t rows = batch.samples.size();
    const std::size_t input_bytes = batch.inputs->bytes() / rows;
    const std::size_t target_bytes = batch.targets->bytes() / rows;
    inputs.resize(static_cast<std::size_t>(samples) * input_bytes);
    targets.resize(static_cast<std::size_t>(samples) * target_bytes);
    for (std::size_t row = 0; row < rows; ++row) {
      const auto id = static_cast<std::size_t>(batch.samples[row]);
      std::memcpy(inputs.data() + id * input_bytes,
                  static_cast<const std::byte*>(batch.inputs->data()) + row * input_bytes, input_bytes);
      std::memcpy(targets.data() + id * target_bytes,
                  static_cast<const std::byte*>(batch.targets->data()) + row * target_bytes, target_bytes);
    }
  }
  const auto write = [&](const std::string& suffix, const std::vector<std::byte>& bytes) {
    std::ofstream(words.at(3) + suffix, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  };
  write(".inputs", inputs);
  write(".targets", targets);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> words(argv + 1, argv + argc);
    h5::Library library;
    if (words.at(0) == "stage") {
      run_stage(words, library);
    } else if (words.at(0) == "words") {
      run_words(words);
    } else {
      run_dump(words, library);
    }
    return 0;
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
