#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/shards/dataset.hpp"

namespace dtrain::data {

/// Where new samples without targets lie.
struct UnlabelledOptions {
  /// A CSV file, a .npy array, images, or a text with one sample in each line, or rows class,text whose
  /// classes are left out; of samples with several inputs
  /// an HDF5 or .npz file, or a folder of .npy files.
  std::filesystem::path from;
  std::string ignore = {};     ///< Of a table: columns to leave out, `NAME,NAME`.
  std::string na_values = {};  ///< Of a table: what counts as a gap beside `NA` and the like, `TEXT,TEXT`.
  std::string inputs = {};     ///< Of several inputs: `NAME=ARRAY,...`; empty: arrays have the inputs' names.
};

/// New samples, made as those of a training were.
struct Unlabelled {
  Dataset dataset;                   ///< In memory; all are its split "train", with targets of 0.
  std::int64_t samples = 0;          ///< At least 1.
  std::vector<std::string> names;    ///< Of each sample, such as a file's; empty: they are counted.
  std::vector<std::string> remarks;  ///< For people: what was filled in or left out.
};

/// Reads samples like those that `trained` describes: task, classes, sample shape, columns, tokenizer. A
/// table's rows come from CSV, its columns by name and in any order, each transformed as `trained.columns`
/// says; from an array float32 [n, F] they are taken as they are. Images come from arrays [n, C, H, W] or [n,
/// H, W], or from files (see read_images), texts from the lines of a file, several inputs from arrays by
/// name. HDF5 is read under the lock of `library`. Throws data_error: missing and
/// additional columns, a label or a shape that the training did not have, no sample; usage_error for a task
/// that has no such samples.
Unlabelled read_unlabelled(const DatasetInfo& trained, const UnlabelledOptions& options,
                           h5::Library& library);

}  // namespace dtrain::data
