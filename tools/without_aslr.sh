#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command without address randomisation, where that is allowed: g++ 12's thread sanitizer does not start where
# the kernel randomises more than 28 bits.
# Libraries that are not instrumented (CAF's, among others) synchronise where the sanitizer cannot see it: what they do
# themselves is left out. Our own code, templates of theirs in it included, is not.
export TSAN_OPTIONS="ignore_noninstrumented_modules=1${TSAN_OPTIONS:+:$TSAN_OPTIONS}"
if setarch "$(uname -m)" -R true 2>/dev/null; then
  exec setarch "$(uname -m)" -R "$@"
fi
exec "$@"
