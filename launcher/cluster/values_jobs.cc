// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/rpc.h"

namespace sluice {
namespace {

constexpr unsigned jobs_max = 100'000;

[[noreturn]] void wrong(const std::string& what) {
  throw Error(Code::io, "a message of the cluster is wrong: " + what);
}

std::string string_of(capnp::Text::Reader text) { return {text.begin(), text.size()}; }

JobPart part_of(uint8_t number) {
  if (number > uint8_t(JobPart::result)) wrong("no such part of a job");
  return JobPart(number);
}

void put(wire::JobStatus::Builder to, const JobStatus& job) {
  to.setId(job.id);
  to.setName(job.name);
  to.setState(uint8_t(job.state));
  to.setWhy(job.why);
  to.setDevices(job.devices);
  to.setExitCode(job.exit_code);
  to.setSubmittedS(job.submitted_s);
  to.setEndedS(job.ended_s);
  to.setLogBytes(job.log_bytes);
  to.setResultBytes(job.result_bytes);
}

JobStatus status_of(wire::JobStatus::Reader from) {
  if (from.getState() >= std::size(job_state_names)) wrong("no such state of a job");
  return {.id = from.getId(),
          .name = string_of(from.getName()),
          .state = JobState(from.getState()),
          .why = string_of(from.getWhy()),
          .devices = from.getDevices(),
          .exit_code = from.getExitCode(),
          .submitted_s = from.getSubmittedS(),
          .ended_s = from.getEndedS(),
          .log_bytes = from.getLogBytes(),
          .result_bytes = from.getResultBytes()};
}

}  // namespace

void put(wire::JobCall::Builder to, const JobCall& call) {
  to.setKind(call.kind);
  to.setId(call.id);
  to.setPart(uint8_t(call.part));
  to.setOffset(call.offset);
  to.setName(call.submission.name);
  to.setSteps(call.submission.steps);
  auto bytes = to.initBytes(kj::uint(call.submission.bytes.size()));
  kj::uint i = 0;
  for (auto& [part, size] : call.submission.bytes) {
    bytes[i].setPart(uint8_t(part));
    bytes[i++].setBytes(size);
  }
  to.setData(bytes_of(call.data));
}

JobCall job_call_of(wire::JobCall::Reader from) {
  if (from.getKind() >= JobCall::kinds) wrong("no such question about jobs");
  if (from.getBytes().size() > std::size(uploaded_parts)) wrong("a job has too many parts");
  JobCall call{.kind = JobCall::Kind(from.getKind()), .id = from.getId(), .part = part_of(from.getPart())};
  call.offset = from.getOffset();
  call.submission = {string_of(from.getName()), from.getSteps(), {}};
  for (auto part : from.getBytes()) call.submission.bytes[part_of(part.getPart())] = part.getBytes();
  call.data = vector_of(from.getData());
  return call;
}

void put(wire::JobReply::Builder to, const JobReply& reply) {
  if (reply.error) put(to.initFailure(), Failure{*reply.error});
  to.setId(reply.id);
  auto jobs = to.initJobs(kj::uint(reply.jobs.size()));
  for (kj::uint i = 0; i < jobs.size(); ++i) put(jobs[i], reply.jobs[i]);
  to.setData({reinterpret_cast<const kj::byte*>(reply.bytes.bytes.data()), reply.bytes.bytes.size()});
  to.setLast(reply.bytes.last);
}

JobReply job_reply_of(wire::JobReply::Reader from) {
  JobReply reply;
  if (auto failure = failure_of(from.getFailure())) reply.error = failure->error;
  reply.id = from.getId();
  if (from.getJobs().size() > jobs_max) wrong("too many jobs");
  for (auto job : from.getJobs()) reply.jobs.push_back(status_of(job));
  auto data = from.getData();
  reply.bytes = {std::string(reinterpret_cast<const char*>(data.begin()), data.size()), from.getLast()};
  return reply;
}

}  // namespace sluice
