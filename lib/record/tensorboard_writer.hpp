#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "record/rows.hpp"

namespace dtrain::record {

/// Scalars for TensorBoard: one event file in a folder. Framing as TFRecord (length, masked CRC-32C),
/// messages as tensorflow/core/util/event.proto and framework/summary.proto, encoded here.
class TensorBoardWriter {
 public:
  /// Makes `folder` and a new event file in it. Throws Error (exit code 2) when it cannot. With `kept` the
  /// points of an earlier part of the run beyond there are removed, since they come again: TensorBoard would
  /// show them twice. Curves whose names have `_by_step/` count steps, all others epochs.
  explicit TensorBoardWriter(const std::string& folder, const std::optional<Kept>& kept = std::nullopt);

  /// One point of the curve `tag` (`train/loss`). NaN is left out: TensorBoard draws it as a gap anyhow.
  /// Throws Error when the disk is full.
  void scalar(std::string_view tag, std::int64_t step, double value);

  /// Hands everything to the operating system: TensorBoard shows it.
  void flush();

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void record(std::string_view message);

  std::string path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
};

/// CRC-32C (Castagnoli) of `bytes`, as TFRecord wants it before masking.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace dtrain::record
