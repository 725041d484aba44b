// SPDX-License-Identifier: Apache-2.0
#include "data/reader.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/error.h"
#include "data/memory.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

std::string big_endian(uint32_t x) { return {char(x >> 24), char(x >> 16), char(x >> 8), char(x)}; }

std::string idx_of(const std::vector<uint32_t>& dims, const std::string& bytes) {
  std::string text{0, 0, 8, char(dims.size())};
  for (uint32_t dim : dims) text += big_endian(dim);
  return text + bytes;
}

std::string zipped(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(text.size() + 256, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = uInt(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = uInt(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

class Idx : public ::testing::Test {
 protected:
  void SetUp() override {
    auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / ("sluice_idx_" + std::to_string(::getpid()) + "_" + test->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& bytes) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  std::shared_ptr<const Reader> open(const std::string& split = "train", const std::string& below = "") {
    for (auto* def : builtin_readers())
      if (def->name == "idx") return def->open({{"path", (folder_ / below).string()}, {"split", split}});
    return nullptr;
  }
  // The error that opening gives: "code: message".
  std::string fault(const std::string& split = "train") {
    try {
      open(split);
    } catch (const Error& error) {
      EXPECT_FALSE(error.next().empty()) << error.what();
      return (error.code() == Code::io          ? "io: "
              : error.code() == Code::not_found ? "not_found: "
                                                : "other: ") +
             error.message();
    }
    return "";
  }
  void write_good() {
    write("train-images-idx3-ubyte.gz", zipped(idx_of({3, 2, 2}, std::string("\0\xff\x01\x02"
                                                                             "abcd"
                                                                             "efgh",
                                                                             12))));
    write("train-labels-idx1-ubyte.gz", zipped(idx_of({3}, std::string("\x05\xff\0", 3))));
  }

  fs::path folder_;
};

TEST_F(Idx, ReadsRowsInAnyOrder) {
  write_good();
  auto reader = open();
  EXPECT_EQ(reader->rows(), 3);
  EXPECT_EQ(reader->fields()[0].name, "image");
  EXPECT_EQ(reader->fields()[0].dtype, DType::float32);
  EXPECT_EQ(reader->fields()[0].row_dims, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(reader->fields()[1].name, "label");
  EXPECT_EQ(reader->fields()[1].dtype, DType::int64);
  EXPECT_TRUE(reader->fields()[1].row_dims.empty());
  std::vector<int64_t> rows{2, 0, 0};
  std::vector<float> images(12);
  std::vector<int64_t> labels(3);
  reader->read(0, rows, images.data());
  reader->read(1, rows, labels.data());
  EXPECT_EQ(images[0], float('e') / 255.f);
  EXPECT_EQ((std::vector<float>(images.begin() + 4, images.begin() + 8)),
            (std::vector<float>{0.f, 1.f, 1 / 255.f, 2 / 255.f}));
  EXPECT_EQ(labels, (std::vector<int64_t>{0, 5, 5}));
  reader->read(0, {}, nullptr);  // no rows: an empty shard
}

TEST_F(Idx, RefusesRowsAndFieldsItLacks) {
  write_good();
  auto reader = open();
  std::vector<float> to(4);
  for (int64_t row : {int64_t(-1), int64_t(3), INT64_MAX}) {
    std::vector<int64_t> rows{row};
    EXPECT_THROW(reader->read(0, rows, to.data()), Error);
  }
  EXPECT_THROW(reader->read(2, {}, to.data()), Error);
}

TEST_F(Idx, FindsSubfoldersPlainFilesAndPrefixes) {
  auto images = idx_of({1, 1, 1}, "x"), labels = idx_of({1}, "y");
  write("raw/t10k-images-idx3-ubyte", images);
  write("raw/t10k-labels.idx1-ubyte.gz", zipped(labels));
  EXPECT_EQ(open("test")->rows(), 1);
  write("letters-images-idx3-ubyte.gz", zipped(images));
  write("letters-labels-idx1-ubyte", labels);
  EXPECT_EQ(open("train", "letters")->rows(), 1);
}

TEST_F(Idx, MissingFilesAreNotFoundWithAdvice) {
  std::string missing = fault();
  EXPECT_EQ(missing.find("not_found: no images of the split 'train' in " + folder_.string()), 0u) << missing;
  write("train-images-idx3-ubyte", idx_of({1, 1, 1}, "x"));
  missing = fault();
  EXPECT_EQ(missing.find("not_found: no labels of the split 'train'"), 0u) << missing;
  EXPECT_EQ(fault("validate"), "other: the reader 'idx' has no split 'validate'");
}

TEST_F(Idx, NamesTheFileAndTheFault) {
  std::string good = idx_of({3, 2, 2}, "0123456789ab"), gz = zipped(good);
  std::string flipped = gz;
  flipped[flipped.size() / 2] = char(flipped[flipped.size() / 2] ^ 0x55);
  std::vector<std::pair<std::string, std::string>> cases{
      {"", "it ends within its header"},
      {good, "it is not gzip, which its name says it is"},
      {"no idx file", "it is no IDX file (bad magic number)"},
      {gz.substr(0, gz.size() - 9), "truncated"},
      {gz.substr(0, 12), "truncated"},
      {flipped, "corrupt"},
      {zipped("\1\2\3\4"), "it is no IDX file (bad magic number)"},
      {zipped(good.substr(0, 9)), "it ends within its header"},
      {zipped(std::string("\0\0\x0d\3", 4) + good.substr(4)), "its elements are not unsigned bytes (type 13)"},
      {zipped(idx_of({3}, "abc")), "it has 1 dims where 3 are expected"},
      {zipped(good.substr(0, good.size() - 1)), "it is truncated: its header claims 12 bytes, it has 11"},
      {zipped(good + "c"), "it has more bytes than its header claims"},
      {zipped(idx_of({0, 2, 2}, "")), "it holds no elements"},
      {zipped(idx_of({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, "abc")), "its header claims more than 1 TiB"},
      {zipped(idx_of({0x80000000, 0x80000000, 4}, "abc")), "its header claims more than 1 TiB"},
      {zipped(idx_of({0x00FFFFFF, 100, 100}, "abc")),
       "it is truncated: its header claims 167772150000 bytes, it has 3"},
  };
  write_good();
  for (auto& [bytes, fault_text] : cases) {
    write("train-images-idx3-ubyte.gz", bytes);
    std::string found = fault();
    EXPECT_EQ(found.find("io: " + folder_.string() + "/train-images-idx3-ubyte.gz cannot be used"), 0u) << found;
    EXPECT_NE(found.find(fault_text), std::string::npos) << found << "\nexpected: " << fault_text;
  }
}

TEST_F(Idx, CountsOfImagesAndLabelsMustAgree) {
  write_good();
  write("train-labels-idx1-ubyte.gz", zipped(idx_of({2}, "ab")));
  std::string found = fault();
  EXPECT_NE(found.find("holds 3 images, but"), std::string::npos) << found;
  EXPECT_NE(found.find("holds 2 labels"), std::string::npos) << found;
}

// Damaged bytes give an error or rows, nothing else.
TEST_F(Idx, SurvivesDamage) {
  write_good();
  std::mt19937 random(11);
  std::string plain = idx_of({3, 2, 2}, "0123456789ab"), gz = zipped(plain);
  for (int i = 0; i < 500; ++i) {
    bool inside = i % 2;
    std::string bytes = inside ? plain : gz;
    for (int n = 1 + int(random() % 3); n > 0; --n) bytes[random() % bytes.size()] = char(random());
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    write("train-images-idx3-ubyte.gz", inside ? zipped(bytes) : bytes);
    fault();
  }
}

TEST(FashionMnist, IsReadWhereItIsInstalled) {
  const std::string path = "/usr/share/datasets/fashion-mnist";
  if (!fs::exists(path)) GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
  for (auto* def : builtin_readers()) {
    if (def->name != "idx") continue;
    auto reader = def->open({{"path", path}, {"split", std::string("test")}});
    EXPECT_EQ(reader->rows(), 10000);
    EXPECT_EQ(reader->fields()[0].row_dims, (std::vector<int64_t>{28, 28}));
    std::vector<int64_t> rows{0, 9999}, labels(2);
    reader->read(1, rows, labels.data());
    EXPECT_EQ(labels, (std::vector<int64_t>{9, 5}));
  }
}

TEST(EveryReader, HasADocAndAttributes) {
  for (auto* def : builtin_readers()) {
    EXPECT_GT(def->doc.size(), 20u);
    EXPECT_FALSE(def->attrs.empty());
    EXPECT_THROW(def->open({}), Error) << def->name << " needs its attributes";
  }
}

std::vector<std::byte> bytes_of_values(const std::vector<int16_t>& values) {
  std::vector<std::byte> bytes(values.size() * 2);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TEST(Memory, ReadsRows) {
  auto reader = make_memory_reader({{"x", DType::int16, {2}}, {"y", DType::uint8, {}}},
                                   {bytes_of_values({1, 2, 3, 4, 5, 6}), {std::byte{7}, std::byte{8}, std::byte{9}}});
  EXPECT_EQ(reader->rows(), 3);
  std::vector<int64_t> rows{2, 0};
  std::vector<int16_t> x(4);
  std::vector<uint8_t> y(2);
  reader->read(0, rows, x.data());
  reader->read(1, rows, y.data());
  EXPECT_EQ(x, (std::vector<int16_t>{5, 6, 1, 2}));
  EXPECT_EQ(y, (std::vector<uint8_t>{9, 7}));
  std::vector<int64_t> outside{3};
  EXPECT_THROW(reader->read(0, outside, x.data()), Error);
}

TEST(Memory, RefusesArraysThatDoNotFit) {
  auto make = [](std::vector<Field> fields, std::vector<std::vector<std::byte>> arrays) {
    make_memory_reader(std::move(fields), std::move(arrays));
  };
  EXPECT_THROW(make({}, {}), Error);
  EXPECT_THROW(make({{"x", DType::int16, {2}}}, {}), Error);
  EXPECT_THROW(make({{"x", DType::int16, {2}}}, {{}}), Error);
  EXPECT_THROW(make({{"x", DType::int16, {2}}}, {std::vector<std::byte>(6)}), Error);
  EXPECT_THROW(make({{"x", DType::int16, {0}}}, {std::vector<std::byte>(6)}), Error);
  EXPECT_THROW(make({{"x", DType::int16, {-2}}}, {std::vector<std::byte>(4)}), Error);
  EXPECT_THROW(make({{"x", DType::int16, {INT64_MAX, 4}}}, {std::vector<std::byte>(4)}), Error);
  EXPECT_THROW(make({{"x", DType::int16, {INT64_MAX}}}, {std::vector<std::byte>(4)}), Error);
  EXPECT_THROW(
      make({{"x", DType::int16, {}}, {"y", DType::int8, {}}}, {std::vector<std::byte>(4), std::vector<std::byte>(3)}),
      Error);
}

}  // namespace
}  // namespace sluice
