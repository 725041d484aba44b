// SPDX-License-Identifier: Apache-2.0
#include "actors/world.h"

#include <fmt/format.h>

namespace sluice {

// ---- Steps
// ------------------------------------------------------------------------------------------------------------

void Steps::push(std::shared_ptr<const Batch> fed, const Extents& extent) {
  std::lock_guard lock(mutex_);
  fed_.push_back({std::move(fed), extent});
}

Extents Steps::source_extents(int64_t step) const {
  Extents extent{};
  extent[batch_sym] = batch;
  if (rows > 0) {
    int64_t steps_per_epoch = (rows + batch - 1) / batch;
    extent[batch_sym] = std::min(batch, rows - step % steps_per_epoch * batch);
  }
  return extent;
}

Steps::Facts Steps::begin(int64_t step, int64_t index) {
  if (!feeds) return {source_extents(step), nullptr};
  std::lock_guard lock(mutex_);
  check(index >= first_ && index < first_ + int64_t(fed_.size()), "a step begins that was not fed");
  Fed& fed = fed_[size_t(index - first_)];
  Facts facts{fed.extent, fed.batch};
  ++fed.begun;
  while (!fed_.empty() && fed_.front().begun == takers) {
    fed_.pop_front();
    ++first_;
  }
  return facts;
}

// ---- Results
// ----------------------------------------------------------------------------------------------------------

void Results::add(const Firing& firing, const std::string& name, const LogicalType& type, const Window& window,
                  const Box& box, const void* data) {
  Piece piece;
  auto origin = window_origin(type.shape, window);
  std::vector<int64_t> dims;
  int64_t numel = 1;
  for (size_t d = 0; d < type.shape.size(); ++d) {
    auto& dim = type.shape[d];
    dims.push_back(dim.sym == fixed_sym ? dim.size : dim.granule * firing.extent[size_t(dim.sym)]);
    numel *= dims.back();
    piece.from.push_back({0, box.dims[d].size});
    piece.to.push_back({origin[d] + box.dims[d].begin, box.dims[d].size});
    piece.from_dims.push_back(box.dims[d].size);
  }
  piece.to_dims = dims;
  std::lock_guard lock(mutex_);
  HostArray& array = partial_[firing.index].result.outputs[name];
  if (array.data.empty()) array = {type.dtype, dims, std::vector<std::byte>(size_t(numel * bytes_of(type.dtype)))};
  if (data) run_piece(piece, type.dtype, data, array.data.data());
}

bool Results::finish_part(const Firing& firing) {
  std::lock_guard lock(mutex_);
  Partial& partial = partial_[firing.index];
  partial.result.step = firing.step;
  partial.result.batch = firing.extent[batch_sym];
  return ++partial.parts == parts_a_step;
}

std::optional<StepResult> Results::take() {
  std::lock_guard lock(mutex_);
  auto found = partial_.find(next_);
  if (found == partial_.end() || found->second.parts < parts_a_step) return std::nullopt;
  StepResult result = std::move(found->second.result);
  partial_.erase(found);
  ++next_;
  return result;
}

// ---- failures
// ---------------------------------------------------------------------------------------------------------

Transport& World::between(int from_rank, int to_rank) const {
  int from = neighbours.here(from_rank) ? to_rank : from_rank;
  if (neighbours.here(from)) return *inproc;
  return *neighbours.to[size_t(neighbours.process_of_rank[size_t(from)])];
}

bool World::poll_transports() {
  bool any = false;
  for (auto& transport : polled) any = transport->poll() || any;
  return any;
}

void World::spin_transports(bool begins) {
  for (auto* transport : polled) transport->spin(begins);
}

void World::tell_client() {
  std::lock_guard lock(mutex);
  ++changes;
  changed.notify_all();
}

void World::fail(Failure failed) {
  {
    std::lock_guard lock(mutex);
    failures.push_back(std::move(failed));
  }
  host->report_failure();
}

void World::decide_failure() {
  std::lock_guard lock(mutex);
  if (!failure && !failures.empty()) failure = failures.front().error;
  failures.clear();
  stopped.store(true);
  ++changes;
  changed.notify_all();
}

Failure failure_of(std::exception_ptr exception, const Actor& actor, const std::string& what, const Place& place,
                   int64_t step) {
  Code code = Code::failed;
  std::string why = "unknown exception", next;
  Place where = place;
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    code = error.code();
    why = error.message();
    next = error.next();
    if (error.place().known()) where = error.place();
  } catch (const std::bad_alloc&) {
    why = "out of memory";
  } catch (const std::exception& error) {
    why = error.what();
  }
  std::string name = what.empty() ? "actor '" + actor.plan->name + "'" : what;
  return {actor.plan->name, actor.rank, step,
          Error(code, fmt::format("{} failed on rank {} in step {}: {}", name, actor.rank, step, why), where, next)};
}

}  // namespace sluice
