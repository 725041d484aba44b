// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/message.h"

#ifdef __x86_64__
#include <xxh_x86dispatch.h>  // the widest vectors of this machine
#else
#include <xxhash.h>
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "base/error.h"

namespace sluice::ucx {

static_assert(std::endian::native == std::endian::little, "messages travel as they lie in memory");

SlotWords words_of(const SlotHeader& header) {
  SlotWords words{.step = header.step,
                  .sequence = header.sequence,
                  .bytes_valid = header.bytes_valid,
                  .micro_batch = header.micro_batch,
                  .micro_batches = header.micro_batches,
                  .epoch = header.epoch};
  std::copy(header.extent.begin(), header.extent.end(), words.extent);
  return words;
}

SlotHeader header_of(const SlotWords& words) {
  SlotHeader header{.step = words.step,
                    .micro_batch = words.micro_batch,
                    .micro_batches = words.micro_batches,
                    .sequence = words.sequence,
                    .bytes_valid = words.bytes_valid,
                    .epoch = words.epoch};
  std::copy(std::begin(words.extent), std::end(words.extent), header.extent.begin());
  return header;
}

namespace {

// An address: this, the process, what UCX gave.
constexpr char address_mark[8] = {'s', 'l', 'u', 'i', 'c', 'e', 'u', '1'};
constexpr size_t address_head = sizeof address_mark + 2 * sizeof(uint32_t);
constexpr size_t address_bytes_max = 4096;

}  // namespace

uint32_t sum_of(const void* data, size_t bytes) { return uint32_t(XXH3_64bits(data, bytes)); }

uint32_t header_sum_of(const MessageHeader& header, const SlotWords* slot) {
  FirstHeader both{header, slot ? *slot : SlotWords{}};
  both.message.header_sum = 0;
  return sum_of(&both, slot ? sizeof both : sizeof both.message);
}

std::string wrap_address(int process, const std::string& address) {
  uint32_t fields[2] = {uint32_t(process), sum_of(address.data(), address.size())};
  std::string text(address_mark, sizeof address_mark);
  text.append(reinterpret_cast<const char*>(fields), sizeof fields);
  return text + address;
}

std::string unwrap_address(int process, const std::string& text) {
  uint32_t fields[2] = {};
  if (text.size() > address_head) std::memcpy(fields, text.data() + sizeof address_mark, sizeof fields);
  if (text.size() <= address_head || text.size() > address_bytes_max ||
      std::memcmp(text.data(), address_mark, sizeof address_mark) != 0 || fields[0] != uint32_t(process) ||
      fields[1] != sum_of(text.data() + address_head, text.size() - address_head))
    throw Error(Code::value, "the address of process " + std::to_string(process) + " is none of its UCX transport");
  return text.substr(address_head);
}

}  // namespace sluice::ucx
