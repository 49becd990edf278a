//! Runs a program's module under wasmtime inside the contract host.
