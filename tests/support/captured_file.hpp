#pragma once

#include <unistd.h>

#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace dtrain::test {

/// A file without a name for code that writes to a std::FILE*, and the text that it holds so far.
class CapturedFile {
 public:
  CapturedFile() : file_(std::tmpfile()) {
    if (file_ == nullptr) throw std::runtime_error("no temporary file can be made");
  }
  ~CapturedFile() { std::fclose(file_); }
  CapturedFile(const CapturedFile&) = delete;
  CapturedFile& operator=(const CapturedFile&) = delete;

  std::FILE* get() const { return file_; }

  /// What was flushed to it so far; also while another thread writes.
  std::string text() const {
    std::string text;
    std::array<char, 4096> piece{};
    for (;;) {
      const auto count =
          ::pread(::fileno(file_), piece.data(), piece.size(), static_cast<off_t>(text.size()));
      if (count <= 0) return text;
      text.append(piece.data(), static_cast<std::size_t>(count));
    }
  }

 private:
  std::FILE* file_;
};

}  // namespace dtrain::test
