//! Says how the released binary is linked.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|it| it == value);
    // The tables of virtual functions of the C++ libraries are relocated at start. Packed (DT_RELR,
    // glibc 2.36), their list takes a few dozen kilobytes instead of 5 MB. Rust links with LLD on
    // x86-64, which knows this option; GNU ld on other machines may not.
    if is("PROFILE", "release")
        && is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
    {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
