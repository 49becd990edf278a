#!/bin/sh
# Installs Orrery from its released files, or removes it:
#
#   install.sh [--from DIRECTORY|URL] [--prefix DIRECTORY] [--key FILE]
#   install.sh --remove [--prefix DIRECTORY]
#
#   --from    where the released files are (default: the directory of this script)
#   --prefix  where to install to (default: /usr/local); the program is then PREFIX/bin/orrery
#   --key     the public OpenPGP key that must have signed the files (default: the one in this script, if it has one)
#
# Nothing is installed unless SHA256SUMS has a valid signature of that key and the tarball has the sum in it. Everything
# goes to PREFIX/lib/orrery; in PREFIX/bin and PREFIX/share there are only links to it. An installation that fails leaves
# what was there before.
#
# Needs gpgv, sqv or gpg, of which every Debian and Ubuntu has one, and curl or wget if the files are at a URL.
set -eu
umask 022
LC_ALL=C
export LC_ALL

# packaging/sums puts the public key here.
key_text=''

fail() { echo "install.sh: $*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }
usage() { fail "$1; usage: install.sh [--from DIRECTORY|URL] [--prefix DIRECTORY] [--key FILE] | --remove [--prefix DIRECTORY]"; }
# The last line that a command has printed, as the reason of its failure.
reason() { tail -n 1 "$1" | sed 's/^[a-z]*: //'; }

from='' prefix=/usr/local key='' remove=''
while [ $# -gt 0 ]; do
    case $1 in
        --from | --prefix | --key)
            [ $# -ge 2 ] && [ -n "$2" ] || usage "$1 needs a value"
            case $1 in --from) from=$2 ;; --prefix) prefix=$2 ;; --key) key=$2 ;; esac
            shift 2 ;;
        --remove) remove=yes; shift ;;
        *) usage "unknown argument $1" ;;
    esac
done
case $prefix in /*) ;; *) prefix=$(pwd)/$prefix ;; esac
prefix=${prefix%/}
target=$prefix/lib/orrery

# Links point to the target relatively, so that the prefix can be moved, or be inside a root that is entered later.
links() { # of the tree in $1, as paths below the prefix
    (cd "$1" && find bin share/man share/bash-completion share/zsh share/fish ! -type d | sort)
}
destination() { # of the link $1
    echo "$1" | sed 's|[^/]*$||; s|[^/]*/|../|g' | sed "s|\$|lib/orrery/$1|"
}
is_ours() { # whether $1 below the prefix is such a link
    [ "$(readlink "$prefix/$1" 2>/dev/null)" = "$(destination "$1")" ]
}
remove_links() { # that are listed in $1, and not in $2
    while read -r kind path; do
        if [ "$kind" = link ] && is_ours "$path" && ! grep -qxF "link $path" "$2"; then rm -f "$prefix/$path"; fi
    done <"$1"
}
# Directories are listed from the outside in.
remove_directories() { # that are listed in $1, and not in $2, if they are empty
    sed -n 's/^directory //p' "$1" | sort -r | while read -r path; do
        grep -qxF "directory $path" "$2" || rmdir "$prefix/$path" 2>/dev/null || true
    done
}

if [ -n "$remove" ]; then
    [ -f "$target/installed" ] || fail "$prefix has no installation by install.sh: nothing to remove; name its --prefix"
    [ -w "$prefix/lib" ] && [ -w "$target" ] || fail "$prefix cannot be changed: run install.sh as the user who installed"
    list=$(cat "$target/installed")
    remove_links "$target/installed" /dev/null
    rm -rf "$target"
    echo "$list" | sed -n 's/^directory //p' | sort -r | while read -r path; do rmdir "$prefix/$path" 2>/dev/null || true; done
    echo "removed from $prefix; data directories and settings are where they were"
    exit 0
fi

[ -n "$from" ] || from=$(cd "$(dirname "$0")" && pwd)
case $from in
    https://* | http://*)
        have curl || have wget || fail "curl and wget are missing: apt-get install curl, or download the files and name their directory with --from" ;;
    *) [ -d "$from" ] || fail "$from is not a directory: --from names the directory or URL of the released files" ;;
esac
verifier=''
for tool in gpgv sqv gpg; do have $tool && { verifier=$tool; break; }; done
[ -n "$verifier" ] || fail "no program to check signatures with is installed, so nothing was: apt-get install gpgv"
[ -z "$key" ] || [ -r "$key" ] || fail "the key $key cannot be read: --key names a file with a public OpenPGP key"
[ -n "$key$key_text" ] || fail "no key is known to check signatures with: name a file with the public key that signs releases, --key FILE"

# Directories that did not exist, and so go with the installation.
made=''
make_directories() { # as far as $1 below the prefix; the prefix itself is .
    for path in $(echo "$1" | awk -F/ '{ path = "."; print path; for (i = 1; i <= NF; i++) { path = (i == 1 ? $i : path "/" $i); print path } }'); do
        [ -d "$prefix/$path" ] || { mkdir "$prefix/$path" && made="$made$path
"; } || return 1
    done
}
[ -d "$prefix" ] || [ -d "$(dirname "$prefix")" ] || fail "$(dirname "$prefix") does not exist: create it, or choose another --prefix"

work='' stage=installing
clean() {
    [ -z "$work" ] || {
        if [ "$stage" = replacing ]; then
            # Puts back what was there before.
            remove_links "$work/new" "$work/old"
            rm -rf "$target"
            [ ! -d "$work/previous" ] || mv "$work/previous" "$target"
        fi
        rm -rf "$work"
    }
    if [ "$stage" != installed ]; then
        echo "$made" | sort -r | while read -r path; do [ -z "$path" ] || rmdir "$prefix/$path" 2>/dev/null || true; done
    fi
}
trap clean EXIT
trap 'exit 1' HUP INT TERM

make_directories lib 2>/dev/null && work=$(mktemp -d "$prefix/lib/.orrery-XXXXXX" 2>/dev/null) \
    || fail "cannot write to $prefix/lib: run install.sh as root, free disk space, or choose another --prefix such as \$HOME/.local"
log=$work/log

get() { # FILE, into $work
    case $from in
        http*)
            if have curl; then curl -fsSL --retry 2 -o "$work/$1" "${from%/}/$1" 2>"$log"
            else wget -q -O "$work/$1" "${from%/}/$1" 2>"$log"; fi ;;
        *) cp "$from/$1" "$work/$1" 2>"$log" ;;
    esac || fail "$1 cannot be had from $from: $(reason "$log")"
}

get SHA256SUMS
get SHA256SUMS.sig
if [ -z "$key" ]; then
    echo "$key_text" | base64 -d >"$work/key"
elif grep -q '^-----BEGIN PGP PUBLIC KEY BLOCK-----' "$key"; then
    # gpgv reads only the binary form. Between the empty line and the checksum there is base64.
    sed -e '1,/^[[:space:]]*$/d' -e '/^=/d' -e '/^-----/d' "$key" | base64 -d >"$work/key" 2>"$log" || fail "$key is no public OpenPGP key: $(reason "$log")"
else
    cp "$key" "$work/key"
fi
case $verifier in
    gpgv) gpgv --keyring "$work/key" "$work/SHA256SUMS.sig" "$work/SHA256SUMS" ;;
    sqv) sqv --keyring "$work/key" "$work/SHA256SUMS.sig" "$work/SHA256SUMS" ;;
    gpg) mkdir -m 700 "$work/gpg" && gpg --batch --homedir "$work/gpg" --no-default-keyring --keyring "$work/key" \
        --trust-model always --verify "$work/SHA256SUMS.sig" "$work/SHA256SUMS" ;;
esac >"$log" 2>&1 || fail "the signature of SHA256SUMS is not one of the expected key ($verifier: $(reason "$log")): the files are damaged or not genuine; get them again from a place that you trust"

architecture=$(uname -m)
[ "$(uname -s)" = Linux ] || fail "this system is $(uname -s), and Orrery is released for Linux only"
tarball=$(sed -n "s/^[0-9a-f]\{64\}  \(orrery-[0-9A-Za-z.+-]*-linux-$architecture\.tar\.gz\)\$/\1/p" "$work/SHA256SUMS")
[ -n "$tarball" ] || fail "there is no tarball for $architecture, only for:$(sed -n 's/.*  orrery-.*-linux-\([^-]*\)\.tar\.gz$/ \1/p' "$work/SHA256SUMS" | tr -d '\n'); build Orrery from its source"
[ "$(echo "$tarball" | wc -l)" = 1 ] || fail "there are several tarballs for $architecture: let $from have one version only"
get "$tarball"
(cd "$work" && grep -F "  $tarball" SHA256SUMS | sha256sum -c) >"$log" 2>&1 || fail "$tarball is not the file that was signed, its SHA-256 sum differs: get it again"

mkdir "$work/tree"
tar -xzf "$work/$tarball" --strip-components=1 --no-same-owner -C "$work/tree" 2>"$log" \
    || fail "$tarball cannot be unpacked to $prefix/lib: $(sed -n '1s/^[a-z]*: //p' "$log"); free disk space, or choose another --prefix"
rm "$work/$tarball"
"$work/tree/bin/orrery" version >"$work/version" 2>"$log" || fail "the program does not run on this system: $(reason "$log"); it needs glibc and libstdc++ of Debian 12, Ubuntu 22.04 or newer"

# A foreign file is not replaced.
links "$work/tree" >"$work/links"
while read -r path; do
    [ ! -e "$prefix/$path" ] && [ ! -L "$prefix/$path" ] || is_ours "$path" || fail "$prefix/$path exists and was not installed by install.sh: remove it, or choose another --prefix"
done <"$work/links"
[ ! -e "$target" ] || [ -f "$target/installed" ] || fail "$target exists and was not installed by install.sh: remove it, or choose another --prefix"

sed 's/^/link /' "$work/links" >"$work/new"
: >"$work/old"
[ ! -f "$target/installed" ] || cp "$target/installed" "$work/old"
complain() { fail "cannot write to $prefix: $(reason "$log"); free disk space, or make it writable"; }
while read -r path; do make_directories "$(dirname "$path")" 2>"$log" || complain; done <"$work/links"
{ cat "$work/new"; { sed -n 's/^directory //p' "$work/old"; echo "$made" | sed '/^$/d'; } | sort -u | sed 's/^/directory /'; } >"$work/tree/installed" 2>"$log" || complain

stage=replacing
[ ! -d "$target" ] || mv "$target" "$work/previous" 2>"$log" || complain
mv "$work/tree" "$target" 2>"$log" || complain
while read -r path; do
    is_ours "$path" || ln -s "$(destination "$path")" "$prefix/$path" 2>"$log" || complain
done <"$work/links"
stage=installed
remove_links "$work/old" "$target/installed"
remove_directories "$work/old" "$target/installed"
echo "installed $(head -n 1 "$work/version") as $prefix/bin/orrery; install.sh --remove$([ "$prefix" = /usr/local ] || echo " --prefix $prefix") removes it"
case :$PATH: in *:"$prefix/bin":*) ;; *) echo "$prefix/bin is not in PATH: add it, or call $prefix/bin/orrery" ;; esac
