#!/usr/bin/env bash
# The address of the repository, which stands in one place: `repository` in `[workspace.package]` of Cargo.toml, with the same
# `homepage`. Until it is known, these lines are absent, and links of the READMEs are relative. A package page shows none of what
# these lead to.
#
#   scripts/repository.sh https://github.com/OWNER/NAME   sets it: in Cargo.toml, in the published packages, their READMEs' links and
#                                                         pictures, and the changelog's links; also changes it later
#   scripts/repository.sh --check                         fails while it is not set, or where one of these has no or another address
set -euo pipefail
cd "${REPOSITORY_ROOT:-$(dirname "$0")/..}"

published=(Cargo.toml derive/Cargo.toml cli/Cargo.toml)
readmes=(README.md cli/README.md)
is_address='^https://github\.com/[A-Za-z0-9-]+/[A-Za-z0-9._-]+$'
# A target without a scheme, which is no anchor.
relative='\]\([^):#][^):]*\)'

current=$(sed -n '/^\[workspace\.package\]/,/^\[/ s/^repository = "\(.*\)"$/\1/p' Cargo.toml)

check() {
    local failures=0 file field link
    fail() { echo "$1" >&2 && failures=1; }
    if [[ ! $current =~ $is_address ]]; then
        echo "the repository's address is not set: scripts/repository.sh https://github.com/OWNER/NAME" >&2
        return 1
    fi
    grep -qxF "homepage = \"$current\"" Cargo.toml || fail "Cargo.toml lacks \`homepage = \"$current\"\`"
    for file in "${published[@]}"; do
        for field in repository homepage; do
            grep -qx "$field.workspace = true" "$file" || fail "$file lacks \`$field.workspace = true\`"
        done
    done
    for file in "${readmes[@]}"; do
        while read -r link; do
            fail "$file has a relative link, which a package page cannot follow: $link"
        done < <(grep -oE "$relative" "$file")
    done
    while IFS=: read -r file link; do
        fail "$file links to another repository: $link"
    done < <(grep -oHE '\]\(https://github\.com/[^)]*/(blob|raw|tree)/HEAD/[^)]*\)' "${readmes[@]}" | grep -vF "]($current/")
    grep -qF "[Unreleased]: $current/" CHANGELOG.md || fail "CHANGELOG.md lacks the link [Unreleased]: $current/…"
    [ "$failures" = 0 ] || echo "set it again: scripts/repository.sh $current" >&2
    return "$failures"
}

set_to() {
    local new=$1 file field folder
    if [[ ! $new =~ $is_address ]]; then
        echo "$new is not of the form https://github.com/OWNER/NAME" >&2
        return 2
    fi
    sed -i '/^\[workspace\.package\]/,/^\[/ { /^repository = /d; /^homepage = /d }' Cargo.toml
    sed -i "s|^\[workspace\.package\]$|&\nrepository = \"$new\"\nhomepage = \"$new\"|" Cargo.toml
    for file in "${published[@]}"; do
        for field in homepage repository; do
            grep -qx "$field.workspace = true" "$file" || sed -i "s/^license\.workspace = true$/&\n$field.workspace = true/" "$file"
        done
    done
    for file in "${readmes[@]}"; do
        folder=$(dirname "$file")/
        folder=${folder#./}
        [ -z "$current" ] || sed -i "s|\]($current/|]($new/|g" "$file"
        # Pictures first: what is left without a scheme then is a link.
        sed -i -E -e "s~(!\[[^]]*\]\()([^):#][^):]*\))~\1$new/raw/HEAD/$folder\2~g" \
            -e "s~(\]\()([^):#][^):]*\))~\1$new/blob/HEAD/$folder\2~g" "$file"
    done
    if [ -n "$current" ]; then
        sed -i -E "/^\[[^]]+\]: /s|$current/|$new/|" CHANGELOG.md
    else
        printf '\n[Unreleased]: %s/commits/HEAD\n' "$new" >>CHANGELOG.md
    fi
}

case ${1:-} in
--check) check ;;
https://*) set_to "$1" ;;
*)
    echo "usage: scripts/repository.sh --check | https://github.com/OWNER/NAME" >&2
    exit 2
    ;;
esac
