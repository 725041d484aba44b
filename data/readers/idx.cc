// SPDX-License-Identifier: Apache-2.0
// MNIST and its successors: images and labels as two IDX files. Images stay bytes in memory and are scaled to 0..1
// when a row is read.
#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.h"
#include "data/idx_file.h"
#include "data/reader.h"
#include "data/rows.h"

namespace sluice::readers {

namespace {

namespace fs = std::filesystem;

class IdxReader final : public Reader {
 public:
  IdxReader(IdxFile images, IdxFile labels)
      : images_(std::move(images)),
        labels_(std::move(labels)),
        fields_{{"image", DType::float32, {images_.dims[1], images_.dims[2]}}, {"label", DType::int64, {}}} {
    for (size_t i = 0; i < scaled_.size(); ++i) scaled_[i] = float(i) / 255.f;
  }
  int64_t rows() const override { return labels_.dims[0]; }
  const std::vector<Field>& fields() const override { return fields_; }

  void read(int field, std::span<const int64_t> rows, void* to) const override {
    check_rows(*this, field, rows);
    if (field == 1) {
      auto* labels = static_cast<int64_t*>(to);
      for (int64_t row : rows) *labels++ = labels_.bytes[size_t(row)];
      return;
    }
    auto pixels = size_t(images_.dims[1] * images_.dims[2]);
    auto* image = static_cast<float*>(to);
    for (int64_t row : rows) {
      const uint8_t* bytes = images_.bytes.data() + size_t(row) * pixels;
      for (size_t i = 0; i < pixels; ++i) image[i] = scaled_[bytes[i]];
      image += pixels;
    }
  }

 private:
  IdxFile images_, labels_;
  std::vector<Field> fields_;
  std::array<float, 256> scaled_{};
};

// The folders in which a set may lie: the given one and those directly in it, by name.
std::vector<fs::path> folders_of(const fs::path& path) {
  std::vector<fs::path> folders;
  std::error_code bad;
  for (fs::directory_iterator at(path, bad), end; !bad && at != end; at.increment(bad))
    if (at->is_directory(bad)) folders.push_back(at->path());
  if (bad)
    throw Error(Code::io, "cannot list " + path.string() + ": " + bad.message(), {}, "check that it may be read");
  std::sort(folders.begin(), folders.end());
  folders.insert(folders.begin(), path);
  return folders;
}

// `path` is a folder that holds a set under the usual names, or the common beginning of its files' names.
std::string find_file(const std::string& path, std::string_view split, std::string_view kind, std::string_view dims) {
  std::vector<std::string> beginnings;
  if (fs::is_directory(path)) {
    for (auto& folder : folders_of(path)) {
      beginnings.push_back((folder / (split == "train" ? "train" : "t10k")).string());
      if (split == "test") beginnings.push_back((folder / "test").string());
    }
  } else {
    beginnings.push_back(path);
  }
  for (auto& beginning : beginnings)
    for (std::string_view joint : {"-", "."})
      for (std::string_view ending : {".gz", ""}) {
        std::string file = beginning + "-" + std::string(kind) + std::string(joint) + std::string(dims) + "-ubyte";
        file += ending;
        if (fs::is_regular_file(file)) return file;
      }
  throw Error(Code::not_found,
              "no " + std::string(kind) + " of the split '" + std::string(split) + "' in " + path + " (looked for " +
                  beginnings.front() + "-" + std::string(kind) + "-" + std::string(dims) + "-ubyte.gz)",
              {}, "check the path; on Debian, Fashion-MNIST is in the package dataset-fashion-mnist");
}

const std::string& text_attr(const Attrs& attrs, std::string_view name) {
  auto* value = find_attr(attrs, name);
  auto* text = value ? std::get_if<std::string>(value) : nullptr;
  if (!text || text->find('\0') != std::string::npos)
    throw Error(Code::value, "the reader 'idx' needs the text '" + std::string(name) + "'", {},
                "give it a path and a split");
  return *text;
}

std::shared_ptr<const Reader> open(const Attrs& attrs) {
  const std::string &path = text_attr(attrs, "path"), &split = text_attr(attrs, "split");
  if (split != "train" && split != "test")
    throw Error(Code::value, "the reader 'idx' has no split '" + split + "'", {}, "write \"train\" or \"test\"");
  std::string images_path, labels_path;
  try {
    images_path = find_file(path, split, "images", "idx3");
    labels_path = find_file(path, split, "labels", "idx1");
  } catch (const fs::filesystem_error& bad) {
    throw Error(Code::io, "cannot look into " + path + ": " + bad.code().message(), {}, "check that it may be read");
  }
  IdxFile labels = read_idx(labels_path, 1), images = read_idx(images_path, 3);
  if (images.dims[0] != labels.dims[0])
    throw Error(Code::io,
                images_path + " holds " + std::to_string(images.dims[0]) + " images, but " + labels_path + " holds " +
                    std::to_string(labels.dims[0]) + " labels",
                {}, "fetch both files of one data set");
  return std::make_shared<IdxReader>(std::move(images), std::move(labels));
}

constexpr std::string_view names[] = {"path", "split"};

}  // namespace

extern constinit const ReaderDef idx{
    .name = "idx",
    .doc =
        "Images and labels as IDX files (MNIST, Fashion-MNIST), gzip or plain: `path` is their folder or the common "
        "beginning of their names, `split` is train or test. Fields: image (float32, 0 to 1) and label (int64).",
    .attrs = names,
    .open = open};

}  // namespace sluice::readers
