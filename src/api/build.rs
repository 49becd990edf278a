//! Converts the description of the API to JSON.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("openapi.json"), description()?)?;
    Ok(())
}

/// Returns the description of the API as JSON.
fn description() -> Result<Vec<u8>, Box<dyn Error>> {
    const YAML: &str = "../../schema/openapi.yaml";
    println!("cargo::rerun-if-changed={YAML}");
    let description: serde_yaml_ng::Value = serde_yaml_ng::from_str(&fs::read_to_string(YAML)?)?;
    Ok(serde_json::to_vec(&description)?)
}
