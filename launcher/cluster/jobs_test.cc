// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/jobs.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

// Remembers what it is asked.
class Store final : public JobStore {
 public:
  struct Upload final : JobUpload {
    explicit Upload(Store& to) : store(to) { ++store.open_now; }
    ~Upload() override { --store.open_now; }
    void write(JobPart, std::span<const std::byte> bytes) override { store.bytes += bytes.size(); }
    int64_t finish() override {
      if (store.refuses) throw Error(Code::value, "not whole");
      return 41;
    }
    Store& store;
  };
  std::unique_ptr<JobUpload> open(const Submission& submission) override {
    if (submission.name == "bad") throw Error(Code::value, "too large", {}, "less");
    return std::make_unique<Upload>(*this);
  }
  std::vector<JobStatus> jobs() override { return {{.id = 41, .name = "x"}}; }
  JobBytes read(int64_t id, JobPart, int64_t offset, int64_t most) override {
    return {std::to_string(id) + " " + std::to_string(offset) + " " + std::to_string(most), true};
  }
  void cancel(int64_t) override { throw std::bad_alloc(); }

  size_t bytes = 0;
  int open_now = 0;
  bool refuses = false;
};

TEST(JobDesk, PassesQuestionsOn) {
  Store store;
  JobDesk desk(&store);
  int64_t upload = desk.answer({.kind = JobCall::open}).id;
  EXPECT_FALSE(desk.answer({.kind = JobCall::write, .id = upload, .data = std::vector<std::byte>(7)}).error);
  EXPECT_EQ(desk.answer({.kind = JobCall::finish, .id = upload}).id, 41);
  EXPECT_EQ(store.bytes, 7u);
  EXPECT_EQ(store.open_now, 0);
  EXPECT_EQ(desk.answer({.kind = JobCall::list}).jobs.at(0).name, "x");
  EXPECT_EQ(desk.answer({.kind = JobCall::read, .id = 41, .part = JobPart::log, .offset = 5}).bytes.bytes,
            "41 5 1048576");
}

TEST(JobDesk, AnswersWithErrors) {
  Store store;
  JobDesk desk(&store);
  EXPECT_EQ(desk.answer({.kind = JobCall::open, .submission = {"bad", 0, {}}}).error->next(), "less");
  EXPECT_TRUE(desk.answer({.kind = JobCall::write, .id = 1}).error);
  EXPECT_TRUE(desk.answer({.kind = JobCall::finish, .id = 1}).error);
  EXPECT_TRUE(desk.answer({.kind = JobCall::cancel}).error);
  EXPECT_TRUE(desk.answer({.kind = JobCall::Kind(99)}).error);
  EXPECT_TRUE(JobDesk(nullptr).answer({.kind = JobCall::list}).error);
}

TEST(JobDesk, ForgetsUploadsThatFail) {
  Store store;
  {
    JobDesk desk(&store);
    for (int i = 0; i < 8; ++i) EXPECT_FALSE(desk.answer({.kind = JobCall::open}).error);
    EXPECT_TRUE(desk.answer({.kind = JobCall::open}).error);  // enough
    store.refuses = true;
    EXPECT_TRUE(desk.answer({.kind = JobCall::finish, .id = 1}).error);
    EXPECT_EQ(store.open_now, 7);
    EXPECT_TRUE(desk.answer({.kind = JobCall::finish, .id = 1}).error);
  }
  EXPECT_EQ(store.open_now, 0);
}

}  // namespace
}  // namespace sluice
