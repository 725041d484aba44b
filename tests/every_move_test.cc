// SPDX-License-Identifier: Apache-2.0
// The test that every move passes: split a value, move it, gather it: the same value. For all pairs of placements, on
// equal and on different meshes, for every size and window; through memory and through a transport with real threads.
// By default a seeded sample of the large matrices; all of them with SLUICE_SOAK=1.
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "comm/hop.h"
#include "comm/move.h"
#include "comm/transport.h"

namespace sluice {
namespace {

using Values = std::vector<float>;
using Parts = std::map<int, Values>;  // by global rank

bool soak() { return std::getenv("SLUICE_SOAK") != nullptr; }

// A small integer drawn for an element: sums of them are exact in float32.
float drawn(int64_t index, int64_t salt) {
  auto mixed = uint64_t(index) * 0x9E3779B97F4A7C15ull + uint64_t(salt) * 0xBF58476D1CE4E5B9ull;
  mixed ^= mixed >> 29;
  return float(int64_t(mixed * 0x94D049BB133111EBull >> 40) % 1000);
}

// Calls f(index in the logical value, index in the local part) for each element of a box.
template <class F>
void for_each_element(const Box& box, const std::vector<int64_t>& whole, F&& f) {
  std::vector<int64_t> at(box.dims.size());
  for (int64_t local = 0, n = box.numel(); local < n; ++local) {
    int64_t index = 0;
    for (size_t d = 0; d < at.size(); ++d) index = index * whole[d] + box.dims[d].begin + at[d];
    f(index, size_t(local));
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < box.dims[d].size) break;
      at[d] = 0;
    }
  }
}

std::vector<int64_t> window_sizes(const Shape& shape, const Window& window) {
  std::vector<int64_t> sizes;
  for (auto& dim : shape)
    sizes.push_back(dim.sym == fixed_sym ? dim.size : dim.granule * window.valid[size_t(dim.sym)].size);
  return sizes;
}

Box box_of(const PlacedType& type, int rank, const Window& window) {
  return local_box(type.type.shape, type.sbp, *type.mesh, type.mesh->coords(rank), window);
}

// Which combination of partial coordinates a rank has, and how many there are.
std::pair<int64_t, int64_t> partial_index(const PlacedType& type, int rank) {
  auto at = type.mesh->coords(rank);
  int64_t index = 0, count = 1;
  for (size_t a = 0; a < at.size(); ++a)
    if (type.sbp[a].is_partial()) {
      index = index * type.mesh->axes[a].size + at[a];
      count *= type.mesh->axes[a].size;
    }
  return {index, count};
}

// The logical value of an element is drawn(index, -1); partial parts are random numbers that sum to it.
Parts split(const PlacedType& type, const Window& window) {
  Parts parts;
  auto whole = window_sizes(type.type.shape, window);
  for (int rank = type.mesh->first_rank; type.mesh->holds(rank); ++rank) {
    Box box = box_of(type, rank, window);
    auto [mine, count] = partial_index(type, rank);
    Values part(size_t(box.numel()));
    for_each_element(box, whole, [&](int64_t index, size_t local) {
      part[local] = mine > 0 ? drawn(index, mine) : drawn(index, -1);
      for (int64_t other = 1; mine == 0 && other < count; ++other) part[local] -= drawn(index, other);
    });
    parts[rank] = std::move(part);
  }
  return parts;
}

// Says what is wrong when the parts are no placement of the drawn value; "" when they are.
std::string fault_of(const Parts& parts, const PlacedType& type, const Window& window) {
  auto whole = window_sizes(type.type.shape, window);
  std::map<std::pair<int64_t, int64_t>, float> seen;  // (element, partial index) -> part: replicas must agree
  std::map<int64_t, float> sum;
  std::string fault;
  for (auto& [rank, part] : parts) {
    Box box = box_of(type, rank, window);
    if (int64_t(part.size()) != box.numel()) return "rank " + std::to_string(rank) + " has a part of a wrong size";
    for_each_element(box, whole, [&](int64_t index, size_t local) {
      auto [at, fresh] = seen.try_emplace({index, partial_index(type, rank).first}, part[local]);
      if (!fresh && at->second != part[local]) fault = "replicas differ at element " + std::to_string(index);
      if (fresh) sum[index] += part[local];
    });
  }
  int64_t elements = 1;
  for (int64_t size : whole) elements *= size;
  for (int64_t index = 0; index < elements; ++index)
    if (!sum.contains(index) || sum[index] != drawn(index, -1))
      fault = "element " + std::to_string(index) + " is wrong";
  return fault;
}

std::string named(const PlacedType& from, const PlacedType& to) {
  auto place = [](const PlacedType& t) {
    std::string text = text_of(t.sbp) + " on " + std::to_string(t.mesh->first_rank) + "+";
    for (auto& axis : t.mesh->axes) text += "x" + std::to_string(axis.size);
    return text;
  };
  return text_of(from.type) + " " + place(from) + " -> " + place(to);
}

std::vector<PlacedType> hops_of(const MoveDef& move, const PlacedType& from, const PlacedType& to) {
  std::vector<PlacedType> types{from};
  if (move.between)
    for (auto& type : move.between(from, to)) types.push_back(type);
  types.push_back(to);
  return types;
}

Values receive(const PlacedType& from, const PlacedType& to, int rank, const Window& window,
               const std::function<const float*(int peer)>& part_of, double* bytes) {
  Exchange exchange = exchange_of(from, to, rank, window);
  int64_t n = 1;
  for (int64_t size : exchange.dims) n *= size;
  Values part(size_t(n), exchange.zero ? 0.f : std::numeric_limits<float>::quiet_NaN());
  for (auto& piece : exchange.pieces) {
    run_piece(piece, DType::float32, part_of(piece.peer), part.data());
    if (piece.peer != rank) *bytes += double(piece.numel()) * sizeof(float);
  }
  return part;
}

// Peers ascend, pieces come from peers only, and listeners are the exact inverse.
void expect_wired(const PlacedType& from, const PlacedType& to, const Window& window) {
  std::set<std::pair<int, int>> heard, told;
  for (int rank = to.mesh->first_rank; to.mesh->holds(rank); ++rank) {
    auto peers = peers_of(from, to, rank);
    EXPECT_TRUE(std::is_sorted(peers.begin(), peers.end()));
    for (int peer : peers) heard.emplace(peer, rank);
    int last = -1;
    for (auto& piece : exchange_of(from, to, rank, window).pieces) {
      EXPECT_TRUE(heard.contains({piece.peer, rank}) && piece.peer > last);
      last = piece.peer;
    }
  }
  for (int rank = from.mesh->first_rank; from.mesh->holds(rank); ++rank)
    for (int listener : listeners_of(from, to, rank)) told.emplace(rank, listener);
  EXPECT_EQ(heard, told);
}

void expect_moves(const MoveDef& move, const PlacedType& from, const PlacedType& to, const Window& window) {
  Parts parts = split(from, window);
  double bytes = 0;
  auto types = hops_of(move, from, to);
  for (size_t h = 0; h + 1 < types.size(); ++h) {
    expect_wired(types[h], types[h + 1], window);
    Parts next;
    for (int rank = types[h + 1].mesh->first_rank; types[h + 1].mesh->holds(rank); ++rank)
      next[rank] = receive(
          types[h], types[h + 1], rank, window, [&](int peer) { return parts.at(peer).data(); }, &bytes);
    parts = std::move(next);
  }
  EXPECT_EQ(fault_of(parts, to, window), "") << move.name << ": " << named(from, to);
  if (window == bound_window(to.type.shape)) {
    EXPECT_EQ(bytes, cost_of(move, from, to).bytes) << named(from, to);
  }
}

// Every move that matches, not only the one that is chosen.
void expect_all_move(const PlacedType& from, const PlacedType& to, const Window& window) {
  int matching = 0;
  for (auto* move : builtin_moves())
    if (move->matches(from, to)) {
      expect_moves(*move, from, to, window);
      ++matching;
    }
  EXPECT_GT(matching, 0);
  auto& chosen = move_for(builtin_moves(), from, to);
  for (auto* move : builtin_moves())
    if (move->matches(from, to)) {
      EXPECT_LE(cost_of(chosen, from, to).bytes, cost_of(*move, from, to).bytes);
    }
}

Mesh mesh_of(std::vector<int> sizes, int first_rank = 0) {
  Mesh mesh{.name = "m", .first_rank = first_rank};
  for (int size : sizes) mesh.axes.push_back({"a" + std::to_string(mesh.axes.size()), size});
  return mesh;
}

std::vector<NdSbp> placements(size_t axes, size_t dims) {
  std::vector<Sbp> one{Sbp::broadcast(), Sbp::partial()};
  for (size_t d = 0; d < dims; ++d) one.push_back(Sbp::split(int(d)));
  std::vector<NdSbp> all{{}};
  for (size_t a = 0; a < axes; ++a) {
    std::vector<NdSbp> longer;
    for (auto& nd : all)
      for (Sbp sbp : one) {
        longer.push_back(nd);
        longer.back().push_back(sbp);
      }
    all = longer;
  }
  return all;
}

std::vector<Shape> shapes() {
  std::vector<Shape> all{{}, fixed_shape({7})};
  for (int64_t a : {0, 1, 7, 13})
    for (int64_t b : {0, 1, 7, 13}) all.push_back(fixed_shape({a, b}));
  return all;
}

// All pairs of placements; of those that are not needed every time, one in `sample`.
void every_pair(const Mesh& from, const Mesh& to, const Shape& shape, const Window& window, int sample) {
  static constexpr uint32_t seed = 20240531;
  std::mt19937 random(seed + uint32_t(from.size() * 64 + to.size() * 8 + shape.size()));
  for (auto& a : placements(from.axes.size(), shape.size()))
    for (auto& b : placements(to.axes.size(), shape.size())) {
      if (!soak() && random() % uint32_t(sample) != 0) continue;
      LogicalType type{DType::float32, shape};
      expect_all_move({type, &from, a}, {type, &to, b}, window);
    }
}

TEST(EveryMove, OneAxis) {
  for (int n : {1, 2, 3, 4})
    for (auto& shape : shapes()) {
      Mesh mesh = mesh_of({n});
      every_pair(mesh, mesh, shape, bound_window(shape), 1);
    }
}

TEST(EveryMove, TwoAxes) {
  for (auto& axes : std::vector<std::vector<int>>{{2, 2}, {2, 3}, {3, 2}})
    for (auto& shape : shapes()) {
      Mesh mesh = mesh_of(axes);
      every_pair(mesh, mesh, shape, bound_window(shape), 8);
    }
}

TEST(EveryMove, BetweenMeshes) {
  std::vector<std::pair<Mesh, Mesh>> pairs;
  for (auto [a, b] : std::vector<std::pair<int, int>>{{2, 3}, {4, 2}, {1, 4}, {4, 1}, {3, 3}})
    for (int first : {0, 1, a}) pairs.push_back({mesh_of({a}), mesh_of({b}, first)});  // inside, overlapping, apart
  for (auto& [from, to] : pairs)
    for (auto& shape : shapes()) every_pair(from, to, shape, bound_window(shape), 4);
}

TEST(EveryMove, BetweenMeshesOfSeveralAxes) {
  std::vector<std::pair<Mesh, Mesh>> pairs{{mesh_of({2, 2}), mesh_of({2, 2}, 4)}, {mesh_of({2, 2}), mesh_of({4})},
                                           {mesh_of({4}), mesh_of({2, 2})},       {mesh_of({2, 3}), mesh_of({3, 2}, 2)},
                                           {mesh_of({2, 2}), mesh_of({1})},       {mesh_of({3}, 5), mesh_of({2, 2})}};
  for (auto& [from, to] : pairs)
    for (auto& shape : shapes()) every_pair(from, to, shape, bound_window(shape), 24);
}

// Bounded dims: every smaller extent, cut into micro-batches, in units of the granule.
TEST(EveryMove, WindowsOfBoundedDims) {
  for (int64_t granule : {1, 3})
    for (int64_t extent : {0, 1, 5, 13})
      for (int micro_batches : {1, 3}) {
        SlotHeader header{.micro_batch = micro_batches - 1, .micro_batches = micro_batches};
        header.extent[batch_sym] = extent;
        Shape shape{{13 * granule, batch_sym, granule}, {7}};
        Mesh square = mesh_of({2, 2}), line = mesh_of({3}, 1);
        every_pair(square, square, shape, window_of(header), 8);
        every_pair(square, line, shape, window_of(header), 8);
        every_pair(line, line, shape, window_of(header), 1);
      }
}

TEST(EveryMove, MaximaAndMinimaReduce) {
  for (auto kind : {Sbp::Pmax, Sbp::Pmin})
    for (Sbp target : {Sbp::broadcast(), Sbp::split(0), Sbp{kind, -1}, Sbp::partial()}) {
      Mesh mesh = mesh_of({3});
      LogicalType type{DType::float32, fixed_shape({5})};
      PlacedType from{type, &mesh, {{kind, -1}}}, to{type, &mesh, {target}};
      double bytes = 0;
      std::vector<Values> parts{{1, 8, 3, 4, 5}, {9, 2, 3, 0, 5}, {4, 4, 4, 7, -5}};
      Values expected = kind == Sbp::Pmax ? Values{9, 8, 4, 7, 5} : Values{1, 2, 3, 0, -5};
      if (from.sbp == to.sbp) continue;
      for (int rank = 0; rank < 3; ++rank) {
        Values want = expected;
        if (target == Sbp::partial() && rank > 0) want.assign(5, 0);
        Range range = box_of(to, rank, {}).dims[0];
        want = Values(want.begin() + range.begin, want.begin() + range.begin + range.size);
        auto part_of = [&](int peer) { return parts[size_t(peer)].data(); };
        EXPECT_EQ(receive(from, to, rank, {}, part_of, &bytes), want);
      }
    }
}

TEST(EveryMove, HasADocAndAUniqueName) {
  std::set<std::string_view> names;
  for (auto* move : builtin_moves()) {
    EXPECT_GT(move->doc.size(), 20u) << move->name;
    EXPECT_TRUE(names.insert(move->name).second) << move->name;
  }
}

// ---- over a transport, with one thread a rank -----------------------------------------------------------------------

// Arrivals of one rank, by the peer that they come from.
struct Inbox {
  std::mutex mutex;
  std::condition_variable arrived;
  std::map<int, Arrival> from;

  void put(int peer, const Arrival& arrival) {
    std::lock_guard lock(mutex);
    from[peer] = arrival;
    arrived.notify_one();
  }
  std::map<int, Arrival> wait_for(size_t count) {
    std::unique_lock lock(mutex);
    arrived.wait(lock, [&] { return from.size() == count; });
    return std::exchange(from, {});
  }
};

// One hop: each rank sends its part to its listeners, waits for its peers, and releases them.
Parts hop_over(Transport& transport, uint32_t first_wire, const PlacedType& from, const PlacedType& to,
               const Window& window, const Parts& parts) {
  std::map<int, Inbox> inboxes;
  Parts received;
  auto wire_of = [&](int peer, int rank) { return first_wire + uint32_t(peer * 64 + rank); };
  for (int rank = to.mesh->first_rank; to.mesh->holds(rank); ++rank) {
    received[rank];
    inboxes[rank];
  }
  for (auto& [rank, inbox] : inboxes)
    for (int peer : peers_of(from, to, rank)) {
      Wire wire{wire_of(peer, rank), peer, rank, 1, size_t(1) << 20};
      transport.open_receiver(wire, [&inbox, peer](const Arrival& arrival) { inbox.put(peer, arrival); });
      transport.open_sender(wire, [](uint32_t) {});
    }
  auto send_all = [&](int me) {
    for (int rank : listeners_of(from, to, me)) {
      int64_t bytes = 0;
      for (auto& piece : exchange_of(from, to, rank, window).pieces)
        if (piece.peer == me) bytes += piece.numel() * int64_t(sizeof(float));
      auto* data = reinterpret_cast<const std::byte*>(parts.at(me).data());
      transport.send(wire_of(me, rank), 0, SlotHeader{.bytes_valid = bytes}, data, size_t(bytes), nullptr);
    }
  };
  auto receive_all = [&](int me) {
    auto arrivals = inboxes[me].wait_for(peers_of(from, to, me).size());
    double bytes = 0;
    auto part_of = [&](int peer) { return reinterpret_cast<const float*>(arrivals.at(peer).data); };
    received[me] = receive(from, to, me, window, part_of, &bytes);
    for (auto& [peer, arrival] : arrivals) transport.release(wire_of(peer, me), arrival.slot);
  };
  std::vector<std::thread> threads;
  for (int rank = from.mesh->first_rank; from.mesh->holds(rank); ++rank) threads.emplace_back(send_all, rank);
  for (auto& [rank, inbox] : inboxes) threads.emplace_back(receive_all, rank);
  for (auto& thread : threads) thread.join();
  return received;
}

TEST(EveryMove, OverTransportsWithThreads) {
  std::mt19937 random(7);
  Mesh square = mesh_of({2, 2}), line = mesh_of({3}, 2);
  for (auto* meshes : {&square, &line})
    for (auto& a : placements(2, 2))
      for (auto& b : placements(meshes->axes.size(), 2)) {
        if (!soak() && random() % 8 != 0) continue;
        LogicalType type{DType::float32, fixed_shape({7, 13})};
        PlacedType from{type, &square, a}, to{type, meshes, b};
        auto& move = move_for(builtin_moves(), from, to);
        auto transport = make_inproc();
        Window window = bound_window(type.shape);
        Parts parts = split(from, window);
        auto types = hops_of(move, from, to);
        for (size_t h = 0; h + 1 < types.size(); ++h)
          parts = hop_over(*transport, uint32_t(h) << 16, types[h], types[h + 1], window, parts);
        EXPECT_EQ(fault_of(parts, to, window), "") << move.name << ": " << named(from, to);
        EXPECT_EQ(double(transport->bytes_sent()), cost_of(move, from, to).bytes) << named(from, to);
        transport->close();
      }
}

}  // namespace
}  // namespace sluice
