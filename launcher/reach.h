// SPDX-License-Identifier: Apache-2.0
// Which coordinator is meant, and with which secret: what was said, else SLUICE_CLUSTER and SLUICE_SECRET_FILE.
// Thread rule: pure functions, but for the environment and the file.
#pragma once
#include <string>

#include "launcher/cluster/cluster.h"

namespace sluice {

// "": from the environment. Throws Error(usage) that says what is missing.
Credentials credentials_of(const std::string& address, const std::string& secret_file);
// Writes a new secret for our user's eyes only; throws Error(usage) where the file is there already.
void write_secret(const Secret& secret, const std::string& path);

}  // namespace sluice
