#!/bin/sh
# Installs Orrery from its released files, or removes it:
#
#   install.sh [--from DIRECTORY|URL] [--prefix DIRECTORY] [--key FILE] [--downgrade]
#   install.sh --remove [--prefix DIRECTORY]
#
#   --from    where the released files are (default: the directory of this script)
#   --prefix  where to install to (default: /usr/local); the program is then PREFIX/bin/orrery
#   --downgrade
#             install the files also if a newer version is installed. An older one has a valid signature, too, and may have
#             faults that are known by now, so a mirror must not be able to bring it back
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
usage() { fail "$1; usage: install.sh [--from DIRECTORY|URL] [--prefix DIRECTORY] [--key FILE] [--downgrade] | --remove [--prefix DIRECTORY]"; }
# Runs a command and keeps what it says, in a variable because the disk may be full.
try() { said=$("$@" 2>&1); }
reason() { # the cause among the lines that the command said, which is the last, unless tar went on after it
    case $said in
        *"No space left on device"*) echo "No space left on device" ;;
        *) echo "$said" | tail -n 1 | sed 's/^[a-z]*: //' ;;
    esac
}

from='' prefix=/usr/local key='' remove='' downgrade=''
while [ $# -gt 0 ]; do
    case $1 in
        --from | --prefix | --key)
            [ $# -ge 2 ] && [ -n "$2" ] || usage "$1 needs a value"
            case $1 in --from) from=$2 ;; --prefix) prefix=$2 ;; --key) key=$2 ;; esac
            shift 2 ;;
        --remove) remove=yes; shift ;;
        --downgrade) downgrade=yes; shift ;;
        --help | -h) echo "usage: install.sh [--from DIRECTORY|URL] [--prefix DIRECTORY] [--key FILE] [--downgrade] | --remove [--prefix DIRECTORY]"; exit 0 ;;
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
remove_links() { # whose paths below the prefix are in $1
    for path in $1; do ! is_ours "$path" || rm -f "$prefix/$path"; done
}
listed() { # paths of the kind $1, link or directory, in the list of the installation
    [ ! -f "$target/installed" ] || sed -n "s/^$1 //p" "$target/installed"
}
remove_directories() { # whose paths below the prefix come on standard input, if they are empty
    # Outer ones last, and the prefix itself, which is ".", after all.
    sort -r | while read -r path; do
        case $path in '') ;; .) rmdir "$prefix" ;; *) rmdir "$prefix/$path" ;; esac 2>/dev/null || true
    done
}

if [ -n "$remove" ]; then
    [ -f "$target/installed" ] || fail "$prefix has no installation by install.sh: nothing to remove; name its --prefix"
    [ -w "$prefix/lib" ] && [ -w "$target" ] || fail "$prefix cannot be changed: run install.sh as the user who installed"
    made=$(listed directory)
    remove_links "$(listed link)"
    rm -rf "$target"
    echo "$made" | remove_directories
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
make_directories() { # up to $1 below the prefix; the prefix itself is .
    [ ! -d "$prefix/$1" ] || return 0
    case $1 in
        .) try mkdir "$prefix" || return ;;
        */*) make_directories "${1%/*}" && try mkdir "$prefix/$1" || return ;;
        *) make_directories . && try mkdir "$prefix/$1" || return ;;
    esac
    made="$made$1
"
}
[ -d "$prefix" ] || [ -d "$(dirname "$prefix")" ] || fail "$(dirname "$prefix") does not exist: create it, or choose another --prefix"

work='' added='' is_new='' is_done=''
clean() {
    # Puts back what was there before.
    if [ -z "$is_done" ]; then
        remove_links "$added"
        if [ -n "$work" ] && [ -d "$work/previous" ]; then
            rm -rf "$target"
            mv "$work/previous" "$target"
        elif [ -n "$is_new" ]; then
            rm -rf "$target"
        fi
    fi
    [ -z "$work" ] || rm -rf "$work"
    [ -n "$is_done" ] || echo "$made" | remove_directories
}
trap clean EXIT
trap 'exit 1' HUP INT TERM

make_directories lib && try mktemp -d "$prefix/lib/.orrery-XXXXXX" \
    || fail "cannot write to $prefix: $(reason); run install.sh as root, free disk space, or choose another --prefix such as \$HOME/.local"
work=$said

get() { # FILE, into $work
    case $from in
        http*)
            if have curl; then try curl -fsSL --retry 2 -o "$work/$1" "${from%/}/$1"
            else try wget -nv -O "$work/$1" "${from%/}/$1"; fi ;;
        *) try cp "$from/$1" "$work/$1" ;;
    esac || fail "$1 cannot be had from $from: $(reason)"
}
decode_key() {
    if [ -z "$key" ]; then
        echo "$key_text" | base64 -d >"$work/key"
    elif grep -q '^-----BEGIN PGP PUBLIC KEY BLOCK-----' "$key"; then
        # gpgv reads only the binary form. Between the empty line and the checksum there is base64.
        sed -e '1,/^[[:space:]]*$/d' -e '/^=/d' -e '/^-----/d' "$key" | base64 -d >"$work/key"
    else
        cp "$key" "$work/key"
    fi
}
verify() {
    case $verifier in
        gpgv) gpgv --keyring "$work/key" "$work/SHA256SUMS.sig" "$work/SHA256SUMS" ;;
        sqv) sqv --keyring "$work/key" "$work/SHA256SUMS.sig" "$work/SHA256SUMS" ;;
        gpg) mkdir -m 700 "$work/gpg" && gpg --batch --homedir "$work/gpg" --no-default-keyring --keyring "$work/key" \
            --trust-model always --verify "$work/SHA256SUMS.sig" "$work/SHA256SUMS" ;;
    esac
}

get SHA256SUMS
get SHA256SUMS.sig
try decode_key || fail "the key cannot be read: $(reason)"
try verify || fail "the signature of SHA256SUMS is not one of the expected key ($verifier: $(reason)): the files are damaged or not genuine; get them again from a place that you trust"

architecture=$(uname -m)
[ "$(uname -s)" = Linux ] || fail "this system is $(uname -s), and Orrery is released for Linux only"
tarball=$(sed -n "s/^[0-9a-f]\{64\}  \(orrery-[0-9A-Za-z.+-]*-linux-$architecture\.tar\.gz\)\$/\1/p" "$work/SHA256SUMS")
[ -n "$tarball" ] || fail "there is no tarball for $architecture, only for:$(sed -n 's/.*  orrery-.*-linux-\([^-]*\)\.tar\.gz$/ \1/p' "$work/SHA256SUMS" | tr -d '\n'); build Orrery from its source"
[ "$(echo "$tarball" | wc -l)" = 1 ] || fail "there are several tarballs for $architecture: let $from have one version only"
get "$tarball"
expected=$(sed -n "s/  $tarball\$//p" "$work/SHA256SUMS")
[ "$(sha256sum <"$work/$tarball")" = "$expected  -" ] || fail "$tarball is not the file that was signed, its SHA-256 sum differs: get it again"

mkdir "$work/tree"
try tar -xzf "$work/$tarball" --strip-components=1 --no-same-owner -C "$work/tree" \
    || fail "$tarball cannot be unpacked to $prefix/lib: $(reason); free disk space, or choose another --prefix"
rm "$work/$tarball"
try "$work/tree/bin/orrery" version || fail "the program does not run on this system: $(reason); it needs glibc and libstdc++ of Debian 12, Ubuntu 22.04 or newer"
version=$said

# A version before a release, such as 0.2.0-rc.1, is older than it.
is_older() { # version $1 than $2
    [ "$1" != "$2" ] && [ "$(printf '%s\n' "$1" "$2" | tr - '~' | sort -V | head -n 1)" = "$(echo "$1" | tr - '~')" ]
}
# One that does not run says nothing of its version, and is replaced.
if [ -z "$downgrade" ] && [ -f "$target/installed" ] && try "$target/bin/orrery" version && is_older "${version#orrery }" "${said#orrery }"; then
    fail "$said is installed, and $from has the older $version: get a newer one, or add --downgrade if you want the older"
fi

# A foreign file is not replaced.
links=$(links "$work/tree")
for path in $links; do
    [ ! -e "$prefix/$path" ] && [ ! -L "$prefix/$path" ] || is_ours "$path" || fail "$prefix/$path exists and was not installed by install.sh: remove it, or choose another --prefix"
done
[ ! -e "$target" ] || [ -f "$target/installed" ] || fail "$target exists and was not installed by install.sh: remove it, or choose another --prefix"

complain() { fail "cannot write to $prefix: $(reason); free disk space, or make it writable"; }
write_list() { printf '%s\n' "$list" >"$work/tree/installed"; }
for path in $links; do make_directories "$(dirname "$path")" || complain; done
# Directories that an earlier version made go with this one.
list=$(for path in $links; do echo "link $path"; done; for path in $(listed directory) $made; do echo "directory $path"; done | sort -u)
try write_list || complain

old=$(listed link)
if [ -d "$target" ]; then try mv "$target" "$work/previous" || complain; else is_new=yes; fi
try mv "$work/tree" "$target" || complain
for path in $links; do
    is_ours "$path" || { try ln -s "$(destination "$path")" "$prefix/$path" && added="$added $path"; } || complain
done
is_done=yes
for path in $old; do [ -L "$target/$path" ] || [ -e "$target/$path" ] || remove_links "$path"; done
echo "installed $version as $prefix/bin/orrery; install.sh --remove$([ "$prefix" = /usr/local ] || echo " --prefix $prefix") removes it"
case :$PATH: in *:"$prefix/bin":*) ;; *) echo "$prefix/bin is not in PATH: add it, or call $prefix/bin/orrery" ;; esac
