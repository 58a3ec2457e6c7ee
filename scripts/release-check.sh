#!/usr/bin/env bash
# Checks a release, and lists all that is missing. The release workflow runs it on a tag.
#
#   scripts/release-check.sh vVERSION
set -uo pipefail
cd "$(dirname "$0")/.." || exit
tag=${1:?the tag, vVERSION}

failures=0
fail() { echo "$1" >&2 && failures=1; }

scripts/repository.sh --check || failures=1
version=$(sed -n '/^\[workspace\.package\]/,/^\[/ s/^version = "\(.*\)"$/\1/p' Cargo.toml)
[ "$tag" = "v$version" ] || fail "the tag is $tag, and Cargo.toml has the version $version"
grep -qE "^## \[$version\] - [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md ||
    fail "CHANGELOG.md has no section \`## [$version] - YYYY-MM-DD\`"
grep -q "^\[$version\]: " CHANGELOG.md || fail "CHANGELOG.md has no link \`[$version]: …\` at its end"
exit "$failures"
