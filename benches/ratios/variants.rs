//! Choices of RocksDB's options that a bench compares, read from a file: one evening of measuring needs one
//! build.
//!
//! A line that begins with `#` is a comment. A line in brackets begins a variant and names it; each
//! further line is `database: OPTIONS` or `FAMILY, FAMILY: OPTIONS`, where `*` stands for all families,
//! and the options are in the syntax of RocksDB (`name=value;name=value`).

use std::error::Error;
use std::path::Path;

use orrery::store::Tuning;

/// A choice of options.
#[derive(Debug, Clone, Default)]
pub struct Variant {
    /// Its name; empty for the product's own choice.
    pub name: String,
    pub tuning: Tuning,
}

/// Reads the variants in a file; the product's own choice when there is no file.
pub fn read(file: Option<&Path>) -> Result<Vec<Variant>, Box<dyn Error>> {
    let Some(file) = file else { return Ok(vec![Variant::default()]) };
    let mut variants = Vec::<Variant>::new();
    let text = std::fs::read_to_string(file)?;
    let lines = text.lines().map(str::trim).enumerate();
    for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            variants.push(Variant { name: name.to_owned(), tuning: Tuning::default() });
            continue;
        }
        let at = format!("{}, line {}", file.display(), number + 1);
        let (names, options) = line.split_once(':').ok_or(format!("{at}: no ':' in it"))?;
        let variant = variants.last_mut();
        let tuning = &mut variant.ok_or(format!("{at}: no variant is named above it"))?.tuning;
        for name in names.split(',').map(str::trim) {
            let options = options.trim().to_owned();
            match name {
                "database" => tuning.database = options,
                _ => tuning.families.push((name.to_owned(), options)),
            }
        }
    }
    Ok(variants)
}
