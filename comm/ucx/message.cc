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

namespace sluice {

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

uint32_t sum_of(const void* data, size_t bytes) { return uint32_t(XXH3_64bits(data, bytes)); }

uint32_t header_sum_of(const MessageHeader& header, const SlotWords* slot) {
  FirstHeader both{header, slot ? *slot : SlotWords{}};
  both.message.header_sum = 0;
  return sum_of(&both, slot ? sizeof both : sizeof both.message);
}

}  // namespace sluice
