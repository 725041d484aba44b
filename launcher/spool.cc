// SPDX-License-Identifier: Apache-2.0
#include "launcher/spool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <utility>

#include "config/config.h"
#include "launcher/spool_impl.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr int64_t config_bytes_max = 1 << 20, job_bytes_max = 256 << 20;
constexpr size_t name_bytes_max = 80;

// A client's name for people's eyes: no control bytes, and short.
std::string shown(std::string name) {
  if (name.size() > name_bytes_max) name.resize(name_bytes_max);
  for (char& c : name)
    if (uint8_t(c) < 0x20 || uint8_t(c) >= 0x7f) c = '?';
  return name.empty() ? "job" : name;
}

}  // namespace

const char* file_of(JobPart part) {
  switch (part) {
    case JobPart::job: return "net.job";
    case JobPart::config: return "config.toml";
    case JobPart::weights: return "weights.safetensors";
    case JobPart::log: return "log";
    case JobPart::result: return "result.safetensors";
  }
  throw Error(Code::value, "no such part of a job");
}

bool is_over(JobState state) { return state != JobState::queued && state != JobState::running; }

Spool::Impl::Impl(const SpoolOptions& from)
    : options(from), folder(fs::temp_directory_path() / "sluice-XXXXXX"), wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!mkdtemp(folder.data())) throw Error(Code::io, "no private folder can be made there", {folder});
}

Spool::Impl::~Impl() {
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

Record& Spool::Impl::find(int64_t id) {
  auto at = records.find(id);
  if (at == records.end()) throw Error(Code::not_found, fmt::format("there is no job {}", id), {}, "see: sluice jobs");
  return at->second;
}

// ---- what comes in -------------------------------------------------------------------------------------------------

void Spool::Impl::forget(int64_t id) {
  records.erase(id);
  uploads.erase(id);
  std::error_code ignored;
  fs::remove_all(place(id), ignored);
}

// Forgets old jobs until there is room for a new one.
void Spool::Impl::make_room(int64_t bytes) {
  auto held = [&] {
    int64_t sum = bytes;
    for (auto& [id, record] : records) sum += record.bytes + record.status.log_bytes + record.status.result_bytes;
    for (auto& [id, declared] : uploads) sum += declared;
    return sum;
  };
  while (records.size() + uploads.size() >= options.jobs_max || held() > 4 * options.upload_bytes_max) {
    auto old = std::find_if(records.begin(), records.end(), [](auto& r) { return is_over(r.second.status.state); });
    if (old == records.end())
      throw Error(Code::value, fmt::format("the coordinator holds {} jobs and takes no more", records.size()), {},
                  "wait for some of them, or cancel some: sluice jobs");
    forget(old->first);
  }
}

int64_t Spool::Impl::admit(const Submission& submission) {
  int64_t total = 0;
  auto most = [&](JobPart part) {
    int64_t of_part = part == JobPart::config ? config_bytes_max : part == JobPart::job ? job_bytes_max : INT64_MAX;
    return std::min(of_part, options.upload_bytes_max - total);
  };
  for (auto& [part, bytes] : submission.bytes) {
    if (std::find(std::begin(uploaded_parts), std::end(uploaded_parts), part) == std::end(uploaded_parts))
      throw Error(Code::value, "that part of a job cannot be uploaded");
    if (bytes < 0 || bytes > most(part))
      throw Error(Code::value,
                  fmt::format("{} of {} bytes is too large; {} are allowed", file_of(part), bytes,
                              std::max<int64_t>(0, most(part))),
                  {}, "the coordinator's --upload-bytes-max is for the whole job");
    total += bytes;
  }
  for (JobPart part : {JobPart::job, JobPart::weights})
    if (!submission.bytes.contains(part)) throw Error(Code::value, fmt::format("{} is missing", file_of(part)));
  if (submission.steps < 0) throw Error(Code::value, fmt::format("{} steps", submission.steps));
  std::lock_guard lock(mutex);
  make_room(total);
  int64_t id = next_id++;
  uploads[id] = total;
  if (!fs::create_directory(place(id))) throw Error(Code::io, "no folder for the job");
  return id;
}

// The devices that its config asks for.
int64_t Spool::Impl::needed(int64_t id) {
  std::string config = path(id, JobPart::config);
  try {
    return devices_of(fs::exists(config) ? load_config(config) : default_config());
  } catch (const Error& error) {  // the coordinator's path means nothing to the client
    throw Error(error.code(), error.message(), {"the config", error.place().line}, error.next());
  }
}

namespace {

class Upload final : public JobUpload {
 public:
  Upload(std::function<int64_t(int64_t)> finish, std::function<void(int64_t)> drop, int64_t id,
         const std::string& folder, const Submission& submission)
      : finish_(std::move(finish)), drop_(std::move(drop)), id_(id) {
    for (auto& [part, bytes] : submission.bytes) {
      std::string path = folder + "/" + file_of(part);
      parts_[part] = {Handle(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)), bytes};
      if (parts_[part].file.get() < 0) throw Error(Code::io, "the coordinator cannot write there", {path});
    }
  }
  ~Upload() override {
    if (!finished_) drop_(id_);
  }

  void write(JobPart part, std::span<const std::byte> bytes) override {
    auto at = parts_.find(part);
    if (finished_ || at == parts_.end() || int64_t(bytes.size()) > at->second.left)
      throw Error(Code::value, "more bytes came than were declared");
    at->second.left -= int64_t(bytes.size());
    while (!bytes.empty()) {
      ssize_t done = ::write(at->second.file.get(), bytes.data(), bytes.size());
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) throw Error(Code::io, "the coordinator's disk is full");
      bytes = bytes.subspan(size_t(done));
    }
  }

  int64_t finish() override {
    for (auto& [part, state] : parts_)
      if (state.left != 0) throw Error(Code::value, fmt::format("{} is not complete", file_of(part)));
    if (std::exchange(finished_, true)) throw Error(Code::value, "the job was already queued");
    return finish_(id_);
  }

 private:
  struct Part {
    Handle file;
    int64_t left = 0;
  };
  std::function<int64_t(int64_t)> finish_;
  std::function<void(int64_t)> drop_;
  int64_t id_;
  std::map<JobPart, Part> parts_;
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<JobUpload> Spool::open(const Submission& submission) {
  auto impl = impl_;
  int64_t id = impl->admit(submission);
  auto drop = [impl](int64_t gone) {
    std::lock_guard lock(impl->mutex);
    impl->forget(gone);
  };
  auto finish = [impl, submission](int64_t whole) {
    std::lock_guard lock(impl->mutex);
    int64_t devices = 0;
    try {
      devices = impl->needed(whole);
    } catch (...) {
      impl->forget(whole);
      throw;
    }
    Record record;
    record.status = {
        .id = whole, .name = shown(submission.name), .devices = devices, .submitted_s = std::time(nullptr)};
    record.steps = submission.steps;
    record.bytes = impl->uploads.extract(whole).mapped();
    impl->records.emplace(whole, std::move(record));
    eventfd_write(impl->wake.get(), 1);
    return whole;
  };
  try {
    return std::make_unique<Upload>(finish, drop, id, impl->place(id), submission);
  } catch (...) {
    drop(id);
    throw;
  }
}

// ---- what goes out -------------------------------------------------------------------------------------------------

std::vector<JobStatus> Spool::jobs() {
  std::lock_guard lock(impl_->mutex);
  std::vector<JobStatus> all;
  for (auto& [id, record] : impl_->records) all.push_back(record.status);
  return all;
}

JobBytes Spool::read(int64_t id, JobPart part, int64_t offset, int64_t bytes_max) {
  std::lock_guard lock(impl_->mutex);
  auto& status = impl_->find(id).status;
  if (part != JobPart::log && part != JobPart::result)
    throw Error(Code::value, "only the log and the result of a job can be read");
  bool over = is_over(status.state);
  int64_t size = part == JobPart::log ? status.log_bytes : over ? status.result_bytes : 0;
  if (offset < 0 || offset > size) throw Error(Code::index, fmt::format("it has {} bytes, not {}", size, offset));
  JobBytes result;
  result.bytes.resize(size_t(std::clamp<int64_t>(bytes_max, 0, size - offset)));
  if (!result.bytes.empty()) {
    Handle file(::open(impl_->path(id, part).c_str(), O_RDONLY | O_CLOEXEC));
    ssize_t got = pread(file.get(), result.bytes.data(), result.bytes.size(), offset);
    if (got < 0) throw Error(Code::io, "the coordinator cannot read that any more");
    result.bytes.resize(size_t(got));
  }
  result.last = over && offset + int64_t(result.bytes.size()) == size;
  return result;
}

void Spool::cancel(int64_t id) {
  std::lock_guard lock(impl_->mutex);
  auto& record = impl_->find(id);
  if (is_over(record.status.state)) return;
  record.stop_asked = true;
  eventfd_write(impl_->wake.get(), 1);
}

// ---- its life ------------------------------------------------------------------------------------------------------

Spool::Spool(const SpoolOptions& options) : impl_(std::make_shared<Impl>(options)) {
  if (options.guard) options.guard->add_folder(impl_->folder);
}

Spool::~Spool() { stop(); }

void Spool::start() {
  impl_->keeper = std::thread([impl = impl_.get()] { impl->keep(); });
}

void Spool::stop() {
  if (!impl_->keeper.joinable()) return;
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  look();
  impl_->keeper.join();
}

void Spool::look() { eventfd_write(impl_->wake.get(), 1); }
const std::string& Spool::folder() const { return impl_->folder; }

}  // namespace sluice
