// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/jobs.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "launcher/cluster/cluster.h"
#include "launcher/cluster/messages.h"

namespace sluice {
namespace {

constexpr size_t uploads_max = 8;  // at once, of one connection

using File = std::unique_ptr<FILE, int (*)(FILE*)>;

File open_file(const std::string& path) {
  File file(std::fopen(path.c_str(), "rbe"), &std::fclose);
  if (!file) throw Error(Code::not_found, "no such file", {path});
  return file;
}

}  // namespace

// ---- the coordinator's end -----------------------------------------------------------------------------------------

JobReply JobDesk::answer(const JobCall& call) {
  JobReply reply;
  try {
    if (!store_)
      throw Error(Code::usage, "this coordinator takes no jobs", {}, "submit to one of `sluice coordinator`");
    take(call, reply);
  } catch (const Error& error) {
    reply.error = error;
  } catch (const std::exception& error) {
    reply.error = Error(Code::failed, error.what());
  }
  return reply;
}

JobUpload& JobDesk::upload(int64_t id) {
  auto found = uploads_.find(id);
  if (found == uploads_.end()) throw Error(Code::value, "there is no such upload");
  return *found->second;
}

void JobDesk::take(const JobCall& call, JobReply& reply) {
  switch (call.kind) {
    case JobCall::open: {
      if (uploads_.size() >= uploads_max) throw Error(Code::value, "too many uploads at once");
      auto upload = store_->open(call.submission);
      reply.id = ++uploads_made_;
      uploads_[reply.id] = std::move(upload);
      return;
    }
    case JobCall::write: return upload(call.id).write(call.part, call.data);
    case JobCall::finish: {
      upload(call.id);
      auto whole = std::move(uploads_.extract(call.id).mapped());  // whatever comes of it, it is over
      reply.id = whole->finish();
      return;
    }
    case JobCall::list: reply.jobs = store_->jobs(); return;
    case JobCall::read: reply.bytes = store_->read(call.id, call.part, call.offset, int64_t(chunk_bytes_max)); return;
    case JobCall::cancel: return store_->cancel(call.id);
    case JobCall::kinds: break;
  }
  throw Error(Code::io, "no such question about jobs");
}

// ---- the client's end ----------------------------------------------------------------------------------------------

JobReply Cluster::ask_checked(const JobCall& call) {
  auto reply = ask(call);
  if (reply.error) throw Error(*reply.error);
  return reply;
}

int64_t Cluster::submit(Submission submission, const std::map<JobPart, std::string>& files) {
  std::map<JobPart, File> open;
  submission.bytes.clear();
  for (auto& [part, path] : files) {
    open.emplace(part, open_file(path));
    submission.bytes[part] = int64_t(std::filesystem::file_size(path));
  }
  int64_t upload = ask_checked({.kind = JobCall::open, .submission = submission}).id;
  std::vector<std::byte> chunk(chunk_bytes_max);
  for (auto& [part, file] : open) {
    while (size_t got = std::fread(chunk.data(), 1, chunk_bytes_max, file.get())) {
      JobCall call{.kind = JobCall::write, .id = upload, .part = part};
      call.data.assign(chunk.begin(), chunk.begin() + long(got));
      ask_checked(call);
    }
  }
  return ask_checked({.kind = JobCall::finish, .id = upload}).id;
}

std::vector<JobStatus> Cluster::jobs() { return ask_checked({.kind = JobCall::list}).jobs; }

JobBytes Cluster::read_job(int64_t id, JobPart part, int64_t offset) {
  return ask_checked({.kind = JobCall::read, .id = id, .part = part, .offset = offset}).bytes;
}

void Cluster::cancel_job(int64_t id) { ask_checked({.kind = JobCall::cancel, .id = id}); }

}  // namespace sluice
