// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "base/error.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_in(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string file_of(const std::string& header, const std::string& data) {
  std::string size;
  for (int i = 0; i < 8; ++i) size += char(uint64_t(header.size()) >> (8 * i));
  return size + header + data;
}

// "" when the file is accepted, else the message without what all messages have in common.
std::string fault(const std::string& file) {
  try {
    parse_safetensors(bytes_in(file), "f");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::io);
    std::string start = "f is no safetensors file: ", text = error.message();
    EXPECT_EQ(text.find(start), 0u);
    return text.substr(start.size());
  }
  return "";
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" + offsets + "]}";
}

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / ("sluice_st_" + std::to_string(::getpid()) + "_" + test->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string read(const std::string& name) const {
    std::ifstream in(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  size_t files() const { return size_t(std::distance(fs::directory_iterator(folder_), fs::directory_iterator{})); }
  std::string fault_of(const std::string& name) const {
    try {
      Checkpoint checkpoint(path(name));
    } catch (const Error& error) {
      EXPECT_FALSE(error.next().empty()) << error.what();
      return (error.code() == Code::not_found ? "not_found: " : "io: ") + error.message();
    }
    return "";
  }
  fs::path folder_;
};

const std::string floats(16, 'f'), longs(24, 'l'), flags("\0\1\1", 3), halves("hhbb");

std::vector<NamedArray> some_arrays() {
  return {{"fc1.weight", DType::float32, {2, 2}, bytes_in(floats)},
          {"step", DType::int64, {3}, bytes_in(longs)},
          {"mask", DType::bool_, {3, 1}, bytes_in(flags)},
          {"h", DType::float16, {}, bytes_in(halves).first(2)},
          {"empty", DType::float64, {0, 7}, {}},
          {"gr\xc3\xb6\xc3\x9f\x65 \"x\"", DType::bfloat16, {1}, bytes_in(halves).last(2)}};
}

void expect_equal(const Checkpoint& checkpoint, const std::vector<NamedArray>& arrays) {
  ASSERT_EQ(checkpoint.arrays().size(), arrays.size());
  for (auto& array : arrays) {
    auto* found = checkpoint.find(array.name);
    ASSERT_TRUE(found) << array.name;
    EXPECT_EQ(found->dtype, array.dtype);
    EXPECT_EQ(found->dims, array.dims);
    EXPECT_TRUE(std::equal(found->bytes.begin(), found->bytes.end(), array.bytes.begin(), array.bytes.end()));
  }
  EXPECT_EQ(checkpoint.find("no such tensor"), nullptr);
}

TEST_F(Files, RoundTrip) {
  Metadata metadata{{"format", "pt"}, {"a\"b", "c\nd"}};
  write_safetensors(path("m.safetensors"), some_arrays(), metadata);
  Checkpoint checkpoint(path("m.safetensors"));
  expect_equal(checkpoint, some_arrays());
  EXPECT_EQ(checkpoint.metadata(), metadata);
  EXPECT_EQ(files(), 1u);
  write_safetensors(path("none.safetensors"), {});
  expect_equal(Checkpoint(path("none.safetensors")), {});
}

TEST_F(Files, BytesDoNotDependOnOrderAndAreAligned) {
  auto arrays = some_arrays();
  write_safetensors(path("a"), arrays);
  std::reverse(arrays.begin(), arrays.end());
  write_safetensors(path("b"), arrays);
  EXPECT_EQ(read("a"), read("b"));
  Checkpoint checkpoint(path("a"));
  for (auto& array : checkpoint.arrays())
    if (!array.bytes.empty()) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(array.bytes.data()) % size_t(bytes_of(array.dtype)), 0u) << array.name;
    }
}

TEST_F(Files, TheFormatIsTheOneOfTheReference) {
  std::string one(4, '\0');
  std::vector<NamedArray> arrays{{"b", DType::float32, {1}, bytes_in(one)}, {"a", DType::int8, {2, 2}, bytes_in(one)}};
  write_safetensors(path("m"), arrays, {{"k", "v"}});
  std::string header = R"({"__metadata__":{"k":"v"},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                       R"("a":{"dtype":"I8","shape":[2,2],"data_offsets":[4,8]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(read("m"), file_of(header, std::string(8, '\0')));
}

TEST_F(Files, AFailedSaveLeavesTheOldFile) {
  write_safetensors(path("m"), some_arrays());
  std::string before = read("m");
  auto arrays = some_arrays();
  arrays[0].dims = {5};
  EXPECT_THROW(write_safetensors(path("m"), arrays), Error);
  EXPECT_THROW(write_safetensors(path("m"), some_arrays(), {{"k", "\xff"}}), Error);
  EXPECT_THROW(write_safetensors(path("no/such/folder/m"), some_arrays()), Error);
  fs::create_directory(path("taken"));
  EXPECT_THROW(write_safetensors(path("taken"), some_arrays()), Error);  // fails at the rename
  EXPECT_EQ(read("m"), before);
  EXPECT_EQ(files(), 2u) << "nothing beside the file and the folder";
}

TEST_F(Files, AMappedFileOutlivesItsReplacement) {
  write_safetensors(path("m"), some_arrays());
  Checkpoint old(path("m"));
  write_safetensors(path("m"), {});
  expect_equal(old, some_arrays());
}

TEST_F(Files, RefusesWhatCannotBeWritten) {
  auto refuses = [&](NamedArray array) {
    std::vector<NamedArray> arrays{array};
    EXPECT_THROW(write_safetensors(path("m"), arrays), Error);
  };
  refuses({"", DType::float32, {1}, bytes_in(floats).first(4)});
  refuses({"__metadata__", DType::float32, {1}, bytes_in(floats).first(4)});
  refuses({"\xff\xfe", DType::float32, {1}, bytes_in(floats).first(4)});
  refuses({"x", DType::float32, {1}, bytes_in(floats).first(5)});
  refuses({"x", DType::float32, {-1}, {}});
  refuses({"x", DType::float32, {INT64_MAX, INT64_MAX}, {}});
  refuses({"x", DType::float32, {INT64_MAX}, {}});
  std::vector<NamedArray> twins{{"x", DType::int8, {0}, {}}, {"x", DType::int8, {0}, {}}};
  EXPECT_THROW(write_safetensors(path("m"), twins), Error);
  EXPECT_EQ(files(), 0u);
}

TEST_F(Files, MissingOrUnfitFilesAreNamed) {
  EXPECT_EQ(fault_of("none").find("not_found: cannot open " + path("none")), 0u) << fault_of("none");
  fs::create_directory(path("folder"));
  EXPECT_EQ(fault_of("folder").find("not_found: cannot open " + path("folder/model.safetensors")), 0u);
  write("empty", "");
  EXPECT_EQ(fault_of("empty"), "io: " + path("empty") + " is no safetensors file: it has only 0 bytes");
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(fault_of("pipe").find("io: cannot open"), 0u);
}

TEST(Header, FaultsAreSaid) {
  std::string x = entry("x", "F32", "1", "0,4");
  auto one = [](const std::string& entries, const std::string& data = "dddd") {
    return fault(file_of("{" + entries + "}", data));
  };
  EXPECT_EQ(one(x), "");
  EXPECT_EQ(one(x + "}  {"), "its JSON is malformed at byte " + std::to_string(x.size() + 5));
  EXPECT_EQ(fault(file_of("{" + x + "}   ", "dddd")), "");
  EXPECT_EQ(fault("1234567"), "it has only 7 bytes");
  EXPECT_EQ(fault(file_of("", "")), "its header does not start with '{'");
  EXPECT_EQ(fault(file_of(" {}", "")), "its header does not start with '{'");
  EXPECT_EQ(fault(file_of("[]", "")), "its header does not start with '{'");
  EXPECT_EQ(fault(file_of("{}", "").substr(0, 9)), "its header claims 2 bytes");
  EXPECT_EQ(fault(std::string(8, '\xff') + "{}"), "its header claims 18446744073709551615 bytes");
  EXPECT_EQ(one(x + "," + x), "'x' is there twice");
  EXPECT_EQ(one("\"__metadata__\":{},\"__metadata__\":{}"), "'__metadata__' is there twice");
  EXPECT_EQ(one("\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}"), "the metadata has 'a' twice");
  EXPECT_EQ(one("\"__metadata__\":{\"a\":1}"), "a number is where none belongs");
  EXPECT_EQ(one("\"__metadata__\":{\"a\":{}}"), "an object is where none belongs");
  EXPECT_EQ(one("\"__metadata__\":[]"), "a list is where none belongs");
  EXPECT_EQ(one("\"__metadata__\":\"\""), "a text is where an object belongs");
  EXPECT_EQ(one("\"\":{}"), "a tensor has no name");
  EXPECT_EQ(one("\"x\":{\"dtype\":\"F32\",\"shape\":[1]}"), "'x' lacks dtype, shape or data_offsets");
  EXPECT_EQ(one("\"x\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}"), "'x' has 'dtype' twice");
  EXPECT_EQ(one("\"x\":{\"color\":\"F32\"}"), "'x' has an unknown field 'color'");
  EXPECT_EQ(one("\"x\":{\"dtype\":4}"), "a number is where none belongs");
  EXPECT_EQ(one("\"x\":{\"dtype\":[4]}"), "a list is where none belongs");
  EXPECT_EQ(one("\"x\":{\"dtype\":null}"), "null is where no null belongs");
  EXPECT_EQ(one("\"x\":{\"shape\":\"F32\"}"), "the shape of 'x' is no list");
  EXPECT_EQ(one("\"x\":{\"shape\":[true]}"), "a truth value is where none belongs");
  EXPECT_EQ(one("\"x\":{\"shape\":[[1]]}"), "a list is where none belongs");
  EXPECT_EQ(one(entry("x", "F8_E4M3", "1", "0,4")), "the dtype 'F8_E4M3' of 'x' is not supported");
  EXPECT_EQ(one(entry("x", "F32", "-1", "0,4")), "a negative number is where none belongs");
  EXPECT_EQ(one(entry("x", "F32", "1.0", "0,4")), "a number is too large or no integer");
  EXPECT_EQ(one(entry("x", "F32", "99999999999999999999", "0,4")), "a number is too large or no integer");
  EXPECT_EQ(one(entry("x", "F32", "18446744073709551615", "0,4")), "the shape of 'x' has too many dims or elements");
  EXPECT_EQ(one(entry("x", "F32", "1,1,1,1,1,1,1,1,1", "0,4")), "the shape of 'x' has too many dims or elements");
  EXPECT_EQ(one(entry("x", "F32", "4611686018427387904,4", "0,0")), "'x' has too many elements");
  EXPECT_EQ(one(entry("x", "F32", "1", "0,4,4")), "the data_offsets of 'x' are not two numbers");
  EXPECT_EQ(one(entry("x", "F32", "1", "0")), "the data_offsets of 'x' are not two numbers");
  EXPECT_EQ(one(entry("x", "F32", "1", "0,5")), "'x' lies outside the file");
  EXPECT_EQ(one(entry("x", "F32", "1", "4,0")), "'x' lies outside the file");
  EXPECT_EQ(one(entry("x", "F32", "1", "18446744073709551614,2")), "'x' lies outside the file");
  EXPECT_EQ(one(entry("x", "F32", "2", "0,4")), "'x' takes 4 bytes where its shape and dtype need 8");
  EXPECT_EQ(one(entry("x", "I8", "2", "0,2") + "," + entry("y", "I8", "3", "1,4")), "'y' overlaps another tensor");
  EXPECT_EQ(one(entry("x", "I8", "1", "0,1") + "," + entry("y", "I8", "2", "2,4")), "'y' leaves a gap before it");
  EXPECT_EQ(one(entry("x", "I8", "3", "0,3")), "1 bytes at its end belong to no tensor");
  EXPECT_EQ(one(entry("x", "BOOL", "4", "0,4")), "'x' holds bools that are neither 0 nor 1");
  EXPECT_EQ(one("\"x\xff\":{}"), "its JSON is malformed at byte 4");
  EXPECT_EQ(one(entry("x", "I8", "0", "0,0") + "," + entry("y", "I8", "4", "0,4")), "");
  EXPECT_EQ(one(entry("x", "I8", "0", "2,2") + "," + entry("y", "I8", "4", "0,4")), "'x' overlaps another tensor");
  std::string deep(100000, '[');
  EXPECT_EQ(one("\"x\":{\"shape\":" + deep), "a list is where none belongs");
}

// Damaged headers give an error of ours or a header that keeps every promise; nothing else.
TEST(Header, SurvivesDamage) {
  std::string header = "{\"__metadata__\":{\"k\":\"v\"}," + entry("x", "F32", "1", "0,4") + "," +
                       entry("y", "I8", "2,2", "4,8") + "," + entry("e", "BOOL", "0", "8,8") + "}  ";
  std::string alphabet = "{}[]\":,0123456789-eF\\ \x80\xff" + std::string(1, '\0');
  std::mt19937 random(5000);
  int accepted = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string bad = header;
    for (int n = int(random() % 4); n > 0; --n) {
      size_t at = random() % bad.size();
      switch (random() % 4) {
        case 0: bad[at] = alphabet[random() % alphabet.size()]; break;
        case 1: bad.erase(at, 1 + random() % 8); break;
        case 2: bad.insert(at, 1, alphabet[random() % alphabet.size()]); break;
        case 3: bad.insert(at, bad.substr(random() % bad.size(), random() % 40)); break;
      }
      if (bad.empty()) bad = "{";
    }
    std::string file = file_of(bad, "12345678");
    if (random() % 8 == 0) file[random() % 8] = char(random());
    if (random() % 8 == 0) file.resize(random() % (file.size() + 1));
    if (!fault(file).empty()) continue;
    ++accepted;
    for (auto& array : parse_safetensors(bytes_in(file), "f").arrays) {
      auto* data = reinterpret_cast<const char*>(array.bytes.data());
      EXPECT_TRUE(data >= file.data() && data + array.bytes.size() <= file.data() + file.size());
    }
  }
  EXPECT_GT(accepted, 500);
  EXPECT_LT(accepted, 4500);
}

TEST_F(Files, ShardsRoundTrip) {
  write_sharded(folder_.string(), some_arrays(), 20, {{"format", "pt"}});
  EXPECT_TRUE(fs::exists(path("model.safetensors.index.json")));
  EXPECT_TRUE(fs::exists(path("model-00001-of-00003.safetensors")));
  EXPECT_EQ(files(), 4u);
  expect_equal(Checkpoint(folder_.string()), some_arrays());
  expect_equal(Checkpoint(path("model.safetensors.index.json")), some_arrays());
  EXPECT_EQ(Checkpoint(folder_.string()).metadata(), (Metadata{{"format", "pt"}}));
  EXPECT_NE(read("model.safetensors.index.json").find("\"total_size\": 47"), std::string::npos);
}

TEST_F(Files, OneShardNeedsNoIndex) {
  write_sharded(folder_.string(), some_arrays(), 1 << 20);
  EXPECT_EQ(files(), 1u);
  expect_equal(Checkpoint(folder_.string()), some_arrays());
}

TEST_F(Files, AMissingShardIsNamed) {
  write_sharded(folder_.string(), some_arrays(), 20);
  fs::remove(path("model-00002-of-00003.safetensors"));
  EXPECT_EQ(fault_of("model.safetensors.index.json"),
            "not_found: the shard " + path("model-00002-of-00003.safetensors") + " is missing, which " +
                path("model.safetensors.index.json") + " names");
}

TEST_F(Files, AnIndexIsHostile) {
  std::vector<NamedArray> x{{"x", DType::float32, {4}, bytes_in(floats)}};
  write_safetensors(path("s1"), x);
  write_safetensors(path("s2"), x);
  auto indexed = [&](const std::string& text) {
    write("model.safetensors.index.json", text);
    std::string found = fault_of("model.safetensors.index.json"), start = "is no index of shards: ";
    auto at = found.find(start);
    return at == std::string::npos ? found : found.substr(at + start.size());
  };
  EXPECT_EQ(indexed(R"({"metadata":{"total_size":16,"more":[1,null,true,-2,1.5]},"weight_map":{"x":"s1"}})"), "");
  EXPECT_EQ(indexed(""), "its JSON is malformed at byte 1");
  EXPECT_EQ(indexed("{}"), "it has no weight_map");
  EXPECT_EQ(indexed(R"({"metadata":{"weight_map":{"x":"s1"}}})"), "it has no weight_map");
  EXPECT_EQ(indexed(R"({"weight_map":{"x":"s1"},"weight_map":{}})"), "it has two weight_maps");
  EXPECT_EQ(indexed(R"({"weight_map":{"x":"s1","x":"s2"}})"), "'x' is there twice");
  EXPECT_EQ(indexed(R"({"weight_map":{"x":1}})"), "a shard's name is no text");
  EXPECT_EQ(indexed(R"({"weight_map":{"x":["s1"]}})"), "a shard's name is no text");
  EXPECT_EQ(indexed(R"({"weight_map":{"x":"../s1"}})"), "'../s1' is no name of a shard");
  EXPECT_EQ(indexed(R"({"weight_map":{"x":"/etc/passwd"}})"), "'/etc/passwd' is no name of a shard");
  EXPECT_EQ(indexed(R"({"weight_map":{"x":".."}})"), "'..' is no name of a shard");
  EXPECT_EQ(indexed(R"({"weight_map":{"x":"s1","y":"s1"}})"), "s1 lacks 'y'");
  EXPECT_EQ(indexed(R"({"weight_map":{"y":"s1"}})"),
            path("s1") + " holds 'x', which it places elsewhere or not at all");
  EXPECT_EQ(indexed(R"({"weight_map":{"x":"s1","y":"s2"}})"),
            path("s2") + " holds 'x', which it places elsewhere or not at all");
  EXPECT_EQ(indexed("{\"a\":" + std::string(100000, '[')), "it is nested too deeply");
}

}  // namespace
}  // namespace sluice
