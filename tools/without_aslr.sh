#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command without address randomisation, where that is allowed: g++ 12's thread sanitizer does not start where
# the kernel randomises more than 28 bits.
if setarch "$(uname -m)" -R true 2>/dev/null; then
  exec setarch "$(uname -m)" -R "$@"
fi
exec "$@"
