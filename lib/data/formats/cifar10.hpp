#pragma once

#include <filesystem>

#include "data/import/archive.hpp"
#include "data/import/originals.hpp"

namespace dtrain::data {

/// Whether a file belongs to the binary version of CIFAR-10, by its name: it has no magic number.
bool is_cifar10_file(const OriginalFile& file);

/// The binary version of CIFAR-10: data_batch_*.bin is train, test_batch.bin test, batches.meta.txt names the
/// classes (without it they are numbered). Records of 3,073 bytes: a label, then 32 x 32 red, green and blue
/// values. The files may be packed, see visit_files. Throws data_error naming file and record: a file that
/// ends within a record, a label outside the classes, no training file.
/// Source: the format's description on the CIFAR-10 page (Krizhevsky 2009).
Originals read_cifar10(const std::filesystem::path& from);

}  // namespace dtrain::data
