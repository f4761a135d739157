#include "data/import/archive.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "data/folder.hpp"
#include "data/import/archive_writer.hpp"

namespace dtrain::data {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using testing::Format;
using ::testing::HasSubstr;
using testing::Member;
using ::testing::Pair;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_archive;
using testing::write_bytes;

using Names = std::vector<std::pair<std::string, std::string>>;  // name, content

Names all_of(const std::filesystem::path& from, const std::function<bool(const std::string&)>& wants = {}) {
  Names found;
  visit_files(
      from,
      [&](OriginalFile& file) {
        found.emplace_back(file.name, std::move(file.content));
        return true;
      },
      wants);
  return found;
}

std::string long_text(char first) {
  std::string text(300'000, first);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(text[i] + i * i % 23);
  return text;
}

class ArchiveTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder / "in" / "deep"); }
  void expect_refused(const std::string& words) {
    testing::expect_data_error(error_of([&] { all_of(folder / "in"); }), words);
  }
  TemporaryFolder folder;
};

TEST_F(ArchiveTest, EveryPackingGivesTheSameFilesInTheSameOrder) {
  const std::string b = long_text('b');
  const std::vector<Member> stored = {{"deep/b.txt", b}, {"a.txt", "first"}, {"deep/empty.txt", ""}};
  const Names expected = {{"a.txt", "first"}, {"deep/b.txt", b}, {"deep/empty.txt", ""}};

  write_bytes(folder / "in/a.txt", "first");
  write_bytes(folder / "in/deep/b.txt", b);
  write_bytes(folder / "in/deep/empty.txt", "");
  write_bytes(folder / "in/deep/.hidden", "not one of them");
  EXPECT_EQ(all_of(folder / "in"), expected);

  write_archive(folder / "plain.tar", stored);
  write_archive(folder / "packed.tar.gz", stored, Format::tar, archive_write_add_filter_gzip);
  write_archive(folder / "packed.tar.xz", stored, Format::tar, archive_write_add_filter_xz);
  write_archive(folder / "nameless", stored, Format::tar, archive_write_add_filter_gzip);
  write_archive(folder / "files.zip", stored, Format::zip);
  for (const char* name : {"plain.tar", "packed.tar.gz", "packed.tar.xz", "nameless", "files.zip"})
    EXPECT_EQ(all_of(folder / name), expected) << name;

  // Packed one by one, and one of them in an archive of its folder.
  std::filesystem::remove_all(folder / "in");
  std::filesystem::create_directories(folder / "in");
  write_archive(folder / "in/a.txt.gz", {{"any", "first"}}, Format::raw, archive_write_add_filter_gzip);
  write_archive(folder / "in/rest.tar.xz", {stored[0], stored[2]}, Format::tar, archive_write_add_filter_xz);
  EXPECT_EQ(all_of(folder / "in"), expected);
  EXPECT_THAT(all_of(folder / "in/a.txt.gz"), ElementsAre(Pair("a.txt", "first")));
  write_archive(folder / "in/deep.xz", {{"any", ""}}, Format::raw, archive_write_add_filter_xz);
  EXPECT_THAT(all_of(folder / "in/deep.xz"), ElementsAre(Pair("deep", "")));
}

TEST_F(ArchiveTest, OnlyWantedFilesAreReadAndTheWalkCanBeEnded) {
  for (const char* name : {"1.txt", "2.bin", "3.txt"}) write_bytes(folder / "in" / name, name);
  const auto text = [](const std::string& name) { return name.ends_with(".txt"); };
  EXPECT_THAT(all_of(folder / "in", text), ElementsAre(Pair("1.txt", "1.txt"), Pair("3.txt", "3.txt")));
  int visited = 0;
  visit_files(folder / "in", [&](OriginalFile&) { return ++visited < 2; });
  EXPECT_EQ(visited, 2);
  // A file that nobody wants may be whatever it is.
  write_bytes(folder / "in/4.gz", read_bytes(folder / "in/1.txt"));
  EXPECT_EQ(all_of(folder / "in", text).size(), 2);
}

TEST_F(ArchiveTest, AGlanceReadsBeginnings) {
  write_archive(folder / "in/long.tar.gz", {{"x/long", long_text('x')}, {"x/short", "s"}}, Format::tar,
                archive_write_add_filter_gzip);
  Names seen;
  glance_at_files(folder / "in", [&](const OriginalFile& file) {
    seen.emplace_back(file.name, file.content);
    return true;
  });
  EXPECT_THAT(seen,
              ElementsAre(Pair("x/long", long_text('x').substr(0, kGlanceBytes)), Pair("x/short", "s")));
}

TEST_F(ArchiveTest, MembersThatClimbOutAreRefused) {
  const auto refused = [&](const Member& member, const std::string& words) {
    write_archive(folder / "in/bad.tar", {{"fine.txt", "fine"}, member});
    expect_refused("bad.tar: its member " + member.path + " " + words);
  };
  refused({"../evil.txt", "x"}, "climbs out of its folder");
  refused({"a/../../evil.txt", "x"}, "climbs out of its folder");
  refused({"/etc/evil.txt", "x"}, "has an absolute path");
  refused({"link", "", "../outside"}, "is a link");
  EXPECT_FALSE(std::filesystem::exists(folder / "evil.txt"));
}

TEST_F(ArchiveTest, DamagedAndTruncatedFilesAreRefused) {
  const std::vector<Member> stored = {{"a.txt", long_text('a')}, {"b.txt", long_text('b')}};
  for (const auto& [name, filter] : {std::pair{"cut.tar", &archive_write_add_filter_none},
                                     {"cut.tar.gz", &archive_write_add_filter_gzip},
                                     {"cut.tar.xz", &archive_write_add_filter_xz}}) {
    write_archive(folder / "in" / name, stored, Format::tar, filter);
    const std::string whole = read_bytes(folder / "in" / name);
    write_bytes(folder / "in" / name, whole.substr(0, whole.size() / 2));
    expect_refused(std::string(name) + ": is truncated or damaged");
    std::filesystem::remove(folder / "in" / name);
  }
  for (const auto& [name, filter] : {std::pair{"cut.txt.gz", &archive_write_add_filter_gzip},
                                     {"cut.txt.xz", &archive_write_add_filter_xz}}) {
    write_archive(folder / "in" / name, {stored[0]}, Format::raw, filter);
    std::string whole = read_bytes(folder / "in" / name);
    write_bytes(folder / "in" / name, whole.substr(0, whole.size() - 20));
    expect_refused(std::string(name) + ": is truncated or damaged");
    whole[whole.size() / 2] = static_cast<char>(whole[whole.size() / 2] ^ 0x55);
    write_bytes(folder / "in" / name, whole);
    expect_refused(std::string(name) + ": is truncated or damaged");
    std::filesystem::remove(folder / "in" / name);
  }
  write_archive(folder / "in/cut.zip", stored, Format::zip, &archive_write_add_filter_none);
  const std::string zip = read_bytes(folder / "in/cut.zip");
  for (const std::size_t missing : {10, 40, 200}) {  // each member is there, but not the whole list of them
    write_bytes(folder / "in/cut.zip", zip.substr(0, zip.size() - missing));
    expect_refused("cut.zip: is truncated or damaged");
  }
  std::filesystem::remove(folder / "in/cut.zip");
  write_bytes(folder / "in/none.tar", std::string(2000, 'n'));
  expect_refused("none.tar: is truncated or damaged");
}

TEST_F(ArchiveTest, WhatUnpacksToFarMoreThanItsSizeIsRefused) {
  // 150 MB of zeros take a few kilobytes: far more of them would fill the memory.
  const std::string zeros(150'000'000, '\0');
  for (const auto& [name, format] : {std::pair{"zeros.bin.gz", Format::raw}, {"zeros.tar.gz", Format::tar}}) {
    write_archive(folder / "in" / name, {{"zeros.bin", zeros}}, format, archive_write_add_filter_gzip);
    expect_refused("unpacks to more than 128 MiB from 1 MiB");
    std::filesystem::remove(folder / "in" / name);
  }
  std::vector<Member> parts;
  for (int i = 0; i < 4; ++i) parts.push_back({"part-" + std::to_string(i), zeros.substr(0, 40'000'000)});
  write_archive(folder / "in/zeros.zip", parts, Format::zip);
  expect_refused("unpacks to more than 128 MiB from 1 MiB");  // the total counts, not the member
}

TEST_F(ArchiveTest, AnArchiveBesideItsUnpackedFolderIsRefused) {
  std::filesystem::create_directories(folder / "in/pets/cats");
  write_bytes(folder / "in/pets/cats/1.txt", "one");
  write_archive(folder / "in/pets.tar.gz", {{"cats/1.txt", "one"}, {"cats/2.txt", "two"}}, Format::tar,
                archive_write_add_filter_gzip);
  expect_refused("pets.tar.gz:cats/1.txt: is there twice, also as");
}

TEST_F(ArchiveTest, NothingAndTwiceTheSameAreRefused) {
  expect_refused("holds no files");
  EXPECT_THAT(error_of([&] { all_of(folder / "absent"); }).what(), HasSubstr("no such file or folder"));
  write_bytes(folder / "in/a.txt", "plain");
  write_archive(folder / "in/b.tar", {{"a.txt", "packed"}});
  expect_refused("b.tar:a.txt: is there twice, also as");
}

}  // namespace
}  // namespace dtrain::data
