#include "data/formats/text_csv.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>

#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "data/formats/csv.hpp"
#include "data/formats/split_names.hpp"
#include "data/formats/text_files.hpp"
#include "data/import/source_list.hpp"
#include "data/import/text_originals.hpp"
#include "data/text/blanks.hpp"
#include "data/text/unicode.hpp"

namespace dtrain::data {
namespace {

constexpr std::string_view kClassNames = "classes.txt";
// A space stands for each: a backslash is a line break in AG News, and \n is one in most others.
const std::vector<std::string> kBackslash = {"\\"};
const std::vector<std::string> kEscapes = {"\\n", "\\"};

bool is_csv(std::string_view name) { return name.ends_with(".csv"); }

/// A split as its file has it: classes are numbers still.
struct Rows {
  std::string origin;
  std::vector<std::int64_t> labels;
  std::vector<std::int64_t> lines;
  std::vector<std::string> texts;
};

std::string text_of(const std::vector<std::string_view>& cells) {
  std::string text;
  for (std::size_t i = 1; i < cells.size(); ++i) text.append(i > 1 ? " " : "").append(cells[i]);
  return text;
}

/// What stands for a line break: \n where most backslashes are before an n.
const std::vector<std::string>& line_breaks_of(const std::vector<std::string>& texts) {
  std::int64_t backslashes = 0;
  std::int64_t escapes = 0;
  for (const std::string& text : texts)
    for (std::size_t at = text.find('\\'); at != std::string::npos; at = text.find('\\', at + 1)) {
      ++backslashes;
      escapes += text.compare(at, 2, kEscapes.front()) == 0 ? 1 : 0;
    }
  return 2 * escapes > backslashes ? kEscapes : kBackslash;
}

Error empty_document(const std::string& origin, std::int64_t line) {
  return data_error("line " + std::to_string(line) + " is an empty document", origin,
                    "remove it, or give it its text");
}

Rows read_rows(const OriginalFile& file) {
  require_utf8(file.content, file.origin);
  Rows rows{.origin = file.origin};
  CsvReader reader(file.content, file.origin);
  std::size_t fields = 0;
  for (std::vector<std::string_view> cells; reader.next(cells);) {
    const auto fail = [&](const std::string& problem, const char* advice) {
      return data_error("line " + std::to_string(reader.line()) + " " + problem, file.origin, advice);
    };
    if (fields == 0) fields = cells.size();
    if (cells.size() != fields || fields < 2)
      throw fail("has " + std::to_string(cells.size()) + " fields, not " +
                     (fields < 2 ? "a class and a text" : std::to_string(fields) + " as the first row"),
                 "put quotes around a text with commas");
    const auto label = parse_number<std::int64_t>(cells[0]);
    if (!label)
      throw fail("has the class '" + std::string(cells[0]) + "', which is no number", "number the classes");
    std::string text = text_of(cells);
    if (is_blank(with_spaces(text, kBackslash))) throw empty_document(file.origin, reader.line());
    rows.labels.push_back(*label);
    rows.lines.push_back(reader.line());
    rows.texts.push_back(std::move(text));
  }
  if (rows.texts.empty()) throw data_error("holds no rows", file.origin, "give class,text rows");
  return rows;
}

/// The classes' numbers in the file and their names.
struct Classes {
  std::vector<std::int64_t> numbers;
  std::vector<std::string> names;
};

Classes classes_of(const Rows& train, std::vector<std::string> names) {
  const std::set<std::int64_t> distinct(train.labels.begin(), train.labels.end());
  Classes classes{.names = std::move(names)};
  if (classes.names.empty()) {
    classes.numbers.assign(distinct.begin(), distinct.end());
    for (const std::int64_t number : distinct) classes.names.push_back(std::to_string(number));
  } else {
    const std::int64_t first = distinct.contains(0) ? 0 : 1;
    for (std::int64_t i = 0; i < std::ssize(classes.names); ++i) classes.numbers.push_back(first + i);
  }
  return classes;
}

ClassifiedTexts with_targets(Rows rows, const Classes& classes) {
  ClassifiedTexts out{.texts = std::move(rows.texts)};
  for (std::size_t i = 0; i < rows.labels.size(); ++i) {
    const auto found = std::lower_bound(classes.numbers.begin(), classes.numbers.end(), rows.labels[i]);
    if (found == classes.numbers.end() || *found != rows.labels[i])
      throw data_error(
          "line " + std::to_string(rows.lines[i]) + " has the class " + std::to_string(rows.labels[i]) +
              ", which is none of the " + std::to_string(classes.numbers.size()) + " classes (" +
              std::to_string(classes.numbers.front()) + " to " + std::to_string(classes.numbers.back()) + ")",
          rows.origin, "correct the row, or give classes.txt that belongs to the file");
    out.targets.push_back(found - classes.numbers.begin());
  }
  return out;
}

}  // namespace

bool is_text_csv_file(const OriginalFile& file) {
  if (!is_csv(file.name)) return false;
  std::vector<std::string_view> first;
  CsvReader reader(file.content, file.origin);
  try {
    if (!reader.next(first)) return false;
  } catch (const Error&) {
    return false;  // cut off within its first row, or not CSV at all
  }
  if (first.size() < 2 || !parse_number<std::int64_t>(first[0])) return false;
  bool text = false;
  for (std::size_t i = 1; i < first.size(); ++i) {
    if (parse_number<double>(first[i])) return false;
    text = text || std::count(first[i].begin(), first[i].end(), ' ') >= 2;
  }
  return text;
}

bool has_text_rows(const OriginalFile& file) {
  if (!is_csv(file.name)) return false;
  CsvReader reader(file.content, file.origin);
  std::size_t fields = 0;
  bool text = false;
  try {
    for (std::vector<std::string_view> cells; reader.next(cells);) {
      if (fields == 0) fields = cells.size();
      if (cells.size() != fields || fields < 2 || !parse_number<std::int64_t>(cells[0])) return false;
      text = text || std::any_of(cells.begin() + 1, cells.end(),
                                 [](std::string_view cell) { return !parse_number<double>(cell); });
    }
  } catch (const Error&) {
    return false;
  }
  return text;
}

std::vector<std::string> texts_of_csv(const OriginalFile& file) { return read_rows(file).texts; }

Originals read_text_csv(const std::filesystem::path& from, const TextOptions& options,
                        const SplitRule& rule) {
  std::map<std::string, Rows> files;
  std::vector<std::string> names;
  const auto wants = [](const std::string& name) { return is_csv(name) || base_name(name) == kClassNames; };
  visit_files(
      from,
      [&](const OriginalFile& file) {
        if (base_name(file.name) == kClassNames) {
          names = lines_of(file);
          return true;
        }
        const std::string split = split_of_name(base_name(file.name)).value_or("train");
        if (const auto there = files.find(split); there != files.end())
          throw data_error("is a second file of split " + split + " beside " + there->second.origin,
                           file.origin,
                           "leave one file per split, named train.csv, validation.csv and test.csv");
        files.emplace(split, read_rows(file));
        return true;
      },
      wants);
  if (!files.contains("train"))
    throw data_error("holds no train.csv", from.string(), "give rows class,text to train on");
  const Classes classes = classes_of(files.at("train"), std::move(names));
  const auto& blanks = line_breaks_of(files.at("train").texts);
  for (auto& [split, rows] : files)
    for (std::size_t i = 0; i < rows.texts.size(); ++i) {
      rows.texts[i] = with_spaces(std::move(rows.texts[i]), blanks);
      if (is_blank(rows.texts[i])) throw empty_document(rows.origin, rows.lines[i]);
    }
  std::map<std::string, ClassifiedTexts> splits;
  for (auto& [split, rows] : files) splits[split] = with_targets(std::move(rows), classes);
  Originals found = classified_originals(splits, classes.names, options, rule);
  found.tokenizer.value().blanks = blanks;
  found.sources = source_list(from);
  return found;
}

}  // namespace dtrain::data
