//! Names for what belongs to one test.

use std::thread;

use uuid::Uuid;

/// Says whose it is and is like no other. Test threads bear the names of their tests; 63 bytes are all that
/// Postgres keeps of a name.
pub(crate) fn of_test() -> String {
    let thread = thread::current();
    let test = thread.name().and_then(|name| name.rsplit("::").next()).unwrap_or("unnamed").to_lowercase();
    let test: String = test.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(50).collect();
    format!("t_{test}_{}", random())
}

pub(crate) fn random() -> String {
    Uuid::new_v4().simple().to_string()[..8].to_owned()
}
