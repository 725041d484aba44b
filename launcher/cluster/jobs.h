// SPDX-License-Identifier: Apache-2.0
// What a client asks about submitted jobs, and what it is answered, as plain values (rpc.h turns them into
// ../wire.capnp); the coordinator's end of it.
// Thread rule: values; a JobDesk belongs to one connection and lives on the coordinator's thread.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "launcher/cluster/store.h"

namespace sluice {

struct JobCall {
  enum Kind : uint8_t {
    open,    // submission; answer: an id for the upload, of this connection only
    write,   // id of the upload, part, data
    finish,  // id of the upload; answer: the job's id
    list,
    read,  // id, part, offset
    cancel,
    kinds
  };
  Kind kind = list;
  int64_t id = 0;
  JobPart part = JobPart::job;
  int64_t offset = 0;
  Submission submission;
  std::vector<std::byte> data;
};

struct JobReply {
  std::optional<Error> error;
  int64_t id = 0;
  std::vector<JobStatus> jobs;
  JobBytes bytes;
};

// Uploads that are not finished when it is destroyed are forgotten.
class JobDesk {
 public:
  explicit JobDesk(JobStore* store) : store_(store) {}  // null: every call is refused
  JobReply answer(const JobCall& call);

 private:
  void take(const JobCall& call, JobReply& reply);
  JobUpload& upload(int64_t id);

  JobStore* store_;
  std::map<int64_t, std::unique_ptr<JobUpload>> uploads_;
  int64_t uploads_made_ = 0;
};

}  // namespace sluice
