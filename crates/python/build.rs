//! Lists the files of the Python SDK, which the binary carries: a worker never speaks another version than its runner.

use std::path::Path;
use std::{env, fs};

fn main() {
    let manifest = env::var("CARGO_MANIFEST_DIR").expect("cargo names the folder of the crate");
    let sdk = Path::new(&manifest).join("../../python/src/vitrina");
    println!("cargo::rerun-if-changed={}", sdk.display());
    let mut files: Vec<_> =
        fs::read_dir(&sdk).expect("the SDK is there").filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "py"));
    files.sort();
    let line = |path: &std::path::PathBuf| {
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        format!("    ({name:?}, include_str!({path:?})),\n")
    };
    let lines: String = files.iter().map(line).collect();
    let out = Path::new(&env::var("OUT_DIR").expect("cargo names it")).join("sdk.rs");
    fs::write(out, format!("&[\n{lines}]")).expect("the folder for built files can be written");
}
