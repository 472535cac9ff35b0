//! Real search servers, of the packages that `scripts/search` fetches. Those that tests share are started when
//! the first asks and end with the run; a server of its own may be killed, frozen and started again.

mod calls;
pub(crate) mod directory;
mod distribution;
mod indexes;
mod installation;
mod node;
mod own;
mod server;

pub use directory::{SEARCH_DIRECTORY, ServerDirectory};
pub use distribution::Distribution;
pub use indexes::Indexes;
pub(crate) use node::{SCRIPT, create_directory};
pub use own::OwnSearchServer;
pub use server::SearchServer;
