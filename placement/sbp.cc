// SPDX-License-Identifier: Apache-2.0
#include "placement/sbp.h"

#include "base/error.h"

namespace sluice {

std::string text_of(Sbp sbp) {
  switch (sbp.kind) {
    case Sbp::S: return "S(" + std::to_string(sbp.dim) + ")";
    case Sbp::B: return "B";
    case Sbp::P: return "P";
    case Sbp::Pmax: return "P(max)";
    case Sbp::Pmin: return "P(min)";
  }
  return "?";
}

std::string text_of(const NdSbp& nd) {
  std::string text = "(";
  for (size_t a = 0; a < nd.size(); ++a) text += (a ? "," : "") + text_of(nd[a]);
  return text + ")";
}

Sbp parse_sbp(std::string_view text) {
  if (text == "B") return Sbp::broadcast();
  if (text == "P" || text == "P(sum)") return Sbp::partial();
  if (text == "P(max)") return {Sbp::Pmax, -1};
  if (text == "P(min)") return {Sbp::Pmin, -1};
  // A dim is one digit: there are at most eight.
  if (text.size() == 4 && text.substr(0, 2) == "S(" && text[3] == ')' && text[2] >= '0' && text[2] < '0' + rank_max)
    return Sbp::split(text[2] - '0');
  throw Error(Code::value, "'" + std::string(text) + "' is no SBP", {}, "write S(dim), B or P");
}

NdSbp parse_nd_sbp(std::string_view text) {
  if (text.size() < 2 || text.front() != '(' || text.back() != ')')
    throw Error(Code::value, "'" + std::string(text) + "' is no list of SBPs", {}, "write (S(0),B)");
  NdSbp nd;
  text = text.substr(1, text.size() - 2);
  for (size_t depth = 0, begin = 0, i = 0; i <= text.size() && !text.empty(); ++i) {
    if (i < text.size() && text[i] == '(') ++depth;
    if (i < text.size() && text[i] == ')' && depth > 0) --depth;
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      nd.push_back(parse_sbp(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  return nd;
}

Box local_box(const Shape& shape, const NdSbp& sbp, const Mesh& mesh, const std::vector<int>& coords,
              const Window& window) {
  Box box;
  for (auto& dim : shape)
    box.dims.push_back({0, dim.sym == fixed_sym ? dim.size : dim.granule * window.valid[size_t(dim.sym)].size});
  for (size_t a = 0; a < sbp.size(); ++a) {
    if (!sbp[a].is_split()) continue;
    auto& range = box.dims[size_t(sbp[a].dim)];
    int64_t granule = shape[size_t(sbp[a].dim)].granule;
    Range piece = piece_of(range.size / granule, mesh.axes[a].size, coords[a]);
    range = {range.begin + piece.begin * granule, piece.size * granule};
  }
  return box;
}

std::vector<int64_t> window_origin(const Shape& shape, const Window& window) {
  std::vector<int64_t> origin;
  for (auto& dim : shape)
    origin.push_back(dim.sym == fixed_sym ? 0 : dim.granule * window.valid[size_t(dim.sym)].begin);
  return origin;
}

std::vector<int64_t> local_bound(const Shape& shape, const NdSbp& sbp, const Mesh& mesh) {
  std::vector<int64_t> bound = sizes_of(shape);
  for (size_t a = 0; a < sbp.size(); ++a)
    if (sbp[a].is_split()) {
      auto d = size_t(sbp[a].dim);
      bound[d] = piece_bound(bound[d] / shape[d].granule, mesh.axes[a].size) * shape[d].granule;
    }
  return bound;
}

}  // namespace sluice
