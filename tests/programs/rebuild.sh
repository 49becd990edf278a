#!/usr/bin/env bash
# Builds every module from modules/ and compares the results byte for byte with the files in built/. The two
# modules of the demo, which are part of the binary, are in src/sandbox/network/market/ instead. With --update,
# replaces the files, including built/manifest.json.
#
#   rebuild.sh [--update]
#
# Needs cargo, and a Rust compiler for wasm32v1-none and wasm32-unknown-unknown with either the source of
# its standard library (which is then built too, as for the files in built/) or the installed targets.
# Environment variables, all optional:
#   RUSTC             the compiler (default: rustc)
#   CARGO             cargo (default: cargo)
#   WASM_LD           the linker, when the compiler brings none (default: the compiler's own, else wasm-ld)
#   LD_LIBRARY_PATH   directory of the libraries of a compiler that was unpacked but not installed
#   CARGO_TARGET_DIR  build directory (default: modules/target)
#
# Exit code: 0 all files are identical, 1 a file differs or failed to build, 2 a required tool is missing.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
modules=$here/modules
built=$here/built
market=$here/../../src/sandbox/network/market
rustc=${RUSTC:-rustc}
cargo=${CARGO:-cargo}
target_dir=${CARGO_TARGET_DIR:-$modules/target}
newer_target=wasm32v1-none
older_target=wasm32-unknown-unknown

# Per line: module name, crate, features (- for none), target, optimisation level, compiler flags separated
# by : (- for none).
# Compilers up to 1.81 enabled only two WebAssembly extensions for the older target; these flags make newer
# compilers do the same.
as_before_182="-Ctarget-cpu=mvp:-Ctarget-feature=+mutable-globals,+sign-ext"
builds="
caller                caller          -           $newer_target z -
caller_program        caller          program     $newer_target z -
counter               counter         -           $newer_target z -
counter_diverging     counter_program diverging   $newer_target z -
counter_program       counter_program -           $newer_target z -
deposit               deposit         -           $newer_target z -
deposit_program       deposit         program     $newer_target z -
evolving              evolving        -           $newer_target z -
evolving_injected     evolving        injected    $newer_target z -
evolving_names        evolving        names       $newer_target z -
evolving_names_fast   evolving        names       $newer_target 3 -
evolving_same_column  evolving        same_column $newer_target z -
evolving_v1           evolving        v1          $newer_target z -
evolving_v2           evolving        v2          $newer_target z -
evolving_v3           evolving        v3          $newer_target z -
heavy                 heavy           -           $newer_target z -
heavy_program         heavy           program     $newer_target z -
inner                 inner           -           $newer_target z -
inner_program         inner           program     $newer_target z -
legacy                legacy          -           $older_target z $as_before_182
legacy_defaults       legacy          -           $older_target 3 -
legacy_proposals      legacy          proposals   $older_target z -
market                market          -           $newer_target z -
market_program        market          program     $newer_target z -
raw                   raw             -           $newer_target z -
types                 types           -           $newer_target z -
types_program         types           program     $newer_target z -
"

update=no
case "${1:-}" in
    '') ;;
    --update) update=yes ;;
    *)
        echo "usage: $0 [--update]" >&2
        exit 2
        ;;
esac

missing() {
    echo "missing: $1" >&2
    cat >&2 <<'END'
The usual way:
    rustup target add wasm32v1-none wasm32-unknown-unknown
and, for the same bytes as in built/, a standard library that is built with them:
    rustup component add rust-src
Where no target can be downloaded, Debian's packages rustc-web, rust-web-src, libllvm22, lld-22,
libstd-rust-web-1.96 and libstd-rust-web-dev do, unpacked into a folder R with
    apt-get download PACKAGE… && for file in *.deb; do dpkg -x "$file" R; done
and then
    RUSTC=R/usr/bin/rustc LD_LIBRARY_PATH=R/usr/lib/x86_64-linux-gnu WASM_LD=R/usr/bin/wasm-ld-22 rebuild.sh
END
    exit 2
}

command -v "$cargo" >/dev/null || missing "cargo ($cargo)"
command -v sha256sum >/dev/null || missing "sha256sum"
version=$("$rustc" -vV) || missing "a Rust compiler ($rustc)"
# Cargo runs the compiler in other directories, so the path must be absolute.
rustc=$(realpath --no-symlinks "$(command -v "$rustc")")
sysroot=$("$rustc" --print sysroot)

library=$sysroot/lib/rustlib/src/rust/library
if [ -e "$library/core/src/lib.rs" ]; then
    standard_library="core and alloc, built from source"
    library=$(cd "$library" && pwd -P)
    build_std=(-Z build-std=core,alloc)
else
    standard_library="as installed"
    build_std=()
    for target in $newer_target $older_target; do
        ls "$sysroot/lib/rustlib/$target/lib/"libcore-*.rlib >/dev/null 2>&1 ||
            missing "the standard library for $target, or its source in $library"
    done
fi

host=$(sed -n 's/^host: //p' <<<"$version")
linker=$sysroot/lib/rustlib/$host/bin/rust-lld
if [ -n "${WASM_LD:-}" ] || [ ! -x "$linker" ]; then
    linker=$(command -v "${WASM_LD:-wasm-ld}") || missing "a linker for WebAssembly (wasm-ld; set WASM_LD)"
    linker=$(realpath --no-symlinks "$linker")
    export CARGO_TARGET_WASM32V1_NONE_LINKER=$linker
    export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=$linker
    linker_version=$("$linker" --version | head -n 1)
else
    linker_version=$("$linker" -flavor wasm --version | head -n 1)
fi

# Building the standard library and the assembly in `legacy` need unstable features of Rust.
export RUSTC=$rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$target_dir CARGO_TERM_COLOR=never
unset RUSTFLAGS CARGO_BUILD_RUSTFLAGS CARGO_BUILD_TARGET

# Separator of the compiler flags in CARGO_ENCODED_RUSTFLAGS (U+001F).
tab=$(printf '\037')
registry=${CARGO_HOME:-$HOME/.cargo}/registry/src
remap="--remap-path-prefix=$modules=/modules$tab--remap-path-prefix=$registry=/registry"
remap="$remap$tab--remap-path-prefix=$sysroot/lib/rustlib/src/rust=/rust"
remap="$remap$tab--remap-path-prefix=${library%/library}=/rust"

# Prints the version of a crate's dependency. The lock file names a version in the list of dependencies only
# when it has several versions of a package.
locked() {
    awk -v crate="$1" -v wanted="$2" '
        { gsub(/[",]/, "") }
        $1 == "name" { name = $3 }
        $1 == "version" { only[name] = $3 }
        name == crate && $1 == wanted { used = 1; version = $2 }
        END { if (used) print (version == "" ? only[wanted] : version) }' "$modules/Cargo.lock"
}

# Prints words separated by : (- for none) as a JSON array.
json_list() {
    [ "$1" = - ] && echo '[]' || echo "[\"${1//:/\", \"}\"]"
}

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
mkdir -p "$built"
failed=0
entries=
while read -r name crate features target level flags; do
    [ -n "$name" ] || continue
    extra=
    [ "$flags" = - ] || extra=$tab${flags//:/$tab}
    arguments=(build --release --quiet --locked --manifest-path "$modules/Cargo.toml" --target "$target"
        ${build_std[@]+"${build_std[@]}"} -p "$crate")
    [ "$features" = - ] || arguments+=(--features "$features")
    if ! CARGO_PROFILE_RELEASE_OPT_LEVEL=$level CARGO_ENCODED_RUSTFLAGS=$remap$extra "$cargo" "${arguments[@]}"; then
        echo "FAILED   $name"
        failed=1
        continue
    fi
    new=$fresh/$name.wasm
    case $name in
        market | market_program) kept=$market/$name.wasm ;;
        *) kept=$built/$name.wasm ;;
    esac
    cp "$target_dir/$target/release/$crate.wasm" "$new"
    for path in "$modules" "$registry" "$sysroot" "${library%/library}" "$HOME/" /modules/ /registry/ /rust/; do
        if LC_ALL=C grep -qaF -- "$path" "$new"; then
            echo "PATH     $name: the module names $path"
            failed=1
        fi
    done
    sha=$(sha256sum "$new" | cut -d ' ' -f 1)
    retroshade=$(locked "$crate" retroshade-sdk)
    # Without their feature, these crates do not link the optional dependency retroshade-sdk.
    case $name in caller | deposit | evolving | heavy | inner | market | types) retroshade= ;; esac
    entries="$entries${entries:+,
}    {
      \"name\": \"$name\",
      \"crate\": \"$crate\",
      \"features\": $(json_list "$features"),
      \"target\": \"$target\",
      \"opt_level\": \"$level\",
      \"flags\": $(json_list "$flags"),
      \"soroban_sdk\": \"$(locked "$crate" soroban-sdk)\",
      \"retroshade_sdk\": $([ -n "$retroshade" ] && echo "\"$retroshade\"" || echo null),
      \"bytes\": $(stat -c %s "$new"),
      \"sha256\": \"$sha\"
    }"
    if [ $update = yes ]; then
        install -m 644 "$new" "$kept"
        echo "written  $name"
    elif [ ! -e "$kept" ]; then
        echo "ABSENT   $name: no $kept"
        failed=1
    elif cmp -s "$new" "$kept"; then
        echo "same     $name"
    else
        echo "DIFFERS  $name: $(cmp "$new" "$kept" 2>&1 | sed 's/.* differ: //' || true)"
        failed=1
    fi
done <<<"$builds"

manifest() {
    cat <<END
{
  "built_with": {
    "rustc": "$(head -n 1 <<<"$version")",
    "cargo": "$("$cargo" --version)",
    "linker": "$linker_version",
    "standard_library": "$standard_library"
  },
  "modules": [
$entries
  ]
}
END
}

manifest >"$fresh/manifest.json"
if [ $update = yes ]; then
    [ $failed = 0 ] && install -m 644 "$fresh/manifest.json" "$built/manifest.json"
elif ! cmp -s "$fresh/manifest.json" "$built/manifest.json"; then
    echo "DIFFERS  manifest.json:"
    diff "$built/manifest.json" "$fresh/manifest.json" || true
    failed=1
fi
if [ $failed = 1 ] && [ $update = no ]; then
    echo "Another compiler, linker or cargo than those in built/manifest.json makes other bytes of the same sources." >&2
fi
exit $failed
