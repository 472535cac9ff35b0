//! Embeds the web UI: every file of `ui/dist`, with its gzip twin where it has one. `scripts/ui build` makes them; without
//! it the list is empty, and `/ui/` says so.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ui/dist");
    println!("cargo:rerun-if-changed={}", dist.display());
    let mut paths = Vec::new();
    files(&dist, &mut paths);
    paths.sort();
    let mut list = String::from("&[\n");
    for path in paths.iter().filter(|path| !is_twin(path)) {
        let name = path.strip_prefix(&dist).expect("it was found there").display().to_string();
        let twin = PathBuf::from(format!("{}.gz", path.display()));
        let gzip = if twin.exists() { format!("Some(include_bytes!({twin:?}))") } else { "None".to_owned() };
        let _ =
            writeln!(list, "    File {{ name: {name:?}, plain: include_bytes!({path:?}), gzip: {gzip} }},");
    }
    list.push(']');
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names it"));
    fs::write(out.join("ui.rs"), list).expect("cargo's own folder can be written");
}

/// Names with a dot in front are the repository's, not the UI's.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

fn is_twin(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "gz")
}
