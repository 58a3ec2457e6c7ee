#!/usr/bin/env bash
# The Galera tests with MariaDB 11.8, which Debian trixie has. The server runs in a root made by debootstrap, on the same files as
# elsewhere. Run as root.
#
#   scripts/test-galera-11.sh [ARGUMENTS OF THE TESTS]
set -euo pipefail
cd "$(dirname "$0")/.."

mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
root=$(mktemp -d "${TMPDIR:-/tmp}/diesel-sharded-galera.XXXXXX")
chmod 755 "$root"
clean_up() {
    for folder in proc dev tmp; do
        ! mountpoint -q "$root/$folder" || umount -R "$root/$folder" || return # what is mounted is not removed
    done
    rm -rf "$root"
}
trap clean_up EXIT

command -v debootstrap >/dev/null || { echo "install debootstrap first: apt-get install debootstrap" >&2; exit 1; }
debootstrap --variant=minbase trixie "$root" "$mirror"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"
for folder in proc dev tmp; do
    mount --rbind --make-rslave "/$folder" "$root/$folder"
done
# The server's files belong to the user of this machine's own packages.
chroot "$root" groupadd --system --gid "$(id -g mysql)" mysql
chroot "$root" useradd --system --uid "$(id -u mysql)" --gid mysql mysql
chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends mariadb-server galera-4 rsync
echo "127.0.0.1 localhost $(hostname)" >"$root/etc/hosts"

# The tests start the programs of their PATH, some as the server's user.
mkdir "$root/programs"
for program in mariadbd mariadb-install-db; do
    cat >"$root/programs/$program" <<WRAPPER
#!/bin/sh
[ "\$(id -u)" = 0 ] && exec chroot "$root" /usr/bin/env PATH=/usr/sbin:/usr/bin:/sbin:/bin $program "\$@"
exec unshare --user --map-current-user --keep-caps chroot "$root" /usr/bin/env PATH=/usr/sbin:/usr/bin:/sbin:/bin $program "\$@"
WRAPPER
    chmod +x "$root/programs/$program"
done
PATH=$root/programs:$PATH scripts/test.sh --all --test clusters galera -- --include-ignored --nocapture --test-threads 1 "$@"
