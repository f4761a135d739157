#include "data/formats/plain_text.hpp"

#include <algorithm>
#include <map>
#include <string_view>

#include "core/error.hpp"
#include "data/formats/split_names.hpp"
#include "data/formats/text_files.hpp"
#include "data/import/source_list.hpp"
#include "data/import/text_originals.hpp"
#include "data/text/unicode.hpp"

namespace dtrain::data {
namespace {

/// With a line feed at each line's end where systems write a carriage return before it.
std::string with_line_feeds(std::string text) {
  std::size_t end = 0;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] != '\r' || i + 1 == text.size() || text[i + 1] != '\n') text[end++] = text[i];
  text.resize(end);
  return text;
}

}  // namespace

bool is_plain_text_file(const OriginalFile& file) {
  if (!file.name.ends_with(".txt")) return false;
  const std::size_t invalid = first_invalid_byte(file.content);
  // A glance may end within a character.
  if (invalid != std::string_view::npos && invalid + 4 <= file.content.size()) return false;
  return std::none_of(file.content.begin(), file.content.end(), [](char c) {
    return static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\r' && c != '\t' && c != '\f';
  });
}

Originals read_plain_text(const std::filesystem::path& from, const TextOptions& options) {
  std::map<std::string, OriginalFile> files;
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(from, ignored);
  const auto wants = [&](const std::string& name) { return !folder || name.ends_with(".txt"); };
  visit_files(
      from,
      [&](OriginalFile& file) {
        require_text(file.content, file.origin);
        file.content.erase(0, file.content.size() - without_byte_order_mark(file.content).size());
        const std::string split = split_of_name(base_name(file.name)).value_or("train");
        if (const auto there = files.find(split); there != files.end())
          throw data_error("is a second text beside " + there->second.origin, file.origin,
                           "give one file, or train.txt, validation.txt and test.txt");
        files.emplace(split, std::move(file));
        return true;
      },
      wants);
  if (!files.contains("train"))
    throw data_error("holds no text to train on", from.string(), "give a .txt file");
  const std::string subject = files.at("train").origin;
  std::map<std::string, std::string> splits;
  for (auto& [split, file] : files) splits[split] = with_line_feeds(std::move(file.content));
  Originals found = running_originals(std::move(splits), options, subject);
  found.sources = source_list(from);
  return found;
}

}  // namespace dtrain::data
