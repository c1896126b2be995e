#!/usr/bin/env bash
# Calls the compiler as cargo says, and has it optimise the library a little (`RUSTC_WORKSPACE_WRAPPER`).
#
# Tests wait most of the time for servers, which are this library. A profile of cargo would optimise the tests of the
# package too, each of which is executed once: that takes longer than it saves.
set -euo pipefail

case " $* " in
*" --test "*) exec "$@" ;;
*" --crate-name backstitch "*) exec "$@" -C opt-level=1 ;;
*) exec "$@" ;;
esac
