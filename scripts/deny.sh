#!/usr/bin/env bash
# The crates that are built: their licences, where they come from, which may not come twice (`deny.toml`), and known
# advisories, where their database can be reached (in CI it has to be). And that no package of ours leaves out the lints
# that forbid `unsafe`.
set -euo pipefail
cd "$(dirname "$0")/.."

for manifest in Cargo.toml */Cargo.toml */*/Cargo.toml; do
    if ! grep -A1 --line-regexp --fixed-strings '[lints]' "$manifest" | grep --quiet '^workspace = true$'; then
        echo "$manifest does not inherit the workspace's lints: [lints] workspace = true" >&2
        exit 1
    fi
done

command -v cargo-deny >/dev/null || cargo install cargo-deny --locked
checks=(licenses bans sources)
if timeout 20 git ls-remote --quiet https://github.com/rustsec/advisory-db HEAD >/dev/null 2>&1; then
    checks+=(advisories)
else
    echo "the database of advisories cannot be reached: these are left out" >&2
    [ -z "${CI:-}" ] || exit 1
fi
cargo deny --all-features check "${checks[@]}"
